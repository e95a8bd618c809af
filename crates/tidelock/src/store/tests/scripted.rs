//! A server on loopback that answers as a test says, in the protocol of its store. All of it runs on the runtime of the
//! test, on tokio's clock.

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use crate::engine::runtime::sync::Mutex;
pub(crate) use crate::store::tests::clock::{in_time, simulated, skip};

/// The response timeout of the clients. No test waits for it in real time.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// In place of a reply: this request and all later ones of the connection are never answered.
pub(crate) const SILENCE: &str = "";

/// In place of a reply, or behind it: the server closes the connection.
pub(crate) const HANG_UP: &str = "\0";

pub(crate) trait Protocol: 'static {
    /// Begins a connection, before its first request.
    fn greet(_peer: &mut BufReader<TcpStream>) -> impl Future<Output = io::Result<()>> + Send {
        std::future::ready(Ok(()))
    }

    /// The words of the next request.
    fn request(
        peer: &mut BufReader<TcpStream>,
    ) -> impl Future<Output = io::Result<Vec<String>>> + Send;

    /// The reply to a request that the test has not named. `port`: that of the server.
    fn usual(port: u16, words: &[&str]) -> String;

    /// A reply as it is sent.
    fn encode(reply: &str) -> Vec<u8> {
        reply.as_bytes().to_vec()
    }
}

/// A server. It ends when this is dropped.
pub(crate) struct Scripted<P> {
    pub(crate) port: u16,
    script: Arc<ServerScript>,
    task: JoinHandle<()>,
    protocol: PhantomData<P>,
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

impl<P: Protocol> Scripted<P> {
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
                // Otherwise each second message waits 40 ms until the client acknowledges the first one.
                peer.set_nodelay(true).unwrap();
                let script = Arc::clone(&own);
                peers.spawn(async move {
                    script.open_connections.fetch_add(1, Ordering::SeqCst);
                    // An error: the client has closed the connection.
                    let _ = script.serve::<P>(connection, BufReader::new(peer)).await;
                    script.open_connections.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self {
            port,
            script,
            task,
            protocol: PhantomData,
        }
    }
}

impl<P> Scripted<P> {
    /// From now on requests that begin so get these replies, one after the other, and then the last one again and again.
    /// Of several beginnings that fit, the longest one counts.
    pub(crate) fn answers(&self, request: &str, replies: &[&str]) {
        let replies = replies.iter().map(|&reply| reply.to_owned()).collect();
        let mut all = self.script.replies.lock();
        all.retain(|(known, _)| known != request);
        all.push((request.to_owned(), replies));
    }

    /// The words of each request so far.
    pub(crate) fn requests(&self) -> Vec<Vec<String>> {
        let requests = self.script.requests.lock();
        requests.iter().map(|(_, words)| words.clone()).collect()
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

    pub(crate) fn open_connections(&self) -> usize {
        self.script.open_connections.load(Ordering::SeqCst)
    }
}

impl<P> Drop for Scripted<P> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ServerScript {
    async fn serve<P: Protocol>(
        &self,
        connection: usize,
        mut peer: BufReader<TcpStream>,
    ) -> io::Result<()> {
        P::greet(&mut peer).await?;
        loop {
            let words = P::request(&mut peer).await?;
            let told = self.told(&words.join(" "));
            let reply = told.unwrap_or_else(|| {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                P::usual(self.port, &words)
            });
            self.requests.lock().push((connection, words));
            self.news.notify_waiters();
            let (said, hangs_up) = match reply.strip_suffix(HANG_UP) {
                Some(said) => (said, true),
                None => (&*reply, false),
            };
            peer.write_all(&P::encode(said)).await?;
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

    /// The requests so far that begin so, each with the number of its connection.
    fn heard(&self, request: &str) -> Vec<(usize, String)> {
        let requests = self.requests.lock();
        let texts = requests.iter().map(|(at, words)| (*at, words.join(" ")));
        texts
            .filter(|(_, text)| text.starts_with(request))
            .collect()
    }
}
