//! T76: the errors that servers send to a connecting client, and which of them the client retries. Sockets that speak
//! each server's protocol play the servers.

use std::time::{Duration, Instant};

use tidelock::{Client, ClientBuilder, ErrorKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A server that sends these bytes to each client, without waiting for a request, and then closes the connection.
async fn doorman(words: Vec<u8>) -> (String, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let work = tokio::spawn(async move {
        loop {
            let (mut peer, _) = listener.accept().await.unwrap();
            let words = words.clone();
            tokio::spawn(async move {
                peer.write_all(&words).await.ok();
                peer.shutdown().await.ok();
                // Drains the client's data. Otherwise the close can reset the connection, and the client loses our
                // message.
                let mut rest = Vec::new();
                peer.read_to_end(&mut rest).await.ok();
            });
        }
    });
    (address, work)
}

fn builder() -> ClientBuilder {
    Client::builder().response_timeout(Duration::from_secs(10))
}

/// Checks the error of a client that gets this message, first without `connect_within`, then with it: the client keeps
/// trying only after a temporary error.
async fn told(url: &str, words: Vec<u8>, expected: ErrorKind, text: &str) {
    let (address, door) = doorman(words).await;
    let url = url.replace("HOST", &address);
    let error = builder().connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), expected, "{url}: {error}");
    assert!(error.to_string().contains(text), "{url}: {error}");
    let begun = Instant::now();
    // A temporary error is retried until then. Any other error comes long before, also on a busy machine.
    let patience = if error.is_retryable() {
        Duration::from_millis(400)
    } else {
        Duration::from_secs(30)
    };
    let patient = builder().connect_within(patience).connect(&url).await;
    let error = patient.unwrap_err();
    assert_eq!(error.kind(), expected, "{url}: {error}");
    let waited = begun.elapsed() >= patience;
    assert_eq!(waited, error.is_retryable(), "{url}: {:?}", begun.elapsed());
    door.abort();
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn t76_the_errors_of_connecting_to_redis() {
    for url in [
        "redis://HOST",
        "redis://:hush@HOST",
        "redis://me:hush@HOST/3",
    ] {
        for (words, kind, text) in [
            (
                "-ERR max number of clients reached",
                ErrorKind::Unavailable,
                "maxclients",
            ),
            (
                "-DENIED Redis is running in protected mode",
                ErrorKind::Refused,
                "protected mode",
            ),
            (
                "-LOADING Redis is loading the dataset in memory",
                ErrorKind::Unavailable,
                "LOADING",
            ),
            (
                "-BUSY Redis is busy running a script.",
                ErrorKind::Unavailable,
                "BUSY",
            ),
            (
                "-MASTERDOWN Link with MASTER is down",
                ErrorKind::Unavailable,
                "MASTERDOWN",
            ),
        ] {
            told(url, format!("{words}\r\n").into_bytes(), kind, text).await;
        }
    }
    let wrong = b"-WRONGPASS invalid username-password pair\r\n";
    told(
        "redis://me:hush@HOST",
        wrong.to_vec(),
        ErrorKind::Refused,
        "password",
    )
    .await;
}

#[cfg(feature = "redis")]
mod cluster {
    use std::time::Duration;

    use tokio::net::TcpListener;

    use crate::cluster_node::Node;

    /// The client must not take a lost answer for a refusal. Otherwise it would publish releases in the plain form only, and
    /// would not wake waiters that subscribe to the sharded channel.
    #[tokio::test]
    async fn a_lost_answer_about_sharded_channels_is_asked_for_again() {
        let old = "-ERR Unknown subcommand or wrong number of arguments for 'SHARDNUMSUB'\r\n";
        for (first, asked) in [
            ("", 2),
            ("-LOADING Redis is loading the dataset in memory\r\n", 2),
            (old, 1),
        ] {
            let node = Node::start(first, None).await;
            let settings = super::builder().publish_process_info(false);
            let settings = settings.connect_within(Duration::from_secs(60));
            let client = settings.connect(&node.url()).await.unwrap();
            assert_eq!(node.heard("PUBSUB"), asked, "{first}");
            drop(client);
        }
    }

    /// The node with slot 0 is frozen: it accepts connections and does not answer. The locks of the other nodes can be
    /// acquired, so a client that starts now must connect, also if the first answer of another node is lost.
    #[tokio::test]
    async fn a_node_that_does_not_answer_keeps_out_no_client() {
        let frozen = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let first_half = frozen.local_addr().unwrap().port();
        for (first, asked) in [
            ("*0\r\n", 1),
            ("-ERR Unknown subcommand 'SHARDNUMSUB'\r\n", 1),
            ("", 2),
        ] {
            let node = Node::start(first, Some(first_half)).await;
            let settings = super::builder().publish_process_info(false);
            let client = settings.connect(&node.url()).await.unwrap();
            assert_eq!(node.heard("PUBSUB"), asked, "{first}");
            drop(client);
        }
    }
}

/// An error of PostgreSQL, as the server sends it before authentication.
#[cfg(feature = "postgres")]
fn postgres(code: &str, text: &str) -> Vec<u8> {
    let fields = format!("SFATAL\0VFATAL\0C{code}\0M{text}\0\0");
    let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
    [b"E", &length[..], fields.as_bytes()].concat()
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn t76_the_errors_of_connecting_to_postgres() {
    for (code, text, kind) in [
        (
            "53300",
            "sorry, too many clients already",
            ErrorKind::Unavailable,
        ),
        (
            "57P03",
            "the database system is starting up",
            ErrorKind::Unavailable,
        ),
        (
            "57P03",
            "the database system is shutting down",
            ErrorKind::Unavailable,
        ),
        (
            "08P01",
            "no more connections allowed (max_client_conn)",
            ErrorKind::Unavailable,
        ),
        (
            "28P01",
            "password authentication failed for user \"me\"",
            ErrorKind::Refused,
        ),
        ("28000", "no pg_hba.conf entry for host", ErrorKind::Refused),
        (
            "3D000",
            "database \"shop\" does not exist",
            ErrorKind::InvalidOptions,
        ),
    ] {
        for url in [
            "postgres://me:hush@HOST/shop",
            "postgres://me:hush@HOST/shop?locks=session",
        ] {
            told(url, postgres(code, text), kind, text).await;
        }
    }
}

/// An error of MySQL in place of its handshake.
#[cfg(feature = "mysql")]
fn mysql(code: u16, text: &str) -> Vec<u8> {
    let error = [&[0xff], &code.to_le_bytes()[..], text.as_bytes()].concat();
    let length = u32::try_from(error.len()).unwrap().to_le_bytes();
    [&length[..3], &[0], &error].concat()
}

#[cfg(feature = "mysql")]
#[tokio::test]
async fn t76_the_errors_of_connecting_to_mysql() {
    for (code, text, kind) in [
        (1040, "Too many connections", ErrorKind::Unavailable),
        (
            1203,
            "User me already has more than 'max_user_connections'",
            ErrorKind::Unavailable,
        ),
        (1053, "Server shutdown in progress", ErrorKind::Unavailable),
        (
            1129,
            "Host is blocked because of many connection errors",
            ErrorKind::Refused,
        ),
        (1130, "Host is not allowed to connect", ErrorKind::Refused),
    ] {
        told("mysql://me:hush@HOST/shop", mysql(code, text), kind, text).await;
    }
}

#[cfg(feature = "memcached")]
#[tokio::test]
async fn t76_the_errors_of_connecting_to_memcached() {
    for url in ["memcached://HOST", "memcached://me:hush@HOST"] {
        let full = b"ERROR Too many open connections\r\n".to_vec();
        told(url, full, ErrorKind::Unavailable, "Too many").await;
    }
    let wrong = b"CLIENT_ERROR authentication failure\r\n".to_vec();
    told(
        "memcached://me:hush@HOST",
        wrong,
        ErrorKind::Refused,
        "password",
    )
    .await;
}

/// A server that is full, or has no quorum, closes the connection without a message.
#[cfg(feature = "zookeeper")]
#[tokio::test]
async fn t76_a_zookeeper_that_hangs_up_may_be_asked_again() {
    told("zookeeper://HOST", Vec::new(), ErrorKind::Unavailable, "").await;
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn t76_an_etcd_that_hangs_up_may_be_asked_again() {
    told("etcd://HOST", Vec::new(), ErrorKind::Unavailable, "").await;
}
