use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::*;
use crate::engine::runtime::sync::Mutex;
use crate::error::{Error, ErrorKind};
use crate::redlock::RedLock;
use crate::snapshot::Snapshot;
use crate::store::{BoxFuture, memory};
use crate::types::FencingToken;

const LEASE: Duration = Duration::from_secs(30);
const ANSWER: Duration = Duration::from_secs(3);

/// A store in memory that opens when the test lets it.
#[derive(Clone)]
struct Harbour {
    name: String,
    attempts: Arc<AtomicUsize>,
    /// One permit opens one store.
    permits: Arc<Semaphore>,
    /// The kind of error of an attempt to open the store.
    refusal: Arc<Mutex<Option<ErrorKind>>>,
}

impl Harbour {
    fn closed() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Self {
            name: format!("lazy {}", NEXT.fetch_add(1, Ordering::Relaxed)),
            attempts: Arc::default(),
            permits: Arc::new(Semaphore::new(0)),
            refusal: Arc::default(),
        }
    }

    fn open() -> Self {
        let harbour = Self::closed();
        harbour.permits.add_permits(1000);
        harbour
    }

    fn refusing(kind: ErrorKind) -> Self {
        let harbour = Self::open();
        *harbour.refusal.lock() = Some(kind);
        harbour
    }

    fn attempts(&self) -> usize {
        self.attempts.load(Ordering::SeqCst)
    }

    fn client(&self, settings: ClientBuilder) -> Client {
        let harbour = self.clone();
        let settings = settings.response_timeout(ANSWER).simulated_time();
        let client = settings.connect_lazy_with(
            |env| registry::outline("memory:", env),
            |env| {
                let env = env.clone();
                Box::new(move || {
                    let (harbour, env) = (harbour.clone(), env.clone());
                    Box::pin(async move {
                        harbour.attempts.fetch_add(1, Ordering::SeqCst);
                        let refusal = *harbour.refusal.lock();
                        if let Some(kind) = refusal {
                            return Err(Error::new(kind).because("nobody at home"));
                        }
                        harbour.permits.acquire().await.unwrap().forget();
                        memory::open(&harbour.name, memory::CAPABILITIES, None, &env)
                    })
                })
            },
        );
        client.unwrap()
    }

    /// Another client of the same store, connected in the ordinary way.
    async fn neighbour(&self) -> Client {
        let url = format!("memory:{}", self.name);
        let settings = Client::builder().publish_process_info(false);
        settings.simulated_time().connect(&url).await.unwrap()
    }

    async fn is_locked(&self, name: &str) -> bool {
        let neighbour = self.neighbour().await;
        neighbour.lock(name).inspect().await.unwrap().is_locked()
    }
}

fn quiet() -> ClientBuilder {
    Client::builder().publish_process_info(false)
}

/// The other tasks have done what they can without more time.
async fn settled() {
    tokio::time::sleep(Duration::from_micros(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_lazy_client_connects_with_its_first_operation_and_once() {
    let harbour = Harbour::open();
    // The record of the process waits for the connect, too.
    let client = harbour.client(Client::builder());
    settled().await;
    let status = client.status();
    assert!(!status.is_connected && status.since_last_answer.is_none());
    assert_eq!(harbour.attempts(), 0);
    let guard = client.lock("a").acquire().await.unwrap();
    assert!(client.status().is_connected);
    assert!(harbour.is_locked("a").await);
    settled().await;
    let shown = harbour.neighbour().await.lock("a").inspect().await.unwrap();
    assert!(
        shown.holders[0].client.is_some(),
        "the record of the process"
    );
    guard.release().await.unwrap();
    client.ping().await.unwrap();
    assert_eq!(harbour.attempts(), 1);
}

type Operation = fn(Client) -> BoxFuture<'static, crate::Result<()>>;

#[tokio::test(start_paused = true)]
async fn every_operation_connects() {
    let first: [Operation; 6] = [
        |client| Box::pin(async move { client.ping().await }),
        |client| Box::pin(async move { client.diagnose().await.map(drop) }),
        |client| Box::pin(async move { client.list("*").await.map(drop) }),
        |client| Box::pin(async move { client.lock("a").force_release().await.map(drop) }),
        |client| {
            Box::pin(async move {
                let seen = Snapshot::free("a");
                client.lock("a").force_release_if(&seen).await.map(drop)
            })
        },
        |client| {
            Box::pin(async move {
                client
                    .lock("a")
                    .fenced()
                    .raise_token(FencingToken::new(7))
                    .await
                    .map(drop)
            })
        },
    ];
    for operation in first {
        let harbour = Harbour::open();
        operation(harbour.client(quiet())).await.unwrap();
        assert_eq!(harbour.attempts(), 1);
        let harbour = Harbour::refusing(ErrorKind::OutcomeUnknown);
        let client = harbour.client(quiet());
        let error = operation(client.clone()).await.unwrap_err();
        // Nothing of the operation was sent.
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("nobody at home"), "{error}");
        assert_eq!(harbour.attempts(), 1, "one attempt");
        assert!(!client.status().is_connected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_limit_covers_the_connecting() {
    let harbour = Harbour::refusing(ErrorKind::Unavailable);
    let client = harbour.client(quiet());
    let begun = Instant::now();
    let limit = Duration::from_secs(5);
    let error = client.lock("a").acquire_timeout(limit).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("nobody at home"), "{error}");
    assert_eq!(begun.elapsed().as_secs(), 5);
    assert!(
        harbour.attempts() > 3,
        "with pauses: {}",
        harbour.attempts()
    );
    // The store starts while a caller waits.
    let lock = client.lock("a");
    let waits = tokio::spawn(async move { lock.acquire_timeout(limit).await });
    tokio::time::sleep(limit / 5).await;
    assert!(!waits.is_finished());
    *harbour.refusal.lock() = None;
    waits.await.unwrap().unwrap().release().await.unwrap();
    assert!(client.status().is_connected);
}

#[tokio::test(start_paused = true)]
async fn without_a_wait_limit_the_first_acquire_ends_after_a_lease_or_connect_within() {
    for (settings, expected) in [
        (quiet(), LEASE),
        (quiet().connect_within(LEASE / 2), LEASE),
        (quiet().connect_within(LEASE * 3), LEASE * 3),
    ] {
        let harbour = Harbour::refusing(ErrorKind::Unavailable);
        let client = harbour.client(settings.lease(LEASE));
        let begun = Instant::now();
        let error = client.lock("a").acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let took = begun.elapsed();
        assert!(took >= expected && took < expected + ANSWER, "{took:?}");
    }
    // Once connected, an outage ends after a lease.
    let (harbour, plug) = (Harbour::open(), crate::test_util::Plug::new());
    let client = harbour.client(quiet().connect_within(LEASE * 3).plug(&plug));
    client.ping().await.unwrap();
    plug.pull();
    let begun = Instant::now();
    client.lock("a").acquire().await.unwrap_err();
    assert!(begun.elapsed() < LEASE + ANSWER, "{:?}", begun.elapsed());
}

/// The clients of a set connect with its first acquire, which waits for them as it does for a single one.
#[tokio::test(start_paused = true)]
async fn the_first_acquire_of_a_set_waits_for_the_longest_connect_within() {
    let short = LEASE / 2;
    for (limits, expected) in [([short; 3], LEASE), ([short, LEASE * 3, short], LEASE * 3)] {
        for is_redlock in [false, true] {
            let clients = limits.map(|limit| {
                let settings = quiet().lease(LEASE).connect_within(limit);
                Harbour::closed().client(settings)
            });
            let lock = if is_redlock {
                RedLock::new(clients).unwrap().lock("a")
            } else {
                let parts = clients.each_ref().map(|client| client.lock("a"));
                clients[0].multi_lock(parts).unwrap()
            };
            let begun = Instant::now();
            let error = lock.acquire().await.unwrap_err();
            assert!(error.is_retryable(), "{error}");
            let took = begun.elapsed();
            let latest = expected + ANSWER * 2;
            assert!(took >= expected && took < latest, "{took:?}");
            // The others are too few, so nothing of the attempt in flight can be granted.
            let briefly = lock.acquire_timeout(ANSWER / 30).await;
            let error = briefly.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_permanent_error_ends_the_first_operation_at_once() {
    for kind in [
        ErrorKind::Refused,
        ErrorKind::InvalidOptions,
        ErrorKind::Unsupported,
    ] {
        let harbour = Harbour::refusing(kind);
        let client = harbour.client(quiet());
        let begun = Instant::now();
        let error = client.lock("a").acquire_timeout(LEASE).await.unwrap_err();
        assert_eq!(error.kind(), kind);
        assert_eq!(error.lock_name(), Some("a"));
        assert_eq!((harbour.attempts(), begun.elapsed()), (1, Duration::ZERO));
    }
}

#[tokio::test(start_paused = true)]
async fn many_tasks_connect_once() {
    let harbour = Harbour::closed();
    let client = harbour.client(quiet());
    let mut tasks = JoinSet::new();
    for n in 0..50 {
        let lock = client.lock(&format!("lock {}", n % 10));
        tasks.spawn(async move { lock.acquire().await?.release().await });
    }
    settled().await;
    assert_eq!(harbour.attempts(), 1);
    harbour.permits.add_permits(1);
    for done in tasks.join_all().await {
        done.unwrap();
    }
    assert_eq!(harbour.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_while_the_client_connects_leaves_nothing() {
    let harbour = Harbour::closed();
    let client = harbour.client(quiet());
    let lock = client.lock("a");
    let waits = tokio::spawn(async move { lock.acquire().await });
    settled().await;
    assert_eq!(harbour.attempts(), 1);
    waits.abort();
    // A wait limit ends while the store opens, too.
    let briefly = client.lock("b").acquire_timeout(ANSWER / 3).await;
    let error = briefly.unwrap_err();
    assert!(!error.is_timeout(), "nobody holds it: {error}");
    harbour.permits.add_permits(1);
    client.ping().await.unwrap();
    settled().await;
    for name in ["a", "b"] {
        assert!(!harbour.is_locked(name).await, "{name}");
    }
    assert!(client.is_idle());
    assert_eq!(harbour.attempts(), 1, "the connection was kept");
}

#[tokio::test(start_paused = true)]
async fn a_slow_attempt_that_all_have_given_up_still_opens_the_store() {
    let harbour = Harbour::closed();
    let client = harbour.client(quiet());
    let error = client.lock("a").inspect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    harbour.permits.add_permits(1);
    settled().await;
    client.lock("a").inspect().await.unwrap();
    assert_eq!(harbour.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_client_ends_the_attempt_to_connect() {
    let harbour = Harbour::closed();
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    // Some tasks of any client end only with the simulated time.
    drop(harbour.neighbour().await);
    settled().await;
    let of_any = tasks();
    let client = harbour.client(Client::builder());
    let held = Arc::strong_count(&harbour.permits);
    let lock = client.lock("a");
    let waits = tokio::spawn(async move { lock.inspect().await.map(drop) });
    settled().await;
    assert_eq!(Arc::strong_count(&harbour.permits), held + 1);
    waits.abort();
    drop(client);
    settled().await;
    assert_eq!(Arc::strong_count(&harbour.permits), 1);
    // The task that would publish the record of the process has ended, too.
    assert_eq!(tasks(), of_any * 2);
}

#[tokio::test(start_paused = true)]
async fn a_client_may_be_closed_before_and_while_it_connects() {
    let harbour = Harbour::open();
    let client = harbour.client(quiet());
    let begun = Instant::now();
    assert_eq!(client.close(LEASE).await, 0);
    assert_eq!((harbour.attempts(), begun.elapsed()), (0, Duration::ZERO));
    let error = client.lock("a").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!(client.ping().await.unwrap_err().kind(), ErrorKind::Closed);

    let harbour = Harbour::closed();
    let client = harbour.client(quiet());
    let lock = client.lock("a");
    let waits = tokio::spawn(async move { lock.acquire().await });
    settled().await;
    let begun = Instant::now();
    assert_eq!(client.close(Duration::ZERO).await, 0);
    assert!(begun.elapsed() <= ANSWER, "{:?}", begun.elapsed());
    harbour.permits.add_permits(1);
    let error = waits.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    settled().await;
    assert!(!harbour.is_locked("a").await);
    assert_eq!(harbour.attempts(), 1);
}

/// A set gives up a member that does not answer in time, and withdraws its ticket. The attempt still waits for the
/// store to open, and would be granted after that.
#[tokio::test(start_paused = true)]
async fn a_set_leaves_nothing_at_a_member_that_connects_late() {
    let late = Harbour::closed();
    let members = [
        late.client(quiet()),
        Harbour::open().client(quiet()),
        Harbour::open().client(quiet()),
    ];
    let builder = RedLock::builder(members.clone()).restart_guard(false);
    let redlock = builder.node_timeout(ANSWER / 30).build().unwrap();
    let guard = redlock.lock("a").acquire().await.unwrap();
    guard.release().await.unwrap();
    assert!(!members[0].status().is_connected);
    late.permits.add_permits(1);
    tokio::time::sleep(ANSWER).await;
    members[0].ping().await.unwrap();
    assert!(!late.is_locked("a").await);
    assert_eq!(late.attempts(), 1);
}
