//! The sides of a store that opens when the test lets it. `builder/lazy/tests.rs` tests the clients of such a store.

use std::sync::atomic::AtomicUsize;

use tokio::sync::Semaphore;

use super::*;
use crate::engine::runtime::sync::Mutex;
use crate::store::liveness::tests::TestCaller;
use crate::store::{
    Background, Clock, CountChange, CountChanged, Counts, Liveness, OwnerId, ReplicaAck,
    SemaphoreChange, memory,
};
use crate::testing::{Twist, Twisted};
use crate::types::OwnerMint;

/// The response timeout, and the lease of each attempt.
const LIMIT: Duration = Duration::from_secs(8);
/// The lane of every lock.
const LANE: u64 = 7;

/// Semaphores with queues, and a lane that no other store has.
#[derive(Debug, Clone, Default)]
struct QueueingTwist {
    /// How many sides of the store were closed.
    closed: Arc<AtomicUsize>,
}

impl PermitCounter for QueueingTwist {
    fn queues(&self) -> bool {
        true
    }

    fn change<'a>(&'a self, _name: &'a Name, _change: PermitChange) -> BoxFuture<'a, Result<bool>> {
        ready(Ok(true))
    }
}

impl Twist for QueueingTwist {
    fn permit_counter<'a>(&'a self, _inner: &'a dyn Backend) -> Option<&'a dyn PermitCounter> {
        Some(self)
    }

    fn lane(&self, _inner: &dyn Backend, _name: &Name) -> u64 {
        LANE
    }

    fn close<'a>(&'a self, _inner: &'a dyn Backend) -> BoxFuture<'a, ()> {
        self.closed.fetch_add(1, Ordering::SeqCst);
        ready(())
    }
}

/// A store that may be opened, and what has become of it.
struct OpeningStore {
    store: Store,
    settled: Arc<Flag>,
    timers: Timers,
    /// How many attempts to open it have begun.
    attempts: Arc<AtomicUsize>,
    /// One permit opens it.
    permits: Arc<Semaphore>,
    twist: QueueingTwist,
    till: Name,
}

impl OpeningStore {
    /// In simulated time.
    fn new() -> Self {
        let (background, _) = Background::start(Clock::Simulated).unwrap();
        let env = Env::of_limits(Timers::new(Clock::Simulated), background, LIMIT);
        env.background.spawn(env.timers.clone().drive());
        let (attempts, permits) = (Arc::default(), Arc::new(Semaphore::new(0)));
        let twist = QueueingTwist::default();
        let outline = StoreOutline {
            label: "double",
            can: memory::CAPABILITIES,
            plain: None,
        };
        let open = opens(&attempts, &permits, &twist, &env);
        let (store, settled) = LazyStore::of(&outline, open, &env);
        Self {
            store,
            settled,
            timers: env.timers,
            attempts,
            permits,
            twist,
            till: Name::new("till").unwrap(),
        }
    }

    fn open(&self) {
        self.permits.add_permits(1);
    }

    fn attempts(&self) -> usize {
        self.attempts.load(Ordering::SeqCst)
    }

    /// An attempt without patience.
    fn ask(&self) -> AttemptRequest {
        let ticket = Ticket {
            kind: LockKind::Mutex,
            name: self.till.clone(),
            owner: OwnerMint::new().fresh(),
        };
        AttemptRequest::once(ticket, LIMIT, ReplicaAck::Off)
    }
}

fn opens(
    attempts: &Arc<AtomicUsize>,
    permits: &Arc<Semaphore>,
    twist: &QueueingTwist,
    env: &Env,
) -> OpenStore {
    let (attempts, permits) = (Arc::clone(attempts), Arc::clone(permits));
    let (twist, env) = (twist.clone(), env.clone());
    Box::new(move || {
        let (attempts, permits) = (Arc::clone(&attempts), Arc::clone(&permits));
        let (twist, env) = (twist.clone(), env.clone());
        Box::pin(async move {
            attempts.fetch_add(1, Ordering::SeqCst);
            permits.acquire().await.unwrap().forget();
            let store = memory::open("", memory::CAPABILITIES, None, &env);
            store.map(|store| Twisted::wrap(store, twist))
        })
    })
}

/// Locks of one lane are renewed together. A refused ticket may have a place in a queue that must be given up.
#[tokio::test(start_paused = true)]
async fn lanes_and_queues_are_those_of_the_store_once_it_is_open() {
    let lazy = OpeningStore::new();
    let front = &lazy.store.front;
    let counter = front.extensions().permit_counter.unwrap();
    assert_eq!((front.lane(&lazy.till), counter.queues()), (0, false));
    assert!(!lazy.settled.is_set());
    lazy.open();
    front.inspect(&lazy.till).await.unwrap();
    assert_eq!((front.lane(&lazy.till), counter.queues()), (LANE, true));
    assert!(lazy.settled.is_set());
}

/// Otherwise it would open another store, and drop it.
#[tokio::test(start_paused = true)]
async fn a_caller_that_another_thread_overtakes_finds_the_store_that_was_opened_there() {
    let (background, _) = Background::start(Clock::Simulated).unwrap();
    let env = Env::of_limits(Timers::new(Clock::Simulated), background, LIMIT);
    let (attempts, permits) = (Arc::default(), Arc::new(Semaphore::new(2)));
    let opens = opens(&attempts, &permits, &QueueingTwist::default(), &env);
    let faster = Arc::new(Mutex::new(None::<Arc<dyn Backend>>));
    let place = Arc::clone(&faster);
    let open: OpenStore = Box::new(move || {
        // This caller has seen that the store is not open, and has not joined an attempt.
        let faster = place.lock().take();
        if let Some(front) = faster {
            let thread = std::thread::spawn(move || inspects(&*front));
            thread.join().unwrap();
        }
        opens()
    });
    let outline = StoreOutline {
        label: "double",
        can: memory::CAPABILITIES,
        plain: None,
    };
    let (store, _) = LazyStore::of(&outline, open, &env);
    *faster.lock() = Some(Arc::clone(&store.front));
    let till = Name::new("till").unwrap();
    store.front.inspect(&till).await.unwrap();
    assert_eq!(attempts.load(Ordering::SeqCst), 1);
}

/// A request on a runtime of its own.
fn inspects(front: &dyn Backend) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let till = Name::new("till").unwrap();
    runtime.block_on(front.inspect(&till)).unwrap();
}

/// The connect itself ends after a response timeout, and its error says more. A wait of one and a half is no outage.
#[tokio::test(start_paused = true)]
async fn a_caller_waits_a_little_longer_than_a_response_timeout() {
    let lazy = OpeningStore::new();
    let begun = lazy.timers.now();
    let asked = lazy.store.front.inspect(&lazy.till).await;
    assert_eq!(asked.unwrap_err().kind(), ErrorKind::Unavailable);
    let took = lazy.timers.now().since(begun);
    assert!(took >= LIMIT * 5 / 4 && took < LIMIT * 3 / 2, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_whose_caller_leaves_while_the_store_opens_is_not_sent() {
    for leaves in [false, true] {
        let (lazy, caller) = (OpeningStore::new(), Arc::<TestCaller>::default());
        let ask = AttemptRequest {
            liveness: Liveness::new(Arc::clone(&caller) as _),
            ..lazy.ask()
        };
        let opens = async {
            if leaves {
                caller.leave();
            }
            lazy.open();
        };
        let (reply, ()) = future::join(lazy.store.front.attempt(&ask), opens).await;
        let failed = reply.outcome.as_ref().err().map(Error::kind);
        assert_eq!(failed, leaves.then_some(ErrorKind::Unavailable));
        let seen = lazy.store.front.inspect(&lazy.till).await.unwrap();
        assert_eq!(seen.is_locked(), !leaves);
    }
}

/// The attempt would be granted after the withdrawal.
#[tokio::test(start_paused = true)]
async fn a_ticket_is_not_withdrawn_while_its_attempt_waits_for_the_store() {
    let lazy = OpeningStore::new();
    let Store { front, back, .. } = &lazy.store;
    let ask = lazy.ask();
    let ticket = &ask.ticket;
    assert_eq!(front.release(ticket).await.unwrap(), Released::NotHeld);
    let attempt = front.attempt(&ask);
    for side in [front, back] {
        for ended in [side.release(ticket), side.withdraw(ticket)] {
            let error = ended.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
    }
    drop(attempt);
    assert_eq!(back.withdraw(ticket).await.unwrap(), Released::NotHeld);
    assert_eq!(lazy.attempts(), 0, "nothing of it needs the store");
}

#[tokio::test(start_paused = true)]
async fn a_closed_store_opens_no_more_and_one_that_opens_meanwhile_is_closed() {
    let lazy = OpeningStore::new();
    lazy.store.back.close().await;
    let error = lazy.store.front.inspect(&lazy.till).await.unwrap_err();
    assert_eq!((error.kind(), lazy.attempts()), (ErrorKind::Closed, 0));

    let lazy = OpeningStore::new();
    let closes = async {
        lazy.store.back.close().await;
        lazy.open();
    };
    let (asked, ()) = future::join(lazy.store.front.inspect(&lazy.till), closes).await;
    assert_eq!(asked.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(lazy.attempts(), 1);
    let times = lazy.twist.closed.load(Ordering::SeqCst);
    assert_eq!(times, 2, "both sides");
}

/// A client that only exists should cost the store no connection.
#[tokio::test(start_paused = true)]
async fn a_store_is_not_opened_to_publish_the_process_of_its_client() {
    let (lazy, mint) = (OpeningStore::new(), OwnerMint::new());
    let back = &lazy.store.back;
    let error = back.announce(mint.client(), None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(lazy.attempts(), 0);
    assert_eq!(format!("{back:?}"), "double (not connected yet)");
    lazy.open();
    lazy.store.front.inspect(&lazy.till).await.unwrap();
    back.announce(mint.client(), None).await.unwrap();
    assert!(!format!("{back:?}").contains("not connected yet"));
}

/// The task that publishes the details of the process waits for this.
#[tokio::test(start_paused = true)]
async fn a_store_without_a_handle_will_never_be_open() {
    let OpeningStore { store, settled, .. } = OpeningStore::new();
    let back = Arc::clone(&store.back);
    drop(store);
    assert!(!settled.is_set());
    drop(back);
    assert!(settled.is_set());
}

async fn changed(counts: &dyn Counts, change: SemaphoreChange, id: &OwnerId) -> CountChanged {
    let (name, change) = (Name::new("till").unwrap(), CountChange::Semaphore(change));
    counts.change(&name, change, id, &[]).await.unwrap()
}

/// A caller that leaves takes back what it may have taken. If its request was never sent, it has taken nothing.
#[tokio::test(start_paused = true)]
async fn permits_are_taken_back_without_a_connection_if_none_was_ever_open() {
    let lazy = OpeningStore::new();
    let counts = lazy.store.front.extensions().counts.unwrap();
    let answer = |changed, count| CountChanged { changed, count };
    let mint = OwnerMint::new();
    let (own, id) = (mint.fresh(), mint.fresh());
    let undone = changed(counts, SemaphoreChange::Undo, &id).await;
    assert_eq!((undone, lazy.attempts()), (answer(false, 0), 0));
    lazy.open();
    let set = changed(counts, SemaphoreChange::SetIfNew(5), &own).await;
    assert_eq!((set, lazy.attempts()), (answer(true, 5), 1));
    let taken = changed(counts, SemaphoreChange::Take(2), &id).await;
    assert_eq!(taken, answer(true, 2));
    let undone = changed(counts, SemaphoreChange::Undo, &id).await;
    assert_eq!(undone, answer(true, 2));
}
