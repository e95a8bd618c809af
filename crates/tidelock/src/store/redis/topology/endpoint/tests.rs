//! How a server is connected to, and which servers are refused.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use super::*;
use crate::store::redis::address::{Address, ServerAddress};
use crate::store::redis::topology::known_nodes;
use crate::store::redis::topology::tests::{endpoint_at, endpoint_to};
use crate::store::redis::wire::live_connection::peer::in_time;
use crate::store::redis::wire::tests::replies::{all_slots, text, texts};
use crate::store::redis::wire::tests::{HANG_UP, LIMIT, SILENCE, ScriptedServer, loopback};
use crate::store::{Background, Clock};

fn endpoint_of(server: &ScriptedServer) -> Arc<Endpoint> {
    endpoint_to(server.address(), LIMIT).0
}

/// A new connection for commands.
async fn enter(endpoint: &Endpoint) -> Result<LiveConnection> {
    in_time(endpoint.enter(None, endpoint.deadline())).await
}

async fn subscribe(endpoint: &Endpoint) -> LiveConnection {
    let listens: PushHandler = Arc::new(|_| {});
    let entering = endpoint.enter(Some(listens), endpoint.deadline());
    in_time(entering).await.unwrap()
}

/// A slow credentials callback must not delay renewals and deadlines.
#[tokio::test]
async fn credentials_are_asked_for_on_a_thread_of_their_own() {
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (background, stop) = Background::start(Clock::Boot).unwrap();
    let timers = Timers::new(Clock::Boot);
    background.spawn(timers.clone().drive());
    let asked: Arc<Mutex<Vec<std::thread::ThreadId>>> = Arc::default();
    let seen = Arc::clone(&asked);
    let url = format!("redis://{}", mute.local_addr().unwrap());
    let ServerAddress::One(address) = Address::parse(&url).unwrap().way else {
        panic!("one server");
    };
    let entry = EndpointLogin {
        credentials: Some(Arc::new(move || {
            seen.lock().unwrap().push(std::thread::current().id());
            Credentials::default()
        })),
        ..EndpointLogin::default()
    };
    let limit = Duration::from_millis(300);
    let endpoint = Endpoint::new(ServerFinder::Fixed(address), entry, timers, limit);
    let steward = background.run(async move {
        assert!(endpoint.enter(None, endpoint.deadline()).await.is_err());
        std::thread::current().id()
    });
    let steward = steward.await.unwrap();
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 1);
    assert_ne!(asked[0], steward);
    drop(stop);
}

#[tokio::test]
async fn a_server_that_greets_nobody_is_refused_and_one_that_forbids_ping_is_not() {
    for (reply, kind) in [
        ("+PONG\r\n", None),
        ("-NOPERM no permissions\r\n", None),
        (
            "-NOAUTH Authentication required.\r\n",
            Some(ErrorKind::Refused),
        ),
        ("-LOADING loading\r\n", Some(ErrorKind::Unavailable)),
        // No lock was asked for, so nothing is in doubt.
        ("-ERR something new\r\n", Some(ErrorKind::Unavailable)),
        (HANG_UP, Some(ErrorKind::Unavailable)),
    ] {
        let server = ScriptedServer::start().await;
        server.answers("PING", &[reply]);
        let endpoint = endpoint_of(&server);
        let refusal = enter(&endpoint).await.err();
        assert_eq!(refusal.as_ref().map(Error::kind), kind, "{reply}");
        let address = server.address().to_string();
        let names_it = |error: Error| error.to_string().contains(&address);
        assert!(refusal.is_none_or(names_it), "{reply}");
        // After each of them the server may be another one.
        let _ = enter(&endpoint).await;
        assert_eq!(endpoint.connects(), 2);
    }
}

#[tokio::test]
async fn only_a_node_of_a_cluster_must_prove_that_it_is_ours() {
    let server = ScriptedServer::start().await;
    let others = all_slots(server.port, "x");
    server.answers("CLUSTER SLOTS", &[&others]);
    for in_cluster in [false, true] {
        let entry = EndpointLogin {
            in_cluster,
            ..EndpointLogin::default()
        };
        entry.known_nodes.replace(["a".to_owned()].into());
        let endpoint = endpoint_at(ServerFinder::Fixed(server.address()), entry);
        let refusal = enter(&endpoint).await.err();
        let refusal = refusal.map(|error| error.to_string()).unwrap_or_default();
        let is_refused = refusal.contains(known_nodes::ANOTHER_CLUSTER);
        assert_eq!(is_refused, in_cluster, "{refusal}");
        assert_eq!(server.heard("CLUSTER").len(), usize::from(in_cluster));
    }
}

#[tokio::test]
async fn all_connections_to_a_server_that_is_left_end_also_the_one_that_is_opening() {
    let server = ScriptedServer::start().await;
    let endpoint = endpoint_of(&server);
    let open = [
        enter(&endpoint).await.unwrap(),
        enter(&endpoint).await.unwrap(),
        subscribe(&endpoint).await,
    ];
    server.answers("PING", &[SILENCE]);
    let leaving = async {
        server.hears("PING", 4).await;
        assert!(open.iter().all(LiveConnection::alive));
        endpoint.leave();
    };
    let (opening, ()) = tokio::join!(enter(&endpoint), leaving);
    assert_eq!(
        opening.map(drop).unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    assert!(!open.iter().any(LiveConnection::alive));
    assert_eq!(endpoint.times_left(), 1);
}

/// Its requests end at the same moment, with an error of their own.
#[tokio::test]
async fn a_connect_to_a_server_that_is_left_always_says_that_another_one_has_replaced_it() {
    let server = ScriptedServer::start().await;
    server.answers("PING", &[SILENCE]);
    let endpoint = endpoint_of(&server);
    for nth in 1..=20 {
        let leaving = async {
            server.hears("PING", nth).await;
            endpoint.leave();
        };
        let (opening, ()) = tokio::join!(enter(&endpoint), leaving);
        let error = opening.map(drop).unwrap_err();
        let told = error.detail().unwrap_or_default();
        assert!(
            told.ends_with("another server has replaced it"),
            "{nth}: {told}"
        );
    }
}

/// Behind a proxy another server may be the primary. In a cluster the slot map names it.
#[tokio::test]
async fn subscriptions_follow_to_the_new_primary_once_the_address_leads_there() {
    let server = ScriptedServer::start().await;
    for in_cluster in [false, true] {
        let entry = EndpointLogin {
            in_cluster,
            ..EndpointLogin::default()
        };
        let endpoint = endpoint_at(ServerFinder::Fixed(server.address()), entry);
        let subscription = subscribe(&endpoint).await;
        enter(&endpoint).await.unwrap();
        assert!(subscription.alive(), "nobody has said that it is a replica");
        endpoint.replaced();
        server.answers("INFO replication", &[&text("role:slave\r\n")]);
        enter(&endpoint).await.unwrap();
        subscribe(&endpoint).await;
        assert!(subscription.alive(), "the address leads to the replica");
        server.answers("INFO replication", &[&text("role:master\r\n")]);
        enter(&endpoint).await.unwrap();
        assert_eq!(subscription.alive(), in_cluster);
        let next = subscribe(&endpoint).await;
        enter(&endpoint).await.unwrap();
        assert!(next.alive(), "it is there already");
    }
}

/// Sentinels that answer as the test says.
#[derive(Default)]
struct ScriptedFinder {
    found: Mutex<VecDeque<Result<HostAddress>>>,
    current: Mutex<Option<HostAddress>>,
    /// The server that is named while the client connects.
    meanwhile: Option<HostAddress>,
    doubts: AtomicUsize,
    is_closed: AtomicBool,
}

impl fmt::Display for ScriptedFinder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the sentinels")
    }
}

impl PrimaryFinder for ScriptedFinder {
    fn find(&self) -> BoxFuture<'_, Result<HostAddress>> {
        let next = self.found.lock().unwrap().pop_front();
        Box::pin(std::future::ready(next.expect("it is not asked again")))
    }

    fn note(&self, address: &HostAddress) -> bool {
        let named = self.meanwhile.as_ref().unwrap_or(address).clone();
        let before = self.current.lock().unwrap().replace(named);
        before.is_some_and(|before| before != *address)
    }

    fn is_at(&self, address: &HostAddress) -> bool {
        self.current.lock().unwrap().as_ref() == Some(address)
    }

    fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::SeqCst);
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }
}

fn gives_up() -> Result<HostAddress> {
    Err(Error::new(ErrorKind::InvalidOptions).because("no such service"))
}

#[tokio::test]
async fn only_a_server_that_says_it_is_the_primary_is_used() {
    let primary = texts(&["master", "0"]);
    let replica = texts(&["slave", "127.0.0.1", "1", "connected", "0"]);
    for (role, is_used) in [
        (&*primary, true),
        (&*replica, false),
        // The user may not ask, so the sentinels are believed.
        ("-NOPERM no permissions\r\n", true),
        ("-ERR something new\r\n", false),
        ("-LOADING loading\r\n", false),
        (HANG_UP, false),
    ] {
        let server = ScriptedServer::start().await;
        server.answers("ROLE", &[role]);
        let finder = ScriptedFinder::default();
        let found = [Ok(server.address()), gives_up()];
        finder.found.lock().unwrap().extend(found);
        let finder = ServerFinder::Primary(Arc::new(finder));
        let endpoint = endpoint_at(finder, EndpointLogin::default());
        let entered = enter(&endpoint).await;
        // After an error that may pass the finder is asked again, and then the service has gone.
        let kind = entered.map(drop).map_err(|error| error.kind());
        let expected = if is_used {
            Ok(())
        } else {
            Err(ErrorKind::InvalidOptions)
        };
        assert_eq!(kind, expected, "{role}");
    }
}

#[tokio::test]
async fn a_primary_that_is_replaced_while_it_is_connected_to_is_not_used() {
    let server = ScriptedServer::start().await;
    server.answers("ROLE", &[&texts(&["master", "0"])]);
    let finder = ScriptedFinder {
        meanwhile: Some(loopback(1)),
        ..ScriptedFinder::default()
    };
    let found = [Ok(server.address()), gives_up()];
    finder.found.lock().unwrap().extend(found);
    let finder = ServerFinder::Primary(Arc::new(finder));
    let endpoint = endpoint_at(finder, EndpointLogin::default());
    let refusal = enter(&endpoint).await.map(drop).unwrap_err();
    assert_eq!(refusal.kind(), ErrorKind::InvalidOptions);
    assert_eq!(server.heard("ROLE").len(), 1);
}

#[tokio::test]
async fn a_new_primary_ends_the_connections_to_the_old_one() {
    let (old, new) = (ScriptedServer::start().await, ScriptedServer::start().await);
    let finder = Arc::new(ScriptedFinder::default());
    for server in [&old, &old, &new] {
        server.answers("ROLE", &[&texts(&["master", "0"])]);
        let found = Ok(server.address());
        finder.found.lock().unwrap().push_back(found);
    }
    let primary = ServerFinder::Primary(Arc::clone(&finder) as _);
    let endpoint = endpoint_at(primary, EndpointLogin::default());
    let open = [
        enter(&endpoint).await.unwrap(),
        enter(&endpoint).await.unwrap(),
    ];
    assert!(open.iter().all(LiveConnection::alive));
    let current = enter(&endpoint).await.unwrap();
    assert!(current.alive() && !open.iter().any(LiveConnection::alive));
    assert_eq!(
        (endpoint.to_string(), endpoint.address()),
        ("the sentinels".to_owned(), None)
    );
    // The sentinels know which server is the primary.
    endpoint.doubt();
    endpoint.replaced();
    assert_eq!(finder.doubts.load(Ordering::SeqCst), 2);
    endpoint.close();
    assert!(finder.is_closed.load(Ordering::SeqCst));
}

#[tokio::test]
async fn an_endpoint_with_a_fixed_address_is_shown_by_it() {
    let server = ScriptedServer::start().await;
    let endpoint = endpoint_of(&server);
    let address = server.address();
    assert_eq!(endpoint.address(), Some(&address));
    assert_eq!(endpoint.to_string(), address.to_string());
}

#[test]
fn only_a_master_is_a_primary() {
    let role = |role: &str| Reply::List(vec![Reply::Text(role.as_bytes().to_vec())]);
    assert!(is_primary(&role("master")));
    for other in [role("slave"), role("sentinel"), Reply::Nil] {
        assert!(!is_primary(&other), "{other:?}");
    }
}
