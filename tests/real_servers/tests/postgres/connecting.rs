//! T76: a client connects to a server that is at its connection limit, slow, or not running yet.

use std::time::Duration;

use real_servers::connecting::is_waited_for;
use testkit::servers::PostgresServer;
use tidelock::{Client, ClientBuilder, ErrorKind};

use super::{lease, server};

fn builder() -> ClientBuilder {
    Client::builder()
        .lease(lease())
        .response_timeout(lease() / 4)
}

/// Opens connections until the server refuses more.
async fn fill(server: &PostgresServer) -> Vec<tokio_postgres::Client> {
    let mut inside = Vec::new();
    let url = server.url();
    while let Ok((client, connection)) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await
    {
        tokio::spawn(connection);
        inside.push(client);
    }
    inside
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_full_server_is_waited_for() {
    let server = server();
    server
        .query("ALTER SYSTEM SET max_connections = 6")
        .unwrap();
    server.kill().unwrap();
    server.restart().unwrap();
    for options in ["", "?locks=session"] {
        let inside = fill(&server).await;
        let url = format!("{}{options}", server.url());
        let open = || {
            drop(inside);
            Ok(())
        };
        is_waited_for(builder(), &url, open).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_server_that_is_slow_or_started_later_is_waited_for() {
    let server = server();
    server.freeze().unwrap();
    is_waited_for(builder(), &server.url(), || server.thaw())
        .await
        .unwrap();
    server.kill().unwrap();
    is_waited_for(builder(), &server.url(), || server.restart())
        .await
        .unwrap();
}

/// A permanent error is returned at once, even when the caller has a long timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_login_that_is_not_taken_is_not_waited_for() {
    let server = server();
    let order = "CREATE ROLE app LOGIN PASSWORD 'hush'";
    server.query(order).unwrap();
    let rule = "host all app 127.0.0.1/32 scram-sha-256";
    server.admit_first(rule).unwrap();
    for (login, kind) in [
        ("app:loud", ErrorKind::Refused),
        ("app", ErrorKind::Refused),
        ("nobody:at-all", ErrorKind::Refused),
    ] {
        let url = format!("postgres://{login}@{}/postgres", server.addr());
        let patient = builder().connect_within(Duration::from_secs(60));
        let asked = tokio::time::timeout(Duration::from_secs(5), patient.connect(&url));
        let refused = asked.await.expect("told at once").unwrap_err();
        assert_eq!(refused.kind(), kind, "{login}: {refused}");
    }
    let nowhere = format!("postgres://postgres@{}/nowhere", server.addr());
    let patient = builder().connect_within(Duration::from_secs(60));
    let asked = tokio::time::timeout(Duration::from_secs(5), patient.connect(&nowhere));
    let refused = asked.await.expect("told at once").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidOptions, "{refused}");
}
