//! Several locks as one.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidelock::testing::{Chaos, Faults, Plug};
use tidelock::{AcquireOptions, Client, ErrorKind, Lock, LostReason, Owner};

const LEASE: Duration = Duration::from_millis(900);

async fn client(url: &str) -> Client {
    let settings = Client::builder().lease(LEASE).response_timeout(LEASE);
    settings.connect(url).await.unwrap()
}

/// A client whose connection can be unplugged.
async fn mortal(url: &str) -> (Client, Plug) {
    let (plug, url) = (Plug::default(), url.to_owned());
    let hand = plug.clone();
    let settings = Client::builder().lease(LEASE).response_timeout(LEASE / 3);
    let client = settings
        .connect_to(async move |env: &tidelock::store::Env| {
            let store = tidelock::testing::open(&url, env).await?;
            Ok(Chaos::wrap(store, env, Faults::none(), hand))
        })
        .await
        .unwrap();
    (client, plug)
}

fn unique(name: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("memory:{name}-{}", NEXT.fetch_add(1, Ordering::SeqCst))
}

async fn is_free(lock: &Lock) -> bool {
    !lock.inspect().await.unwrap().is_locked()
}

async fn in_time<T>(what: &str, event: impl Future<Output = T>) -> T {
    tokio::time::timeout(LEASE * 10, event)
        .await
        .unwrap_or_else(|_| panic!("not in time: {what}"))
}

#[tokio::test]
async fn all_or_none() {
    let (a, b) = (client("memory:").await, client("memory:").await);
    let parts = [a.lock("x"), b.lock("y"), a.lock("z")];
    let whole = a.multi_lock(&parts).unwrap();
    assert_eq!(whole.name(), "x+y+z");
    for held in &parts {
        let other = held.acquire().await.unwrap();
        assert!(whole.try_acquire().await.unwrap().is_none());
        for part in &parts {
            assert_eq!(is_free(part).await, part.name() != held.name());
        }
        other.release().await.unwrap();
    }
    let guard = whole.acquire().await.unwrap();
    for part in &parts {
        assert!(part.try_acquire().await.unwrap().is_none());
        let seen = part.inspect().await.unwrap();
        assert_eq!(seen.holders[0].owner, guard.owner_id());
    }
    guard.release().await.unwrap();
    for part in &parts {
        assert!(is_free(part).await);
    }
    assert!(a.is_idle() && b.is_idle());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sets_in_opposite_order_never_block_each_other() {
    let (one, two) = (unique("one"), unique("two"));
    let mut tasks = tokio::task::JoinSet::new();
    let inside: Arc<[AtomicUsize; 4]> = Arc::default();
    for n in 0..8 {
        let (a, b) = (client(&one).await, client(&two).await);
        let inside = Arc::clone(&inside);
        tasks.spawn(async move {
            let locks = [a.lock("0"), b.lock("1"), a.lock("2"), b.lock("3")];
            for turn in 0..10 {
                // `multi_lock` sorts the parts by name, so the order in which we name them does not matter. We vary
                // the sets instead: each client alternates between two overlapping ones.
                let (first, second) = if n % 2 == 0 { (1, 3) } else { (0, 2) };
                let of =
                    |from: usize| [&locks[from], &locks[(from + 1) % 4], &locks[(from + 2) % 4]];
                let parts = if turn % 2 == 0 { of(first) } else { of(second) };
                let guard = a.multi_lock(parts).unwrap().acquire().await.unwrap();
                for part in parts {
                    let at = part.name().parse::<usize>().unwrap();
                    assert_eq!(inside[at].fetch_add(1, Ordering::SeqCst), 0);
                }
                tokio::task::yield_now().await;
                for part in parts {
                    let at = part.name().parse::<usize>().unwrap();
                    inside[at].fetch_sub(1, Ordering::SeqCst);
                }
                guard.release().await.unwrap();
            }
        });
    }
    in_time("all turns", tasks.join_all()).await;
}

#[tokio::test]
async fn the_same_lock_twice_counts_once() {
    let a = client("memory:").await;
    let lock = a.lock("x");
    let whole = a
        .multi_lock([lock.clone(), a.lock("x"), lock.clone()])
        .unwrap();
    assert_eq!(whole.name(), "x");
    whole.acquire().await.unwrap().release().await.unwrap();
    assert!(is_free(&lock).await);
}

#[tokio::test]
async fn one_store_by_two_addresses_does_not_block_itself() {
    let url = unique("same");
    let (a, b, c) = (
        client(&url).await,
        client(&url).await,
        client("memory:").await,
    );
    let whole = a
        .multi_lock([a.lock("x"), b.lock("x"), c.lock("x")])
        .unwrap();
    for _ in 0..3 {
        let guard = in_time("the grant", whole.acquire()).await.unwrap();
        tokio::time::sleep(LEASE).await;
        assert!(guard.is_held(), "renewed");
        guard.release().await.unwrap();
        assert!(is_free(&a.lock("x")).await && is_free(&c.lock("x")).await);
    }
    // The set acquires both copies of its own part, but it is refused when a different owner holds that lock.
    let other = b.lock("x").acquire().await.unwrap();
    assert!(whole.try_acquire().await.unwrap().is_none());
    other.release().await.unwrap();
}

#[tokio::test]
async fn the_loss_of_a_part_is_the_loss_of_the_whole() {
    let (a, b) = (client("memory:").await, client("memory:").await);
    let parts = [a.lock("x"), b.lock("y")];
    let whole = a.multi_lock(&parts).unwrap();
    let guard = whole.acquire().await.unwrap();
    assert!(parts[1].force_release().await.unwrap());
    let told = in_time("the loss", guard.lost()).await;
    assert_eq!(told, LostReason::Taken);
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.lost_reason(), Some(LostReason::Taken));
    // The remaining parts are released too.
    in_time("the rest", async {
        while !is_free(&parts[0]).await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_part_that_was_lost_unheard_is_named_by_the_release() {
    let (a, b) = (client("memory:").await, client("memory:").await);
    let parts = [a.lock("x"), b.lock("y")];
    let guard = a.multi_lock(&parts).unwrap().acquire().await.unwrap();
    assert!(parts[1].force_release().await.unwrap());
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains("no longer held: y"), "{error}");
    assert!(is_free(&parts[0]).await);
}

#[tokio::test]
async fn a_release_attempts_all_and_reports_all() {
    let a = client("memory:").await;
    let ((b, plug), (c, other_plug)) = (mortal("memory:").await, mortal("memory:").await);
    let parts = [a.lock("x"), b.lock("y"), c.lock("z")];
    let guard = a.multi_lock(&parts).unwrap().acquire().await.unwrap();
    plug.pull();
    other_plug.pull();
    let error = guard.release().await.unwrap_err();
    assert!(error.is_retryable());
    let text = format!("{error} {:?}", std::error::Error::source(&error));
    assert!(text.contains("y: ") && text.contains("z: "), "{text}");
    assert!(is_free(&parts[0]).await, "the others are released");
    plug.put_back();
    other_plug.put_back();
    // The release continues in the background.
    in_time("the rest", async {
        while !is_free(&parts[1]).await || !is_free(&parts[2]).await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_store_that_is_down_leaves_nothing_of_the_others_held() {
    let a = client("memory:").await;
    let (b, plug) = mortal("memory:").await;
    let parts = [a.lock("x"), b.lock("y")];
    let whole = a.multi_lock(&parts).unwrap();
    plug.pull();
    let patient = AcquireOptions::new().wait(LEASE / 3);
    let error = whole.acquire_with(patient).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("y: "), "{error}");
    in_time("idle", async {
        while !a.is_idle() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    assert!(is_free(&parts[0]).await);
    plug.put_back();
    whole.acquire().await.unwrap().release().await.unwrap();
}

/// Otherwise the leases of the first parts could be nearly over when the last one is granted.
#[tokio::test(start_paused = true)]
async fn parts_that_take_too_long_together_are_given_back() {
    const LIMIT: Duration = Duration::from_secs(1);
    let url = unique("far");
    let settings = Client::builder().simulated_time().response_timeout(LIMIT);
    let client = settings.connect_to(async move |env: &tidelock::store::Env| {
        let store = tidelock::testing::open(&url, env).await?;
        let mut slow = Faults::none();
        slow.delay = LIMIT * 2 / 5;
        Ok(Chaos::wrap(store, env, slow, Plug::default()))
    });
    let client = client.await.unwrap();
    let parts: Vec<Lock> = (0..8).map(|n| client.lock(&n.to_string())).collect();
    let whole = client.multi_lock(&parts).unwrap();
    let error = whole.try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(
        text.contains("took longer than the response timeout"),
        "{text}"
    );
    for part in &parts {
        assert!(is_free(part).await, "{}", part.name());
    }
}

#[tokio::test]
async fn an_invalid_set_is_refused() {
    let a = client("memory:").await;
    let refused = |result: tidelock::Result<Lock>| result.unwrap_err().kind();
    assert_eq!(
        refused(a.multi_lock(Vec::<Lock>::new())),
        ErrorKind::InvalidOptions
    );
    assert_eq!(refused(a.multi_lock([a.lock("")])), ErrorKind::InvalidName);
    let whole = a.multi_lock([a.lock("x"), a.lock("y")]).unwrap();
    let fenced = whole.fenced().acquire().await.unwrap_err();
    assert_eq!(fenced.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn a_part_of_a_closed_client_is_refused() {
    let (a, b) = (client("memory:").await, client("memory:").await);
    let whole = a.multi_lock([a.lock("x"), b.lock("y")]).unwrap();
    b.close(Duration::ZERO).await;
    let error = whole.acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(is_free(&a.lock("x")).await);
}

#[tokio::test]
async fn a_part_needs_no_client_that_is_kept() {
    let url = unique("kept");
    let (a, b) = (client("memory:").await, client(&url).await);
    let whole = a.multi_lock([a.lock("x"), b.lock("y")]).unwrap();
    drop(b);
    let guard = whole.acquire().await.unwrap();
    drop(whole);
    tokio::time::sleep(LEASE).await;
    assert!(guard.is_held());
    drop((a, guard));
    let b = client(&url).await;
    let next = in_time("the release", b.lock("y").acquire()).await;
    next.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_set_and_a_lock_of_one_name_are_two_locks_to_an_owner() {
    let a = client("memory:").await;
    let me = AcquireOptions::new().owner(&Owner::new());
    let single = a.lock("x");
    let whole = a.multi_lock([&single]).unwrap();
    assert_eq!(single.name(), whole.name());
    let held = single.acquire_with(me.clone()).await.unwrap();
    assert!(whole.try_acquire_with(me.clone()).await.unwrap().is_none());
    held.release().await.unwrap();
    // Two sets that were built in the same way count as one lock for an owner.
    let guard = whole.acquire_with(me.clone()).await.unwrap();
    let again = a.multi_lock([a.lock("x")]).unwrap();
    let inner = again.acquire_with(me.clone()).await.unwrap();
    assert_eq!(guard.owner_id(), inner.owner_id());
    drop(guard);
    assert!(!is_free(&single).await);
    inner.release().await.unwrap();
}

#[tokio::test]
async fn sets_of_sets() {
    let a = client("memory:").await;
    let inner = a.multi_lock([a.lock("x"), a.lock("y")]).unwrap();
    let outer = a.multi_lock([inner.clone(), a.lock("z")]).unwrap();
    let guard = outer.acquire().await.unwrap();
    assert!(inner.try_acquire().await.unwrap().is_none());
    assert!(a.lock("y").try_acquire().await.unwrap().is_none());
    tokio::time::sleep(LEASE).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert!(is_free(&outer).await);
}

#[tokio::test]
async fn a_long_name_of_a_set_is_cut() {
    let a = client("memory:").await;
    let long = ["a", "ü", "z"].map(|letter| a.lock(&letter.repeat(200)));
    let whole = a.multi_lock(&long).unwrap();
    assert!(whole.name().ends_with("…(3 parts)"), "{}", whole.name());
    whole.acquire().await.unwrap().release().await.unwrap();
}
