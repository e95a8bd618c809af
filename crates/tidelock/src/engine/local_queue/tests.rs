//! Tests of the local queues without a store: who is called, and what a queue still knows afterwards.

mod leaders;

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;

use crate::acknowledge::ReplicaAck;
use crate::engine::instruments::HandOverStop;
use crate::engine::lease::hold::{Hold, Successor};
use crate::engine::lease::leader_term::{LeaderTerm, Queues};
use crate::engine::local_queue::leader::{AcquireTerms, GrantedTerm, Leader, LeaderQueues};
use crate::engine::local_queue::queue::{Joined, LocalQueueSettings, LocalQueues};
use crate::engine::local_queue::waiter::{Notification, QueuedRequest, Waiter, WaiterFuture};
use crate::error::{Error, ErrorKind};
use crate::hand_off::HandOff;
use crate::store::{
    Awaited, BootInstant, Clock, LockKind, Name, ReleasesSeen, Timers, Wake, WakeChannels,
};
use crate::types::FencingToken;

const PATIENCE: Duration = Duration::from_secs(10);

const TERMS: AcquireTerms = AcquireTerms {
    kind: LockKind::Mutex,
    lease: Duration::from_secs(30),
    renewed: true,
    wish: ReplicaAck::Off,
    delay: Duration::ZERO,
};

/// How many tokens a grant reserves here.
const RESERVED: u32 = 5;

/// A request that only waits.
struct Request {
    name: Name,
    waiter: Waiter,
}

impl QueuedRequest for Request {
    fn name(&self) -> &Name {
        &self.name
    }

    fn terms(&self) -> &AcquireTerms {
        &TERMS
    }

    fn waiter(&self) -> &Waiter {
        &self.waiter
    }
}

impl Successor for Request {
    fn location(&self) -> &'static Location<'static> {
        Location::caller()
    }

    fn max_hold(&self) -> Option<Duration> {
        None
    }

    fn give(&self, hold: Arc<Hold>) {
        self.waiter.notify(Notification::Hold(hold));
    }

    fn join_again(&self) {
        self.waiter.notify(Notification::JoinAgain);
    }
}

type Waiting = WaiterFuture<Request>;

fn settings() -> LocalQueueSettings {
    LocalQueueSettings {
        hand_off: HandOff::default(),
        timers: Timers::new(Clock::Simulated),
        patience: PATIENCE,
        notify: Arc::<Notify>::default(),
    }
}

fn queues() -> Arc<LocalQueues> {
    LocalQueues::new(&settings())
}

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

fn join(queues: &Arc<LocalQueues>, of: &str) -> Joined<Request> {
    let request = Request {
        name: name(of),
        waiter: Waiter::default(),
    };
    queues.join(&Arc::new(request), None)
}

fn leads(queues: &Arc<LocalQueues>, of: &str) -> Leader {
    match join(queues, of) {
        Joined::Leads(leader) => leader,
        Joined::Waits(_) => panic!("{of} has a queue"),
    }
}

fn waits(queues: &Arc<LocalQueues>, of: &str) -> Waiting {
    match join(queues, of) {
        Joined::Waits(waiter) => waiter,
        Joined::Leads(_) => panic!("{of} has no queue"),
    }
}

/// The notification of this waiter. `None`: it waits on.
fn told(waiter: &mut Waiting) -> Option<Notification> {
    waiter.now_or_never()
}

/// Begins a leader term for the task that leads, with that token as the next one.
fn begin(queues: &Arc<LocalQueues>, of: &str, renewed: bool, next: u64) -> Arc<LeaderTerm> {
    begin_with(queues, of, renewed, next, None)
}

/// As [`begin`], with the wake of the task that leads.
fn begin_with(
    queues: &Arc<LocalQueues>,
    of: &str,
    renewed: bool,
    next: u64,
    wake: Option<Wake>,
) -> Arc<LeaderTerm> {
    let leader = queues.lock().queues[&name(of)].leader;
    let granted = GrantedTerm {
        terms: AcquireTerms { renewed, ..TERMS },
        tokens: Some((FencingToken::new(next), RESERVED)),
        wake,
    };
    let term = Arc::clone(queues).begin(&name(of), leader, granted);
    term.expect("it leads")
}

/// Otherwise a hold of an hour would gather all calls that have timed out behind it.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_is_forgotten_at_once() {
    let queues = queues();
    let leader = leads(&queues, "a");
    let waiter = waits(&queues, "a");
    assert!(queues.lock().queues[&name("a")].waits());
    drop(waiter);
    assert!(!queues.lock().queues[&name("a")].waits());
    drop(leader);
    assert!(queues.lock().queues.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_former_leader_that_leaves_changes_nothing() {
    let queues = queues();
    let first = leads(&queues, "a");
    let mut waiter = waits(&queues, "a");
    let second = queues.take_leadership(&name("a"));
    drop(first);
    assert!(told(&mut waiter).is_none());
    let third = queues.take_leadership(&name("a"));
    drop(second);
    assert!(told(&mut waiter).is_none());
    drop(third);
    let told = told(&mut waiter);
    assert!(matches!(told, Some(Notification::TakeLeadership(_))));
}

#[tokio::test(start_paused = true)]
async fn no_token_below_a_raised_counter_is_handed_on() {
    let queues = queues();
    let now = Clock::Simulated.now();
    let leader = leads(&queues, "a");
    let mut waiters = [(); 3].map(|()| waits(&queues, "a"));
    queues.raised(&name("a"), FencingToken::new(10));

    let term = begin(&queues, "a", true, 5);
    drop(leader);
    let handed_on = queues.next_holder(&term, now);
    assert!(matches!(handed_on, Err(Some(HandOverStop::Doubt))));
    term.end();
    let Some(Notification::TakeLeadership(_leader)) = told(&mut waiters[0]) else {
        panic!("the first waiter leads");
    };

    // The grant had the token 9, so the bound stays. The tokens that were reserved with it reach the bound.
    let term = begin(&queues, "a", true, 10);
    assert!(queues.lock().raised.contains_key(&name("a")));
    let handed_on = queues.next_holder(&term, now).expect("it reaches 10");
    assert_eq!(handed_on.token, Some(FencingToken::new(10)));
    term.end();
    let Some(Notification::TakeLeadership(_leader)) = told(&mut waiters[2]) else {
        panic!("the last waiter leads");
    };

    let _term = begin(&queues, "a", true, 12);
    assert!(queues.lock().raised.is_empty(), "the counter is beyond it");
}

/// The store would give the next token to another client as well.
#[tokio::test(start_paused = true)]
async fn no_more_tokens_are_handed_on_than_the_grant_reserved() {
    let queues = queues();
    let now = Clock::Simulated.now();
    let _leader = leads(&queues, "a");
    let _waiters = [(); RESERVED as usize + 1].map(|()| waits(&queues, "a"));
    let term = begin(&queues, "a", true, 7);
    for number in 0..u64::from(RESERVED) {
        let next = queues.next_holder(&term, now).expect("reserved");
        assert_eq!(next.token, Some(FencingToken::new(7 + number)));
    }
    let handed_on = queues.next_holder(&term, now);
    assert!(matches!(handed_on, Err(Some(HandOverStop::Doubt))));
}

#[tokio::test(start_paused = true)]
async fn only_a_queue_without_progress_is_probed() {
    let queues = queues();
    let _leaders = ["a", "b"].map(|of| leads(&queues, of));
    let mut first = waits(&queues, "a");
    tokio::time::advance(PATIENCE / 2).await;
    let mut second = waits(&queues, "b");
    tokio::time::advance(PATIENCE / 2).await;
    let now = Clock::Simulated.now();
    assert_eq!(queues.next_check(), now);
    queues.check_stalled(now);
    assert!(matches!(told(&mut first), Some(Notification::Probe)));
    assert!(told(&mut second).is_none(), "it waits for half of the time");
    queues.check_stalled(now + PATIENCE);
    assert!(matches!(told(&mut second), Some(Notification::Probe)));
    // A grant is progress.
    let mut third = waits(&queues, "b");
    tokio::time::advance(PATIENCE * 2).await;
    let _term = begin(&queues, "b", true, 1);
    queues.check_stalled(Clock::Simulated.now());
    assert!(told(&mut third).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_notification_that_is_not_taken_goes_to_the_next_waiter() {
    let queues = queues();
    let leader = leads(&queues, "a");
    let (mut first, mut second) = (waits(&queues, "a"), waits(&queues, "a"));
    drop(leader);
    queues.check_stalled(Clock::Simulated.now() + PATIENCE);
    let next = told(&mut second);
    assert!(matches!(next, Some(Notification::TakeLeadership(_))));
    // It was called once, so it has left the queue.
    assert!(matches!(told(&mut first), Some(Notification::JoinAgain)));
}

/// Otherwise every queue would wake the steward once more.
#[tokio::test(start_paused = true)]
async fn no_check_is_due_after_the_last_waiter_was_called() {
    let queues = queues();
    let leader = leads(&queues, "a");
    let mut waiter = waits(&queues, "a");
    drop(leader);
    let Some(Notification::TakeLeadership(_leader)) = told(&mut waiter) else {
        panic!("it leads");
    };
    queues.check_stalled(Clock::Simulated.now() + PATIENCE);
    assert_eq!(queues.next_check(), BootInstant::FAR);
}

const MICROSECOND: Duration = Duration::from_micros(1);

fn awaited(others: u32, foreign: u32) -> Awaited {
    Awaited {
        others,
        foreign,
        ..Awaited::default()
    }
}

/// How long this process must not ask, and whether the store was asked for the releases of others.
fn pause(queues: &LocalQueues, of: &str, count: u64) -> (Duration, bool) {
    let mut is_asked = false;
    let pause = queues.pause(&name(of), || {
        is_asked = true;
        let last = Clock::Simulated.now();
        Some(ReleasesSeen { count, last })
    });
    (pause, is_asked)
}

#[tokio::test(start_paused = true)]
async fn a_process_that_has_released_lets_the_others_ask_first() {
    let queues = queues();
    let second = Duration::from_secs(1);
    let freed = |others| queues.freed(&name("a"), awaited(others, 0), Duration::ZERO, second);
    freed(0);
    assert!(!queues.has_delays.load(Ordering::SeqCst), "nobody waits");
    assert_eq!(pause(&queues, "a", 0), (Duration::ZERO, false));
    freed(1);
    assert_eq!(pause(&queues, "a", 0), (MICROSECOND * 300, true));
    freed(0);
    assert_eq!(pause(&queues, "a", 0).0, Duration::ZERO, "they have gone");
    freed(1);
    assert_eq!(pause(&queues, "a", 0), (MICROSECOND * 300, true));
    assert_eq!(pause(&queues, "a", 1), (Duration::ZERO, true), "it came");
    assert_eq!(pause(&queues, "b", 0), (Duration::ZERO, false));
    // The other process did not come in that time, so it is given longer.
    let last = Clock::Simulated.now();
    queues.granted(&name("a"), || Some(ReleasesSeen { count: 0, last }));
    freed(1);
    assert_eq!(pause(&queues, "a", 0), (MICROSECOND * 1200, true));
    queues.granted(&name("b"), || panic!("nothing is known of this name"));
}

/// A client that is not tidelock gets as many turns as the tasks of this process had. A hold that is not renewed is
/// never handed on, so it was one.
#[tokio::test(start_paused = true)]
async fn a_foreign_client_gets_a_turn_for_each_task_that_held_the_lock() {
    for (renewed, turns) in [(true, 3), (false, 1)] {
        let queues = queues();
        let leader = leads(&queues, "a");
        let _waiters = [(); 2].map(|()| waits(&queues, "a"));
        let term = begin(&queues, "a", renewed, 1);
        drop(leader);
        for _ in 1..turns {
            let now = Clock::Simulated.now();
            assert!(queues.next_holder(&term, now).is_ok());
        }
        tokio::time::advance(Duration::from_millis(10)).await;
        queues.freed(&name("a"), awaited(1, 1), Duration::ZERO, Duration::ZERO);
        let pause = |seen| pause(&queues, "a", seen).0;
        assert_eq!(pause(turns - 1), MICROSECOND * 300);
        assert_eq!(pause(turns), Duration::ZERO);
    }
}
