//! Connects: which member is used, which login, and when another connection is opened.

use tokio::net::TcpListener;

use super::*;
use crate::store::TlsFiles;
use crate::store::etcd::api::RangeRequest;

/// An address at which nobody listens.
async fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

fn member(server: &ModelServer) -> String {
    format!("127.0.0.1:{}", server.port)
}

#[tokio::test]
async fn a_connect_goes_on_to_the_member_that_can_serve() {
    let (bad, good) = (ModelServer::start().await, ModelServer::start().await);
    bad.in_turn("Range", &[NO_LEADER]);
    let places = [nowhere().await, member(&bad), member(&good)].join(",");
    let store = connect(&format!("etcd://{places}/shop"), &env())
        .await
        .unwrap();
    assert_eq!(bad.connections("Status").len(), 1);
    let key = good.heard::<RangeRequest>("Range");
    assert_eq!(key[0].key, b"shop/%clients/");
    let ask = ask(LockKind::Mutex);
    assert!(store.front.attempt(&ask).await.outcome.is_ok());
    // Each side has a connection of its own, at the same member.
    assert!(store.back.release(&ask.ticket).await.is_ok());
    assert_eq!(good.connections("Txn"), [0, 1]);
    assert!(bad.connections("Txn").is_empty());
}

#[tokio::test]
async fn a_connect_fails_if_no_member_can_serve() {
    let (one, two) = (ModelServer::start().await, ModelServer::start().await);
    for server in [&one, &two] {
        server.in_turn("Status", &[NO_LEADER]);
    }
    let url = format!("etcd://{},{}", member(&one), member(&two));
    let error = connect(&url, &env()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let counts = [&one, &two].map(|server| server.connections("Status").len());
    assert_eq!(counts, [1, 1]);
    let error = connect(&format!("etcd://{}", nowhere().await), &env()).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_server_that_is_too_old_or_forbids_to_read_is_refused_at_once() {
    let (bad, other) = (ModelServer::start().await, ModelServer::start().await);
    let url = format!("etcd://{},{}/shop", member(&bad), member(&other));
    for (version, forbidden, kind) in [
        ("3.3.27", None, Some(ErrorKind::Unsupported)),
        ("2.9.0", None, Some(ErrorKind::Unsupported)),
        ("3.4.0", Some("shop/"), Some(ErrorKind::Refused)),
        ("3.4.0", None, None),
        ("4.0.0-rc.1", None, None),
    ] {
        bad.set(|settings| {
            settings.version = version;
            settings.forbidden = forbidden;
        });
        let refused = connect(&url, &env()).await.err();
        assert_eq!(refused.map(|error| error.kind()), kind, "{version}");
    }
    assert!(other.connections("Status").is_empty());
}

#[tokio::test]
async fn each_request_has_the_token_of_the_login() {
    let server = ModelServer::start().await;
    server.set(|settings| settings.password = Some("secret"));
    let url = format!("etcd://me:secret@{}", member(&server));
    let etcd = client_at(&url, &env());
    etcd.grants(&ask(LockKind::Mutex)).await;
    let tokens = server.tokens("Txn");
    assert_eq!(tokens, [(Some("me.1".to_owned()), true)]);
    let wrong = format!("etcd://me:wrong@{}", member(&server));
    let wrong = client_at(&wrong, &env());
    let error = wrong.fails(&ask(LockKind::Mutex)).await;
    assert_eq!(error.kind(), ErrorKind::Refused);
}

#[tokio::test]
async fn a_server_without_authentication_takes_any_login() {
    let server = ModelServer::start().await;
    let url = format!("etcd://me:secret@{}", member(&server));
    let etcd = client_at(&url, &env());
    etcd.grants(&ask(LockKind::Mutex)).await;
    assert_eq!(server.connections("Authenticate").len(), 1);
    assert_eq!(server.tokens("Txn"), [(None, true)]);
}

#[tokio::test]
async fn a_user_without_a_password_does_not_log_in() {
    let server = ModelServer::start().await;
    let url = format!("etcd://me@{}", member(&server));
    let etcd = client_at(&url, &env());
    etcd.grants(&ask(LockKind::Mutex)).await;
    assert!(server.connections("Authenticate").is_empty());
}

#[tokio::test]
async fn credentials_that_are_given_replace_those_of_the_url() {
    let server = ModelServer::start().await;
    server.set(|settings| settings.password = Some("rotated"));
    let url = format!("etcd://me:old@{}", member(&server));
    let env = Env {
        credentials: Some(Arc::new(|| Credentials::password("rotated"))),
        ..env()
    };
    let etcd = client_at(&url, &env);
    etcd.grants(&ask(LockKind::Mutex)).await;
    assert_eq!(server.tokens("Txn"), [(Some("me.1".to_owned()), true)]);
}

#[tokio::test]
async fn a_request_is_repeated_once_with_a_new_login_if_the_server_wants_one() {
    let server = ModelServer::start().await;
    server.set(|settings| settings.password = Some("secret"));
    let url = format!("etcd://me:secret@{}", member(&server));
    let etcd = client_at(&url, &env());
    for why in [
        "etcdserver: invalid auth token",
        "etcdserver: revision of auth store is old",
    ] {
        let expired = Turn::Fails(Code::Unauthenticated, why);
        server.forget_heard();
        server.in_turn("Txn", &[expired]);
        etcd.inspect(&stock()).await.unwrap();
        let tokens = server.tokens("Txn");
        assert_eq!(tokens.len(), 2, "{why}");
        assert_ne!(tokens[0], tokens[1], "{why}");
        // If that does not help, it is an error.
        server.forget_heard();
        server.in_turn("Txn", &[expired; 3]);
        let error = etcd.inspect(&stock()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{why}");
        assert_eq!(server.connections("Txn").len(), 2);
        server.in_turn("Txn", &[]);
    }
}

#[tokio::test]
async fn a_member_that_does_not_serve_is_left_for_the_next() {
    let (one, two) = (ModelServer::start().await, ModelServer::start().await);
    let url = format!("etcd://{},{}", member(&one), member(&two));
    let etcd = client_at(&url, &env());
    etcd.inspect(&stock()).await.unwrap();
    // Another error says nothing about the member.
    let busy = Turn::Fails(Code::ResourceExhausted, "etcdserver: too many requests");
    one.in_turn("Txn", &[busy, NO_LEADER]);
    for _ in 0..2 {
        assert!(etcd.inspect(&stock()).await.is_err());
    }
    assert_eq!(one.connections("Txn"), [0; 3]);
    for _ in 0..2 {
        etcd.inspect(&stock()).await.unwrap();
    }
    assert_eq!(two.connections("Txn"), [0; 2]);
    // And back again.
    two.in_turn("Txn", &[Turn::Lost]);
    assert!(etcd.inspect(&stock()).await.is_err());
    etcd.inspect(&stock()).await.unwrap();
    assert_eq!(one.connections("Txn"), [0, 0, 0, 1]);
}

#[tokio::test]
async fn a_connection_that_has_ended_is_replaced_before_the_next_request() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let deadline = etcd.connection.deadline();
    let first = etcd.connection.get(deadline).await.unwrap();
    assert!(first.alive());
    server.in_turn("Txn", &[Turn::Silent]);
    let name = stock();
    let look = etcd.inspect(&name);
    let hangs_up = async {
        server.hears("Txn", 1).await;
        server.hang_up();
    };
    let (error, ()) = tokio::join!(look, hangs_up);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    etcd.inspect(&stock()).await.unwrap();
    assert_eq!(server.connections("Txn"), [0, 1]);
}

#[tokio::test]
async fn a_url_is_checked_with_the_settings_that_belong_to_it() {
    let plain = env();
    let given = Env {
        credentials: Some(Arc::new(Credentials::default)),
        ..plain.clone()
    };
    let secured = Env {
        tls: TlsFiles {
            ca: Some("ca.pem".into()),
            ..TlsFiles::default()
        },
        ..plain.clone()
    };
    for (url, env, is_good) in [
        ("etcd://h", &plain, true),
        ("etcd://h", &secured, false),
        ("etcds://h", &secured, true),
        ("etcd://me@h", &plain, false),
        ("etcd://me@h", &given, true),
    ] {
        let refused = target(url, env).err().map(|error| error.kind());
        let expected = (!is_good).then_some(ErrorKind::InvalidOptions);
        assert_eq!(refused, expected, "{url}");
    }
}

#[test]
fn the_advice_about_a_client_certificate_is_given_to_those_without_one() {
    let advice = "set `tls_identity`";
    for (why, none_shown, kind, is_advised) in [
        (
            "the connection broke: eof",
            true,
            ErrorKind::Unavailable,
            true,
        ),
        (
            "the connection broke: eof",
            false,
            ErrorKind::Unavailable,
            false,
        ),
        ("no answer in time", true, ErrorKind::Unavailable, false),
        (
            "the connection broke: received fatal alert: CertificateRequired",
            true,
            ErrorKind::Refused,
            true,
        ),
        (
            "received fatal alert: CertificateRequired",
            false,
            ErrorKind::Refused,
            false,
        ),
    ] {
        let error = Error::new(ErrorKind::Unavailable).because(why);
        let told = missing_certificate(error, none_shown);
        assert_eq!(told.kind(), kind, "{why}");
        let text = told.to_string();
        assert!(text.contains(why), "{text}");
        assert_eq!(text.contains(advice), is_advised, "{text}");
    }
}
