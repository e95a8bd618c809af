//! A server on a socket that answers as a test says, for the tests of all rooms.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::store::redis::address::HostAddress;
use crate::store::redis::wire::decode::{Decoder, Frame};
use crate::store::redis::wire::reply::Reply;

/// The answer to a request, whose words have a blank between them. `None`: the server closes the connection.
type Answers = dyn Fn(&str) -> Option<String> + Send + Sync;

pub(crate) struct ScriptedServer {
    pub(crate) address: HostAddress,
    log: Arc<RequestLog>,
}

/// The requests of all connections.
#[derive(Default)]
struct RequestLog {
    requests: Mutex<Vec<String>>,
    grows: Notify,
}

impl ScriptedServer {
    /// Starts one. It ends with the runtime of the test.
    pub(crate) async fn start(
        answers: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = HostAddress::Tcp {
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().unwrap().port(),
            tls: false,
        };
        let answers: Arc<Answers> = Arc::new(answers);
        let log = Arc::<RequestLog>::default();
        let noted = Arc::clone(&log);
        tokio::spawn(async move {
            while let Ok((peer, _)) = listener.accept().await {
                tokio::spawn(serve(peer, Arc::clone(&answers), Arc::clone(&noted)));
            }
        });
        Self { address, log }
    }

    /// How many requests so far begin with these words.
    pub(crate) fn heard(&self, words: &str) -> usize {
        let requests = self.log.requests.lock().unwrap();
        let such = requests.iter().filter(|one| one.starts_with(words));
        such.count()
    }

    /// Waits for that many requests that begin with these words.
    pub(crate) async fn hears(&self, words: &str, count: usize) {
        loop {
            let mut grows = pin!(self.log.grows.notified());
            grows.as_mut().enable();
            if self.heard(words) >= count {
                return;
            }
            grows.await;
        }
    }
}

async fn serve(mut peer: TcpStream, answers: Arc<Answers>, log: Arc<RequestLog>) {
    let (mut decoder, mut bytes) = (Decoder::default(), Vec::<u8>::new());
    while peer.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {
        loop {
            let (used, said) = decoder.next(&bytes).unwrap();
            bytes.drain(..used);
            let Some(Frame::Answer(Ok(Reply::List(words)))) = said else {
                break;
            };
            let words: Vec<_> = words.iter().filter_map(Reply::lossy).collect();
            let request = words.join(" ");
            let answer = answers(&request);
            log.requests.lock().unwrap().push(request);
            log.grows.notify_waiters();
            let Some(answer) = answer else { return };
            if peer.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

/// The answers of a server to the requests with which a client begins, and to subscriptions. All others get `+OK`.
pub(crate) fn usual(request: &str) -> String {
    match request.split_once(' ').unwrap_or((request, "")) {
        ("HELLO" | "INFO", rest) if rest != "3" => "-ERR unknown\r\n".to_owned(),
        ("HELLO", _) => "%1\r\n+proto\r\n:3\r\n".to_owned(),
        ("PING", _) => "+PONG\r\n".to_owned(),
        (command, channel) if command.ends_with("SUBSCRIBE") => {
            let kind = command.to_lowercase();
            format!(">3\r\n+{kind}\r\n+{channel}\r\n:1\r\n")
        }
        _ => "+OK\r\n".to_owned(),
    }
}
