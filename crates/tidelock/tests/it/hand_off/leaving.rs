//! Waiters that leave the local queue or stop being polled in it, and waiters whose store or client goes away.

use tidelock::store::{AttemptReply, AttemptRequest, Backend, BoxFuture};
use tidelock::testing::{Twist, Twisted};
use tidelock::{
    AcquireOptions, Client, Error, ErrorKind, HandOff, LostReason, Owner, RedLock, Result,
};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::*;

/// A waiter that leaves the local queue, asleep, woken or as the leader, passes its role to the waiters behind it.
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
                        // This waiter has the lock, or has an attempt in flight.
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

/// A future that is kept without being polled must not block the other waiters: after a third of the lease it is passed
/// over.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_does_not_come_is_passed_over() {
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
        // The waiter that was passed over still gets its turn.
        idle.await.unwrap().release().await.unwrap();
        assert!(client.is_idle());
    }
}

/// The same for the acquisitions of one owner, which take turns. One of those that wait goes on without the one that is not
/// polled, and the others re-enter what it gets.
#[tokio::test(start_paused = true)]
async fn an_acquisition_of_an_owner_that_does_not_come_is_passed_over() {
    let client = client(&store()).await;
    let (lock, me) = (client.lock("a"), Owner::new());
    let mine = || lock.acquire_with(AcquireOptions::new().owner(&me));
    let held = lock.acquire().await.unwrap();
    let mut idle = Box::pin(mine());
    assert!(futures_util::poll!(idle.as_mut()).is_pending());
    let [first, second] = [(); 2].map(|()| tokio::spawn(mine()));
    settled().await;
    held.release().await.unwrap();
    let both = timeout(SECOND * 31, async {
        (
            first.await.unwrap().unwrap(),
            second.await.unwrap().unwrap(),
        )
    });
    let (first, second) = both.await.expect("they get it");
    assert_eq!(first.owner_id(), second.owner_id(), "the same hold");
    first.release().await.unwrap();
    second.release().await.unwrap();
    // The acquisition that was passed over still gets its turn.
    idle.await.unwrap().release().await.unwrap();
    assert!(client.is_idle());
}

/// The same for one that waits for its turn when it stops being polled.
#[tokio::test(start_paused = true)]
async fn a_wait_for_the_turn_of_an_owner_that_does_not_come_is_passed_over() {
    let store = store();
    let (here, there) = (client(&store).await, client(&store).await);
    let held = there.lock("a").acquire().await.unwrap();
    let (lock, me) = (here.lock("a"), Owner::new());
    let mine = |wait| lock.acquire_with(AcquireOptions::new().owner(&me).wait(wait));
    let first = tokio::spawn(mine(SECOND * 5));
    settled().await;
    let mut idle = Box::pin(mine(SECOND * 300));
    assert!(futures_util::poll!(idle.as_mut()).is_pending());
    let next = tokio::spawn(mine(SECOND * 300));
    let error = first.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    held.release().await.unwrap();
    let guard = timeout(SECOND * 21, next).await.expect("it gets it");
    guard.unwrap().unwrap().release().await.unwrap();
    drop(idle);
    settled().await;
    assert!(here.is_idle());
}

/// The same for a try, which does not wait: a later one goes on without the one that is not polled.
#[tokio::test(start_paused = true)]
async fn a_try_of_an_owner_passes_over_an_acquisition_that_does_not_come() {
    let store = store();
    let (here, there) = (client(&store).await, client(&store).await);
    let held = there.lock("a").acquire().await.unwrap();
    let (lock, me) = (here.lock("a"), Owner::new());
    let mine = || AcquireOptions::new().owner(&me);
    let mut idle = Box::pin(lock.acquire_with(mine()));
    for _ in 0..5 {
        assert!(futures_util::poll!(idle.as_mut()).is_pending());
        sleep(Duration::from_millis(1)).await;
    }
    held.release().await.unwrap();
    let tries = async || lock.try_acquire_with(mine()).await.unwrap();
    assert!(tries().await.is_none(), "the other may be polled at once");
    sleep(SECOND * 10).await;
    let guard = tries().await.expect("the lock is free");
    guard.release().await.unwrap();
    drop(idle);
    settled().await;
    assert!(here.is_idle());
}

/// Readers hold a lock together, so one that was passed over may be granted it before the one that has its turn. A hold of each
/// would be two of one owner, and the owner would forget the first.
#[tokio::test(start_paused = true)]
async fn an_acquisition_that_was_passed_over_shares_its_hold_with_the_next_one() {
    let store = store();
    let (here, there) = (client(&store).await, client(&store).await);
    let writer = there.read_write_lock("a").write();
    let held = writer.acquire().await.unwrap();
    let (lock, me) = (here.read_write_lock("a").read(), Owner::new());
    let mine = || lock.acquire_with(AcquireOptions::new().owner(&me));
    let mut idle = Box::pin(mine());
    assert!(futures_util::poll!(idle.as_mut()).is_pending());
    let next = tokio::spawn(mine());
    sleep(SECOND * 15).await;
    held.release().await.unwrap();
    let both = timeout(SECOND, async { (idle.await.unwrap(), next.await.unwrap()) });
    let (first, second) = both.await.expect("both get it");
    assert_eq!(
        first.owner_id(),
        second.unwrap().owner_id(),
        "the same hold"
    );
}

/// An acquisition that waits for long is polled when the next one of its owner asks. If it were passed over, the next one
/// would wait for its own owner.
#[tokio::test(start_paused = true)]
async fn an_acquisition_of_an_owner_that_waits_long_is_not_passed_over() {
    let store = store();
    let (here, there) = (client(&store).await, client(&store).await);
    let held = there.lock("a").acquire().await.unwrap();
    let (lock, me) = (here.lock("a"), Owner::new());
    let mine = || lock.acquire_with(AcquireOptions::new().owner(&me));
    let [first, second] = [(); 2].map(|()| tokio::spawn(mine()));
    sleep(SECOND * 100).await;
    held.release().await.unwrap();
    // The limit ends the test if an acquisition waits for a hold of its own owner.
    let both = timeout(SECOND, async {
        (
            first.await.unwrap().unwrap(),
            second.await.unwrap().unwrap(),
        )
    });
    let (first, second) = both.await.expect("both get it");
    assert_eq!(first.owner_id(), second.owner_id(), "the same hold");
}

/// The same for a leader that is not polled any more: the next waiter in the local queue makes its own attempt then. Also
/// a later leader asks for itself: the one that was passed over stays the first waiter for a message.
#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_is_passed_over() {
    for spins in [false, true] {
        let store = store();
        let here = client(&store).await;
        let (there, plug) = counted(builder(), &store).await;
        let of = |client: &Client| {
            if spins {
                client.spin_lock("a")
            } else {
                client.lock("a")
            }
        };
        let held = of(&there).acquire().await.unwrap();
        let lock = of(&here);
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
        // A holder that dies sends no message.
        let dies = of(&there).acquire().await.unwrap();
        let (tasks, _) = crowd(&lock, 1, Duration::ZERO).await;
        plug.pull();
        timeout(SECOND * 41, tasks.join_all())
            .await
            .expect("the next leader asks for itself");
        drop(dies);
        // The idle waiter has lost the leadership, so dropping it must not disturb anybody.
        drop(idle);
        lock.acquire().await.unwrap().release().await.unwrap();
        assert!(here.is_idle());
    }
}

/// The same for the waiters of a set, which have no local queue: each of them asks for itself after a third of the lease.
#[tokio::test(start_paused = true)]
async fn a_waiter_of_a_set_that_stops_is_passed_over() {
    for votes in [false, true] {
        let stores = [(); 3].map(|()| store());
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for store in &stores {
            here.push(client(store).await);
            there.push(client(store).await);
        }
        let of = |clients: &[Client]| {
            if votes {
                RedLock::new(clients.to_vec()).unwrap().lock("a")
            } else {
                let parts = [clients[0].lock("a"), clients[1].lock("b")];
                clients[0].multi_lock(parts).unwrap()
            }
        };
        let held = of(&there).acquire().await.unwrap();
        let lock = of(&here);
        let mut idle = Box::pin(lock.acquire());
        for _ in 0..50 {
            assert!(futures_util::poll!(idle.as_mut()).is_pending());
            sleep(Duration::from_millis(1)).await;
        }
        let (tasks, order) = crowd(&lock, 4, Duration::ZERO).await;
        held.release().await.unwrap();
        timeout(SECOND * 11, tasks.join_all())
            .await
            .expect("they get it");
        assert_eq!(order.lock().unwrap().len(), 4);
        // The waiter that was passed over still gets its turn.
        idle.await.unwrap().release().await.unwrap();
        assert!(here.iter().all(Client::is_idle));
    }
}

/// The same for a waiter that was woken as the next leader and then stops being polled.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_was_called_and_stops_is_passed_over() {
    let store = store();
    let (here, there) = (client(&store).await, client(&store).await);
    let lock = here.lock("a");
    let mine = lock.acquire().await.unwrap();
    // Different options, so this waiter cannot take a hand-off and must make its own attempt at the store.
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

/// A release continues in the background only when its future is dropped. A future that is kept without being polled
/// must not block the other waiters.
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

/// The leader leaves in the middle of an outage, and the store answers the next one. That one and the waiters behind it had
/// been told of the outage.
#[tokio::test(start_paused = true)]
async fn a_trouble_that_is_over_is_not_told() {
    let store = store();
    let (client, plug) = counted(builder(), &store).await;
    let far = counted(builder(), &store).await.0;
    let held = far.lock("a").acquire().await.unwrap();
    let lock = client.lock("a");
    let waits = |seconds| lock.acquire_with(AcquireOptions::new().wait(SECOND * seconds));
    plug.pull();
    let first = tokio::spawn(waits(300));
    settled().await;
    let second = tokio::spawn(waits(300));
    settled().await;
    let told = waits(3).await.unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Unavailable, "{told}");
    assert!(told.to_string().contains("the plug is pulled"), "{told}");
    first.abort();
    plug.put_back();
    let error = second.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_reported_to_all_waiters() {
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
async fn close_ends_the_waiters_of_the_local_queue() {
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
    held.closing().await;
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

/// The lock was freed by another client: the holder notices it at its next renewal, and its waiters make an attempt at
/// the store.
#[tokio::test(start_paused = true)]
async fn a_lock_that_was_freed_elsewhere_is_asked_for_again() {
    let store = store();
    let (here, there) = (client(&store).await, client(&store).await);
    let lock = here.lock("a");
    let held = lock.acquire().await.unwrap();
    let (tasks, order) = crowd(&lock, 3, Duration::ZERO).await;
    assert!(there.lock("a").force_release().await.unwrap());
    let told = timeout(SECOND * 11, held.lost()).await;
    assert_eq!(told.expect("a third of the lease"), LostReason::Taken);
    timeout(SECOND, tasks.join_all()).await.expect("they ask");
    assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
    drop(held);
    settled().await;
    assert!(here.is_idle());
}

/// A store that delays its answer to the attempt with this number until it is told to answer.
#[derive(Debug, Clone)]
pub(super) struct Slow {
    pub(super) left: Arc<AtomicUsize>,
    pub(super) asked: Arc<Notify>,
    pub(super) answer: Arc<Notify>,
}

impl Twist for Slow {
    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        Box::pin(async move {
            if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
                self.asked.notify_one();
                self.answer.notified().await;
            }
            inner.attempt(ask).await
        })
    }
}

/// The leader of the local queue stops being polled, and the next waiter makes its own attempts. Returns the stopped
/// leader and that waiter.
pub(super) async fn a_scout(
    lock: &Lock,
) -> (
    impl Future<Output = Result<tidelock::Guard>> + use<>,
    tokio::task::JoinHandle<Result<tidelock::Guard>>,
) {
    let mut idle = Box::pin(lock.acquire());
    for _ in 0..5 {
        assert!(futures_util::poll!(idle.as_mut()).is_pending());
        sleep(Duration::from_millis(1)).await;
    }
    let next = lock.clone();
    let next = tokio::spawn(async move { next.acquire().await });
    settled().await;
    (idle, next)
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_leaves_leaves_nothing() {
    let store = store();
    let far = client(&store).await;
    // The stopped leader makes the first two attempts. The third is the next waiter's.
    let slow = Slow {
        left: Arc::new(AtomicUsize::new(3)),
        asked: Arc::default(),
        answer: Arc::default(),
    };
    let twist = slow.clone();
    let here = builder()
        .connect_to(async |env| {
            let store = tidelock::testing::open(&store, env).await?;
            Ok(Twisted::wrap(store, twist))
        })
        .await
        .unwrap();
    let held = far.lock("a").acquire().await.unwrap();
    let (idle, next) = a_scout(&here.lock("a")).await;
    let asked = timeout(SECOND * 21, slow.asked.notified()).await;
    assert!(asked.is_ok(), "{:?} questions are left", slow.left);
    next.abort();
    assert!(next.await.unwrap_err().is_cancelled());
    held.release().await.unwrap();
    // The store grants the lock now, but the waiter has gone.
    slow.answer.notify_one();
    let next = far.lock("a");
    let next = timeout(SECOND, next.acquire()).await.expect("it is free");
    next.unwrap().release().await.unwrap();
    drop(idle);
    settled().await;
    assert!(here.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_probe_without_an_answer_waits_on() {
    let store = store();
    let far = client(&store).await;
    let (here, plug) = counted(builder(), &store).await;
    let held = far.lock("a").acquire().await.unwrap();
    let (idle, next) = a_scout(&here.lock("a")).await;
    plug.pull();
    let before = plug.requests();
    sleep(SECOND * 15).await;
    assert!(plug.requests() > before, "it has looked");
    assert!(!next.is_finished());
    plug.put_back();
    held.release().await.unwrap();
    let guard = timeout(SECOND * 41, next).await.expect("it looks again");
    guard.unwrap().unwrap().release().await.unwrap();
    drop(idle);
    settled().await;
    assert!(here.is_idle());
}

/// A store that refuses the attempt with this number for a reason that no further attempt can change.
#[derive(Debug)]
struct Refuses(AtomicUsize);

impl Twist for Refuses {
    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        if self.0.fetch_sub(1, Ordering::SeqCst) == 1 {
            return Box::pin(async { Error::new(ErrorKind::Refused).into() });
        }
        inner.attempt(ask)
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_refused_ends_with_the_reason() {
    let store = store();
    let far = client(&store).await;
    // The stopped leader makes the first two attempts. The third is the next waiter's.
    let here = builder()
        .connect_to(async |env| {
            let store = tidelock::testing::open(&store, env).await?;
            Ok(Twisted::wrap(store, Refuses(AtomicUsize::new(3))))
        })
        .await
        .unwrap();
    let held = far.lock("a").acquire().await.unwrap();
    let (idle, next) = a_scout(&here.lock("a")).await;
    let refused = timeout(SECOND * 21, next).await.expect("it has asked");
    assert_eq!(refused.unwrap().unwrap_err().kind(), ErrorKind::Refused);
    drop(idle);
    held.release().await.unwrap();
    settled().await;
    assert!(here.is_idle());
}
