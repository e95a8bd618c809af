//! `close` of a client whose store is a member of another client's set.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tidelock::store::{AttemptReply, AttemptRequest, Backend, BoxFuture};
use tidelock::testing::{Twist, Twisted};
use tidelock::{Client, ErrorKind, Guard, HoldState, Lock, LostReason, RedLock};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

const SECOND: Duration = Duration::from_secs(1);
/// Three leases.
const LONG: Duration = Duration::from_secs(90);

/// Records whether a lock was held when a side of the store was closed.
#[derive(Debug, Clone, Default)]
struct Closing {
    guard: Arc<OnceLock<Arc<Guard>>>,
    held: Arc<Mutex<Vec<bool>>>,
}

impl Twist for Closing {
    fn close<'a>(&'a self, inner: &'a dyn Backend) -> BoxFuture<'a, ()> {
        let held = self.guard.get().is_some_and(|guard| guard.is_held());
        self.held.lock().unwrap().push(held);
        inner.close()
    }
}

fn store() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("memory:guests-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Replies a second after it has decided.
#[derive(Debug)]
struct LateReply;

impl Twist for LateReply {
    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        Box::pin(async move {
            let reply = inner.attempt(ask).await;
            tokio::time::sleep(SECOND).await;
            reply
        })
    }
}

async fn twisted<T: Twist>(store: &str, twist: T) -> Client {
    let settings = Client::builder()
        .simulated_time()
        .publish_process_info(false);
    let client = settings.connect_to(async |env| {
        let store = tidelock::testing::open(store, env).await?;
        Ok(Twisted::wrap(store, twist))
    });
    client.await.unwrap()
}

async fn client(store: &str) -> Client {
    twisted(store, Closing::default()).await
}

async fn clients<const N: usize>() -> ([Client; N], [Client; N]) {
    let (mut clients, mut watchers) = (Vec::new(), Vec::new());
    for _ in 0..N {
        let store = store();
        clients.push(client(&store).await);
        watchers.push(client(&store).await);
    }
    (clients.try_into().unwrap(), watchers.try_into().unwrap())
}

fn close(client: &Client, grace: Duration) -> JoinHandle<usize> {
    let client = client.clone();
    tokio::spawn(async move { client.close(grace).await })
}

async fn is_free(lock: &Lock) -> bool {
    !lock.inspect().await.unwrap().is_locked()
}

/// If it closed at once, a store with sessions would free its part while the set is held, and on others no renewal would
/// arrive there any more.
#[tokio::test(start_paused = true)]
async fn the_client_of_a_part_waits_for_the_hold_of_the_set() {
    for both_close in [false, true] {
        let ([a, b], [watcher_a, watcher_b]) = clients().await;
        let both = a.multi_lock([a.lock("x"), b.lock("y")]).unwrap();
        let guard = both.acquire().await.unwrap();
        let others = both_close.then(|| close(&a, LONG * 2));
        let mut closing = close(&b, LONG * 2);
        assert!(timeout(LONG, &mut closing).await.is_err());
        assert_eq!(guard.state(), HoldState::Held);
        assert!(!is_free(&watcher_b.lock("y")).await);
        guard.release().await.unwrap();
        let left = timeout(SECOND / 100, closing).await.expect("at once");
        assert_eq!(left.unwrap(), 0);
        if let Some(others) = others {
            assert_eq!(others.await.unwrap(), 0);
        }
        assert!(is_free(&watcher_a.lock("x")).await);
        assert!(is_free(&watcher_b.lock("y")).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_is_told_before_the_client_of_a_part_closes_its_store() {
    for both_close in [false, true] {
        let ([a], [watcher_a]) = clients().await;
        let (closed, store) = (Closing::default(), store());
        let (b, watcher_b) = (twisted(&store, closed.clone()).await, client(&store).await);
        let parts = [a.lock("x"), b.lock("y"), b.lock("z")];
        let both = a.multi_lock(parts).unwrap();
        let guard = both.acquire().await.unwrap();
        let guard = Arc::clone(closed.guard.get_or_init(|| Arc::new(guard)));
        let begun = Instant::now();
        let others = both_close.then(|| close(&a, SECOND * 10));
        let closing = close(&b, SECOND * 10);
        let told = timeout(SECOND * 11, guard.lost()).await;
        assert_eq!(told.expect("it is told"), LostReason::Closed);
        assert!(begun.elapsed() >= SECOND * 10);
        let mut left = closing.await.unwrap();
        if let Some(others) = others {
            left += others.await.unwrap();
        }
        assert_eq!(left, 1, "it is counted once");
        let held = closed.held.lock().unwrap().clone();
        assert!(!held.is_empty() && !held.contains(&true), "{held:?}");
        assert!(is_free(&watcher_a.lock("x")).await);
        for part in ["y", "z"] {
            assert!(is_free(&watcher_b.lock(part)).await);
        }
        let error = both.try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
    }
}

/// Although two of three servers are enough: the guard may have been granted by two, of which this is one.
#[tokio::test(start_paused = true)]
async fn a_guard_of_a_majority_ends_with_the_client_of_a_server() {
    let (servers, watchers) = clients::<3>().await;
    let redlock = RedLock::new(servers.clone()).unwrap();
    let guard = redlock.lock("x").acquire().await.unwrap();
    let closing = close(&servers[1], SECOND * 10);
    assert!(timeout(SECOND * 9, guard.lost()).await.is_err());
    let told = timeout(SECOND * 2, guard.lost()).await;
    assert_eq!(told.expect("it is told"), LostReason::Closed);
    assert_eq!(closing.await.unwrap(), 1);
    for watcher in &watchers {
        assert!(is_free(&watcher.lock("x")).await);
    }
}

#[tokio::test(start_paused = true)]
async fn the_client_of_a_server_waits_for_the_hold_of_a_majority() {
    let (servers, watchers) = clients::<3>().await;
    let redlock = RedLock::new(servers.clone()).unwrap();
    let guard = redlock.lock("x").acquire().await.unwrap();
    let mut closing = close(&servers[1], LONG * 2);
    assert!(timeout(LONG, &mut closing).await.is_err());
    assert!(!is_free(&watchers[1].lock("x")).await);
    drop(guard);
    let left = timeout(SECOND / 100, closing).await.expect("at once");
    assert_eq!(left.unwrap(), 0);
    for watcher in &watchers {
        assert!(is_free(&watcher.lock("x")).await);
    }
}

/// A `RedLock` belongs to its first client. As a part of another set it needs the clients of all its servers.
#[tokio::test(start_paused = true)]
async fn the_client_of_a_server_waits_for_the_hold_of_a_set_with_its_majority() {
    for closes in 0..3 {
        let (servers, watchers) = clients::<3>().await;
        let ([a], [watcher_a]) = clients().await;
        let redlock = RedLock::new(servers.clone()).unwrap();
        let both = a.multi_lock([redlock.lock("x"), a.lock("y")]).unwrap();
        let guard = both.acquire().await.unwrap();
        let closing = close(&servers[closes], SECOND * 10);
        assert!(timeout(SECOND * 9, guard.lost()).await.is_err());
        assert!(!closing.is_finished(), "server {closes}");
        assert!(!is_free(&watchers[closes].lock("x")).await);
        let told = timeout(SECOND * 2, guard.lost()).await;
        assert_eq!(told.expect("it is told"), LostReason::Closed);
        assert_eq!(closing.await.unwrap(), 1);
        assert!(is_free(&watcher_a.lock("y")).await);
        for watcher in &watchers {
            assert!(is_free(&watcher.lock("x")).await);
        }
    }
}

/// A guard that is lost holds nothing, and a signal of a hold that has ended keeps nobody.
#[tokio::test(start_paused = true)]
async fn the_client_of_a_part_does_not_wait_for_what_has_ended() {
    let ([a, b], [watcher_a, _]) = clients().await;
    let both = a.multi_lock([a.lock("x"), b.lock("y")]).unwrap();
    let guard = both.acquire().await.unwrap();
    let signal = guard.lost();
    guard.release().await.unwrap();
    let guard = both.acquire().await.unwrap();
    watcher_a.lock("x").force_release().await.unwrap();
    assert_eq!(guard.lost().await, LostReason::Taken);
    let left = timeout(SECOND / 100, b.close(LONG)).await.expect("at once");
    assert_eq!(left, 0);
    drop(signal);
}

/// Otherwise the grant would come when the store of that client is closed, and its part would stay locked for a lease.
#[tokio::test(start_paused = true)]
async fn the_client_of_a_part_waits_for_an_attempt_in_flight() {
    let ([a], [watcher_a]) = clients().await;
    let store = store();
    let (b, watcher_b) = (twisted(&store, LateReply).await, client(&store).await);
    let both = a.multi_lock([a.lock("x"), b.lock("y")]).unwrap();
    let acquire = tokio::spawn(async move { both.acquire().await.map(drop) });
    tokio::time::sleep(SECOND / 2).await;
    assert!(!is_free(&watcher_b.lock("y")).await, "it is granted");
    assert_eq!(b.close(Duration::ZERO).await, 0);
    assert!(is_free(&watcher_b.lock("y")).await);
    let error = acquire.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(is_free(&watcher_a.lock("x")).await);
}
