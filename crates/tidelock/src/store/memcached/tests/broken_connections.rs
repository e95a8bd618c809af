//! Connections that the server breaks off.

use super::*;
use crate::store::memcached::live_connection::{ConnectionId, LiveConnection};

/// A connection, and the server's side of it.
async fn pair() -> (LiveConnection, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connecting = TcpStream::connect(listener.local_addr().unwrap());
    let (stream, accepted) = tokio::join!(connecting, listener.accept());
    let live = LiveConnection::new(stream.unwrap(), ConnectionId(1));
    (live, accepted.unwrap().0)
}

#[tokio::test]
async fn a_reset_of_a_connection_is_not_told_as_its_orderly_end() {
    let (mut live, peer) = pair().await;
    live.write(b"mn\r\n").await.unwrap();
    in_time(peer.readable()).await.unwrap();
    // It has not read what it was sent, so this is a reset.
    drop(peer);
    let why = in_time(live.hear()).await;
    assert_ne!(why, "the server ended the connection");
}

#[tokio::test]
async fn a_write_to_a_connection_that_has_ended_fails() {
    let (live, peer) = pair().await;
    drop(peer);
    // The first bytes may be taken: the answer to them tells that nobody is there.
    let fails = async { while live.write(b"mn\r\n").await.is_ok() {} };
    in_time(fails).await;
}
