//! A majority of independent stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidelock::store::{Backend, BoxFuture, Incarnation, ServerRuns, ready};
use tidelock::test_util::Plug;
use tidelock::testing::{Twist, Twisted};
use tidelock::{AcquireOptions, Client, ErrorKind, LostReason, RedLock};

const LEASE: Duration = Duration::from_millis(900);

/// Clients of fresh stores, whose connections can be unplugged.
async fn servers(count: usize) -> (Vec<Client>, Vec<Plug>) {
    let (clients, plugs, _) = watched_servers(count).await;
    (clients, plugs)
}

/// The same, and for each a client of the same store that is never unplugged.
async fn watched_servers(count: usize) -> (Vec<Client>, Vec<Plug>, Vec<Client>) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let (mut clients, mut plugs, mut watchers) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..count {
        let url = format!("memory:redlock {}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let plug = Plug::new();
        let settings = Client::builder().lease(LEASE).response_timeout(LEASE);
        clients.push(settings.plug(&plug).connect(&url).await.unwrap());
        watchers.push(Client::connect(&url).await.unwrap());
        plugs.push(plug);
    }
    (clients, plugs, watchers)
}

async fn held_at(clients: &[Client], name: &str) -> usize {
    let mut count = 0;
    for client in clients {
        count += usize::from(client.lock(name).inspect().await.unwrap().is_locked());
    }
    count
}

async fn until_held_at(clients: &[Client], name: &str, count: usize) {
    let begun = Instant::now();
    while held_at(clients, name).await != count {
        assert!(
            begun.elapsed() < LEASE * 4,
            "held at {count} servers in time"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn it_survives_the_failure_of_fewer_than_half() {
    let (clients, plugs, watchers) = watched_servers(5).await;
    let redlock = RedLock::new(clients).unwrap();
    plugs[0].pull();
    plugs[3].pull();
    let guard = redlock.lock("x").acquire().await.unwrap();
    tokio::time::sleep(LEASE).await;
    assert!(guard.is_held());
    assert_eq!(held_at(&watchers, "x").await, 3);
    guard.release().await.unwrap();
    assert_eq!(held_at(&watchers, "x").await, 0);
}

#[tokio::test]
async fn without_a_majority_it_fails_and_nothing_is_left() {
    let (clients, plugs, watchers) = watched_servers(5).await;
    let redlock = RedLock::new(clients).unwrap();
    for plug in &plugs[..3] {
        plug.pull();
    }
    let patient = AcquireOptions::new().wait(LEASE / 3);
    let error = redlock.lock("x").acquire_with(patient).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("server 1 of 5: "), "{error}");
    until_held_at(&watchers, "x", 0).await;
}

#[tokio::test]
async fn a_lost_majority_is_told_within_the_lease() {
    let (clients, plugs) = servers(3).await;
    let redlock = RedLock::new(clients).unwrap();
    let guard = redlock.lock("x").acquire().await.unwrap();
    plugs[0].pull();
    plugs[2].pull();
    let told = tokio::time::timeout(LEASE, guard.lost()).await.unwrap();
    assert_eq!(told, LostReason::Expired);
}

#[tokio::test]
async fn a_server_that_forgot_the_lock_is_given_it_again() {
    let (clients, _) = servers(5).await;
    let redlock = RedLock::new(clients.clone()).unwrap();
    let guard = redlock.lock("x").acquire().await.unwrap();
    for client in &clients[..2] {
        assert!(client.lock("x").force_release().await.unwrap());
    }
    until_held_at(&clients, "x", 5).await;
    // These servers count again, so two others may fail now.
    for client in &clients[3..] {
        assert!(client.lock("x").force_release().await.unwrap());
    }
    until_held_at(&clients, "x", 5).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert_eq!(held_at(&clients, "x").await, 0);
}

#[tokio::test]
async fn a_majority_that_forgot_is_a_loss() {
    let (clients, _) = servers(5).await;
    let redlock = RedLock::new(clients.clone()).unwrap();
    let guard = redlock.lock("x").acquire().await.unwrap();
    for client in &clients[..3] {
        assert!(client.lock("x").force_release().await.unwrap());
    }
    let told = tokio::time::timeout(LEASE, guard.lost()).await.unwrap();
    assert_eq!(told, LostReason::Taken);
    drop(guard);
    until_held_at(&clients, "x", 0).await;
}

/// The replies of a minority of the servers are lost: the release withdraws what those servers may have granted.
#[tokio::test]
async fn the_remains_of_a_lost_reply_go_with_the_release() {
    let (clients, plugs) = servers(5).await;
    let redlock = RedLock::new(clients.clone()).unwrap();
    for _ in 0..10 {
        plugs[1].lose_replies(1);
        plugs[4].lose_replies(1);
        let guard = redlock.lock("x").acquire().await.unwrap();
        guard.release().await.unwrap();
        until_held_at(&clients, "x", 0).await;
    }
}

/// A failed attempt without a single holder must not claim that there is one.
#[tokio::test]
async fn a_round_that_fails_gives_back_what_it_got() {
    let (clients, _) = servers(5).await;
    let redlock = RedLock::new(clients.clone()).unwrap();
    let mut others = Vec::new();
    for client in &clients[..3] {
        others.push(client.lock("x").acquire().await.unwrap());
    }
    assert!(redlock.lock("x").try_acquire().await.unwrap().is_none());
    assert_eq!(held_at(&clients, "x").await, 3);
    others.pop().unwrap().release().await.unwrap();
    let guard = redlock.lock("x").try_acquire().await.unwrap();
    guard.expect("a majority is free").release().await.unwrap();
}

/// A store whose server has the same id as all others with this number of restarts.
#[derive(Debug, Default)]
struct SameRun(Arc<AtomicU64>);

impl ServerRuns for SameRun {
    fn server_run(&self) -> BoxFuture<'_, tidelock::Result<Option<Incarnation>>> {
        let id = format!("1:{}", self.0.load(Ordering::SeqCst)).into();
        let up = LEASE * 100;
        ready(Ok(Some(Incarnation { id, up })))
    }
}

impl Twist for SameRun {
    fn server_runs<'a>(&'a self, _inner: &'a dyn Backend) -> Option<&'a dyn ServerRuns> {
        Some(self)
    }
}

/// A server that is taken for another one has no vote, but it may have granted the lock.
#[tokio::test]
async fn what_a_server_without_a_vote_has_granted_is_given_back() {
    let mut clients = Vec::new();
    for number in 0..2 {
        let settings = Client::builder().lease(LEASE).response_timeout(LEASE);
        let client = settings.connect_to(async move |env: &tidelock::store::Env| {
            let url = format!("memory:redlock of one run {number}");
            let store = tidelock::testing::open(&url, env).await?;
            Ok(Twisted::wrap(store, SameRun::default()))
        });
        clients.push(client.await.unwrap());
    }
    let redlock = RedLock::new(clients.clone()).unwrap();
    let error = redlock.lock("x").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    assert_eq!(held_at(&clients, "x").await, 0);
}

/// Two of three clients connect to one server. The first of them does not answer when the lock is acquired, and then the other
/// server forgets it: the one server is no majority. `voted`: it has answered before, `restarted`: but not since the server
/// restarted.
#[tokio::test(start_paused = true)]
async fn one_server_with_two_addresses_keeps_no_lock_alone() {
    for (voted, restarted) in [(true, false), (false, false), (true, true)] {
        let (plug, mut clients) = (Plug::new(), Vec::new());
        let restarts = Arc::<AtomicU64>::default();
        for member in 0..3 {
            let mut settings = Client::builder().lease(LEASE).response_timeout(LEASE);
            if member == 0 {
                settings = settings.plug(&plug);
            }
            let url = format!("memory:two addresses {voted} {restarted} {}", member / 2);
            let run = Arc::clone(&restarts);
            let connected =
                settings
                    .simulated_time()
                    .connect_to(async move |env: &tidelock::store::Env| {
                        let store = tidelock::testing::open(&url, env).await?;
                        Ok(if member < 2 {
                            Twisted::wrap(store, SameRun(Arc::clone(&run)))
                        } else {
                            store
                        })
                    });
            clients.push(connected.await.unwrap());
        }
        let lock = RedLock::new(clients.clone()).unwrap().lock("x");
        if voted {
            lock.acquire().await.unwrap().release().await.unwrap();
        }
        restarts.fetch_add(u64::from(restarted), Ordering::SeqCst);
        tokio::time::sleep(LEASE).await; // before that a server that has restarted has no vote
        plug.pull();
        let guard = lock.acquire().await.unwrap();
        plug.put_back();
        assert!(clients[2].lock("x").force_release().await.unwrap());
        let told = tokio::time::timeout(LEASE, guard.lost()).await;
        let told = told.expect("a loss");
        assert_eq!(told, LostReason::Taken, "{voted} {restarted}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_eight_that_race_one_wins() {
    let (clients, _) = servers(5).await;
    let redlock = RedLock::new(clients).unwrap();
    for round in 0..5 {
        let name = format!("race:{round}");
        let mut racers = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let lock = redlock.lock(&name);
            racers.spawn(async move { lock.acquire().await.unwrap() });
        }
        let first = tokio::time::timeout(Duration::from_secs(2), racers.join_next());
        let winner = first.await.expect("a winner").unwrap().unwrap();
        assert!(winner.is_held());
        drop(winner);
        racers.abort_all();
    }
}

#[tokio::test]
async fn there_are_no_tokens() {
    let (clients, _) = servers(3).await;
    let redlock = RedLock::new(clients).unwrap();
    let error = redlock.lock("x").fenced().acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[tokio::test]
async fn a_number_that_is_no_majority_is_refused() {
    let (clients, _) = servers(2).await;
    let refused = |result: tidelock::Result<RedLock>| result.unwrap_err().kind();
    assert_eq!(refused(RedLock::new([])), ErrorKind::InvalidOptions);
    let twice = [clients[0].clone(), clients[1].clone(), clients[0].clone()];
    assert_eq!(refused(RedLock::new(twice)), ErrorKind::InvalidOptions);
    let no_time = RedLock::builder(clients).node_timeout(Duration::ZERO);
    assert_eq!(refused(no_time.build()), ErrorKind::InvalidOptions);
}

/// A minority of the servers may be down when the service starts.
#[cfg(feature = "redis")]
#[tokio::test]
async fn a_redlock_by_url_starts_without_a_minority_of_its_servers() {
    let number = AtomicUsize::new(0);
    let url = || {
        format!(
            "memory:redlock by url {}",
            number.fetch_add(1, Ordering::Relaxed)
        )
    };
    let urls = [url(), "redis://127.0.0.1:1".to_owned(), url()];
    let settings = Client::builder().response_timeout(LEASE / 3);
    let servers = settings.connect_each_lazy(&urls).unwrap();
    let redlock = RedLock::builder(servers).build().unwrap();
    let guard = redlock.lock("x").acquire_timeout(LEASE * 10).await.unwrap();
    for url in [&urls[0], &urls[2]] {
        let watcher = Client::connect(url).await.unwrap();
        assert!(watcher.lock("x").inspect().await.unwrap().is_locked());
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_url_of_several_that_is_wrong_is_named_by_its_position() {
    let urls = ["memory:", "nonsense:hunter2", "memory:"];
    let error = RedLock::connect_lazy(urls).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions);
    let said = error.to_string();
    assert!(
        said.contains("store 2 of 3") && !said.contains("hunter2"),
        "{said}"
    );
    let error = RedLock::connect_lazy::<&str>([]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions);
}

#[test]
fn the_environment_names_the_servers_of_a_redlock() {
    let stores = "memory:one  memory:two\nmemory:three";
    let variables = [("TIDELOCK_STORES", stores), ("TIDELOCK_PREFIX", "shop:")];
    crate::environment::passes_with("redlock::in_a_shop", &variables);
    crate::environment::passes_with("redlock::without_servers", &[]);
}

#[tokio::test]
#[ignore = "the_environment_names_the_servers_of_a_redlock runs it"]
async fn in_a_shop() {
    let lock = RedLock::from_env_lazy().unwrap().lock("x");
    assert_eq!(lock.name(), "shop:x");
    let guard = lock.acquire().await.unwrap();
    for url in ["memory:one", "memory:two", "memory:three"] {
        let watcher = Client::connect(url).await.unwrap();
        assert!(watcher.lock("shop:x").inspect().await.unwrap().is_locked());
    }
    guard.release().await.unwrap();
}

#[tokio::test]
#[ignore = "the_environment_names_the_servers_of_a_redlock runs it"]
async fn without_servers() {
    let error = RedLock::from_env_lazy().unwrap_err();
    assert!(error.to_string().contains("TIDELOCK_STORES"), "{error}");
}
