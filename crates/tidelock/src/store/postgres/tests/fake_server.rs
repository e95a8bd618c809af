//! A server for unit tests: it speaks the protocol, and has no database. All of it runs on the runtime of the test.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use crate::engine::runtime::sync::Mutex;
use crate::store::postgres::tests::LIMIT;
use crate::store::postgres::tests::wire::{BoundStatement, ServerAnswer, encoded, message};

/// The sending half of a connection. The test may send on it too.
type ServerSender = Arc<tokio::sync::Mutex<OwnedWriteHalf>>;

/// Sends a message of the server.
async fn say(to: &mut DuplexStream, letter: u8, body: &[u8]) {
    to.write_all(&message(letter, body)).await.unwrap();
}

/// The next message of the client: its letter, and its body. The first has no letter.
async fn hear(from: &mut (impl AsyncRead + Unpin), has_letter: bool) -> Option<(u8, Vec<u8>)> {
    let letter = if has_letter {
        from.read_u8().await.ok()?
    } else {
        0
    };
    let length = from.read_u32().await.ok()? - 4;
    let mut body = vec![0; usize::try_from(length).unwrap()];
    from.read_exact(&mut body).await.ok()?;
    Some((letter, body))
}

/// The text of a message.
fn text_of(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    text.trim_end_matches('\0').to_owned()
}

/// Answers each `EXECUTE` with an error, and each other text with nothing. Returns what it was asked. `error`: the fields
/// of the message.
pub(crate) async fn refusing(mut client: DuplexStream, error: &str) -> Vec<String> {
    let mut asked = Vec::new();
    hear(&mut client, false).await;
    say(&mut client, b'R', &[0, 0, 0, 0]).await;
    say(&mut client, b'Z', b"I").await;
    while let Some((letter, body)) = hear(&mut client, true).await {
        if letter != b'Q' {
            // Of a statement without a name, and of the end.
            asked.push(char::from(letter).to_string());
            continue;
        }
        let text = text_of(&body);
        if text.contains("EXECUTE") {
            say(&mut client, b'E', error.as_bytes()).await;
        } else {
            say(&mut client, b'C', b"PREPARE\0").await;
        }
        say(&mut client, b'Z', b"I").await;
        let words = text.split("; ").filter_map(|text| text.split(' ').next());
        asked.push(words.collect::<Vec<_>>().join(" "));
    }
    asked
}

/// A server on loopback that answers as a test says. It ends when this is dropped.
pub(crate) struct ScriptedDatabase {
    pub(crate) port: u16,
    script: Arc<DatabaseScript>,
    task: JoinHandle<()>,
}

/// A request of a client.
#[derive(Debug, Clone)]
pub(crate) struct ServerRequest {
    /// The number of the connection.
    pub(crate) connection: usize,
    /// The statement. Of one with a name, the text that the name stands for.
    pub(crate) text: String,
    /// Its values. Those of a statement with a name are one text.
    pub(crate) params: Vec<String>,
    is_usual: bool,
}

#[derive(Default)]
struct DatabaseScript {
    /// A part of a request, and the answers to requests with that part.
    rules: Mutex<Vec<(String, VecDeque<ServerAnswer>)>>,
    /// The answers to all other requests, in the order of these.
    answers: Mutex<VecDeque<ServerAnswer>>,
    requests: Mutex<Vec<ServerRequest>>,
    /// How many of the requests the test has seen.
    seen: Mutex<usize>,
    /// Notified at each request.
    news: Notify,
    /// Those of the connections that listen.
    listening: Mutex<Vec<ServerSender>>,
    asks_for_password: AtomicBool,
    delivers_nothing: AtomicBool,
}

impl ScriptedDatabase {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = Arc::<DatabaseScript>::default();
        let own = Arc::clone(&script);
        let task = tokio::spawn(async move {
            let mut peers = JoinSet::new();
            for connection in 0.. {
                let Ok((peer, _)) = listener.accept().await else {
                    return;
                };
                // Otherwise each second message waits 40 ms until the client acknowledges the first one.
                peer.set_nodelay(true).unwrap();
                let script = Arc::clone(&own);
                peers.spawn(async move {
                    // `None`: the client has closed the connection.
                    let _ = script.serve(connection, peer).await;
                });
            }
        });
        Self { port, script, task }
    }

    /// The next requests that no rule is for, and that are not usual, get these answers.
    pub(crate) fn answers(&self, answers: impl IntoIterator<Item = ServerAnswer>) {
        self.script.answers.lock().extend(answers);
    }

    /// From now on requests with this part get these answers, one after the other, and then the last one again and again.
    /// Of several parts the first one counts.
    pub(crate) fn on(&self, part: &str, answers: impl IntoIterator<Item = ServerAnswer>) {
        let answers = answers.into_iter().collect();
        let mut rules = self.script.rules.lock();
        match rules.iter_mut().find(|(known, _)| known == part) {
            Some((_, before)) => *before = answers,
            None => rules.push((part.to_owned(), answers)),
        }
    }

    /// From now on it asks for a password.
    pub(crate) fn asks_for_password(&self) {
        self.script.asks_for_password.store(true, Ordering::SeqCst);
    }

    /// From now on nobody hears a notification, as behind a pooler.
    pub(crate) fn delivers_nothing(&self) {
        self.script.delivers_nothing.store(true, Ordering::SeqCst);
    }

    /// From now on notifications are heard again.
    pub(crate) fn delivers_again(&self) {
        self.script.delivers_nothing.store(false, Ordering::SeqCst);
    }

    /// The requests since the last call, without the usual ones.
    pub(crate) fn asked(&self) -> Vec<ServerRequest> {
        let mut seen = self.script.seen.lock();
        let requests = self.script.requests.lock();
        let new = requests[*seen..].iter().filter(|it| !it.is_usual);
        let new = new.cloned().collect();
        *seen = requests.len();
        new
    }

    /// The texts of [`asked`](Self::asked).
    pub(crate) fn texts(&self) -> Vec<String> {
        self.asked().into_iter().map(|it| it.text).collect()
    }

    /// All requests so far with this part.
    pub(crate) fn heard(&self, part: &str) -> Vec<ServerRequest> {
        let requests = self.script.requests.lock();
        let heard = requests.iter().filter(|it| has_part(&it.text, part));
        heard.cloned().collect()
    }

    /// Waits until it has heard so many requests with this part.
    pub(crate) async fn hears(&self, part: &str, count: usize) {
        let heard = async {
            loop {
                let news = self.script.news.notified();
                if self.heard(part).len() >= count {
                    return;
                }
                news.await;
            }
        };
        tokio::time::timeout(LIMIT, heard).await.expect("in time");
    }

    /// Sends a notification to those that listen.
    pub(crate) async fn tell(&self, said: &str) {
        self.script.tell(said).await;
    }

    /// Closes the connections that listen.
    pub(crate) async fn hangs_up_on_listeners(&self) {
        let listening = std::mem::take(&mut *self.script.listening.lock());
        for to in listening {
            to.lock().await.shutdown().await.unwrap();
        }
    }
}

impl Drop for ScriptedDatabase {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl DatabaseScript {
    async fn serve(&self, connection: usize, peer: TcpStream) -> Option<()> {
        let (mut from, to) = peer.into_split();
        let to: ServerSender = Arc::new(tokio::sync::Mutex::new(to));
        let (_, first) = hear(&mut from, false).await?;
        // The code of a request to cancel what another connection runs.
        if first.starts_with(&80_877_102_u32.to_be_bytes()) {
            self.note(connection, "CANCEL", Vec::new(), true);
            return None;
        }
        let startup = text_of(&first[4..]).replace('\0', " ");
        self.note(connection, &format!("STARTUP {startup}"), Vec::new(), true);
        if self.asks_for_password.load(Ordering::SeqCst) {
            send(&to, &message(b'R', &[0, 0, 0, 3])).await?;
            let (_, password) = hear(&mut from, true).await?;
            let told = format!("PASSWORD {}", text_of(&password));
            self.note(connection, &told, Vec::new(), true);
        }
        let greeting = [message(b'R', &[0; 4]), message(b'Z', b"I")];
        send(&to, &greeting.concat()).await?;
        let (mut names, mut bound) = (HashMap::new(), BoundStatement::default());
        loop {
            let (letter, body) = hear(&mut from, true).await?;
            let (text, params) = match letter {
                b'Q' => resolved(&mut names, &text_of(&body)),
                b'P' => {
                    bound = BoundStatement::parsed(&body);
                    continue;
                }
                b'B' => {
                    bound.bind(&body);
                    continue;
                }
                b'S' => (bound.text.clone(), bound.params.clone()),
                b'X' => {
                    self.note(connection, "TERMINATE", Vec::new(), true);
                    return None;
                }
                _ => continue,
            };
            if text.starts_with("LISTEN ") {
                self.listening.lock().push(Arc::clone(&to));
            }
            let notification = params.first().filter(|_| is_notification(&text)).cloned();
            match self.answer(connection, &text, params) {
                ServerAnswer::Silence => return std::future::pending().await,
                ServerAnswer::HangsUp => return to.lock().await.shutdown().await.ok(),
                answer => send(&to, &encoded(&answer, letter == b'S')).await?,
            }
            if let Some(said) = notification {
                self.tell(&said).await;
            }
        }
    }

    fn note(&self, connection: usize, text: &str, params: Vec<String>, is_usual: bool) {
        let text = text.to_owned();
        self.requests.lock().push(ServerRequest {
            connection,
            text,
            params,
            is_usual,
        });
        self.news.notify_waiters();
    }

    fn answer(&self, connection: usize, text: &str, params: Vec<String>) -> ServerAnswer {
        let (answer, is_usual) = match (self.by_rule(text), usual(text)) {
            (Some(answer), _) => (answer, false),
            (None, Some(answer)) => (answer, true),
            (None, None) => {
                let told = self.answers.lock().pop_front();
                (told.unwrap_or(ServerAnswer::Fails("XX000")), false)
            }
        };
        self.note(connection, text, params, is_usual);
        answer
    }

    fn by_rule(&self, text: &str) -> Option<ServerAnswer> {
        let mut rules = self.rules.lock();
        let (_, answers) = rules.iter_mut().find(|(part, _)| has_part(text, part))?;
        if answers.len() > 1 {
            answers.pop_front()
        } else {
            answers.front().cloned()
        }
    }

    async fn tell(&self, said: &str) {
        if self.delivers_nothing.load(Ordering::SeqCst) {
            return;
        }
        let from = 7_i32.to_be_bytes();
        let body = [&from[..], b"tidelock_locks\0", said.as_bytes(), b"\0"].concat();
        let listening = self.listening.lock().clone();
        for to in listening {
            // An error: the client has closed the connection.
            let _ = send(&to, &message(b'A', &body)).await;
        }
    }
}

async fn send(to: &ServerSender, bytes: &[u8]) -> Option<()> {
    to.lock().await.write_all(bytes).await.ok()
}

/// Whether a request has this part. What gives a statement its name is a request of its own.
fn has_part(text: &str, part: &str) -> bool {
    let gives_a_name = "PREPARE ";
    text.contains(part) && (part.starts_with(gives_a_name) || !text.starts_with(gives_a_name))
}

fn is_notification(text: &str) -> bool {
    text.starts_with("SELECT pg_notify(")
}

/// The answers of a server that has all tables, and nothing to sweep.
fn usual(text: &str) -> Option<ServerAnswer> {
    use crate::store::postgres::tests::wire::{NOTHING, big, flag, row, text as word};

    if text.is_empty() || text.starts_with("PREPARE ") {
        Some(NOTHING)
    } else if text.starts_with("LISTEN ") {
        Some(row([flag(true)]))
    } else if is_notification(text) {
        Some(row([word("")]))
    } else if text.starts_with("SELECT concat_ws(") {
        Some(row([word(""), word("")]))
    } else if text.starts_with("WITH old AS (DELETE FROM tidelock_locks_clients") {
        Some(row([big(0)]))
    } else {
        None
    }
}

/// The statement that a text runs, and its values. `names`: those that this session knows.
fn resolved(names: &mut HashMap<String, String>, text: &str) -> (String, Vec<String>) {
    let begins = ["PREPARE ", "DEALLOCATE ", "EXECUTE "];
    if !begins.iter().any(|word| text.starts_with(word)) {
        return (text.to_owned(), Vec::new());
    }
    let (before, executed) = text.split_once("EXECUTE ").unwrap_or((text, ""));
    if let Some((_, prepared)) = before.split_once("PREPARE ") {
        let (name, rest) = prepared.split_once(' ').unwrap();
        let (_, statement) = rest.split_once(" AS ").unwrap();
        let statement = statement.trim_end_matches("; ");
        names.insert(name.to_owned(), statement.to_owned());
    }
    let Some((name, values)) = executed.split_once('(') else {
        return (text.to_owned(), Vec::new());
    };
    let statement = names.get(name).cloned().unwrap_or_default();
    let values = values.strip_suffix(')').unwrap_or(values);
    (statement, vec![values.to_owned()])
}
