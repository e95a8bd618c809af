//! Tests of connect attempts: they ask for the credentials on another thread, each of them ends, the session timeout that
//! they request fits the protocol, and their caller hears why they fail.

use std::thread::{self, ThreadId};

#[cfg(target_os = "linux")]
use tokio::net::{TcpSocket, TcpStream};

use super::*;
#[cfg(target_os = "linux")]
use crate::store::tests::clock::simulated;
use crate::store::{Background, Clock};

const LIMIT: Duration = Duration::from_secs(5);

/// A connection to a port on which nobody listens, so each attempt ends at once.
fn to_nobody(env: &Env) -> Connection {
    let address = Address::parse("zookeeper://127.0.0.1:1/locks").unwrap();
    Connection::new(env, address, LIMIT)
}

/// A source that blocks must not delay renewals and deadlines. One that panics must not end the reconnecting.
#[tokio::test]
async fn credentials_are_asked_for_on_a_thread_of_their_own_and_again_after_a_panic() {
    let (background, stop) = Background::start(Clock::Boot).unwrap();
    let timers = Timers::new(Clock::Boot);
    background.spawn(timers.clone().drive());
    let asked = Arc::<Mutex<Vec<ThreadId>>>::default();
    let seen = Arc::clone(&asked);
    let mut env = Env::of_limits(timers, background.clone(), LIMIT);
    env.credentials = Some(Arc::new(move || {
        let mut seen = seen.lock();
        seen.push(thread::current().id());
        let calls = seen.len();
        drop(seen);
        assert_ne!(calls, 2, "this source panics on its second call");
        Credentials::new("me", "secret")
    }));
    let connection = to_nobody(&env);
    for call in 1..=3 {
        let Err(error) = connection.session(connection.deadline()).await else {
            panic!("nobody listens there");
        };
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let text = error.to_string();
        let panicked = text.contains("credentials_from panicked");
        assert_eq!(panicked, call == 2, "{text}");
        assert_eq!(asked.lock().len(), call);
    }
    let steward = background.run(async { thread::current().id() }).await;
    assert!(!asked.lock().contains(&steward.unwrap()));
    drop(stop);
}

/// As when its task panics, or the background thread ends.
#[test]
fn an_attempt_that_is_dropped_does_not_keep_the_next_one_out() {
    let (background, stop) = Background::start(Clock::Boot).unwrap();
    let env = Env::of_limits(Timers::new(Clock::Boot), background, LIMIT);
    let connection = to_nobody(&env);
    connection.slot.lock().connecting = true;
    drop(PendingConnect {
        slot: Arc::clone(&connection.slot),
        outcome: None,
    });
    let state = connection.slot.lock();
    assert!(!state.connecting && state.tries == 1);
    assert!(matches!(
        &state.last_error,
        Some((ErrorKind::Unavailable, _))
    ));
    drop(state);
    drop(stop);
}

/// The protocol has 32 bits for the timeout in milliseconds, and a sign.
#[test]
fn a_lease_of_weeks_requests_the_longest_session_that_the_protocol_knows() {
    let (background, stop) = Background::start(Clock::Boot).unwrap();
    let env = Env::of_limits(Timers::new(Clock::Boot), background, LIMIT);
    let day = Duration::from_secs(86_400);
    for lease in [day * 18, day * 20, day * 1000] {
        let address = Address::parse("zookeeper://127.0.0.1:1/locks").unwrap();
        let timeout = Connection::new(&env, address, lease).session_timeout();
        assert!(i32::try_from(timeout.as_millis()).is_ok(), "{timeout:?}");
        assert!(timeout >= (lease * 4 / 3).min(day * 24), "{timeout:?}");
    }
    drop(stop);
}

/// The driver has used a part of the time for which the caller waits.
#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_named_before_the_caller_has_left() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let port = listener.local_addr().unwrap().port();
    // Nobody accepts these, so Linux answers no further one.
    let mut peers = Vec::new();
    let (_background, timers) = simulated();
    while let Some(peer) = timers
        .limit(LIMIT, TcpStream::connect(("127.0.0.1", port)))
        .await
    {
        peers.push(peer.unwrap());
    }
    let url = format!("zookeeper://127.0.0.1:{port}/locks");
    let attempt = ConnectAttempt {
        address: Address::parse(&url).unwrap(),
        credentials: None,
        timeout: LIMIT,
        patience: LIMIT,
        timers: timers.clone(),
        old: None,
    };
    let asked = timers.now();
    let error = attempt.unopened(zk::Error::NoHosts).await;
    assert!(error.to_string().contains("it does not answer"), "{error}");
    assert!(timers.now() < asked + LIMIT);
}
