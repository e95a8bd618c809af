//! A socket that plays a node of a Redis cluster.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

/// The client asks for the slots once a second.
const SOON: Duration = Duration::from_secs(30);

/// A node of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    port: u16,
    pub(crate) id: Arc<Mutex<&'static str>>,
    /// The node that has the first half of the slots. `None`: this one has all.
    first_half: Option<u16>,
    /// Its first answer about sharded channels. Empty: it closes the connection.
    first: &'static str,
    /// The requests so far.
    requests: Arc<watch::Sender<Vec<String>>>,
}

impl Node {
    pub(crate) async fn start(first: &'static str, first_half: Option<u16>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let node = Self {
            port: listener.local_addr().unwrap().port(),
            id: Arc::new(Mutex::new("id")),
            first_half,
            first,
            requests: Arc::default(),
        };
        let served = node.clone();
        // Ends with the runtime of the test.
        tokio::spawn(async move {
            while let Ok((peer, _)) = listener.accept().await {
                tokio::spawn(served.clone().serve(BufReader::new(peer)));
            }
        });
        node
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+cluster://{}", self.address())
    }

    /// How many requests so far began so.
    pub(crate) fn heard(&self, request: &str) -> usize {
        count(&self.requests.borrow(), request)
    }

    /// Waits until it has heard so many more of these requests.
    pub(crate) async fn hears(&self, request: &str, times: usize) {
        let until = self.heard(request) + times;
        let mut requests = self.requests.subscribe();
        let heard = requests.wait_for(|all| count(all, request) >= until);
        drop(timeout(SOON, heard).await.unwrap().unwrap());
    }

    async fn serve(self, mut peer: BufReader<TcpStream>) -> io::Result<()> {
        loop {
            let request = request(&mut peer).await?.join(" ");
            self.requests.send_modify(|all| all.push(request.clone()));
            let answer = if request == "CLUSTER SLOTS" {
                self.slots()
            } else if request.starts_with("PUBSUB") {
                match self.heard("PUBSUB") {
                    1 if self.first.is_empty() => return Ok(()),
                    1 => self.first.to_owned(),
                    _ => "*0\r\n".to_owned(),
                }
            } else {
                "+OK\r\n".to_owned()
            };
            peer.write_all(answer.as_bytes()).await?;
        }
    }

    fn slots(&self) -> String {
        let id = *self.id.lock().unwrap();
        let id = format!("${}\r\n{id}\r\n", id.len());
        let range = |first: u16, last: u16, port: u16| {
            format!("*3\r\n:{first}\r\n:{last}\r\n*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n{id}")
        };
        match self.first_half {
            None => format!("*1\r\n{}", range(0, 16383, self.port)),
            Some(other) => {
                let (first, second) = (range(0, 8191, other), range(8192, 16383, self.port));
                format!("*2\r\n{first}{second}")
            }
        }
    }
}

fn count(requests: &[String], request: &str) -> usize {
    let such = requests.iter().filter(|one| one.starts_with(request));
    such.count()
}

/// The words of the next request: their number, and each behind its length.
pub(crate) async fn request(peer: &mut BufReader<TcpStream>) -> io::Result<Vec<String>> {
    let mut lines = peer.lines();
    let end = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let count = lines.next_line().await?.ok_or_else(end)?;
    let count: usize = count.trim_start_matches('*').parse().unwrap_or(0);
    let mut words = Vec::new();
    for _ in 0..count {
        lines.next_line().await?;
        words.extend(lines.next_line().await?);
    }
    Ok(words)
}
