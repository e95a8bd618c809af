//! A lock that passes between the tasks of one client without a trip.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidelock::testing::{Chaos, Faults, Plug};
use tidelock::{
    AcquireOptions, Client, ClientBuilder, ErrorKind, Guard, HandOff, Lock, LostReason,
};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

fn store() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("memory:hand-off-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn builder() -> ClientBuilder {
    Client::builder().simulated_time().details(false)
}

/// A client whose requests are counted, and can be kept from the store.
async fn counted(builder: ClientBuilder, store: &str) -> (Client, Plug) {
    let plug = Plug::default();
    let hand = plug.clone();
    let client = builder
        .connect_to(async |env| {
            let store = tidelock::testing::open(store, env).await?;
            Ok(Chaos::wrap(store, env, Faults::none(), hand))
        })
        .await
        .unwrap();
    (client, plug)
}

async fn client(store: &str) -> Client {
    counted(builder(), store).await.0
}

/// So many tasks that wait in this order, and write down their numbers while they hold the lock.
async fn crowd(lock: &Lock, tasks: usize, hold: Duration) -> (JoinSet<()>, Arc<Mutex<Vec<usize>>>) {
    let order = Arc::<Mutex<Vec<usize>>>::default();
    let mut all = JoinSet::new();
    for number in 0..tasks {
        let (lock, order) = (lock.clone(), Arc::clone(&order));
        all.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            order.lock().unwrap().push(number);
            sleep(hold).await;
            guard.release().await.unwrap();
        });
        settled().await;
    }
    (all, order)
}

/// All tasks have come as far as they can.
async fn settled() {
    sleep(Duration::from_nanos(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_hand_off_makes_no_trip() {
    let (client, plug) = counted(builder(), &store()).await;
    let lock = client.lock("a");
    let held = lock.acquire().await.unwrap();
    let (tasks, order) = crowd(&lock, 5, Duration::ZERO).await;
    assert_eq!(plug.requests(), 1, "those who wait here ask nothing");
    held.release().await.unwrap();
    tasks.join_all().await;
    assert_eq!(
        *order.lock().unwrap(),
        [0, 1, 2, 3, 4],
        "first come, first served"
    );
    // The first reserved no tokens, because nobody waited yet; the others have one acquisition and one release together.
    assert_eq!(plug.requests(), 2 + 2);
    assert!(client.is_idle());
}

#[tokio::test(start_paused = true)]
async fn switched_off_every_turn_is_the_stores() {
    let (client, plug) = counted(builder().hand_off(HandOff::OFF), &store()).await;
    let lock = client.lock("a");
    let held = lock.acquire().await.unwrap();
    let (tasks, order) = crowd(&lock, 5, Duration::ZERO).await;
    held.release().await.unwrap();
    tasks.join_all().await;
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
    assert_eq!(
        plug.requests(),
        2 * 6,
        "one outside waiter: nothing asked in vain"
    );
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_does_not_overtake() {
    let client = client(&store()).await;
    let lock = client.lock("a");
    let held = lock.acquire().await.unwrap();
    let (tasks, order) = crowd(&lock, 3, Duration::from_millis(1)).await;
    held.release().await.unwrap();
    let mine = lock.acquire().await.unwrap();
    assert_eq!(order.lock().unwrap().len(), 3);
    mine.release().await.unwrap();
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn so_many_times_in_a_row_and_no_more() {
    let rules = HandOff::default().times(3).within(SECOND);
    let (client, plug) = counted(builder().hand_off(rules), &store()).await;
    let lock = client.lock("a");
    let held = lock.acquire().await.unwrap();
    let (tasks, _) = crowd(&lock, 7, Duration::ZERO).await;
    held.release().await.unwrap();
    tasks.join_all().await;
    // After the first, four holders to a tenure, each of which is acquired and released.
    assert_eq!(plug.requests(), 2 + 2 * 2);
}

#[tokio::test(start_paused = true)]
async fn so_long_in_a_row_and_no_longer() {
    let rules = HandOff::default().within(Duration::from_millis(10));
    let (client, plug) = counted(builder().hand_off(rules), &store()).await;
    let lock = client.lock("a");
    let held = lock.acquire().await.unwrap();
    let (tasks, _) = crowd(&lock, 9, Duration::from_millis(4)).await;
    held.release().await.unwrap();
    tasks.join_all().await;
    // After the first: a tenure is passed on after 4 and 8 ms, and not after 12.
    assert_eq!(plug.requests(), 2 + 2 * 3);
}

/// A waiter of another process gets its turn within the time, and one hold.
#[tokio::test(start_paused = true)]
async fn others_get_their_turn_within_the_time() {
    let store = store();
    let (here, there) = (client(&store).await, client(&store).await);
    let lock = here.lock("a");
    let held = lock.acquire().await.unwrap();
    let (tasks, order) = crowd(&lock, 100, Duration::from_millis(3)).await;
    let begun = Instant::now();
    held.release().await.unwrap();
    let guard = there.lock("a").acquire().await.unwrap();
    assert!(
        begun.elapsed() <= Duration::from_millis(10 + 3),
        "{:?}",
        begun.elapsed()
    );
    assert!(order.lock().unwrap().len() <= 5);
    guard.release().await.unwrap();
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn tokens_grow_across_hand_offs_and_processes() {
    let store = store();
    let rules = HandOff::default().times(4);
    let seen = Arc::<Mutex<Vec<u64>>>::default();
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let (client, _) = counted(builder().hand_off(rules), &store).await;
        for _ in 0..4 {
            let (lock, seen) = (client.fenced_lock("a"), Arc::clone(&seen));
            tasks.spawn(async move {
                for _ in 0..20 {
                    let guard = lock.acquire().await.unwrap();
                    seen.lock().unwrap().push(guard.token().unwrap().get());
                    guard.release().await.unwrap();
                }
            });
        }
    }
    tasks.join_all().await;
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 3 * 4 * 20);
    assert!(
        seen.is_sorted_by(|before, after| before < after),
        "{seen:?}"
    );
}

/// A holder, and a task that gets the lock from it: tokens have been reserved.
async fn holder_and_heir(lock: &Lock, heir: AcquireOptions) -> (Guard, JoinHandle<Guard>) {
    let first = lock.acquire().await.unwrap();
    let (second, third) = (lock.clone(), lock.clone());
    let second = tokio::spawn(async move { second.acquire().await.unwrap() });
    settled().await;
    let third = tokio::spawn(async move { third.acquire_with(heir).await.unwrap() });
    settled().await;
    first.release().await.unwrap();
    (second.await.unwrap(), third)
}

#[tokio::test(start_paused = true)]
async fn each_holder_has_its_own_guard() {
    let client = client(&store()).await;
    let lock = client.lock("a");
    let (held, next) = holder_and_heir(&lock, AcquireOptions::new()).await;
    let (lost_before, token_before) = (held.lost(), held.token());
    held.release().await.unwrap();
    let guard = next.await.unwrap();
    assert!(guard.token() > token_before);
    assert!(lock.force_release().await.unwrap());
    assert_eq!(
        timeout(SECOND * 11, guard.lost()).await,
        Ok(LostReason::Taken)
    );
    assert!(
        timeout(SECOND * 100, lost_before).await.is_err(),
        "it was released before"
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_handed_on_is_renewed() {
    let client = client(&store()).await;
    let (held, next) = holder_and_heir(&client.lock("a"), AcquireOptions::new()).await;
    held.release().await.unwrap();
    let guard = next.await.unwrap();
    assert!(timeout(SECOND * 1000, guard.lost()).await.is_err());
    assert!(guard.valid_for() > SECOND * 15);
    guard.release().await.unwrap();
    assert!(client.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_cap_on_the_hold_is_each_holders_own() {
    let client = client(&store()).await;
    let lock = client.lock("a");
    let held = lock
        .acquire_with(AcquireOptions::new().max_hold(SECOND))
        .await
        .unwrap();
    let waits = lock.clone();
    let cap = AcquireOptions::new().max_hold(SECOND * 40);
    let next = tokio::spawn(async move { waits.acquire_with(cap).await.unwrap() });
    settled().await;
    held.release().await.unwrap();
    let guard = next.await.unwrap();
    let begun = Instant::now();
    assert_eq!(guard.lost().await, LostReason::MaxHold);
    assert_eq!(begun.elapsed().as_secs(), 40);
}

/// It passes on only to one who asked for the same: the other gets it of the store.
#[tokio::test(start_paused = true)]
async fn other_terms_are_the_stores_to_grant() {
    let (client, plug) = counted(builder(), &store()).await;
    let lock = client.lock("a");
    for options in [
        AcquireOptions::new().lease(SECOND * 5),
        AcquireOptions::new().expires_after(SECOND * 5),
    ] {
        let held = lock.acquire().await.unwrap();
        let before = plug.requests();
        let waits = lock.clone();
        let next = tokio::spawn(async move { waits.acquire_with(options).await.unwrap() });
        settled().await;
        held.release().await.unwrap();
        let guard = next.await.unwrap();
        assert_eq!(plug.requests() - before, 2, "released, and acquired");
        assert!(guard.valid_for() <= SECOND * 5);
        guard.release().await.unwrap();
    }
}

/// Of a lease that is nearly over nothing is handed on: there might be no time to hear of its loss.
#[tokio::test(start_paused = true)]
async fn a_third_of_the_lease_must_be_proved() {
    let (client, plug) = counted(
        builder().hand_off(HandOff::default().within(SECOND * 60)),
        &store(),
    )
    .await;
    let lock = client.lock("a");
    for (age, trips) in [(19, 0), (21, 2)] {
        let (held, next) = holder_and_heir(&lock, AcquireOptions::new()).await;
        plug.pull(); // no renewal from here on
        sleep(SECOND * age).await;
        plug.put_back();
        let before = plug.requests();
        held.release().await.unwrap();
        let guard = next.await.unwrap();
        assert_eq!(plug.requests() - before, trips, "after {age} s");
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_do_not_wait_for_what_is_lost() {
    let store = store();
    let (client, plug) = counted(builder(), &store).await;
    let lock = client.lock("a");
    let held = lock.acquire().await.unwrap();
    let waits = lock.clone();
    let next = tokio::spawn(async move { waits.acquire().await });
    settled().await;
    plug.pull();
    assert_eq!(held.lost().await, LostReason::Expired);
    plug.put_back();
    // Its guard is still about; the lease in the store runs out.
    let guard = timeout(SECOND * 5, next).await.unwrap().unwrap().unwrap();
    assert!(guard.is_held() && !held.is_held());
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_forced_release_is_not_waited_out() {
    let client = client(&store()).await;
    let lock = client.lock("a");
    let held = lock.acquire().await.unwrap();
    let waits = lock.clone();
    let next = tokio::spawn(async move { waits.acquire().await.unwrap() });
    settled().await;
    assert!(lock.force_release().await.unwrap());
    let guard = timeout(SECOND, next).await.unwrap().unwrap();
    drop(held);
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

/// Whoever leaves the line, asleep, called or leading, leaves it to those behind.
#[tokio::test(start_paused = true)]
async fn a_turn_that_is_not_taken_goes_on() {
    for rules in [HandOff::default(), HandOff::OFF] {
        for called in [false, true] {
            for polled in [false, true] {
                let (client, _) = counted(builder().hand_off(rules), &store()).await;
                let lock = client.lock("a");
                let held = lock.acquire().await.unwrap();
                let mut first = Box::pin(lock.acquire());
                assert!(futures_util::poll!(first.as_mut()).is_pending());
                let (tasks, order) = crowd(&lock, 2, Duration::ZERO).await;
                if called {
                    held.release().await.unwrap();
                    if polled {
                        // It has the lock, or has asked for it.
                        drop(futures_util::poll!(first.as_mut()));
                    }
                    drop(first);
                } else {
                    drop(first);
                    held.release().await.unwrap();
                }
                timeout(SECOND, tasks.join_all())
                    .await
                    .expect("they get it");
                assert_eq!(*order.lock().unwrap(), [0, 1]);
                sleep(SECOND).await;
                assert!(client.is_idle());
            }
        }
    }
}

/// A future that is kept and not polled must not keep everybody out: after a third of the lease it is passed over.
#[tokio::test(start_paused = true)]
async fn who_does_not_come_is_passed_over() {
    for rules in [HandOff::default(), HandOff::OFF] {
        let (client, _) = counted(builder().hand_off(rules), &store()).await;
        let lock = client.lock("a");
        let held = lock.acquire().await.unwrap();
        let mut idle = Box::pin(lock.acquire());
        assert!(futures_util::poll!(idle.as_mut()).is_pending());
        let (tasks, _) = crowd(&lock, 3, Duration::ZERO).await;
        held.release().await.unwrap();
        timeout(SECOND * 21, tasks.join_all())
            .await
            .expect("they get it");
        // And it is not forgotten.
        idle.await.unwrap().release().await.unwrap();
        assert!(client.is_idle());
    }
}

/// Nor may one that asks for all, and is not polled any more: the next in line asks for itself then.
#[tokio::test(start_paused = true)]
async fn who_leads_and_stops_is_passed_over() {
    let store = store();
    let (here, there) = (client(&store).await, client(&store).await);
    let held = there.lock("a").acquire().await.unwrap();
    let lock = here.lock("a");
    let mut idle = Box::pin(lock.acquire());
    for _ in 0..5 {
        assert!(futures_util::poll!(idle.as_mut()).is_pending());
        sleep(Duration::from_millis(1)).await;
    }
    held.release().await.unwrap();
    let (tasks, order) = crowd(&lock, 4, Duration::ZERO).await;
    timeout(SECOND * 41, tasks.join_all())
        .await
        .expect("they get it");
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
    assert!(lock.acquire().await.unwrap().release().await.is_ok());
    // It has lost its lead, and harms nobody.
    drop(idle);
    lock.acquire().await.unwrap().release().await.unwrap();
    assert!(here.is_idle());
}

/// As little as one that was called to lead, and stops then.
#[tokio::test(start_paused = true)]
async fn who_was_called_and_stops_is_passed_over() {
    let store = store();
    let (here, there) = (client(&store).await, client(&store).await);
    let lock = here.lock("a");
    let mine = lock.acquire().await.unwrap();
    // Other terms: it is called to ask the store.
    let other = AcquireOptions::new().expires_after(SECOND * 5);
    let mut idle = Box::pin(lock.acquire_with(other));
    assert!(futures_util::poll!(idle.as_mut()).is_pending());
    let far = there.lock("a");
    let far = tokio::spawn(async move { far.acquire().await.unwrap() });
    settled().await;
    mine.release().await.unwrap();
    let far = far.await.unwrap();
    for _ in 0..3 {
        assert!(futures_util::poll!(idle.as_mut()).is_pending());
        sleep(Duration::from_millis(1)).await;
    }
    far.release().await.unwrap();
    let guard = timeout(SECOND * 41, lock.acquire())
        .await
        .expect("it gets it");
    guard.unwrap().release().await.unwrap();
    drop(idle);
}

/// A release goes on in the background only when its future is dropped: one that is kept must not keep everybody out.
#[tokio::test(start_paused = true)]
async fn a_release_that_is_not_polled_keeps_nobody_out() {
    let store = store();
    let plug = Plug::default();
    let hand = plug.clone();
    let client = builder()
        .connect_to(async |env| {
            let store = tidelock::testing::open(&store, env).await?;
            Ok(Chaos::wrap(store, env, Faults::pending(1), hand))
        })
        .await
        .unwrap();
    let lock = client.lock("a");
    let mut release = Box::pin(lock.acquire().await.unwrap().release());
    assert!(futures_util::poll!(release.as_mut()).is_pending());
    let guard = timeout(SECOND * 71, lock.acquire())
        .await
        .expect("it gets it");
    guard.unwrap().release().await.unwrap();
    drop(release);
}

#[tokio::test(start_paused = true)]
async fn a_trouble_that_is_over_is_not_told() {
    let store = store();
    let (client, plug) = counted(builder(), &store).await;
    let far = counted(builder(), &store).await.0;
    let held = far.lock("a").acquire().await.unwrap();
    let lock = client.lock("a");
    let wait = |seconds| AcquireOptions::new().wait(SECOND * seconds);
    let mut first = Box::pin(lock.acquire_with(wait(9)));
    assert!(futures_util::poll!(first.as_mut()).is_pending());
    let second = lock.clone();
    let second = tokio::spawn(async move { second.acquire_with(wait(300)).await });
    settled().await;
    plug.pull();
    let first = tokio::spawn(first);
    sleep(SECOND * 8).await;
    first.abort();
    plug.put_back();
    let error = second.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_told_to_all_who_wait() {
    let (client, plug) = counted(builder(), &store()).await;
    let other = client.lock("a").acquire().await.unwrap();
    drop(other);
    settled().await;
    plug.pull();
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let lock = client.lock("a");
        tasks.spawn(async move { lock.acquire().await.unwrap_err().kind() });
    }
    let brief = client.lock("a");
    let brief = brief.acquire_with(AcquireOptions::new().wait(SECOND * 10));
    assert_eq!(
        brief.await.unwrap_err().kind(),
        ErrorKind::Unavailable,
        "why it was not answered says more than that the time is up"
    );
    let all = timeout(SECOND * 40, tasks.join_all())
        .await
        .expect("all within a lease");
    assert!(
        all.iter()
            .all(|kind| matches!(kind, ErrorKind::Unavailable | ErrorKind::OutcomeUnknown))
    );
}

#[tokio::test(start_paused = true)]
async fn close_ends_those_who_wait_in_line() {
    let client = client(&store()).await;
    let lock = client.lock("a");
    let held = lock.acquire().await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..5 {
        let lock = lock.clone();
        tasks.spawn(async move { lock.acquire().await.map(drop).unwrap_err().kind() });
    }
    settled().await;
    let closing = tokio::spawn(async move { client.close(SECOND).await });
    assert_eq!(held.lost().await, LostReason::Closed);
    held.release().await.unwrap();
    let kinds = tasks.join_all().await;
    assert!(
        kinds.iter().all(|kind| *kind == ErrorKind::Closed),
        "{kinds:?}"
    );
    assert_eq!(closing.await.unwrap(), 0);
}

#[tokio::test]
async fn rules_that_make_no_sense_are_refused() {
    let rules = HandOff::default().times(u32::MAX);
    let error = Client::builder()
        .hand_off(rules)
        .connect("memory:")
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions);
}
