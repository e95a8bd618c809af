//! A server that answers as a test says, on loopback, and what a test needs to connect to it. All of it runs on the runtime of
//! the test, on tokio's clock.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use crate::engine::runtime::sync::Mutex;
use crate::store::redis::address::HostAddress;
use crate::store::redis::topology::connection::{Connection, ConnectionRuntime};
use crate::store::redis::topology::endpoint::{Endpoint, EndpointLogin, ServerFinder};
use crate::store::redis::topology::live_connection::LiveConnection;
use crate::store::redis::wire::live_connection::peer::{
    GREETED, HANDSHAKE, Peer, in_time, nobody,
};
use crate::store::{Background, Clock, Timers};

/// The response timeout of the clients. No test waits for it.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// In place of a reply: this request and all later ones of the connection are never answered.
pub(crate) const SILENCE: &str = "";

/// In place of a reply, or behind it: the server closes the connection.
pub(crate) const HANG_UP: &str = "\0";

/// A server. It answers OK to what the test has not named. It ends when this is dropped.
pub(crate) struct ScriptedServer {
    pub(crate) port: u16,
    script: Arc<ServerScript>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct ServerScript {
    /// The beginning of a request, and the replies to it.
    replies: Mutex<Vec<(String, VecDeque<String>)>>,
    /// The number of the connection, and the request.
    heard: Mutex<Vec<(usize, String)>>,
    /// Notified at each request.
    news: Notify,
}

impl ScriptedServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = Arc::<ServerScript>::default();
        let own = Arc::clone(&script);
        let task = tokio::spawn(async move {
            let mut peers = JoinSet::new();
            for connection in 0.. {
                let Ok((peer, _)) = listener.accept().await else {
                    return;
                };
                let script = Arc::clone(&own);
                peers.spawn(async move { script.serve(connection, BufReader::new(peer)).await });
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

    /// The requests so far that begin so.
    pub(crate) fn heard(&self, request: &str) -> Vec<String> {
        let heard = self.script.heard.lock();
        let fit = heard.iter().filter(|(_, text)| text.starts_with(request));
        fit.map(|(_, text)| text.clone()).collect()
    }

    /// The numbers of the connections on which these requests came.
    pub(crate) fn connections(&self, request: &str) -> Vec<usize> {
        let heard = self.script.heard.lock();
        let fit = heard.iter().filter(|(_, text)| text.starts_with(request));
        fit.map(|(connection, _)| *connection).collect()
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
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ServerScript {
    async fn serve(&self, connection: usize, mut peer: BufReader<TcpStream>) -> io::Result<()> {
        loop {
            let asked = request(&mut peer).await?;
            let reply = self.reply(&asked);
            self.heard.lock().push((connection, asked));
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

    fn reply(&self, asked: &str) -> String {
        let mut all = self.replies.lock();
        let fit = all
            .iter_mut()
            .filter(|(request, _)| asked.starts_with(request.as_str()));
        let Some((_, replies)) = fit.max_by_key(|(request, _)| request.len()) else {
            return "+OK\r\n".to_owned();
        };
        let next = if replies.len() > 1 {
            replies.pop_front()
        } else {
            replies.front().cloned()
        };
        next.unwrap_or_default()
    }
}

/// The words of the next request.
async fn request(peer: &mut BufReader<TcpStream>) -> io::Result<String> {
    let count = number(peer, '*').await?;
    let mut words = Vec::new();
    for _ in 0..count {
        let length = number(peer, '$').await?;
        let mut word = vec![0; length + 2];
        peer.read_exact(&mut word).await?;
        word.truncate(length);
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    Ok(words.join(" "))
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

pub(crate) fn loopback(port: u16) -> HostAddress {
    HostAddress::Tcp {
        host: "127.0.0.1".to_owned(),
        port,
        tls: false,
    }
}

/// An address at which nobody listens.
pub(crate) async fn nowhere() -> HostAddress {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    loopback(listener.local_addr().unwrap().port())
}

/// The reply with this text.
pub(crate) fn text(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// The reply with a list of these texts.
pub(crate) fn texts(all: &[&str]) -> String {
    let each: String = all.iter().map(|one| text(one)).collect();
    format!("*{}\r\n{each}", all.len())
}

/// The reply to `CLUSTER SLOTS`: the first and the last slot of each range, and the port and the id of its primary.
pub(crate) fn slots(ranges: &[(u16, u16, u16, &str)]) -> String {
    let range = |(first, last, port, id): &(u16, u16, u16, &str)| {
        let (host, id) = (text("127.0.0.1"), text(id));
        format!("*3\r\n:{first}\r\n:{last}\r\n*3\r\n{host}:{port}\r\n{id}")
    };
    let each: String = ranges.iter().map(range).collect();
    format!("*{}\r\n{each}", ranges.len())
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

pub(crate) fn endpoint_at(finder: ServerFinder, entry: EndpointLogin) -> Arc<Endpoint> {
    let (_, timers) = simulated();
    Arc::new(Endpoint::new(finder, entry, timers, LIMIT))
}

pub(crate) fn connection_to(address: HostAddress) -> Connection {
    let endpoint = endpoint_at(ServerFinder::Fixed(address), EndpointLogin::default());
    Connection::new(endpoint, ConnectionRuntime::Caller)
}

/// A connection to a peer that the test plays.
pub(crate) async fn live() -> (LiveConnection, Peer) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (mut peer, login) = (Peer(theirs), nobody());
    let opening = LiveConnection::open(Box::pin(ours), &login, None);
    let greeting = async {
        peer.expects(&HANDSHAKE).await;
        peer.says(GREETED).await;
    };
    let (conn, ()) = in_time(async { tokio::join!(opening, greeting) }).await;
    (conn.unwrap(), peer)
}
