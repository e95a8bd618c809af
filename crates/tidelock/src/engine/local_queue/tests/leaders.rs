//! Tests of who leads a queue next, and what a leader leaves to it.

use crate::engine::local_queue::queued_store::QueuedStore;
use crate::engine::local_queue::tests::*;
use crate::engine::store_handle::tests::in_memory;
use crate::store::Background;

fn leadership(waiter: &mut Waiting) -> Box<Leader> {
    match told(waiter) {
        Some(Notification::TakeLeadership(leader)) => leader,
        _ => panic!("it does not lead"),
    }
}

/// A waiter that joins again keeps its number, and so its place.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_joins_again_has_its_old_place() {
    let queues = queues();
    let leader = leads(&queues, "a");
    let mut waiters = [(); 2].map(|()| waits(&queues, "a"));
    queues.close();
    let [mut second, mut first] = [1, 0].map(|place: usize| {
        let waiter = &mut waiters[place];
        assert!(matches!(told(waiter), Some(Notification::JoinAgain)));
        match queues.join(waiter.request(), Some(waiter.number())) {
            Joined::Waits(waiter) => waiter,
            Joined::Leads(_) => panic!("it has a queue"),
        }
    });
    drop(leader);
    assert!(told(&mut second).is_none());
    drop(leadership(&mut first));
    leadership(&mut second);
}

/// The hold of an ended term may live on for a while. It does not have the lock any more.
#[tokio::test(start_paused = true)]
async fn an_ended_term_hands_on_nothing_and_ends_no_other() {
    let queues = queues();
    let now = Clock::Simulated.now();
    let leader = leads(&queues, "a");
    let [mut first, mut second, _third] = [(); 3].map(|()| waits(&queues, "a"));
    drop(leader);
    let _leader = leadership(&mut first);
    let old = begin(&queues, "a", true, 1);
    let number = old.number();
    old.end();
    let _leader = leadership(&mut second);
    let new = begin(&queues, "a", true, 2);
    assert!(matches!(queues.next_holder(&old, now), Err(None)));
    queues.end_term(&name("a"), number);
    assert!(queues.next_holder(&new, now).is_ok());
}

/// A release that is cancelled drops its term.
#[tokio::test(start_paused = true)]
async fn a_dropped_term_calls_the_next_waiter_as_well() {
    let queues = queues();
    let leader = leads(&queues, "a");
    let [mut first, mut second] = [(); 2].map(|()| waits(&queues, "a"));
    drop(leader);
    let _leader = leadership(&mut first);
    let term = begin(&queues, "a", true, 1);
    assert!(told(&mut second).is_none());
    drop(term);
    leadership(&mut second);
}

/// Otherwise the next leader would ask the store for another wake, with one more request.
#[tokio::test(start_paused = true)]
async fn a_wake_of_the_store_passes_from_leader_to_leader() {
    let wakes = WakeChannels::new(Timers::new(Clock::Simulated), |_| {});
    let is_armed = || !wakes.watched().is_empty();
    let queues = queues();
    let mut leader = leads(&queues, "a");
    assert!(leader.take_wake().is_none());
    let [mut first, mut second] = [(); 2].map(|()| waits(&queues, "a"));
    // With the term, from the leader that was granted the lock.
    begin_with(&queues, "a", true, 1, Some(wakes.arm("a"))).end();
    let mut next = leadership(&mut first);
    let wake = next.take_wake();
    assert!(wake.is_some() && is_armed());
    // From a leader that leaves before it has taken it.
    let number = queues.lock().queues[&name("a")].leader;
    queues.leave(&name("a"), number, wake);
    let mut last = leadership(&mut second);
    let wake = last.take_wake();
    assert!(wake.is_some() && is_armed());
    // Nobody waits behind this one: nothing of the wake is left.
    let term = begin_with(&queues, "a", true, 1, wake);
    assert!(!is_armed());
    term.end();
    assert!(queues.lock().queues.is_empty());
}

/// A leader that is kept and not polled calls nobody.
#[tokio::test(start_paused = true)]
async fn a_close_calls_every_waiter_itself() {
    let (background, _stop) = Background::start(Clock::Simulated).unwrap();
    let settings = settings();
    let store = in_memory(&settings.timers, &background, PATIENCE);
    let (store, _plain) = QueuedStore::of_client(store.sides().clone(), None, &settings);
    let queues = store.queues.as_ref().unwrap();
    let _leaders = ["a", "b"].map(|of| leads(queues, of));
    let waiters = ["a", "b", "a"].map(|of| waits(queues, of));
    store.close();
    for mut waiter in waiters {
        assert!(matches!(told(&mut waiter), Some(Notification::JoinAgain)));
    }
}

/// Otherwise a wait that ends would say that another holds the lock, and the store is silent.
#[tokio::test(start_paused = true)]
async fn a_waiter_knows_that_its_own_attempt_has_no_answer() {
    const TOLERANCE: Duration = Duration::from_millis(10);
    let now = Clock::Simulated.now();
    let waiter = Waiter::default();
    waiter.answered(true, now);
    assert!(waiter.last_answer().is_held(now + PATIENCE, TOLERANCE));
    waiter.asked(now);
    assert!(!waiter.last_answer().is_held(now + PATIENCE, TOLERANCE));
    waiter.answered(false, now);
    assert!(!waiter.last_answer().is_held(now, TOLERANCE));
}

#[tokio::test(start_paused = true)]
async fn the_waiters_have_the_error_of_the_store_until_it_answers() {
    let queues = queues();
    let leader = leads(&queues, "a");
    let before = waits(&queues, "a");
    let has_error = |waiter: &Waiting| {
        let error = waiter.request().waiter().take_last_error();
        let is_some = error.is_some();
        waiter.request().waiter().set_last_error(error);
        is_some
    };
    leader.last_error(None);
    assert!(!has_error(&before));
    leader.last_error(Some(&Error::new(ErrorKind::Unavailable)));
    assert!(has_error(&before));
    let after = waits(&queues, "a");
    leader.last_error(Some(&Error::new(ErrorKind::Unavailable)));
    assert!(has_error(&before) && has_error(&after));
    leader.last_error(None);
    assert!(!has_error(&before) && !has_error(&after));
}

/// Otherwise the waits would end with the error of a task that was passed over, although the one that leads has answers.
#[tokio::test(start_paused = true)]
async fn what_a_former_leader_is_told_does_not_reach_the_waiters() {
    const TOLERANCE: Duration = Duration::from_millis(10);
    let queues = queues();
    let is_held = || {
        let last = queues.last_answer(&name("a"));
        last.is_held(Clock::Simulated.now(), TOLERANCE)
    };
    let mut former = leads(&queues, "a");
    let mut waiter = waits(&queues, "a");
    let mut leader = queues.take_leadership(&name("a"));
    // The first call of a new leader does not look at the queue.
    assert_eq!([former.asks(), former.asks()], [0, 0]);
    assert!(leader.asks() > 0);
    former.refused();
    assert!(!is_held());
    leader.refused();
    let error = Error::new(ErrorKind::Unavailable);
    former.last_error(Some(&error));
    assert!(is_held());
    assert!(waiter.request().waiter().take_last_error().is_none());
    former.fail(&error);
    assert!(told(&mut waiter).is_none());
    leader.fail(&error);
    assert!(matches!(told(&mut waiter), Some(Notification::Failed(_))));
}
