//! The order of hand-offs, the options they require, and the limits on a leader term.

use tidelock::store::{Awaited, Backend, BoxFuture, Released, Ticket};
use tidelock::testing::{Twist, Twisted};
use tidelock::{AcquireOptions, ErrorKind, Guard, HandOff, LockGuard, LostReason, Result};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::*;

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
    // The first hold reserved no tokens, because it had no waiters yet. The others share one acquire and one release.
    assert_eq!(plug.requests(), 2 + 2);
    assert!(client.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_guard_is_handed_on_as_well() {
    let (client, plug) = counted(builder(), &store()).await;
    let lock = client.lock("a");
    let held = lock.acquire().await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..5 {
        let lock = lock.clone();
        tasks.spawn(async move { drop(lock.acquire().await.unwrap()) });
        settled().await;
    }
    drop(held);
    tasks.join_all().await;
    settled().await;
    // As with releases: the first hold reserved no tokens.
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

/// A sequencer is good as long as its hold lasts in the store. If that hold passed to the next task, the sequencer of the first
/// would stay good.
#[tokio::test(start_paused = true)]
async fn a_hold_with_a_sequencer_is_not_handed_off() {
    let (client, plug) = counted(builder(), &store()).await;
    let lock = client.lock("a");
    let held = lock.acquire().await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let lock = lock.clone();
        tasks.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            guard.sequencer().unwrap();
            guard.release().await.unwrap();
        });
        settled().await;
    }
    held.release().await.unwrap();
    tasks.join_all().await;
    assert_eq!(plug.requests(), 2 * 4, "each is acquired and released");
}

/// A hold passes to a waiter that is polled only after the lease has ended. The waiter must ask the store.
#[tokio::test(start_paused = true)]
async fn a_hold_that_ended_before_its_waiter_came_is_not_returned() {
    let (client, plug) = counted(builder(), &store()).await;
    let lock = client.lock("a");
    let first = lock.acquire().await.unwrap();
    let mut second = Box::pin(lock.acquire());
    let mut third = Box::pin(lock.acquire());
    assert!(futures_util::poll!(second.as_mut()).is_pending());
    assert!(futures_util::poll!(third.as_mut()).is_pending());
    first.release().await.unwrap();
    let second = second.await.unwrap();
    let before = plug.requests();
    second.release().await.unwrap();
    assert_eq!(plug.requests(), before, "it was handed off");
    tokio::time::advance(SECOND * 31).await;
    let third = third.await.unwrap();
    assert!(third.is_held());
    third.release().await.unwrap();
    settled().await;
    assert!(client.is_idle());
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
    // After the first hold, each leader term serves four holders with one acquire and one release.
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
    // After the first hold: a leader term hands the lock on after 4 and 8 ms, but not after 12.
    assert_eq!(plug.requests(), 2 + 2 * 3);
}

/// A waiter of another process gets its turn within the time limit plus one hold.
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
    // The default limit of a leader term, plus one hold.
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
            let (lock, seen) = (client.lock("a").fenced(), Arc::clone(&seen));
            tasks.spawn(async move {
                for _ in 0..20 {
                    let guard = lock.acquire().await.unwrap();
                    seen.lock().unwrap().push(guard.token().get());
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

/// A holder, and a task that will get the lock from it. Tokens have been reserved.
async fn holder_and_heir<G: LockGuard + Sync>(
    lock: &Lock<G>,
    heir: AcquireOptions,
) -> (G, JoinHandle<G>) {
    let first = lock.acquire().await.unwrap();
    let (second, third) = (lock.clone(), lock.clone());
    let second = tokio::spawn(async move { second.acquire().await.unwrap() });
    settled().await;
    let third = tokio::spawn(async move { third.acquire_with(heir).await.unwrap() });
    settled().await;
    let first: Guard = first.into();
    first.release().await.unwrap();
    (second.await.unwrap(), third)
}

#[tokio::test(start_paused = true)]
async fn each_holder_has_its_own_guard() {
    let client = client(&store()).await;
    let lock = client.lock("a").fenced();
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
async fn a_lock_that_was_handed_on_is_renewed() {
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
    let (client, plug) = counted(builder(), &store()).await;
    let lock = client.lock("a");
    // A hold that had no waiter when it was granted goes back to the store, so the second is the first that is handed off.
    let held = lock.acquire().await.unwrap();
    let waits = |cap| {
        let lock = lock.clone();
        let options = AcquireOptions::new().max_hold(cap);
        tokio::spawn(async move { lock.acquire_with(options).await.unwrap() })
    };
    let second = waits(SECOND);
    settled().await;
    let third = waits(SECOND * 40);
    settled().await;
    held.release().await.unwrap();
    second.await.unwrap().release().await.unwrap();
    let guard = third.await.unwrap();
    let begun = Instant::now();
    assert_eq!(plug.requests(), 3, "the third hold was handed off");
    assert_eq!(guard.lost().await, LostReason::MaxHold);
    assert_eq!(begun.elapsed().as_secs(), 40);
}

/// The lock is handed only to a waiter with the same options. Any other waiter acquires it from the store.
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

/// A lease that is nearly over is not handed on: the new holder might not have enough time to learn of its loss.
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

/// The store never shortens a lease. So the next holder would have the long one of the holder before it.
#[tokio::test(start_paused = true)]
async fn a_lease_that_was_extended_is_not_handed_on() {
    let (client, plug) = counted(builder(), &store()).await;
    let (lock, lease) = (client.lock("a"), SECOND * 30);
    for (extension, trips) in [(lease, 0), (lease * 100, 2)] {
        let (held, next) = holder_and_heir(&lock, AcquireOptions::new()).await;
        held.extend(extension).await.unwrap();
        let before = plug.requests();
        held.release().await.unwrap();
        let guard = next.await.unwrap();
        assert_eq!(plug.requests() - before, trips, "after {extension:?}");
        assert!(guard.valid_for() <= lease, "{:?}", guard.valid_for());
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_do_not_wait_for_a_lost_hold() {
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
    // The lost guard still exists. The waiter gets the lock when the lease in the store expires.
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
    for is_as_seen in [false, true] {
        let held = lock.acquire().await.unwrap();
        let waits = lock.clone();
        let next = tokio::spawn(async move { waits.acquire().await.unwrap() });
        settled().await;
        let forced = if is_as_seen {
            let seen = lock.inspect().await.unwrap();
            lock.force_release_if(&seen).await
        } else {
            lock.force_release().await
        };
        assert!(forced.unwrap());
        let guard = timeout(SECOND, next).await.unwrap().unwrap();
        drop(held);
        assert!(guard.is_held());
        guard.release().await.unwrap();
    }
}

/// A store that says after each release that another process waits.
#[derive(Debug)]
struct Wanted;

impl Twist for Wanted {
    fn release<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            inner.release(ticket).await?;
            let others = 1;
            Ok(Released::Awaited(Awaited {
                others,
                ..Awaited::default()
            }))
        })
    }
}

/// It is faster than a message to another process, so without a pause it would always be the next holder too. That also holds
/// for a call that does not wait, and so does not join the local queue.
#[tokio::test(start_paused = true)]
async fn a_client_that_has_released_lets_other_processes_ask_first() {
    for tries in [false, true] {
        lets_other_processes_ask_first(tries).await;
    }
}

async fn lets_other_processes_ask_first(tries: bool) {
    let client = builder()
        .connect_to(async |env| {
            let store = tidelock::testing::open("memory:", env).await?;
            Ok(Twisted::wrap(store, Wanted))
        })
        .await
        .unwrap();
    let hold = async |name, time| {
        let (begun, lock) = (Instant::now(), client.lock(name));
        let guard = if tries {
            lock.try_acquire().await.unwrap().unwrap()
        } else {
            lock.acquire().await.unwrap()
        };
        let paused = begun.elapsed();
        sleep(time).await;
        guard.release().await.unwrap();
        paused
    };
    let (short, long) = (Duration::ZERO, SECOND / 10);
    assert_eq!(hold("a", short).await, Duration::ZERO, "the first");
    assert_eq!(hold("b", short).await, Duration::ZERO, "of another name");
    let paused = hold("a", short).await;
    assert!(paused >= Duration::from_micros(300), "{paused:?}");
    assert!(paused <= Duration::from_millis(20), "{paused:?}");
    // Each time the others do not come, the pause grows, up to a share of the time for which the lock was held.
    let after = async |time| {
        let mut longest = Duration::ZERO;
        for _ in 0..20 {
            longest = longest.max(hold("a", time).await);
        }
        longest
    };
    let (short, long) = (after(short).await, after(long).await);
    assert!(
        long > short,
        "{long:?} after long holds, {short:?} after short ones"
    );
}
