//! A scripted server for tests.

use std::fmt;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::store::redis::wire::driver::PushHandler;
use crate::store::redis::wire::handshake::{HandshakeError, HandshakeLogin};
use crate::store::redis::wire::live_connection::LiveConnection;
use crate::store::redis::wire::reply::{Push, RequestError};
use crate::store::redis::wire::request::{Encode, Request};
pub(crate) use crate::store::tests::scripted::in_time;

pub(crate) struct Peer(pub(crate) DuplexStream);

impl Peer {
    pub(crate) async fn says(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Reads as many bytes as these requests have, and asserts that they are these requests.
    pub(crate) async fn expects(&mut self, requests: &[&str]) {
        let mut expected = Vec::new();
        for request in requests {
            request_of(request).write(&mut expected);
        }
        let mut heard = vec![0; expected.len()];
        self.0.read_exact(&mut heard).await.unwrap();
        assert_eq!(String::from_utf8(heard), String::from_utf8(expected));
    }
}

pub(crate) fn request_of(text: &str) -> Request {
    let (command, rest) = text.split_once(' ').unwrap_or((text, ""));
    let request_of = rest.split(' ').filter(|word| !word.is_empty());
    request_of.fold(Request::new(command), Request::arg)
}

pub(crate) fn nobody() -> HandshakeLogin {
    HandshakeLogin {
        db: 0,
        user: None,
        password: None,
        in_cluster: false,
    }
}

pub(crate) const SETINFO: [&str; 2] = [
    "CLIENT SETINFO LIB-NAME tidelock",
    concat!("CLIENT SETINFO LIB-VER ", env!("CARGO_PKG_VERSION")),
];

/// The handshake of a connection for commands, and the reply of a server that does not know half of it.
pub(crate) const HANDSHAKE: [&str; 3] = ["HELLO", SETINFO[0], SETINFO[1]];
pub(crate) const GREETED: &str = "-ERR unknown\r\n-ERR unknown\r\n+OK\r\n";

pub(crate) fn pair(
    push_handler: Option<PushHandler>,
) -> (
    impl Future<Output = Result<LiveConnection, HandshakeError>>,
    Peer,
) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let opening =
        async move { LiveConnection::open(Box::pin(ours), &nobody(), push_handler).await };
    (opening, Peer(theirs))
}

pub(crate) async fn connected() -> (LiveConnection, Peer) {
    let (opening, mut peer) = pair(None);
    let greeting = async {
        peer.expects(&HANDSHAKE).await;
        peer.says(GREETED).await;
    };
    let (conn, ()) = in_time(async { tokio::join!(opening, greeting) }).await;
    (conn.unwrap(), peer)
}

pub(crate) type Pushes = Arc<Mutex<Vec<String>>>;

pub(crate) async fn listening() -> (LiveConnection, Peer, Pushes) {
    let heard = Pushes::default();
    let noted = Arc::clone(&heard);
    let push_handler: PushHandler = Arc::new(move |push| {
        let text = match push {
            Push::Message {
                channel, payload, ..
            } => format!("{channel}: {}", payload[0]),
            Push::Subscribed(_, channel) => format!("+{channel}"),
            Push::Unsubscribed(_, channel) => format!("-{channel}"),
        };
        noted.lock().unwrap().push(text);
    });
    let (opening, mut peer) = pair(Some(push_handler));
    let greeting = async {
        peer.expects(&["HELLO 3", SETINFO[0], SETINFO[1]]).await;
        peer.says("%1\r\n+proto\r\n:3\r\n+OK\r\n+OK\r\n").await;
    };
    let (conn, ()) = in_time(async { tokio::join!(opening, greeting) }).await;
    (conn.unwrap(), peer, heard)
}

pub(crate) fn is_broken<T: fmt::Debug>(result: &Result<T, RequestError>, why: &str) {
    match result {
        Err(RequestError::Broken(text)) if text.contains(why) => {}
        other => panic!("{other:?} is not broken: {why}"),
    }
}
