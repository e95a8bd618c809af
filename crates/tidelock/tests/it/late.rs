//! Late replies.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::join_all;
use tidelock::store::{
    AttemptReply, AttemptRequest, Backend, BoxFuture, CountChange, CountChanged, CountKind, Counts,
    LockKind, MarkChange, Marks, Name, NotYet, OwnerId, Released, Renewal, Renewed, Store, Ticket,
    Wait, ready,
};
use tidelock::test_util::Plug;
use tidelock::testing::{Fixture, Twist, Twisted};
use tidelock::{AcquireOptions, Client, Error, ErrorKind, LostReason, Owner, Result, Snapshot};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Delays its first reply by this much.
#[derive(Debug)]
struct Late {
    by: Duration,
    /// The first reply is this error, and its request did not take effect.
    error: Option<ErrorKind>,
    is_over: AtomicBool,
}

impl Twist for Late {
    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        Box::pin(async move {
            if self.is_over.swap(true, Ordering::SeqCst) {
                return inner.attempt(ask).await;
            }
            let answer = match self.error {
                Some(kind) => Error::new(kind).into(),
                None => inner.attempt(ask).await,
            };
            tokio::time::sleep(self.by).await;
            answer
        })
    }
}

/// As after a freeze of the process between the request and the reply. The reply proves nothing any more, but the lock
/// is or will be free, so the caller has no reason to give up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_comes_after_its_lease_is_asked_for_anew() {
    let fixture = Fixture::memory().wrapped(|env, store| {
        let late = Late {
            by: env.lease * 3 / 2,
            error: None,
            is_over: AtomicBool::new(false),
        };
        Twisted::wrap(Store::single(store.front), late)
    });
    let (party, began) = (fixture.party().await, Instant::now());
    let lock = party.lock("stock");
    let held = lock.acquire().await.expect("it is free");
    assert!(
        began.elapsed() > fixture.lease(),
        "the first answer was late"
    );
    assert!(held.is_held().await);
    held.release().await.expect("it was held");
    assert!(!lock.is_locked().await);
}

/// The process was frozen while a request was in flight: the request times out although the store works. A waiter
/// retries, and so does `try_acquire`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_goes_on_after_its_process_was_frozen() {
    let errors = [ErrorKind::Unavailable, ErrorKind::OutcomeUnknown];
    let limits = [None, Some(Duration::from_secs(600)), Some(Duration::ZERO)];
    let cases = errors.map(|error| limits.map(|limit| goes_on_after(error, limit)));
    join_all(cases.into_iter().flatten()).await;
}

async fn goes_on_after(error: ErrorKind, limit: Option<Duration>) {
    let fixture = Fixture::memory().wrapped(move |env, store| {
        let late = Late {
            by: env.response_timeout.max(env.lease) * 2,
            error: Some(error),
            is_over: AtomicBool::new(false),
        };
        Twisted::wrap(Store::single(store.front), late)
    });
    let party = fixture.party().await;
    let mut options = AcquireOptions::new();
    if let Some(limit) = limit {
        options = options.wait(limit);
    }
    let granted = party.lock("stock").acquire_with(options).await;
    let guard = granted.unwrap_or_else(|told| panic!("{error:?}, {limit:?}: {told}"));
    guard.release().await.unwrap();
}

/// Refuses each attempt: it must wait for many leases before it can answer safely.
#[derive(Debug)]
struct Unready {
    within: Duration,
}

impl Twist for Unready {
    fn attempt<'a>(
        &'a self,
        _inner: &'a dyn Backend,
        _ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        let within = self.within;
        let error = Error::new(ErrorKind::Unavailable).caused_by(NotYet { within });
        Box::pin(async move { error.into() })
    }
}

/// A waiter waits until the store is ready. Who only asks gets the error as soon as a response timeout is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_only_asks_does_not_wait_until_the_store_is_ready() {
    let fixture = Fixture::memory().wrapped(|env, store| {
        let within = env.lease * 40;
        Twisted::wrap(Store::single(store.front), Unready { within })
    });
    let lock = fixture.party().await.lock("stock");
    let began = Instant::now();
    let refused = lock.acquire_with(AcquireOptions::new().wait(Duration::ZERO));
    assert_eq!(refused.await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(began.elapsed() < fixture.lease() * 20, "it waited");
    let waiter = lock.acquire();
    tokio::time::timeout(fixture.lease() * 3 / 2, waiter)
        .await
        .expect_err("an outage of a lease ends no wait for a store that says when it is ready");
}

/// Executes releases, but loses their replies until the given instant.
#[derive(Debug)]
struct Mute {
    until: Instant,
    answered: Arc<AtomicBool>,
}

impl Twist for Mute {
    fn release<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            let released = inner.release(ticket).await;
            if Instant::now() < self.until {
                return Err(Error::new(ErrorKind::OutcomeUnknown).because("no reply"));
            }
            self.answered.store(true, Ordering::SeqCst);
            released
        })
    }
}

/// The result of a release whose replies are lost for this long, and whether the release was confirmed later.
async fn release_in_an_outage(outage: Duration) -> (Result<()>, bool) {
    let answered = Arc::<AtomicBool>::default();
    let told = Arc::clone(&answered);
    let fixture = Fixture::memory().wrapped(move |_, store| {
        let mute = Mute {
            until: Instant::now() + outage,
            answered: Arc::clone(&told),
        };
        Twisted::wrap(Store::single(store.front), mute)
    });
    let (timeout, lease) = (Duration::from_millis(200), Duration::from_secs(10));
    let settings = fixture.builder().response_timeout(timeout).lease(lease);
    let client = fixture.client(settings).await;
    let guard = client.lock("stock").acquire().await.unwrap();
    let result = guard.release().await;
    while !answered.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (result, client.close(timeout).await == 0)
}

/// A lost reply does not make a successful release look like a failure: the client retries it. Without a reply for two
/// response timeouts the caller learns that the outcome is unknown, and the release continues in the background.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_outlasts_an_outage_of_a_response_timeout_and_then_is_unknown() {
    let (result, is_clean) = release_in_an_outage(Duration::from_millis(150)).await;
    assert!(result.is_ok() && is_clean, "{result:?}");
    let (result, is_clean) = release_in_an_outage(Duration::from_secs(2)).await;
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    assert!(is_clean);
}

/// Answers releases with these errors first.
#[derive(Debug)]
struct Overwritten(Mutex<Vec<ErrorKind>>);

impl Twist for Overwritten {
    fn release<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        match self.0.lock().unwrap().pop() {
            Some(kind) => ready(Err(Error::new(kind))),
            None => inner.release(ticket),
        }
    }
}

/// Something else stands at the key. That is a loss, unless an earlier release without a reply may have freed the lock.
#[tokio::test]
async fn a_release_that_was_repeated_may_find_something_else_at_the_key() {
    use ErrorKind::{OutcomeUnknown, WrongType};
    for errors in [vec![WrongType], vec![WrongType, OutcomeUnknown]] {
        let (was_repeated, told) = (errors.len() == 2, errors.clone());
        let fixture = Fixture::memory()
            .wrapped(move |_, store| Twisted::wrap(store, Overwritten(Mutex::new(errors.clone()))));
        let guard = fixture.party().await.lock("stock").acquire().await.unwrap();
        let lost = guard.release().await.map_err(|error| error.lost_reason());
        let expected = if was_repeated {
            Ok(())
        } else {
            Err(Some(LostReason::WrongType))
        };
        assert_eq!(lost, expected, "{told:?}");
    }
}

/// A change of a number is repeated for a lease, and the store must know it for as long. Otherwise it would count twice.
#[tokio::test(start_paused = true)]
async fn a_change_that_is_repeated_late_counts_once() {
    let (lease, plug) = (Duration::from_secs(1200), Plug::new());
    let builder = Client::builder().simulated_time().lease(lease).plug(&plug);
    let client = builder.connect("memory:").await.unwrap();
    let slots = client.counting_semaphore("slots");
    assert!(slots.set_permits_if_new(1).await.unwrap());
    plug.lose_replies(1);
    let before = plug.requests();
    let outage = async {
        while plug.requests() == before {
            tokio::task::yield_now().await;
        }
        plug.pull();
        tokio::time::sleep(lease / 2).await;
        plug.put_back();
    };
    let (released, ()) = tokio::join!(slots.release(2), outage);
    assert_eq!(released.unwrap(), 3);
    assert_eq!(slots.available().await.unwrap(), 3);
}

/// A process that is frozen for minutes goes on when the store has forgotten the answers. A repeated change would count twice.
#[tokio::test(start_paused = true)]
async fn a_change_without_an_answer_is_not_repeated_after_a_long_freeze() {
    let plug = Plug::new();
    let builder = Client::builder()
        .simulated_time()
        .publish_process_info(false)
        .plug(&plug);
    let client = builder.connect("memory:").await.unwrap();
    let slots = client.counting_semaphore("slots");
    assert!(slots.set_permits_if_new(1).await.unwrap());
    let frozen = Duration::from_secs(400);
    plug.lose_replies(1);
    let mut release = Box::pin(slots.release(4));
    assert!(futures_util::poll!(release.as_mut()).is_pending());
    tokio::time::advance(frozen).await;
    let error = release.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    assert_eq!(slots.available().await.unwrap(), 5, "it has counted once");
    plug.lose_replies(1);
    let mut acquire = Box::pin(slots.acquire(2));
    assert!(futures_util::poll!(acquire.as_mut()).is_pending());
    tokio::time::advance(frozen).await;
    let error = acquire.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    while !client.is_idle() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(slots.available().await.unwrap(), 3, "it has taken once");
}

/// A waiter is refused again and again after a reply was lost. Each answer says that nothing was taken until then, so the wait
/// may last longer than the store remembers a request.
#[tokio::test(start_paused = true)]
async fn a_wait_for_counted_permits_outlasts_the_memory_of_the_store() {
    let plug = Plug::new();
    let builder = Client::builder().simulated_time().plug(&plug);
    let client = builder.connect("memory:").await.unwrap();
    let slots = client.counting_semaphore("slots");
    assert!(slots.set_permits_if_new(1).await.unwrap());
    plug.lose_replies(1);
    let late = async {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        slots.release(1).await
    };
    let (acquired, released) = tokio::join!(slots.acquire(2), late);
    acquired.unwrap();
    released.unwrap();
    assert_eq!(slots.available().await.unwrap(), 0);
}

/// Answers nothing while it is mute.
#[derive(Debug)]
struct Silent(Arc<AtomicBool>);

impl Twist for Silent {
    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        Box::pin(async move {
            while self.0.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            inner.attempt(ask).await
        })
    }
}

async fn kinds_of_waits(lock: &tidelock::Lock, count: usize, limit: Duration) -> Vec<ErrorKind> {
    let waits = (0..count).map(|_| lock.acquire_timeout(limit));
    let answers = join_all(waits).await;
    answers
        .into_iter()
        .map(|answer| answer.map(drop).unwrap_err().kind())
        .collect()
}

/// Only the store can say that another owner holds a lock. A wait that ends before the store has answered is no
/// timeout, whether the waiter asks the store itself or waits in the local queue behind one that asks.
#[tokio::test(start_paused = true)]
async fn a_wait_blames_another_owner_only_if_the_store_does() {
    let mute = Arc::new(AtomicBool::new(false));
    let hand = Arc::clone(&mute);
    let second = Duration::from_secs(1);
    let client = tidelock::Client::builder()
        .simulated_time()
        .connect_to(async move |env| {
            let store = tidelock::testing::open("memory:", env).await?;
            Ok(Twisted::wrap(store, Silent(hand)))
        })
        .await
        .unwrap();
    let lock = client.lock("a");
    mute.store(true, Ordering::SeqCst);
    let kinds = kinds_of_waits(&lock, 3, second).await;
    assert_eq!(
        kinds,
        [
            ErrorKind::OutcomeUnknown,
            ErrorKind::Unavailable,
            ErrorKind::Unavailable
        ]
    );
    // The attempt that was under way takes effect now, and its lock is released.
    mute.store(false, Ordering::SeqCst);
    let held = lock.acquire_timeout(second).await.unwrap();
    let kinds = kinds_of_waits(&lock, 3, second).await;
    assert_eq!(
        kinds,
        [ErrorKind::TimedOut; 3],
        "a task of this client has it"
    );
    let before = tidelock::AcquireOptions::new().wait(second * 2);
    let (waits, ()) = tokio::join!(lock.acquire_with(before), async {
        tokio::time::sleep(second).await;
        mute.store(true, Ordering::SeqCst);
        held.release().await.unwrap();
    });
    // Freed for a second, and the store does not say who has it.
    let error = waits.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
}

/// The same for the acquisitions of one owner, which take turns. An attempt whose caller has left keeps the turn until the
/// store gives it up.
#[tokio::test(start_paused = true)]
async fn a_wait_for_the_turn_of_an_owner_blames_another_one_only_if_the_store_does() {
    let mute = Arc::new(AtomicBool::new(false));
    let hand = Arc::clone(&mute);
    let second = Duration::from_secs(1);
    let name = "memory:turns-of-an-owner";
    let builder = || Client::builder().simulated_time();
    let other = builder().connect(name).await.unwrap();
    let client = builder()
        .connect_to(async move |env| {
            let store = tidelock::testing::open(name, env).await?;
            Ok(Twisted::wrap(store, Silent(hand)))
        })
        .await
        .unwrap();
    let (lock, me) = (client.lock("a"), Owner::new());
    let mine = |limit| AcquireOptions::new().owner(&me).wait(limit);
    let kind = |limit| {
        let answer = lock.acquire_with(mine(limit));
        async move { answer.await.map(drop).unwrap_err().kind() }
    };
    mute.store(true, Ordering::SeqCst);
    assert_eq!(kind(second / 10).await, ErrorKind::OutcomeUnknown);
    let tried = lock.try_acquire_with(AcquireOptions::new().owner(&me));
    let tried = tried.await.map(|guard| guard.is_some()).unwrap_err();
    assert_eq!(tried.kind(), ErrorKind::Unavailable, "{tried}");
    assert_eq!(kind(second).await, ErrorKind::Unavailable);
    // The attempt that was under way takes effect now, and its lock is released.
    mute.store(false, Ordering::SeqCst);
    let held = lock.acquire_with(mine(second)).await.unwrap();
    held.release().await.unwrap();
    // Another client holds the lock. The first wait is told so, and the store is silent when the second one gets the turn.
    let held = other.lock("a").acquire().await.unwrap();
    let waits = join_all([second; 3].map(kind));
    let (kinds, ()) = tokio::join!(waits, async {
        tokio::time::sleep(second * 9 / 10).await;
        mute.store(true, Ordering::SeqCst);
    });
    assert_eq!(kinds, [ErrorKind::TimedOut; 3]);
    mute.store(false, Ordering::SeqCst);
    held.release().await.unwrap();
}

/// The turn of an owner may be with a future that is kept and not polled.
#[tokio::test(start_paused = true)]
async fn a_close_ends_a_wait_for_the_turn_of_an_owner() {
    let builder = Client::builder().simulated_time();
    let client = builder.connect("memory:").await.unwrap();
    let (lock, me) = (client.lock("a"), Owner::new());
    let held = lock.acquire().await.unwrap();
    let mine = || lock.acquire_with(AcquireOptions::new().owner(&me));
    let mut kept = Box::pin(mine());
    assert!(futures_util::poll!(kept.as_mut()).is_pending());
    let second = Duration::from_secs(1);
    let waits = tokio::time::timeout(second, mine());
    let (answer, _) = tokio::join!(waits, client.close(Duration::ZERO));
    let error = answer.expect("it ends").map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    drop((kept, held));
}

/// An acquire without a reply may lie in the buffers of a frozen server, and be granted for a whole lease when it resumes. So
/// the client withdraws the ticket again and again, for twice the lease or a minute.
#[tokio::test(start_paused = true)]
async fn a_ticket_in_doubt_is_withdrawn_for_twice_its_lease() {
    let second = Duration::from_secs(1);
    for (lease, minutes) in [(second * 120, 4), (second * 3, 1)] {
        let plug = tidelock::test_util::Plug::new();
        let builder = tidelock::Client::builder()
            .simulated_time()
            .publish_process_info(false)
            .lease(lease)
            .response_timeout(second / 2)
            .plug(&plug);
        let client = builder.connect("memory:").await.unwrap();
        plug.lose_replies(1);
        let mut acquire = Box::pin(client.lock("a").acquire().into_future());
        assert!(futures_util::poll!(acquire.as_mut()).is_pending());
        plug.pull();
        drop(acquire);
        let goes_on = async |after| {
            tokio::time::sleep(after).await;
            let before = plug.requests();
            tokio::time::sleep(second * 5).await;
            plug.requests() > before
        };
        assert!(goes_on(second * (60 * minutes - 10)).await, "{lease:?}");
        assert!(!goes_on(second * 10).await, "{lease:?}");
        assert_eq!(client.stats().cleanups_given_up, 1);
    }
}

/// Answers no inspection and no renewal.
#[derive(Debug)]
struct Hanging;

impl Twist for Hanging {
    fn renew<'a>(
        &'a self,
        _inner: &'a dyn Backend,
        _batch: &'a [Renewal],
    ) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        Box::pin(std::future::pending())
    }

    fn inspect<'a>(
        &'a self,
        _inner: &'a dyn Backend,
        _name: &'a Name,
    ) -> BoxFuture<'a, Result<Snapshot>> {
        Box::pin(std::future::pending())
    }
}

/// The timers of a client stop when it has closed. So no limit would end a request that a close does not wait for.
#[tokio::test]
async fn a_request_that_hangs_ends_with_its_client() {
    let second = Duration::from_secs(1);
    let client = Client::builder()
        .publish_process_info(false)
        .response_timeout(second)
        .connect_to(async |env| {
            let store = tidelock::testing::open("memory:", env).await?;
            Ok(Twisted::wrap(store, Hanging))
        })
        .await
        .unwrap();
    let lock = client.lock("a");
    let guard = lock.acquire().await.unwrap();
    let inspected = async { lock.inspect().await.map(drop) };
    let requests = async {
        tokio::join!(
            client.ping(),
            inspected,
            guard.extend(second * 60),
            client.close(Duration::ZERO)
        )
    };
    let (pinged, inspected, extended, _) = tokio::time::timeout(second * 10, requests)
        .await
        .expect("they end with the client");
    for answer in [pinged, inspected, extended] {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Closed);
    }
}

/// Subscribes no waiter for a number, and does not say so.
#[derive(Debug)]
struct NeverArmed(Arc<dyn Backend>);

impl NeverArmed {
    fn sound(&self) -> &dyn Counts {
        self.0.extensions().counts.unwrap()
    }
}

impl Twist for NeverArmed {
    fn counts<'a>(&'a self, _inner: &'a dyn Backend) -> Option<&'a dyn Counts> {
        Some(self)
    }
}

impl Counts for NeverArmed {
    fn change<'a>(
        &'a self,
        name: &'a Name,
        change: CountChange,
        id: &'a OwnerId,
        settled: &'a [OwnerId],
    ) -> BoxFuture<'a, Result<CountChanged>> {
        self.sound().change(name, change, id, settled)
    }

    fn count<'a>(&'a self, name: &'a Name, kind: CountKind) -> BoxFuture<'a, Result<i64>> {
        self.sound().count(name, kind)
    }

    fn arm<'a>(&'a self, _name: &'a Name, _kind: CountKind) -> BoxFuture<'a, Result<Wait>> {
        Box::pin(std::future::pending())
    }
}

/// The first waiter of a process opens a connection for messages. If that hangs, neither the limit of the wait nor a close
/// waits for it.
#[tokio::test(start_paused = true)]
async fn a_wait_for_a_number_ends_in_time_although_its_subscription_hangs() {
    let second = Duration::from_secs(1);
    let client = Client::builder()
        .simulated_time()
        .publish_process_info(false)
        .connect_to(async |env| {
            let store = tidelock::testing::open("memory:", env).await?;
            let inner = Arc::clone(&store.front);
            Ok(Twisted::wrap(store, NeverArmed(inner)))
        })
        .await
        .unwrap();
    let (latch, slots) = (client.latch("gate"), client.counting_semaphore("slots"));
    assert!(latch.set_count_if_new(1).await.unwrap());
    let began = tokio::time::Instant::now();
    let waits =
        async { tokio::join!(latch.wait_timeout(second), slots.acquire_timeout(1, second)) };
    let (waited, acquired) = tokio::time::timeout(second * 60, waits)
        .await
        .expect("they end at their limit");
    assert!(began.elapsed() < second * 2, "{:?}", began.elapsed());
    for error in [waited.unwrap_err(), acquired.unwrap_err()] {
        assert!(error.is_timeout(), "{error}");
    }
    let waits =
        async { tokio::join!(latch.wait(), slots.acquire(1), client.close(Duration::ZERO)) };
    let (waited, acquired, _) = tokio::time::timeout(second * 60, waits)
        .await
        .expect("they end with the client");
    for error in [waited.unwrap_err(), acquired.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
}

/// Says of each change of a mark that another client was faster.
#[derive(Debug)]
struct Outpaced {
    changes: Arc<Semaphore>,
}

impl Twist for Outpaced {
    fn marks<'a>(&'a self, _inner: &'a dyn Backend) -> Option<&'a dyn Marks> {
        Some(self)
    }
}

impl Marks for Outpaced {
    fn now<'a>(&'a self, _name: &'a Name) -> BoxFuture<'a, Result<SystemTime>> {
        ready(Ok(SystemTime::now()))
    }

    fn read<'a>(
        &'a self,
        _name: &'a Name,
        _slot: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>>> {
        ready(Ok(None))
    }

    fn replace<'a>(
        &'a self,
        _name: &'a Name,
        _change: MarkChange<'a>,
    ) -> BoxFuture<'a, Result<bool>> {
        self.changes.add_permits(1);
        ready(Ok(false))
    }

    fn history<'a>(
        &'a self,
        _name: &'a Name,
        _limit: u32,
    ) -> BoxFuture<'a, Result<Vec<(String, String)>>> {
        ready(Ok(Vec::new()))
    }
}

/// Refuses the lock behind which the members of a barrier wait. So they look again and again, with growing pauses.
#[derive(Debug)]
struct NothingToWaitFor {
    looks: Arc<Semaphore>,
}

impl Twist for NothingToWaitFor {
    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        if ask.ticket.kind == LockKind::Write {
            return ready(Error::new(ErrorKind::Refused).into());
        }
        if ask.ticket.name.as_str().ends_with("%barrier") {
            self.looks.add_permits(1);
        }
        inner.attempt(ask)
    }
}

async fn twisted(twist: impl Twist) -> Client {
    let builder = Client::builder()
        .publish_process_info(false)
        .response_timeout(Duration::from_secs(1));
    let client = builder.connect_to(async move |env| {
        let store = tidelock::testing::open("memory:", env).await?;
        Ok(Twisted::wrap(store, twist))
    });
    client.await.unwrap()
}

/// Closes the client. The call ends with it, although its timers stop. Nothing else polls the task of the call: a poll
/// would let a pause end that is over.
async fn ends_with<T: Send + 'static>(client: &Client, call: JoinHandle<Result<T>>) {
    client.close(Duration::ZERO).await;
    let ended = tokio::time::timeout(Duration::from_secs(10), call).await;
    let ended = ended.unwrap().unwrap();
    let error = ended.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
}

/// The timers of a client stop when it has closed, and with them the pause before a member of a barrier repeats a step.
#[tokio::test]
async fn a_step_of_a_barrier_ends_with_its_client() {
    // A close may come when a pause is nearly over, so one round would not always show that nothing ends the pause.
    for _ in 0..4 {
        let changes = Arc::new(Semaphore::new(0));
        let twist = Outpaced {
            changes: Arc::clone(&changes),
        };
        let client = twisted(twist).await;
        let barrier = client.barrier("both", 2);
        let entered = tokio::spawn(async move { barrier.enter().await });
        // By then the pauses are long.
        drop(changes.acquire_many(7).await.unwrap());
        ends_with(&client, entered).await;
    }
}

/// The same for the pause between two looks.
#[tokio::test]
async fn a_member_that_leaves_a_barrier_ends_with_its_client() {
    let looks = Arc::new(Semaphore::new(0));
    let twist = NothingToWaitFor {
        looks: Arc::clone(&looks),
    };
    let client = twisted(twist).await;
    let barrier = client.barrier("both", 2);
    let (first, second) = tokio::join!(barrier.enter(), barrier.enter());
    let (first, second) = (first.unwrap(), second.unwrap());
    let left = tokio::spawn(first.leave());
    // By then the pauses are long.
    drop(looks.acquire_many(10).await.unwrap());
    ends_with(&client, left).await;
    drop(second);
}
