//! Connections that break or are closed: what is told of them, and that none is used any more.

use tonic::Status;

use super::*;
use crate::store::etcd::errors::TransportFailure;
use crate::store::tests::clock::skip;

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

/// Begins to read a lock, and leaves as soon as the server has heard of it, which does not answer.
async fn leaves(server: &ModelServer, etcd: &Etcd) {
    server.in_turn("Txn", &[Turn::Silent]);
    let before = server.connections("Txn").len();
    let name = stock();
    tokio::select! {
        seen = etcd.inspect(&name) => panic!("{seen:?}"),
        () = server.hears("Txn", before + 1) => {}
    }
}

/// As a probe does that waits for a second only: no caller is there at the deadline.
#[tokio::test]
async fn a_connection_on_which_no_answer_came_is_left_although_its_callers_left_earlier() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    server.in_turn("Status", &[Turn::Silent]);
    leaves(&server, &etcd).await;
    server.hears("Status", 1).await;
    leaves(&server, &etcd).await;
    let connection = &etcd.connection;
    let conn = connection.get(connection.deadline()).await.unwrap();
    skip(LIMIT).await;
    in_time(conn.given_up()).await;
    etcd.inspect(&stock()).await.unwrap();
    assert_eq!(server.connections("Txn"), [0, 0, 1]);
    assert_eq!(server.connections("Status"), [0], "one check at a time");
}

/// A refusal is an answer. A member without a leader answers too, but serves nobody.
#[tokio::test]
async fn the_answer_to_a_check_tells_whether_the_connection_is_used() {
    let denied = Turn::Fails(Code::PermissionDenied, "etcdserver: permission denied");
    for (turn, stays) in [(denied, true), (NO_LEADER, false)] {
        let server = ModelServer::start().await;
        let etcd = server.client();
        server.in_turn("Status", &[turn]);
        leaves(&server, &etcd).await;
        let connection = &etcd.connection;
        let conn = connection.get(connection.deadline()).await.unwrap();
        let answered = async {
            while !conn.begin_check() && !conn.is_given_up() {
                tokio::task::yield_now().await;
            }
        };
        in_time(answered).await;
        assert_eq!(conn.is_given_up(), !stays);
    }
}

#[tokio::test]
async fn a_caller_that_leaves_before_its_answer_costs_one_request_and_no_connection() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let checked_twice = async {
        while server.connections("Status").len() < 2 {
            leaves(&server, &etcd).await;
        }
    };
    in_time(checked_twice).await;
    let connection = &etcd.connection;
    let conn = connection.get(connection.deadline()).await.unwrap();
    let answered = async {
        while !conn.begin_check() {
            tokio::task::yield_now().await;
        }
    };
    in_time(answered).await;
    skip(LIMIT * 2).await;
    etcd.inspect(&stock()).await.unwrap();
    assert!(server.connections("Txn").iter().all(|&number| number == 0));
}

#[test]
fn the_status_of_a_request_whose_connection_broke_tells_why() {
    let failure = TransportFailure {
        unsent: false,
        why: "closed".to_owned(),
    };
    assert_eq!(Status::from_error(Box::new(failure)).message(), "closed");
}
