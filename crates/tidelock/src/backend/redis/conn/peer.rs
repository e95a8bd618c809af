//! A scripted server for tests.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time;

use super::super::driver::Ears;
use super::super::greeting::{Closed, Login};
use super::super::reply::{Push, Trouble};
use super::super::request::{Request, Words};
use super::Conn;

pub(in super::super) struct Peer(pub(in super::super) DuplexStream);

impl Peer {
    pub(in super::super) async fn says(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Reads as many bytes as these requests have, and asserts that they are these requests.
    pub(in super::super) async fn hears(&mut self, requests: &[&str]) {
        let mut expected = Vec::new();
        for request in requests {
            words(request).write(&mut expected);
        }
        let mut heard = vec![0; expected.len()];
        self.0.read_exact(&mut heard).await.unwrap();
        assert_eq!(String::from_utf8(heard), String::from_utf8(expected));
    }
}

pub(in super::super) fn words(text: &str) -> Request {
    let (command, rest) = text.split_once(' ').unwrap_or((text, ""));
    let words = rest.split(' ').filter(|word| !word.is_empty());
    words.fold(Request::new(command), Request::arg)
}

pub(in super::super) fn nobody() -> Login {
    Login {
        db: 0,
        user: None,
        password: None,
        in_cluster: false,
    }
}

pub(in super::super) const SETINFO: [&str; 2] = [
    "CLIENT SETINFO LIB-NAME tidelock",
    concat!("CLIENT SETINFO LIB-VER ", env!("CARGO_PKG_VERSION")),
];

/// The handshake of a connection for commands, and the reply of a server that does not know half of it.
pub(in super::super) const GREETING: [&str; 3] = ["HELLO", SETINFO[0], SETINFO[1]];
pub(in super::super) const GREETED: &str = "-ERR unknown\r\n-ERR unknown\r\n+OK\r\n";

pub(in super::super) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(20);
    time::timeout(limit, future).await.expect("in time")
}

pub(in super::super) fn pair(
    ears: Option<Ears>,
) -> (impl Future<Output = Result<Conn, Closed>>, Peer) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let opening = async move { Conn::open(Box::pin(ours), &nobody(), ears).await };
    (opening, Peer(theirs))
}

pub(in super::super) async fn connected() -> (Conn, Peer) {
    let (opening, mut peer) = pair(None);
    let greeting = async {
        peer.hears(&GREETING).await;
        peer.says(GREETED).await;
    };
    let (conn, ()) = in_time(async { tokio::join!(opening, greeting) }).await;
    (conn.unwrap(), peer)
}

pub(in super::super) type Pushes = Arc<Mutex<Vec<String>>>;

pub(in super::super) async fn listening() -> (Conn, Peer, Pushes) {
    let heard = Pushes::default();
    let noted = Arc::clone(&heard);
    let ears: Ears = Arc::new(move |push| {
        let text = match push {
            Push::Message {
                channel, payload, ..
            } => format!("{channel}: {}", payload[0]),
            Push::Subscribed(_, channel) => format!("+{channel}"),
            Push::Unsubscribed(_, channel) => format!("-{channel}"),
        };
        noted.lock().unwrap().push(text);
    });
    let (opening, mut peer) = pair(Some(ears));
    let greeting = async {
        peer.hears(&["HELLO 3", SETINFO[0], SETINFO[1]]).await;
        peer.says("%1\r\n+proto\r\n:3\r\n+OK\r\n+OK\r\n").await;
    };
    let (conn, ()) = in_time(async { tokio::join!(opening, greeting) }).await;
    (conn.unwrap(), peer, heard)
}

pub(in super::super) fn is_broken<T: fmt::Debug>(result: &Result<T, Trouble>, why: &str) {
    match result {
        Err(Trouble::Broken(text)) if text.contains(why) => {}
        other => panic!("{other:?} is not broken: {why}"),
    }
}
