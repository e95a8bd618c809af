//! A connection that reconnects: what ends it, what it tells its callers, and whom it leaves behind.

use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;

use super::*;
use crate::error::ErrorKind;
use crate::store::redis::topology::endpoint::{EndpointLogin, ServerFinder};
use crate::store::redis::topology::tests::{connection_to, endpoint_to};
use crate::store::redis::wire::driver::PushHandler;
use crate::store::redis::wire::live_connection::peer::{GREETED, HANDSHAKE, request_of};
use crate::store::redis::wire::tests::replies::texts;
use crate::store::redis::wire::tests::{
    HANG_UP, LIMIT, SILENCE, ScriptedServer, loopback, simulated, skip, tcp,
};
use crate::store::tls::handshake::peer::{TlsServer, hung_up, in_time};
use crate::store::{Background, Clock};

/// A connection on tokio's clock, which a test may pause.
fn tls_connection_to(server: &TlsServer) -> Connection {
    let (_, timers) = simulated();
    let address = tcp("127.0.0.1", server.port(), true);
    let entry = EndpointLogin {
        tls: server.files(),
        ..EndpointLogin::default()
    };
    let endpoint = Endpoint::new(ServerFinder::Fixed(address), entry, timers, LIMIT);
    Connection::new(Arc::new(endpoint), ConnectionRuntime::Caller)
}

/// The server reads the requests of a new connection, and answers them.
async fn welcomes(server: &TlsServer) -> impl Sized {
    let mut peer = server.serves().await;
    let looks = "+PONG\r\n-ERR unknown\r\n";
    for (requests, answers) in [
        (&HANDSHAKE[..], GREETED),
        (&["PING", "INFO replication"][..], looks),
    ] {
        let mut expected = Vec::new();
        for request in requests {
            request_of(request).write(&mut expected);
        }
        let mut heard = vec![0; expected.len()];
        peer.read_exact(&mut heard).await.unwrap();
        assert_eq!(String::from_utf8(heard), String::from_utf8(expected));
        peer.write_all(answers.as_bytes()).await.unwrap();
        peer.flush().await.unwrap();
    }
    peer
}

#[tokio::test]
async fn a_tls_server_that_is_frozen_is_given_up_in_time_and_connected_to_later() {
    let server = TlsServer::start().await;
    let connection = tls_connection_to(&server);
    let begun = connection.timers().now();
    // The caller waits for longer than an attempt may take: the error of the attempt says more than its own.
    let (refusal, peer) = tokio::join!(connection.get(begun + LIMIT * 2), server.freezes());
    let waited = connection.timers().now().since(begun);
    tokio::time::resume();
    assert!((LIMIT..LIMIT * 2).contains(&waited), "{waited:?}");
    let error = refusal.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let told = format!(
        "rediss://127.0.0.1:{}: no connection within 10s; if the port speaks plain text, write redis:// instead of rediss://",
        server.port()
    );
    assert_eq!(error.detail(), Some(&*told));
    hung_up(peer).await;
    let again = connection.get(connection.deadline());
    let (again, _peer) = in_time(async { tokio::join!(again, welcomes(&server)) }).await;
    assert!(again.unwrap().alive());
}

#[tokio::test]
async fn a_connection_that_is_dropped_in_a_tls_handshake_hangs_up_and_leaves_no_task() {
    let server = TlsServer::start().await;
    let connection = tls_connection_to(&server);
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let peer = tokio::select! {
        result = connection.get(connection.deadline()) => panic!("no answer: {result:?}"),
        peer = in_time(server.hears_a_hello()) => peer,
    };
    // The next caller would use its connection.
    assert_eq!(tasks(), before + 1, "the attempt goes on");
    drop(connection);
    hung_up(peer).await;
    assert_eq!(tasks(), before);
}

/// The attempt runs on the runtime of its caller, which is busy when it should begin. The server accepts and stays silent.
#[tokio::test]
async fn an_attempt_that_begins_late_still_tells_its_caller_why_it_failed() {
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (background, _stop) = Background::start(Clock::Boot).unwrap();
    let timers = Timers::new(Clock::Boot);
    background.spawn(timers.clone().drive());
    let address = loopback(mute.local_addr().unwrap().port());
    let (finder, limit) = (ServerFinder::Fixed(address), Duration::from_secs(2));
    let endpoint = Endpoint::new(finder, EndpointLogin::default(), timers, limit);
    let connection = Connection::new(Arc::new(endpoint), ConnectionRuntime::Caller);
    let deadline = connection.deadline() + limit / 4;
    let mut get = std::pin::pin!(connection.get(deadline));
    assert!(get.as_mut().now_or_never().is_none());
    std::thread::sleep(limit / 2);
    let error = get.await.unwrap_err().to_string();
    assert!(error.contains("no connection within 2s"), "{error}");
}

/// The server accepts and stays silent. Dropping the client also stops the thread that drives the timers.
#[tokio::test]
async fn a_client_that_is_given_up_while_it_connects_hangs_up() {
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", mute.local_addr().unwrap());
    let limit = Duration::from_millis(200);
    let connecting = tokio::time::timeout(limit, crate::Client::connect(&url));
    let (peer, _) = tokio::join!(async { mute.accept().await.unwrap().0 }, connecting);
    let hung_up = async {
        let mut bytes = [0; 1024];
        loop {
            peer.readable().await.unwrap();
            if matches!(peer.try_read(&mut bytes), Ok(0)) {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), hung_up)
        .await
        .expect("it hangs up");
}

const REPLICA: &str = "-READONLY You can't write against a read only replica.";

/// Whether the next request goes on the connection on which a request alone, or the first of a group, got this reply.
#[tokio::test]
async fn a_connection_is_used_until_a_reply_shows_that_it_is_of_no_use() {
    let replica = format!("{REPLICA}\r\n");
    for (reply, stays) in [
        ("+OK\r\n", true),
        ("-ERR something new\r\n", true),
        ("-NOPERM no permissions\r\n", true),
        ("-NOAUTH Authentication required.\r\n", false),
        (&*replica, false),
        (HANG_UP, false),
    ] {
        for is_group in [false, true] {
            let server = ScriptedServer::start().await;
            server.answers("ONE", &[reply]);
            let connection = connection_to(server.address());
            let deadline = connection.deadline();
            let conn = connection.get(deadline).await.unwrap();
            let (one, two) = (request_of("ONE"), request_of("TWO"));
            if is_group {
                let told = connection.settle_all(&conn, &[one, two], deadline).await;
                let replies = told.ok().map(|replies| replies.len());
                assert_eq!(replies, (reply != HANG_UP).then_some(2), "{reply}");
            } else {
                let told = connection.settle(&conn, &one, deadline).await;
                assert_eq!(told.is_ok(), reply.starts_with('+'), "{reply}");
            }
            let next = connection.ask(&request_of("NEXT"), deadline).await;
            next.unwrap();
            let is_same = server.connections("ONE") == server.connections("NEXT");
            assert_eq!(is_same, stays, "{reply}, group: {is_group}");
        }
    }
}

/// It may be half-open, and TCP would need minutes to notice.
#[tokio::test]
async fn a_connection_on_which_no_reply_came_in_time_is_left() {
    let server = ScriptedServer::start().await;
    server.answers("ONE", &[SILENCE]);
    let connection = connection_to(server.address());
    let one = request_of("ONE");
    let asked = connection.ask(&one, connection.deadline());
    let silence = async {
        server.hears("ONE", 1).await;
        skip(LIMIT).await;
    };
    let (told, ()) = in_time(async { tokio::join!(asked, silence) }).await;
    assert_eq!(told.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    let next = request_of("NEXT");
    let asked = connection.ask(&next, connection.deadline());
    in_time(asked).await.unwrap();
    assert_ne!(server.connections("ONE"), server.connections("NEXT"));
}

/// As a probe does that waits for a second only: no caller is there at the deadline.
#[tokio::test]
async fn a_connection_on_which_no_reply_came_is_left_although_its_callers_left_earlier() {
    for is_group in [false, true] {
        let server = ScriptedServer::start().await;
        server.answers("ONE", &[SILENCE]);
        let connection = connection_to(server.address());
        let deadline = connection.deadline();
        let conn = connection.get(deadline).await.unwrap();
        let one = request_of("ONE");
        let group = [one.clone(), request_of("TWO")];
        let asked = async {
            if is_group {
                drop(connection.settle_all(&conn, &group, deadline).await);
            } else {
                drop(connection.settle(&conn, &one, deadline).await);
            }
        };
        tokio::select! {
            () = asked => panic!("it is not answered"),
            () = server.hears("ONE", 1) => {}
        }
        let again = connection.get(deadline).await.unwrap();
        assert!(Arc::ptr_eq(&again, &conn), "the reply may still come");
        skip(LIMIT).await;
        let next = request_of("NEXT");
        in_time(connection.ask(&next, connection.deadline()))
            .await
            .unwrap();
        assert_ne!(server.connections("ONE"), server.connections("NEXT"));
    }
}

#[tokio::test]
async fn a_caller_that_leaves_before_its_reply_costs_no_connection() {
    let server = ScriptedServer::start().await;
    let connection = connection_to(server.address());
    let conn = connection.get(connection.deadline()).await.unwrap();
    let one = request_of("ONE");
    let asked = connection.settle(&conn, &one, connection.deadline());
    assert!(asked.now_or_never().is_none());
    for next in ["TWO", "THREE"] {
        let next = request_of(next);
        let asked = connection.ask(&next, connection.deadline());
        in_time(asked).await.unwrap();
        skip(LIMIT).await;
    }
    assert_eq!(server.connections("ONE"), server.connections("THREE"));
}

/// A script catches the error of a command, and returns it as a text.
#[tokio::test]
async fn a_script_whose_command_met_a_replica_ends_its_connection() {
    let server = ScriptedServer::start().await;
    server.answers("ONE", &[&texts(&[REPLICA])]);
    let connection = connection_to(server.address());
    for request in ["ONE", "NEXT"] {
        let request = request_of(request);
        let asked = connection.ask(&request, connection.deadline());
        asked.await.unwrap();
    }
    assert_ne!(server.connections("ONE"), server.connections("NEXT"));
}

#[tokio::test]
async fn a_connection_that_ended_while_it_was_idle_costs_no_request() {
    let server = ScriptedServer::start().await;
    server.answers("ONE", &[&format!("+OK\r\n{HANG_UP}")]);
    let connection = connection_to(server.address());
    let deadline = connection.deadline();
    let conn = connection.get(deadline).await.unwrap();
    let told = connection.settle(&conn, &request_of("ONE"), deadline).await;
    told.unwrap();
    in_time(conn.pipeline.end.notified()).await;
    let next = connection.ask(&request_of("NEXT"), deadline).await;
    next.unwrap();
}

/// Its caller has left, and for longer than an attempt may take nobody drove the runtime.
#[tokio::test]
async fn an_attempt_that_has_not_run_in_time_serves_those_who_ask_later() {
    let server = ScriptedServer::start().await;
    let connection = connection_to(server.address());
    let first = connection.get(connection.deadline());
    assert!(first.now_or_never().is_none());
    skip(LIMIT * 2).await;
    connection.get(connection.deadline()).await.unwrap();
    assert_eq!(server.heard("PING").len(), 1, "it is the same attempt");
}

/// Subscriptions leave a replica as soon as the address leads to a primary. A late reply says nothing of the server that is there.
#[tokio::test]
async fn only_the_connection_in_use_tells_that_the_server_is_a_replica() {
    let server = ScriptedServer::start().await;
    let (endpoint, _) = endpoint_to(server.address(), LIMIT);
    let connection = Connection::new(Arc::clone(&endpoint), ConnectionRuntime::Caller);
    let listens: PushHandler = Arc::new(|_| {});
    let subscription = endpoint.enter(Some(listens), endpoint.deadline()).await;
    let subscription = subscription.unwrap();
    let get = || connection.get(connection.deadline());
    let old = get().await.unwrap();
    connection.retire(&old);
    let new = get().await.unwrap();
    assert!(!Arc::ptr_eq(&new, &old));
    connection.replaced(&old);
    assert!(Arc::ptr_eq(&get().await.unwrap(), &new));
    connection.retire(&new);
    let newer = get().await.unwrap();
    assert!(subscription.alive());
    connection.replaced(&newer);
    let newest = get().await.unwrap();
    assert!(!Arc::ptr_eq(&newest, &newer) && !subscription.alive());
    connection.demoted(&newest);
    assert!(!Arc::ptr_eq(&get().await.unwrap(), &newest));
}

#[tokio::test]
async fn a_closed_connection_lets_go_of_what_belongs_to_it() {
    let server = ScriptedServer::start().await;
    let connection = connection_to(server.address());
    assert_eq!(connection.limit(), LIMIT);
    let conn = connection.get(connection.deadline()).await.unwrap();
    let kept = connection.attachments().get::<String>();
    connection.close();
    assert!(connection.attachments().is_empty() && kept.is_empty());
    let next = connection.get(connection.deadline()).await.unwrap();
    assert!(!Arc::ptr_eq(&next, &conn));
    let sibling = connection.sibling();
    let own = sibling.get(sibling.deadline()).await.unwrap();
    assert!(!Arc::ptr_eq(&own, &next));
}
