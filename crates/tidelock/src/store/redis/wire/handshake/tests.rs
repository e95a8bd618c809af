//! The handshake against a scripted peer.

use std::sync::Arc;

use super::*;
use crate::store::redis::wire::driver::PushHandler;
use crate::store::redis::wire::live_connection::LiveConnection;
use crate::store::redis::wire::live_connection::peer::{HANDSHAKE, Peer, SETINFO, in_time, pair};

/// Whether the connection is for pushes, the requests, the replies, and the error.
type Greeting = (
    HandshakeLogin,
    bool,
    &'static [&'static str],
    &'static str,
    &'static str,
);

fn greetings() -> [Greeting; 7] {
    let login = |db, user: Option<&str>| HandshakeLogin {
        db,
        user: user.map(str::to_owned),
        password: Some("hunter2".to_owned()),
        in_cluster: false,
    };
    [
        (
            login(0, None),
            false,
            &["AUTH hunter2", "HELLO"],
            "-WRONGPASS no hunter2\r\n-NOAUTH no\r\n",
            "Stranger",
        ),
        (
            login(0, Some("me")),
            false,
            &["AUTH me hunter2", "HELLO"],
            "-WRONGPASS no\r\n-NOAUTH no\r\n",
            "Stranger",
        ),
        (
            login(0, None),
            false,
            &["AUTH hunter2", "HELLO"],
            "-LOADING no\r\n-LOADING no\r\n",
            "Server",
        ),
        (
            login(3, Some("me")),
            false,
            &["AUTH me hunter2", "HELLO", "SELECT 3"],
            "+OK\r\n-ERR unknown\r\n-ERR SELECT is not allowed\r\n",
            "Server",
        ),
        (
            login(3, None),
            true,
            &["HELLO 3 AUTH default hunter2", "SELECT 3"],
            "-WRONGPASS no\r\n+OK\r\n",
            "Server",
        ),
        (
            login(0, None),
            false,
            &["AUTH hunter2", "HELLO"],
            ":1\r\n-ERR unknown\r\n",
            "Ended",
        ),
        (
            login(0, None),
            false,
            &["AUTH hunter2", "HELLO"],
            "\x15\x03\r\n",
            "Ended",
        ),
    ]
}

#[tokio::test]
async fn a_handshake_reports_why_the_server_refuses() {
    for (login, pushes, handshake, answers, expected) in greetings() {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let mut peer = Peer(theirs);
        let push_handler: PushHandler = Arc::new(|_| {});
        let opening =
            <LiveConnection>::open(Box::pin(ours), &login, pushes.then_some(push_handler));
        let talk = async {
            peer.expects(handshake).await;
            peer.expects(&SETINFO).await;
            peer.says(format!("{answers}+OK\r\n+OK\r\n")).await;
        };
        let (closed, ()) = in_time(async { tokio::join!(opening, talk) }).await;
        let closed = format!("{:?}", closed.unwrap_err());
        assert!(closed.starts_with(expected), "{closed}");
        assert!(!closed.contains("hunter2"), "{closed}");
    }
}

/// A server that refuses a client gives the reason and closes the connection, whatever was asked.
#[tokio::test]
async fn the_reason_of_a_server_that_hangs_up_is_told_without_the_password() {
    for (said, expected) in [
        ("-ERR max number of clients reached\r\n", "Server("),
        ("-WRONGPASS no hunter2\r\n", "Ended("),
    ] {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let mut peer = Peer(theirs);
        let login = HandshakeLogin {
            db: 0,
            user: None,
            password: Some("hunter2".to_owned()),
            in_cluster: false,
        };
        let opening = <LiveConnection>::open(Box::pin(ours), &login, None);
        let talk = async {
            peer.says(said).await;
            drop(peer);
        };
        let (closed, ()) = in_time(async { tokio::join!(opening, talk) }).await;
        let closed = format!("{:?}", closed.unwrap_err());
        assert!(closed.starts_with(expected), "{closed}");
        assert!(!closed.contains("hunter2"), "{closed}");
    }
}

/// An old server does not know HELLO, and a newer one may answer in a way that we do not know.
#[tokio::test]
async fn the_greeting_of_a_server_tells_its_mode_and_is_not_needed() {
    for (said, mode) in [
        ("*2\r\n+mode\r\n+standalone\r\n", ServerMode::Standalone),
        ("*2\r\n+mode\r\n+sentinel\r\n", ServerMode::Unknown),
        ("*2\r\n+role\r\n+standalone\r\n", ServerMode::Unknown),
        ("-ERR unknown\r\n", ServerMode::Unknown),
        ("#t\r\n", ServerMode::Unknown),
    ] {
        let (opening, mut peer) = pair(None);
        let greeting = async {
            peer.expects(&HANDSHAKE).await;
            peer.says(format!("{said}+OK\r\n+OK\r\n")).await;
        };
        let (conn, ()) = in_time(async { tokio::join!(opening, greeting) }).await;
        assert_eq!(conn.unwrap().mode, mode, "{said}");
    }
}

/// A proxy in front of an old server rejects AUTH with a user name.
#[tokio::test]
async fn a_user_that_is_not_understood_is_left_out() {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let mut peer = Peer(theirs);
    let login = HandshakeLogin {
        db: 0,
        user: Some("me".to_owned()),
        password: Some("secret".to_owned()),
        in_cluster: false,
    };
    let opening = <LiveConnection>::open(Box::pin(ours), &login, None);
    let talk = async {
        peer.expects(&["AUTH me secret", "HELLO", SETINFO[0], SETINFO[1]])
            .await;
        peer.says(
            "-ERR wrong number of arguments for 'auth' command\r\n-NOAUTH\r\n-NOAUTH\r\n-NOAUTH\r\n",
        )
        .await;
        peer.expects(&["AUTH secret", "HELLO", SETINFO[0], SETINFO[1]])
            .await;
        peer.says("+OK\r\n-ERR unknown\r\n+OK\r\n+OK\r\n").await;
    };
    let (conn, ()) = in_time(async { tokio::join!(opening, talk) }).await;
    assert!(conn.unwrap().alive());
}

/// In both protocols, and for a user that may not read the configuration.
#[tokio::test]
async fn a_database_that_is_out_of_range_is_told_with_the_range() {
    let refused = "-NOPERM no permissions to run the 'config|get' command\r\n";
    let sixteen = "*2\r\n$9\r\ndatabases\r\n$2\r\n16\r\n";
    for (pushes, said, expected) in [
        (false, sixteen, "NoDatabase(Some(16))"),
        (true, sixteen, "NoDatabase(Some(16))"),
        (false, refused, "NoDatabase(None)"),
    ] {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let mut peer = Peer(theirs);
        let login = HandshakeLogin {
            db: 99,
            user: None,
            password: None,
            in_cluster: false,
        };
        let push_handler: PushHandler = Arc::new(|_| {});
        let opening =
            <LiveConnection>::open(Box::pin(ours), &login, pushes.then_some(push_handler));
        let talk = async {
            let hello = if pushes { "HELLO 3" } else { "HELLO" };
            peer.expects(&[hello, "SELECT 99", SETINFO[0], SETINFO[1]])
                .await;
            peer.says("*0\r\n-ERR DB index is out of range\r\n+OK\r\n+OK\r\n")
                .await;
            peer.expects(&["CONFIG GET databases"]).await;
            peer.says(said).await;
        };
        let (opened, ()) = in_time(async { tokio::join!(opening, talk) }).await;
        assert_eq!(format!("{:?}", opened.unwrap_err()), expected);
    }
}

/// In both protocols, and before we read the error of SELECT, which does not help the user.
#[tokio::test]
async fn a_node_of_a_cluster_is_told_from_a_single_server() {
    for (in_cluster, pushes, said, expected) in [
        (false, false, "cluster", "Err(ClusterNode)"),
        (false, true, "cluster", "Err(ClusterNode)"),
        (true, false, "cluster", "Err(Server("),
        (false, false, "standalone", "Err(Server("),
    ] {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let mut peer = Peer(theirs);
        let login = HandshakeLogin {
            db: 3,
            user: None,
            password: None,
            in_cluster,
        };
        let push_handler: PushHandler = Arc::new(|_| {});
        let opening =
            <LiveConnection>::open(Box::pin(ours), &login, pushes.then_some(push_handler));
        let talk = async {
            let hello = if pushes { "HELLO 3" } else { "HELLO" };
            peer.expects(&[hello, "SELECT 3", SETINFO[0], SETINFO[1]])
                .await;
            let head = if pushes { "%3" } else { "*6" };
            peer.says(format!(
                "{head}\r\n+server\r\n+redis\r\n+mode\r\n+{said}\r\n+modules\r\n*0\r\n"
            ))
            .await;
            peer.says("-ERR SELECT is not allowed\r\n+OK\r\n+OK\r\n")
                .await;
        };
        let (opened, ()) = in_time(async { tokio::join!(opening, talk) }).await;
        let opened = format!("{:?}", opened.map(drop));
        assert!(opened.starts_with(expected), "{opened}");
    }
}
