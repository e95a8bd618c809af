//! Several members: how they share the time of a connect, and which error of one ends it.

use tokio::net::TcpListener;

use super::*;
use crate::store::tests::clock::skip;
use crate::store::tls::handshake::peer::TlsServer;

/// Two servers that want a login, and the URL of both with the right one.
async fn two_members() -> ([ModelServer; 2], String) {
    let servers = [ModelServer::start().await, ModelServer::start().await];
    for server in &servers {
        server.set(|settings| settings.password = Some("secret"));
    }
    let [one, two] = servers.each_ref().map(|server| server.port);
    let url = format!("etcd://me:secret@127.0.0.1:{one},127.0.0.1:{two}/shop");
    (servers, url)
}

#[tokio::test]
async fn a_login_that_fails_for_the_moment_is_tried_at_the_next_member() {
    let ([one, two], url) = two_members().await;
    one.in_turn("Authenticate", &[NO_LEADER]);
    let etcd = client_at(&url, &env());
    etcd.inspect(&stock()).await.unwrap();
    assert!(one.connections("Txn").is_empty());
    assert_eq!(two.connections("Txn").len(), 1);
}

/// All members have the same users, so the next one would refuse it too.
#[tokio::test]
async fn a_login_that_one_member_refuses_is_not_tried_at_the_next() {
    let ([one, two], url) = two_members().await;
    let etcd = client_at(&url.replace("secret", "wrong"), &env());
    let error = etcd.inspect(&stock()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(one.connections("Authenticate").len(), 1);
    assert!(two.connections("Authenticate").is_empty());
}

#[tokio::test]
async fn a_member_that_is_silent_at_a_login_leaves_half_of_the_time_to_the_other() {
    let ([one, two], url) = two_members().await;
    one.in_turn("Authenticate", &[Turn::Silent]);
    let etcd = client_at(&url, &env());
    let name = stock();
    let half_passes = async {
        one.hears("Authenticate", 1).await;
        skip(LIMIT / 2).await;
    };
    let (seen, ()) = tokio::join!(etcd.inspect(&name), half_passes);
    seen.unwrap();
    assert_eq!(two.connections("Txn").len(), 1);
}

#[tokio::test]
async fn a_connect_gives_half_of_its_time_to_a_member_that_is_silent_at_the_first_request() {
    let (one, two) = (ModelServer::start().await, ModelServer::start().await);
    one.in_turn("Status", &[Turn::Silent]);
    let url = format!("etcd://127.0.0.1:{},127.0.0.1:{}", one.port, two.port);
    let env = env();
    let half_passes = async {
        one.hears("Status", 1).await;
        skip(LIMIT / 2).await;
    };
    let (store, ()) = tokio::join!(connect(&url, &env), half_passes);
    store.unwrap();
    assert_eq!(two.connections("Status").len(), 1);
}

#[tokio::test]
async fn the_last_member_has_all_of_the_time_that_is_left() {
    let server = TlsServer::start().await;
    let nowhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let first = nowhere.local_addr().unwrap();
    drop(nowhere);
    let url = format!("etcds://{first},127.0.0.1:{}", server.port());
    let env = Env {
        tls: server.files(),
        ..env()
    };
    let connection = client_at(&url, &env).connection;
    let start = env.timers.now();
    // The caller waits for longer than an attempt may take.
    let answer = connection.get(start + LIMIT * 2);
    let (refusal, _peer) = tokio::join!(answer, server.freezes());
    let waited = env.timers.now().since(start);
    tokio::time::resume();
    assert_eq!(refusal.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!((LIMIT..LIMIT * 2).contains(&waited), "{waited:?}");
}

#[tokio::test]
async fn a_caller_that_waits_for_a_connect_in_vain_is_told_all_members() {
    let ([one, two], url) = two_members().await;
    one.in_turn("Authenticate", &[Turn::Silent]);
    let env = env();
    let connection = client_at(&url, &env).connection;
    let answer = connection.get(env.timers.now() + LIMIT / 4);
    let quarter_passes = async {
        one.hears("Authenticate", 1).await;
        skip(LIMIT / 4).await;
    };
    let (refusal, ()) = tokio::join!(answer, quarter_passes);
    let [one, two] = [one.port, two.port];
    let told = format!("etcd://127.0.0.1:{one}, etcd://127.0.0.1:{two}: no connection in time");
    assert_eq!(refusal.unwrap_err().detail(), Some(&*told));
}
