//! A server on loopback that answers as a test says, and what else the tests of all rooms share. All of it runs on the runtime
//! of the test, on tokio's clock.

pub(crate) mod replies;
pub(crate) mod values;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use crate::engine::runtime::sync::Mutex;
use crate::store::redis::address::HostAddress;
use crate::store::redis::wire::live_connection::peer::in_time;
use crate::store::redis::wire::script::Script;
use crate::store::redis::wire::tests::replies::{all_slots, encoded, text};
use crate::store::{Background, Clock, Timers};

/// The response timeout of the clients. No test waits for it in real time.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// In place of a reply: this request and all later ones of the connection are never answered.
pub(crate) const SILENCE: &str = "";

/// In place of a reply, or behind it: the server closes the connection.
pub(crate) const HANG_UP: &str = "\0";

/// A server. To what the test has not named it replies as one that allows everything, has no replicas, and has all slots of its
/// cluster. It ends when this is dropped.
pub(crate) struct ScriptedServer {
    pub(crate) port: u16,
    script: Arc<ServerScript>,
    task: JoinHandle<()>,
}

struct ServerScript {
    port: u16,
    /// The beginning of a request, and the replies to it.
    replies: Mutex<Vec<(String, VecDeque<String>)>>,
    /// The number of the connection, and the words of the request.
    requests: Mutex<Vec<(usize, Vec<String>)>>,
    /// Notified at each request.
    news: Notify,
    open_connections: AtomicUsize,
}

impl ScriptedServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = Arc::new(ServerScript {
            port,
            replies: Mutex::default(),
            requests: Mutex::default(),
            news: Notify::new(),
            open_connections: AtomicUsize::new(0),
        });
        let own = Arc::clone(&script);
        let task = tokio::spawn(async move {
            let mut peers = JoinSet::new();
            for connection in 0.. {
                let Ok((peer, _)) = listener.accept().await else {
                    return;
                };
                let script = Arc::clone(&own);
                peers.spawn(async move {
                    script.open_connections.fetch_add(1, Ordering::SeqCst);
                    // An error: the client has closed the connection.
                    let _ = script.serve(connection, BufReader::new(peer)).await;
                    script.open_connections.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { port, script, task }
    }

    pub(crate) fn address(&self) -> HostAddress {
        loopback(self.port)
    }

    /// From now on requests that begin so get these replies, one after the other, and then the last one again and again. Of several
    /// beginnings that fit, the longest one counts.
    pub(crate) fn answers(&self, request: &str, replies: &[&str]) {
        let replies = replies.iter().map(|&reply| reply.to_owned()).collect();
        let mut all = self.script.replies.lock();
        all.retain(|(known, _)| known != request);
        all.push((request.to_owned(), replies));
    }

    /// As [`answers`](Self::answers), with replies as [`encoded`] reads them.
    pub(crate) fn in_turn(&self, request: &str, replies: &[&str]) {
        let replies: Vec<String> = replies.iter().map(|reply| encoded(reply)).collect();
        let replies: Vec<&str> = replies.iter().map(String::as_str).collect();
        self.answers(request, &replies);
    }

    /// As [`in_turn`](Self::in_turn), with one reply to all of them.
    pub(crate) fn on(&self, request: &str, reply: &str) {
        self.in_turn(request, &[reply]);
    }

    /// As [`on`](Self::on), for a script that is called by its hash.
    pub(crate) fn on_script(&self, script: &Script, reply: &str) {
        self.on(&format!("EVALSHA {}", script.sha()), reply);
    }

    /// The requests so far that begin so.
    pub(crate) fn heard(&self, request: &str) -> Vec<String> {
        let heard = self.script.heard(request).into_iter();
        heard.map(|(_, text)| text).collect()
    }

    /// The numbers of the connections on which these requests came.
    pub(crate) fn connections(&self, request: &str) -> Vec<usize> {
        let heard = self.script.heard(request).into_iter();
        heard.map(|(connection, _)| connection).collect()
    }

    /// Waits until it has heard so many of these requests.
    pub(crate) async fn hears(&self, request: &str, count: usize) {
        let heard = async {
            loop {
                let news = self.script.news.notified();
                if self.heard(request).len() >= count {
                    return;
                }
                news.await;
            }
        };
        in_time(heard).await;
    }

    /// The calls of a script so far, each as `KEYS | ARGV`. An empty word is shown as `-`.
    pub(crate) fn calls(&self, script: &Script) -> Vec<String> {
        let requests = self.script.requests.lock();
        let calls = requests.iter().filter_map(|(_, words)| match &words[..] {
            [how, sha, count, rest @ ..] if how == "EVALSHA" && sha == script.sha() => {
                Some(rest.split_at(count.parse().unwrap()))
            }
            _ => None,
        });
        calls
            .map(|(keys, args)| format!("{} | {}", shown(keys), shown(args)))
            .collect()
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.script.open_connections.load(Ordering::SeqCst)
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ServerScript {
    async fn serve(&self, connection: usize, mut peer: BufReader<TcpStream>) -> io::Result<()> {
        loop {
            let words = request(&mut peer).await?;
            let told = self.told(&words.join(" "));
            let reply = told.unwrap_or_else(|| self.usual(&words));
            self.requests.lock().push((connection, words));
            self.news.notify_waiters();
            let (said, hangs_up) = match reply.strip_suffix(HANG_UP) {
                Some(said) => (said, true),
                None => (&*reply, false),
            };
            peer.write_all(said.as_bytes()).await?;
            if hangs_up {
                return Ok(());
            }
            if reply == SILENCE {
                return std::future::pending().await;
            }
        }
    }

    fn told(&self, request: &str) -> Option<String> {
        let mut all = self.replies.lock();
        let fit = all
            .iter_mut()
            .filter(|(start, _)| request.starts_with(start.as_str()));
        let (_, replies) = fit.max_by_key(|(start, _)| start.len())?;
        if replies.len() > 1 {
            replies.pop_front()
        } else {
            replies.front().cloned()
        }
    }

    fn usual(&self, words: &[String]) -> String {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match &words[..] {
            ["HELLO", "3", ..] => "%1\r\n+proto\r\n:3\r\n".to_owned(),
            ["HELLO", ..] => "-ERR unknown command 'HELLO'\r\n".to_owned(),
            ["INFO", "replication"] => text("role:master\r\nconnected_slaves:0\r\n"),
            ["CLUSTER", "SLOTS"] => all_slots(self.port, "id"),
            [
                command @ ("SUBSCRIBE" | "UNSUBSCRIBE" | "SSUBSCRIBE" | "SUNSUBSCRIBE"),
                channel,
            ] => {
                let confirmed = text(&command.to_lowercase());
                format!(">3\r\n{confirmed}{}:1\r\n", text(channel))
            }
            _ => "+OK\r\n".to_owned(),
        }
    }

    /// The requests so far that begin so, each with the number of its connection.
    fn heard(&self, request: &str) -> Vec<(usize, String)> {
        let requests = self.requests.lock();
        let texts = requests.iter().map(|(at, words)| (*at, words.join(" ")));
        texts
            .filter(|(_, text)| text.starts_with(request))
            .collect()
    }
}

fn shown(words: &[String]) -> String {
    let words = words.iter().map(String::as_str);
    let words = words.map(|word| if word.is_empty() { "-" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// The words of the next request.
async fn request(peer: &mut BufReader<TcpStream>) -> io::Result<Vec<String>> {
    let count = number(peer, '*').await?;
    let mut words = Vec::new();
    for _ in 0..count {
        let length = number(peer, '$').await?;
        let mut word = vec![0; length + 2];
        peer.read_exact(&mut word).await?;
        word.truncate(length);
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    Ok(words)
}

async fn number(peer: &mut BufReader<TcpStream>, kind: char) -> io::Result<usize> {
    let mut line = String::new();
    if peer.read_line(&mut line).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let number = line.trim_end().strip_prefix(kind);
    let number = number.and_then(|number| number.parse().ok());
    number.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

pub(crate) fn tcp(host: &str, port: u16, tls: bool) -> HostAddress {
    HostAddress::Tcp {
        host: host.to_owned(),
        port,
        tls,
    }
}

pub(crate) fn loopback(port: u16) -> HostAddress {
    tcp("127.0.0.1", port, false)
}

/// An address at which nobody listens.
pub(crate) async fn nowhere() -> HostAddress {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    loopback(listener.local_addr().unwrap().port())
}

/// The background and the timers of a client on tokio's clock.
pub(crate) fn simulated() -> (Background, Timers) {
    let (background, _) = Background::start(Clock::Simulated).unwrap();
    let timers = Timers::new(Clock::Simulated);
    background.spawn(timers.clone().drive());
    (background, timers)
}

/// Lets this time pass at once.
pub(crate) async fn skip(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}
