//! Connections that break or are closed: what is told of them, and that none is used any more.

use tonic::Status;

use super::*;
use crate::store::etcd::errors::TransportFailure;

#[tokio::test]
async fn a_client_that_was_closed_has_let_its_connection_go() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    etcd.inspect(&stock()).await.unwrap();
    etcd.close().await;
    // A request that comes late opens another one.
    etcd.inspect(&stock()).await.unwrap();
    assert_eq!(server.connections("Txn"), [0, 1]);
}

/// No certificate would help: a server without TLS asks for none.
#[tokio::test]
async fn a_plain_connection_that_breaks_is_told_without_advice_about_a_certificate() {
    let server = ModelServer::start().await;
    server.in_turn("Status", &[Turn::Lost]);
    let error = connect(&server.url(), &env()).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("the connection broke"), "{text}");
    assert!(!text.contains("tls_identity"), "{text}");
}

#[test]
fn the_status_of_a_request_whose_connection_broke_tells_why() {
    let failure = TransportFailure {
        unsent: false,
        why: "closed".to_owned(),
    };
    assert_eq!(Status::from_error(Box::new(failure)).message(), "closed");
}
