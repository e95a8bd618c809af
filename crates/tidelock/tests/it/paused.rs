//! Leases, renewals and deadlines on a clock that the test advances: exact, and without waiting.

use std::time::Duration;

use tidelock::test_util::Plug;
use tidelock::{AcquireOptions, Client, ErrorKind, Guard, LockGuard, LostReason};
use tokio::time::{Instant, timeout};

async fn client() -> Client {
    Client::builder()
        .simulated_time()
        .connect(&format!("memory:{}", unique()))
        .await
        .unwrap()
}

fn unique() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn a_lock_is_kept_for_a_day() {
    let client = client().await;
    let guard = client.lock("a").acquire().await.unwrap();
    assert!(timeout(HOUR * 24, guard.lost()).await.is_err());
    assert!(guard.valid_for() > Duration::from_secs(15));
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_expires_is_told_before_its_lease_ends() {
    let client = client().await;
    let lock = client.lock("a");
    let begun = Instant::now();
    let options = AcquireOptions::new().expires_after(Duration::from_secs(10));
    let guard = lock.acquire_with(options).await.unwrap();
    assert_eq!(guard.lost().await, LostReason::Expired);
    let told = begun.elapsed();
    // Ten seconds minus one per cent and two milliseconds.
    assert!(
        told >= Duration::from_millis(9898) && told < Duration::from_millis(9950),
        "{told:?}"
    );
    let next = lock.acquire().await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(10));
    next.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_to_the_millisecond() {
    let client = client().await;
    let lock = client.lock("a");
    let held = lock.acquire().await.unwrap();
    let begun = Instant::now();
    let options = AcquireOptions::new().wait(Duration::from_secs(100));
    let error = lock.acquire_with(options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(100), "{waited:?}");
    assert!(waited < Duration::from_millis(100_010), "{waited:?}");
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cap_on_the_hold_is_told_when_it_is_reached() {
    let client = client().await;
    let begun = Instant::now();
    let options = AcquireOptions::new().max_hold(HOUR);
    let guard = client.lock("a").acquire_with(options).await.unwrap();
    assert_eq!(guard.lost().await, LostReason::MaxHold);
    assert_eq!(begun.elapsed().as_secs(), HOUR.as_secs());
}

#[tokio::test(start_paused = true)]
async fn while_held_drops_the_work_at_the_loss() {
    let client = client().await;
    let options = AcquireOptions::new().expires_after(Duration::from_secs(5));
    let guard = client.lock("a").acquire_with(options).await.unwrap();
    let mut steps = 0;
    let work = async {
        loop {
            steps += 1;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let result: tidelock::Result<()> = guard.while_held(work).await;
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(error.lost_reason(), Some(LostReason::Expired));
    assert_eq!(error.lock_name(), Some("a"));
    assert_eq!(steps, 5);
}

#[tokio::test(start_paused = true)]
async fn after_a_freeze_the_work_takes_no_step_more() {
    let client = client().await;
    let guard = client.lock("a").acquire().await.unwrap();
    let (go, mut gate) = tokio::sync::mpsc::unbounded_channel::<()>();
    let mut steps = 0;
    {
        let mut held = std::pin::pin!(guard.while_held(async {
            while gate.recv().await.is_some() {
                steps += 1;
            }
        }));
        assert!(futures_util::poll!(held.as_mut()).is_pending());
        // Neither the steward nor this task runs while the clock passes the end of the lease.
        tokio::time::advance(Duration::from_secs(31)).await;
        go.send(()).unwrap();
        let std::task::Poll::Ready(Err(error)) = futures_util::poll!(held.as_mut()) else {
            panic!("the work took a step after the lease had ended");
        };
        assert_eq!(error.lost_reason(), Some(LostReason::Expired));
    }
    assert_eq!(steps, 0);
    assert!(!guard.is_held());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn a_released_lock_is_never_told_lost() {
    let client = client().await;
    let guard = client.lock("a").acquire().await.unwrap();
    let lost = guard.lost();
    let clone = lost.clone();
    guard.release().await.unwrap();
    assert!(timeout(HOUR, lost).await.is_err());
    assert!(timeout(HOUR, clone).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_when_the_loss_is_told_and_not_later() {
    struct Noted(std::sync::Arc<std::sync::atomic::AtomicBool>);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.store(true, std::sync::atomic::Ordering::SeqCst);
        }
    }
    let client = client().await;
    let options = AcquireOptions::new().expires_after(Duration::from_secs(10));
    let guard = client.lock("a").acquire_with(options).await.unwrap();
    let dropped = std::sync::Arc::<std::sync::atomic::AtomicBool>::default();
    let noted = Noted(dropped.clone());
    let mut kept = guard.while_held(async move {
        let _noted = noted;
        std::future::pending::<()>().await;
    });
    let error = (&mut kept).await.unwrap_err();
    assert_eq!(error.lost_reason(), Some(LostReason::Expired));
    assert!(dropped.load(std::sync::atomic::Ordering::SeqCst));
    drop(kept);
}

#[tokio::test]
async fn a_drift_that_is_no_number_is_refused() {
    for share in [f64::NAN, -0.1, f64::INFINITY, 1e300] {
        let builder = Client::builder().drift(share, Duration::ZERO);
        let error = builder.connect("memory:").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{share}");
    }
}

/// An extension without a reply may have taken effect, so the release retries for as long as the extended lease can
/// last.
#[tokio::test(start_paused = true)]
async fn a_release_outlasts_an_extension_without_an_answer() {
    use tidelock::testing::{Chaos, Faults, Plug};
    let plug = Plug::default();
    let hand = plug.clone();
    let store = format!("memory:{}", unique());
    let builder = || {
        Client::builder()
            .simulated_time()
            .publish_process_info(false)
    };
    let client = builder()
        .lease(Duration::from_secs(3))
        .connect_to(async |env| {
            let store = tidelock::testing::open(&store, env).await?;
            Ok(Chaos::wrap(store, env, Faults::none(), hand))
        })
        .await
        .unwrap();
    let other = builder().connect(&store).await.unwrap();
    let guard = client.lock("a").acquire().await.unwrap();
    plug.lose_replies(1);
    let extended = guard.extend(Duration::from_secs(60)).await;
    assert!(extended.unwrap_err().outcome_unknown());
    plug.pull();
    assert_eq!(guard.lost().await, LostReason::Expired);
    drop(guard);
    tokio::time::sleep(Duration::from_secs(10)).await;
    plug.put_back();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(other.lock("a").try_acquire().await.unwrap().is_some());
}

/// A forced release is sent once, so without its reply the outcome is unknown. A check of a sequencer changes nothing, and keeps
/// its reply.
#[tokio::test(start_paused = true)]
async fn a_forced_release_whose_reply_is_lost_has_an_unknown_outcome() {
    let plug = Plug::new();
    let builder = Client::builder().simulated_time().plug(&plug);
    let client = builder
        .connect(&format!("memory:{}", unique()))
        .await
        .unwrap();
    let lock = client.lock("a");
    let held = lock.acquire().await.unwrap();
    let sequencer = held.sequencer().unwrap();
    plug.lose_replies(1);
    assert!(client.verify(&sequencer).await.unwrap());
    let error = lock.force_release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    assert_eq!(error.lock_name(), Some("a"));
    // It took effect, and no other reply is lost.
    assert!(!client.verify(&sequencer).await.unwrap());
    let next = lock.try_acquire().await.unwrap().expect("it is free");
    drop(held);
    assert!(next.is_held());
    next.release().await.unwrap();
}

/// A completed future may be kept, in a collection or on the stack, and outlive its client.
#[tokio::test(start_paused = true)]
async fn an_acquisition_that_is_done_keeps_nothing_of_its_client() {
    use std::sync::Arc;
    use tidelock::testing::{Twist, Twisted};

    #[derive(Debug, Clone)]
    struct Part(#[allow(dead_code, reason = "it is there to be counted")] Arc<()>);

    impl Twist for Part {}

    let part = Part(Arc::default());
    let client = Client::builder()
        .simulated_time()
        .publish_process_info(false)
        .connect_to(async |env| {
            let store = format!("memory:{}", unique());
            let store = tidelock::testing::open(&store, env).await?;
            Ok(Twisted::wrap(store, part.clone()))
        })
        .await
        .unwrap();
    let lock = client.lock("a");
    let mut taken = Box::pin(lock.acquire().into_future());
    let guard = (&mut taken).await.unwrap();
    let late = AcquireOptions::new().wait(Duration::from_secs(1));
    let mut late = Box::pin(lock.acquire_with(late).into_future());
    assert!((&mut late).await.is_err());
    guard.release().await.unwrap();
    drop((lock, client));
    // The client's own tasks notice that the client is gone.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(Arc::strong_count(&part.0), 1);
    drop((taken, late));
}

#[tokio::test(start_paused = true)]
async fn a_client_with_the_real_clock_refuses_a_paused_runtime() {
    let error = Client::connect("memory:").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions);
    assert!(error.to_string().contains("simulated_time"), "{error}");
}

/// A sale of a second; after 0.3 s the service is terminated and closes its client.
async fn sells_while_the_client_closes<G: LockGuard>(client: Client, lock: tidelock::Lock<G>) {
    let begun = Instant::now();
    let guard: Guard = lock.acquire().await.unwrap().into();
    let closing = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        client.close(Duration::from_secs(5)).await
    });
    let sale = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        "sold"
    };
    let (sold, told) = tokio::join!(guard.while_held(sale), async {
        guard.closing().await;
        begun.elapsed()
    });
    assert_eq!(sold.unwrap(), "sold", "{}", lock.name());
    assert!(told >= Duration::from_millis(300) && told < Duration::from_millis(310));
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert_eq!(closing.await.unwrap(), 0);
    assert!(begun.elapsed() < Duration::from_millis(1050));
}

#[tokio::test(start_paused = true)]
async fn a_sale_that_is_under_way_at_sigterm_is_sold() {
    let client = client().await;
    let lock = client.lock("stock:42");
    sells_while_the_client_closes(client, lock).await;
}

#[tokio::test(start_paused = true)]
async fn closing_is_one_rule_for_every_kind_of_lock() {
    let one = client().await;
    let lock = one.lock("a").fenced();
    sells_while_the_client_closes(one, lock).await;
    for side in [
        tidelock::ReadWriteLock::read,
        tidelock::ReadWriteLock::write,
    ] {
        let one = client().await;
        let lock = side(&one.read_write_lock("a"));
        sells_while_the_client_closes(one, lock).await;
    }
    let (one, other) = (client().await, client().await);
    let both = one.multi_lock([one.lock("a"), other.lock("b")]).unwrap();
    sells_while_the_client_closes(one, both).await;
    let servers = [client().await, client().await, client().await];
    let redlock = tidelock::RedLock::builder(servers.clone()).restart_guard(false);
    let nightly = redlock.build().unwrap().lock("a");
    sells_while_the_client_closes(servers[0].clone(), nightly).await;
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_when_the_grace_ends() {
    let client = client().await;
    let guard = client.lock("a").acquire().await.unwrap();
    let begun = Instant::now();
    let closing = tokio::spawn({
        let client = client.clone();
        async move { client.close(Duration::from_secs(5)).await }
    });
    let error = guard
        .while_held(std::future::pending::<()>())
        .await
        .unwrap_err();
    assert_eq!(error.lost_reason(), Some(LostReason::Closed));
    let told = begun.elapsed();
    assert!(told >= Duration::from_secs(5) && told < Duration::from_millis(5010));
    assert_eq!(closing.await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_dropped_without_a_close_is_not_closing() {
    let client = client().await;
    let closing = client.closing();
    drop(client);
    assert!(timeout(HOUR, closing).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn clients_that_connect_an_hour_apart_agree_about_the_end_of_a_lease() {
    let url = format!("memory:{}", unique());
    let connect = || Client::builder().simulated_time().connect(&url);
    let first = connect().await.unwrap();
    tokio::time::sleep(HOUR).await;
    let second = connect().await.unwrap();
    for (holder, other) in [(&first, &second), (&second, &first)] {
        let held = holder.lock("a").acquire().await.unwrap();
        assert!(other.lock("a").try_acquire().await.unwrap().is_none());
        let seen = other.lock("a").inspect().await.unwrap();
        assert!(seen.expires_in.unwrap() <= Duration::from_secs(30));
        held.release().await.unwrap();
    }
}

/// Other tests rely on it to find what was left behind.
#[tokio::test(start_paused = true)]
async fn a_client_with_a_hold_or_a_release_under_way_is_not_idle() {
    let builder = Client::builder()
        .simulated_time()
        .publish_process_info(false);
    let client = builder.connect("memory:").await.unwrap();
    assert!(client.is_idle());
    let guard = client.lock("a").acquire().await.unwrap();
    assert!(!client.is_idle());
    drop(guard);
    assert!(!client.is_idle(), "its release is under way");
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(client.is_idle());
}

/// A caller without a limit hears of an outage. The pauses between its requests grow, so that a store that comes back is
/// not flooded.
#[tokio::test(start_paused = true)]
async fn a_wait_ends_after_an_outage_of_a_lease_and_a_try_after_a_response_timeout() {
    let (second, plug) = (Duration::from_secs(1), Plug::new());
    let builder = Client::builder()
        .simulated_time()
        .publish_process_info(false)
        .lease(second * 12)
        .response_timeout(second)
        .plug(&plug);
    let client = builder.connect("memory:").await.unwrap();
    let lock = client.lock("a");
    plug.pull();
    let begun = Instant::now();
    let error = lock.acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let waited = begun.elapsed();
    assert!(waited >= second * 12 && waited < second * 13, "{waited:?}");
    let requests = plug.requests();
    assert!((20..=50).contains(&requests), "{requests}");

    let begun = Instant::now();
    let error = lock.try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let tried = begun.elapsed();
    assert!(tried >= second && tried < second * 2, "{tried:?}");
}

/// A wait that times out reports an outage only if the outage still lasts. If it is over, the error says that the lock is held.
#[tokio::test(start_paused = true)]
async fn a_wait_that_outlasts_an_outage_says_that_the_lock_was_held() {
    let (second, plug) = (Duration::from_secs(1), Plug::new());
    let builder = || {
        Client::builder()
            .simulated_time()
            .publish_process_info(false)
            .response_timeout(second)
    };
    let store = format!("memory:{}", unique());
    let other = builder().connect(&store).await.unwrap();
    let client = builder().plug(&plug).connect(&store).await.unwrap();
    let held = other.lock("a").acquire().await.unwrap();
    for waiters in [1, 3] {
        plug.pull();
        let wait = || {
            let lock = client.lock("a");
            tokio::spawn(async move { lock.acquire_timeout(second * 20).await })
        };
        let waits: Vec<_> = (0..waiters).map(|_| wait()).collect();
        tokio::time::sleep(second * 5).await;
        plug.put_back();
        for wait in waits {
            let error = wait.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        }
    }
    held.release().await.unwrap();
}

/// A test of an outage would see the opposite of what the outage does.
#[tokio::test(start_paused = true)]
async fn no_request_arrives_while_the_plug_is_pulled() {
    let (second, plug, url) = (Duration::from_secs(1), Plug::new(), "memory:pulled");
    let builder = || {
        Client::builder()
            .simulated_time()
            .publish_process_info(false)
    };
    let client = builder().plug(&plug).connect(url).await.unwrap();
    let other = builder().connect(url).await.unwrap();
    let acquired = async |client: &Client, name| client.lock(name).acquire().await.unwrap();
    let (renewed, released) = (acquired(&client, "a").await, acquired(&client, "b").await);
    let theirs = acquired(&other, "c").await;
    plug.pull();
    let release = tokio::spawn(async move { released.release().await });
    client.lock("c").force_release().await.unwrap_err();
    tokio::time::sleep(second).await;
    for name in ["a", "b", "c"] {
        let free = other.lock(name).try_acquire().await.unwrap();
        assert!(free.is_none(), "{name} is held in the store");
    }
    // No renewal arrives either, so the leases end.
    for name in ["a", "b"] {
        let guard = timeout(second * 31, other.lock(name).acquire()).await;
        guard
            .expect("its lease is over")
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    assert_eq!(renewed.lost().await, LostReason::Expired);
    release.await.unwrap().unwrap_err();
    theirs.release().await.unwrap();
}

/// A process that has died is listed for a while as one that is gone.
#[tokio::test(start_paused = true)]
async fn a_process_that_has_died_is_listed_as_gone() {
    let (second, plug) = (Duration::from_secs(1), Plug::new());
    let store = format!("memory:{}", unique());
    let builder = || Client::builder().simulated_time();
    let dying = builder().plug(&plug).connect(&store).await.unwrap();
    let viewer = builder().publish_process_info(false);
    let viewer = viewer.connect(&store).await.unwrap();
    let seen = async || {
        let all = viewer.processes().await.unwrap();
        all.into_iter().find(|one| one.client == dying.id())
    };
    while seen().await.is_none() {
        tokio::time::sleep(second).await; // until its first beat
    }
    plug.pull();
    let mut gone = 0;
    while let Some(process) = seen().await {
        gone += u32::from(process.is_gone());
        tokio::time::sleep(second).await;
    }
    assert!(gone >= 20, "for {gone} s");
}
