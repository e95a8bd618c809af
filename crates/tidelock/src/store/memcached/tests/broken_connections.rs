//! Connections that the server breaks off.

use super::*;
use crate::store::memcached::live_connection::tests::pair;

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
