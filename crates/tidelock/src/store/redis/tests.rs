//! A scripted server, for tests of what the store asks and of what it makes of the replies. It speaks the protocol on
//! loopback and knows nothing of locks: the tests write its replies.

mod listening;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::str::Split;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::store::redis::connect;
use crate::store::redis::wire::script::Script;
use crate::store::{
    AttemptRequest, Background, Clock, Env, LockKind, Name, ReplicaAck, Store, Ticket, Timers,
};
use crate::types::OwnerMint;

/// The response timeout of the stores.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// The lease of the stores and of their attempts.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// The answer to `INFO replication` of a primary with one replica.
pub(crate) const ONE_REPLICA: &str = "'role:master\r\nconnected_slaves:1\r\nslave0:ip=h,port=1,state=online,offset=1,lag=0\r\nmaster_replid:ab\r\n";

/// A server with the replies of a test. To other requests it replies as a server without replicas that allows everything.
pub(crate) struct ScriptedServer {
    pub(crate) port: u16,
    /// The replies to the requests that begin so, in their order. The last one stays.
    replies: Mutex<BTreeMap<String, VecDeque<String>>>,
    heard: Mutex<Vec<Vec<String>>>,
    connections: AtomicUsize,
}

impl ScriptedServer {
    /// Starts one. It ends with the runtime of the test.
    pub(crate) async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Arc::new(Self {
            port: listener.local_addr().unwrap().port(),
            replies: Mutex::default(),
            heard: Mutex::default(),
            connections: AtomicUsize::new(0),
        });
        let serving = Arc::clone(&server);
        tokio::spawn(async move {
            while let Ok((peer, _)) = listener.accept().await {
                let serving = Arc::clone(&serving);
                tokio::spawn(async move {
                    serving.connections.fetch_add(1, Ordering::SeqCst);
                    // It ends with the connection.
                    serving.serve(BufReader::new(peer)).await.ok();
                    serving.connections.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        server
    }

    /// How many connections are open.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// The store at this server.
    pub(crate) async fn store(&self) -> Store {
        self.store_at("redis").await
    }

    /// The store at a cluster in which this server has all slots.
    pub(crate) async fn cluster(&self) -> Store {
        self.store_at("redis+cluster").await
    }

    async fn store_at(&self, scheme: &str) -> Store {
        let (background, _stop) = Background::start(Clock::Simulated).unwrap();
        let timers = Timers::new(Clock::Simulated);
        background.spawn(timers.clone().drive());
        let env = Env {
            lease: LEASE,
            ..Env::of_limits(timers, background, LIMIT)
        };
        let url = format!("{scheme}://127.0.0.1:{}", self.port);
        connect(&url, &env).await.unwrap()
    }

    /// Sets the reply to each request that begins so; see [`encoded`]. If several fit, the longest beginning counts.
    pub(crate) fn on(&self, request: &str, reply: &str) {
        self.in_turn(request, &[reply]);
    }

    /// As [`on`](Self::on), for a script that is called by its hash.
    pub(crate) fn on_script(&self, script: &Script, reply: &str) {
        self.on(&format!("EVALSHA {}", script.sha()), reply);
    }

    /// Sets the replies to the requests that begin so, one after the other. The last one stays.
    pub(crate) fn in_turn(&self, request: &str, replies: &[&str]) {
        let each = replies.iter().map(|reply| (*reply).to_owned()).collect();
        self.replies
            .lock()
            .unwrap()
            .insert(request.to_owned(), each);
    }

    /// The requests so far that begin so.
    pub(crate) fn heard(&self, start: &str) -> Vec<String> {
        let heard = self.heard.lock().unwrap();
        let all = heard.iter().map(|words| words.join(" "));
        all.filter(|request| request.starts_with(start)).collect()
    }

    /// The calls of a script so far, each as `KEYS | ARGV`. An empty word is shown as `-`.
    pub(crate) fn calls(&self, script: &Script) -> Vec<String> {
        let heard = self.heard.lock().unwrap();
        let calls = heard.iter().filter_map(|words| match words.as_slice() {
            [how, sha, count, rest @ ..] if how == "EVALSHA" && sha == script.sha() => {
                Some(rest.split_at(count.parse().unwrap()))
            }
            _ => None,
        });
        calls
            .map(|(keys, args)| format!("{} | {}", shown(keys), shown(args)))
            .collect()
    }

    async fn serve(&self, mut peer: BufReader<TcpStream>) -> io::Result<()> {
        loop {
            let words = request(&mut peer).await?;
            let told = self.told(&words.join(" "));
            let reply = told.map_or_else(|| self.usual(&words), |reply| encoded(&reply));
            self.heard.lock().unwrap().push(words);
            peer.write_all(reply.as_bytes()).await?;
        }
    }

    fn told(&self, request: &str) -> Option<String> {
        let mut replies = self.replies.lock().unwrap();
        let fit = replies.iter_mut();
        let fit = fit.filter(|(start, _)| request.starts_with(start.as_str()));
        let (_, each) = fit.max_by_key(|(start, _)| start.len())?;
        if each.len() > 1 {
            each.pop_front()
        } else {
            each.front().cloned()
        }
    }

    fn usual(&self, words: &[String]) -> String {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["HELLO", "3", ..] => "%1\r\n+proto\r\n:3\r\n".to_owned(),
            ["HELLO", ..] => encoded("-ERR unknown command 'HELLO'"),
            ["INFO", "replication"] => encoded("'role:master\r\nconnected_slaves:0\r\n"),
            ["CLUSTER", "SLOTS"] => {
                encoded(&format!("[ [ 0 16383 [ 127.0.0.1 {} id ] ] ]", self.port))
            }
            [
                command @ ("SUBSCRIBE" | "UNSUBSCRIBE" | "SSUBSCRIBE" | "SUNSUBSCRIBE"),
                channel,
            ] => {
                let command = command.to_lowercase();
                format!(">3\r\n{}{}:1\r\n", bulk(&command), bulk(channel))
            }
            _ => encoded("+OK"),
        }
    }
}

fn shown(words: &[String]) -> String {
    let words = words.iter().map(String::as_str);
    let words = words.map(|word| if word.is_empty() { "-" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// A reply in the protocol. `'text` is that text, and `+OK` and `-ERR no` are lines. Otherwise the words are values: numbers,
/// `nil`, texts, and lists between `[` and `]`. Among them `'7` is a text too, and `'` the empty one.
fn encoded(reply: &str) -> String {
    if let Some(text) = reply.strip_prefix('\'') {
        return bulk(text);
    }
    if reply.starts_with(['+', '-']) && reply.parse::<i64>().is_err() {
        return format!("{reply}\r\n");
    }
    let mut words = reply.split(' ');
    let first = words.next().unwrap_or_default();
    value(first, &mut words)
}

fn value(word: &str, rest: &mut Split<'_, char>) -> String {
    if word == "[" {
        let mut each = Vec::new();
        while let Some(word) = rest.next().filter(|word| *word != "]") {
            each.push(value(word, rest));
        }
        return format!("*{}\r\n{}", each.len(), each.concat());
    }
    match (word, word.parse::<i64>()) {
        ("nil", _) => "$-1\r\n".to_owned(),
        (_, Ok(number)) => format!(":{number}\r\n"),
        _ => bulk(word.strip_prefix('\'').unwrap_or(word)),
    }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// The words of the next request.
async fn request(peer: &mut BufReader<TcpStream>) -> io::Result<Vec<String>> {
    let count = number(peer).await?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let mut word = vec![0; number(peer).await? + 2];
        peer.read_exact(&mut word).await?;
        word.truncate(word.len() - 2);
        words.push(String::from_utf8(word).unwrap());
    }
    Ok(words)
}

/// The number in the next line, behind its first character.
async fn number(peer: &mut BufReader<TcpStream>) -> io::Result<usize> {
    let mut line = String::new();
    if peer.read_line(&mut line).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line[1..].trim_end().parse().unwrap())
}

/// A ticket for the name `stock`, of a client of its own.
pub(crate) fn ticket(kind: LockKind) -> Ticket {
    Ticket {
        kind,
        name: Name::new("stock").unwrap(),
        owner: OwnerMint::new().fresh(),
    }
}

/// An attempt of a caller that does not wait.
pub(crate) fn ask(kind: LockKind) -> AttemptRequest {
    AttemptRequest::once(ticket(kind), LEASE, ReplicaAck::Off)
}

/// An attempt of a caller that waits.
pub(crate) fn patient(kind: LockKind) -> AttemptRequest {
    AttemptRequest {
        patience: LIMIT,
        ..ask(kind)
    }
}
