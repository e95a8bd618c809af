//! A connection that reconnects: what ends it, and what it tells its callers.

use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::error::ErrorKind;
use crate::store::memcached::tests::{
    HANG_UP, LIMIT, SILENCE, ScriptedServer, closed_port, endpoint, in_time, simulated, skip,
};
use crate::store::memcached::wire::{Item, StoreMode};

impl Connection {
    /// The reply to a request for this key, within the response timeout.
    async fn get(&self, key: &str) -> Result<Reply> {
        let asked = self.ask_one(Command::get(key), None, self.deadline());
        asked.await.map(|(reply, _)| reply)
    }

    /// The connection on which the reply to such a request came. Repeats the request until there is one.
    async fn live(&self, key: &str) -> ConnectionId {
        loop {
            let asked = self.ask_one(Command::get(key), None, self.deadline());
            if let Ok((_, connection_id)) = asked.await {
                return connection_id;
            }
        }
    }
}

/// Reads one request.
async fn heard(peer: &mut TcpStream) -> Vec<u8> {
    let mut bytes = [0; 1024];
    let count = peer.read(&mut bytes).await.unwrap();
    bytes[..count].to_vec()
}

/// The server's side of a new connection, after its handshake.
async fn enters(listener: &TcpListener) -> TcpStream {
    let (mut peer, _) = listener.accept().await.unwrap();
    for answer in [&b"VERSION 1.6.18\r\n"[..], b"END\r\n"] {
        heard(&mut peer).await;
        peer.write_all(answer).await.unwrap();
    }
    peer
}

#[tokio::test]
async fn a_reply_that_nobody_asked_for_answers_no_request() {
    let server = ScriptedServer::start().await;
    let connection = server.connection();
    for surplus in ["ERROR\r\n", "E"] {
        server.answers("mg a", &[&format!("EN\r\n{surplus}")]);
        assert_eq!(connection.get("a").await.unwrap(), Reply::Missing);
        let ended = async {
            while server.open_connections() > 0 {
                tokio::task::yield_now().await;
            }
        };
        in_time(ended).await;
    }
    // After the handshake it would answer the first request.
    server.answers("stats settings", &["END\r\nERROR\r\n"]);
    let refused = connection.get("a").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(refused.to_string().contains("nobody asked for"));
}

/// A part of the next reply comes together with a whole one.
#[tokio::test]
async fn a_part_of_a_reply_is_no_surplus() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (background, timers) = simulated();
    let place = listener.local_addr().unwrap().to_string();
    let connection = Connection::new(Arc::new(endpoint(&place, timers)), &background);
    let (told, first_has_its_reply) = oneshot::channel();
    let serving = async {
        let mut peer = enters(&listener).await;
        let both = Command::get("a").bytes.len() * 2;
        let mut asked = 0;
        while asked < both {
            let more = heard(&mut peer).await.len();
            assert!(more > 0, "the client has ended the connection");
            asked += more;
        }
        peer.write_all(b"EN\r\nVA 1 c1").await.unwrap();
        first_has_its_reply.await.unwrap();
        peer.write_all(b" t9\r\nx\r\n").await.unwrap();
        peer
    };
    let first = async {
        let found = connection.get("a").await.unwrap();
        told.send(()).unwrap();
        found
    };
    let (_peer, first, second) = tokio::join!(serving, first, connection.get("b"));
    assert_eq!(first, Reply::Missing);
    let item = Item {
        value: b"x".to_vec(),
        cas: 1,
        left: Some(9),
    };
    assert_eq!(second.unwrap(), Reply::Value(item));
}

/// The server has restarted, and its first item has the CAS number of an earlier one.
#[tokio::test]
async fn a_value_read_on_one_connection_is_never_compared_on_another() {
    let server = ScriptedServer::start().await;
    let connection = server.connection();
    server.answers("mg a", &[&format!("EN\r\n{HANG_UP}")]);
    let first = connection.live("a").await;
    let delete = |only_on| {
        let delete = Command::delete("a", 1);
        connection.ask_one(delete, Some(only_on), connection.deadline())
    };
    let second = connection.live("b").await;
    assert_ne!(first, second);
    let refused = delete(first).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(server.heard("md").is_empty());
    let (reply, _) = delete(second).await.unwrap();
    assert_eq!(reply, Reply::Done(None));
    assert_eq!(server.connections("md"), [1]);
}

#[tokio::test]
async fn no_conditional_request_opens_a_connection() {
    let server = ScriptedServer::start().await;
    let connection = server.connection();
    let first = connection.live("a").await;
    let idle = server.connection();
    let delete = Command::delete("a", 1);
    let refused = idle.ask_one(delete, Some(first), idle.deadline()).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(server.open_connections(), 1);
}

/// The connection may be half-open, and the reply to the next request would wait for that to the first one.
#[tokio::test]
async fn a_request_without_a_reply_ends_its_connection_and_all_behind_it_are_in_doubt() {
    let server = ScriptedServer::start().await;
    server.answers("mg a", &[SILENCE]);
    let connection = server.connection();
    let later = connection.deadline() + LIMIT;
    let behind = connection.ask_one(Command::get("b"), None, later);
    let passing = async {
        server.hears("mg a", 1).await;
        skip(LIMIT).await;
    };
    let (late, behind, ()) = tokio::join!(connection.get("a"), behind, passing);
    let (late, behind) = (late.unwrap_err(), behind.unwrap_err());
    let place = format!("memcached://127.0.0.1:{}", server.port);
    for (error, told) in [
        (late, format!("{place}: no answer within 10s")),
        (
            behind,
            "an earlier request was not answered in time".to_owned(),
        ),
    ] {
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
        assert_eq!(error.detail(), Some(&*told));
    }
    connection.get("c").await.unwrap();
    assert_eq!(server.connections("mg c"), [1]);
}

/// As a probe does that waits for a second only: no caller is there at the deadline.
#[tokio::test]
async fn a_connection_on_which_no_reply_came_is_left_although_its_caller_left_earlier() {
    let server = ScriptedServer::start().await;
    server.answers("mg a", &[SILENCE]);
    let connection = server.connection();
    tokio::select! {
        reply = connection.get("a") => panic!("{reply:?}"),
        () = server.hears("mg a", 1) => {}
    }
    skip(LIMIT).await;
    in_time(connection.get("c")).await.unwrap();
    assert_eq!(server.connections("mg c"), [1]);
}

/// The reply came after its caller had left.
#[tokio::test]
async fn a_caller_that_leaves_before_its_reply_costs_no_connection() {
    let server = ScriptedServer::start().await;
    let connection = server.connection();
    tokio::select! {
        biased;
        reply = connection.get("a") => panic!("{reply:?}"),
        () = server.hears("mg a", 1) => {}
    }
    connection.get("b").await.unwrap();
    skip(LIMIT).await;
    connection.get("c").await.unwrap();
    assert_eq!(server.connections("mg"), [0, 0, 0]);
}

#[tokio::test]
async fn a_connection_that_ends_leaves_its_requests_in_doubt() {
    let server = ScriptedServer::start().await;
    server.answers("mg a", &[HANG_UP]);
    let connection = server.connection();
    let error = connection.get("a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    let place = format!("memcached://127.0.0.1:{}: ", server.port);
    assert!(error.detail().unwrap_or_default().starts_with(&place));
    connection.get("c").await.unwrap();
    assert_eq!(server.connections("mg c"), [1]);
}

/// The handshake of the first attempt to connect is not answered.
async fn server_that_is_slow_to_greet() -> ScriptedServer {
    let server = ScriptedServer::start().await;
    server.answers("version", &[SILENCE, "VERSION 1.6.18\r\n"]);
    server
}

#[tokio::test]
async fn a_request_that_was_not_sent_in_time_has_no_effect_and_is_not_sent_later() {
    let server = server_that_is_slow_to_greet().await;
    let connection = server.connection();
    // It waits for longer than an attempt to connect may take: the error of the attempt says more.
    let later = connection.deadline() + LIMIT;
    let patient = connection.ask_one(Command::get("a"), None, later);
    let passing = async {
        server.hears("version", 1).await;
        skip(LIMIT).await;
    };
    let (patient, hasty, ()) = tokio::join!(patient, connection.get("b"), passing);
    let (patient, hasty) = (patient.unwrap_err(), hasty.unwrap_err());
    let place = format!("memcached://127.0.0.1:{}", server.port);
    for (error, why) in [(patient, "no connection"), (hasty, "no answer")] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let told = format!("{place}: {why} within 10s");
        assert_eq!(error.detail(), Some(&*told));
    }
    connection.get("c").await.unwrap();
    assert!(server.heard("mg a").is_empty() && server.heard("mg b").is_empty());
}

#[tokio::test]
async fn no_request_is_sent_for_a_caller_that_has_left() {
    let server = server_that_is_slow_to_greet().await;
    let connection = server.connection();
    let later = connection.deadline() + LIMIT;
    let first = connection.ask_one(Command::get("a"), None, later);
    let passing = async {
        server.hears("version", 1).await;
        let left = connection.ask_one(Command::get("b"), None, later);
        assert!(left.now_or_never().is_none());
        skip(LIMIT).await;
    };
    let (refused, ()) = tokio::join!(first, passing);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unavailable);
    connection.get("c").await.unwrap();
    assert!(server.heard("mg b").is_empty());
}

#[tokio::test]
async fn a_server_that_refuses_connections_is_named() {
    let (background, timers) = simulated();
    let place = format!("127.0.0.1:{}", closed_port().await);
    let connection = Connection::new(Arc::new(endpoint(&place, timers)), &background);
    let error = connection.get("a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let told = error.detail().unwrap_or_default();
    let named = told.starts_with(&format!("memcached://{place}: "));
    assert!(named && told.contains("refused"), "{told}");
}

#[tokio::test]
async fn a_request_in_flight_is_in_doubt_after_a_close_and_a_later_one_is_not_sent() {
    let server = ScriptedServer::start().await;
    server.answers("mg a", &[SILENCE]);
    let connection = server.connection();
    let closing = async {
        server.hears("mg a", 1).await;
        connection.close();
    };
    let (in_flight, ()) = tokio::join!(connection.get("a"), closing);
    assert_eq!(in_flight.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    in_time(connection.orders.closed()).await;
    let later = connection.get("b").await.unwrap_err();
    assert_eq!(later.kind(), ErrorKind::Unavailable);
    let told = later.detail().unwrap_or_default();
    assert!(told.ends_with("the connection was closed"), "{told}");
    assert!(server.heard("mg b").is_empty());
}

/// The buffers of TCP take a part of it at a time.
#[tokio::test]
async fn a_large_request_arrives_whole() {
    let server = ScriptedServer::start().await;
    let (background, timers) = simulated();
    let mut endpoint = endpoint(&format!("127.0.0.1:{}", server.port), timers);
    endpoint.limit = LIMIT * 5;
    let connection = Connection::new(Arc::new(endpoint), &background);
    let value = vec![b'x'; 1 << 23];
    let store = Command::store("a", &value, 9, StoreMode::Set);
    let stored = connection.ask_one(store, None, connection.deadline()).await;
    assert_eq!(stored.unwrap().0, Reply::Done(None));
    let heard = server.heard("ms a").remove(0);
    let written = heard.strip_prefix("ms a 8388608 T9 ").unwrap();
    assert_eq!(written.as_bytes(), value);
}

#[tokio::test]
async fn a_connection_is_shown_without_its_login() {
    let server = ScriptedServer::start().await;
    let connection = server.connection_as("me:secret@", None);
    let place = format!("memcached://127.0.0.1:{}", server.port);
    assert_eq!(format!("{connection:?}"), place);
}
