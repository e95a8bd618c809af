//! Single requests at exact instants: what a refusal has for its waiter, what wakes, and what ends when.

use futures_util::FutureExt;

use super::*;
use crate::store::{
    Background, Clock, CountChange, CountKind, Counts, Grant, MarkChange, Marks, OwnerId,
    PermitChange, PermitCounter, ReplicaAck, SemaphoreChange, Wait, Wake, answers_kept,
};
use crate::types::OwnerMint;

const LEASE: Duration = Duration::from_secs(30);

/// The last moment before an end.
const MOMENT: Duration = Duration::from_millis(1);

fn name() -> Name {
    Name::new("stock").unwrap()
}

/// Clients of one store, whose clock only moves when a test moves it.
fn clients<const N: usize>() -> [Arc<Memory>; N] {
    let (background, _stop) = Background::start(Clock::Simulated).unwrap();
    let env = Env::of_limits(Timers::new(Clock::Simulated), background, LEASE);
    let world = World::named("", CAPABILITIES, &env);
    [(); N].map(|()| Memory::new(&world, CAPABILITIES, &env))
}

/// An attempt of a caller that does not wait.
fn ask(kind: LockKind) -> AttemptRequest {
    let (name, owner) = (name(), OwnerMint::new().fresh());
    AttemptRequest::once(Ticket { kind, name, owner }, LEASE, ReplicaAck::Off)
}

/// An attempt of a caller that waits.
fn patient(kind: LockKind) -> AttemptRequest {
    AttemptRequest {
        patience: LEASE * 9,
        ..ask(kind)
    }
}

fn granted(store: &Memory, ask: &AttemptRequest) -> Grant {
    match store.decide(ask).unwrap() {
        Attempt::Acquired(grant) => grant,
        Attempt::Held(wait) => panic!("{wait:?}"),
    }
}

fn refused(store: &Memory, ask: &AttemptRequest) -> Wait {
    match store.decide(ask).unwrap() {
        Attempt::Held(wait) => wait,
        Attempt::Acquired(grant) => panic!("{grant:?}"),
    }
}

/// Whether it was woken since this was asked last.
fn is_woken(wake: &mut Wake) -> bool {
    wake.woken().now_or_never().is_some()
}

/// Whether the number of permits has changed.
fn change(store: &Memory, change: PermitChange) -> bool {
    let name = name();
    let changed = store.semaphores.change(&name, change).now_or_never();
    changed.unwrap().unwrap()
}

/// How many permits are available, of how many.
fn permits(store: &Memory) -> (i64, i64) {
    let count = store.look(&name()).permits.unwrap();
    (count.available, count.total)
}

fn listed(store: &Memory) -> Vec<String> {
    let page = store.list("*", None).now_or_never();
    page.unwrap().unwrap().names
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_gone_is_told_nothing_and_the_others_are() {
    let [one, other, gone] = clients();
    drop(gone);
    assert_eq!(one.world.lock().listeners.len(), 2);
    let held = ask(LockKind::Mutex);
    granted(&one, &held);
    let mut wake = refused(&other, &patient(LockKind::Mutex)).wake.unwrap();
    assert_eq!(one.end(&held.ticket), Released::Freed);
    assert!(is_woken(&mut wake));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_has_what_its_waiter_needs() {
    let zero = Duration::ZERO;
    for (kind, patience, armed_by, wakes, ahead) in [
        // It has no place. One that does not say that it waits may do so after this answer.
        (LockKind::Mutex, zero, None, true, None),
        (LockKind::Mutex, LEASE, None, true, None),
        (LockKind::Mutex, LEASE, Some(0), false, None),
        // One that waits has a place, and is woken for its own turn.
        (LockKind::Fair, zero, None, false, None),
        (LockKind::Fair, LEASE, None, true, Some(1)),
        (LockKind::Write, LEASE, Some(0), false, Some(1)),
        // It asks again and again.
        (LockKind::Spin, LEASE, None, false, None),
    ] {
        let [store] = clients();
        let held = ask(LockKind::Mutex);
        granted(&store, &held);
        let waiter = AttemptRequest {
            patience,
            armed_by,
            ..ask(kind)
        };
        let mut wait = refused(&store, &waiter);
        let told = (wait.recheck, wait.ahead);
        assert_eq!(told, (Some(LEASE), ahead), "{kind:?} {patience:?}");
        assert_eq!(store.end(&held.ticket), Released::Freed);
        let woken = wait.wake.as_mut().is_some_and(is_woken);
        assert_eq!(woken, wakes, "{kind:?} {patience:?} {armed_by:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_does_not_ask_again_keeps_its_place_for_three_leases() {
    let [store] = clients();
    let long = AttemptRequest {
        lease: LEASE * 9,
        ..ask(LockKind::Fair)
    };
    granted(&store, &long);
    refused(&store, &patient(LockKind::Fair));
    tokio::time::advance((LEASE * 3).saturating_sub(MOMENT)).await;
    assert_eq!(store.look(&name()).queue.len(), 1);
    tokio::time::advance(MOMENT).await;
    assert!(store.look(&name()).queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_repeated_attempt_lengthens_the_lease_and_reserves_no_more_tokens() {
    let [store] = clients();
    let first = AttemptRequest {
        spare: 4,
        ..ask(LockKind::Mutex)
    };
    let token = Some(FencingToken::new(1));
    let grant = granted(&store, &first);
    assert_eq!((grant.token, grant.more), (token, 4));
    tokio::time::advance(LEASE / 2).await;
    let again = granted(&store, &first);
    assert_eq!((again.token, again.more), (token, 0));
    assert_eq!(store.look(&name()).expires_in, Some(LEASE));
    assert_eq!(store.end(&first.ticket), Released::Freed);
    let next = granted(&store, &ask(LockKind::Mutex));
    assert_eq!(next.token, Some(FencingToken::new(6)));
}

/// Clients compare instants of one clock, so others have the lock at the instant at which the lease ends.
#[tokio::test(start_paused = true)]
async fn a_hold_is_over_when_its_lease_ends_and_a_delay_when_its_time_ends() {
    let [store] = clients();
    let delay = Duration::from_secs(10);
    let held = AttemptRequest {
        delay,
        ..ask(LockKind::Mutex)
    };
    granted(&store, &held);
    let left = || refused(&store, &ask(LockKind::Mutex)).recheck;
    tokio::time::advance(LEASE.saturating_sub(MOMENT)).await;
    assert_eq!(
        (listed(&store), left()),
        (vec!["stock".to_owned()], Some(MOMENT))
    );
    tokio::time::advance(MOMENT).await;
    assert_eq!((listed(&store), left()), (Vec::new(), Some(delay)));
    tokio::time::advance(delay.saturating_sub(MOMENT)).await;
    assert_eq!(left(), Some(MOMENT));
    tokio::time::advance(MOMENT).await;
    granted(&store, &ask(LockKind::Mutex));
}

#[tokio::test(start_paused = true)]
async fn permits_are_back_when_their_lease_ends() {
    let [store] = clients();
    assert!(change(&store, PermitChange::SetIfNew(3)));
    let two = ask(LockKind::Permits(2));
    granted(&store, &two);
    let more = ask(LockKind::Permits(2));
    tokio::time::advance(LEASE.saturating_sub(MOMENT)).await;
    assert_eq!(refused(&store, &more).recheck, Some(MOMENT));
    assert_eq!((permits(&store), listed(&store).len()), ((1, 3), 1));
    tokio::time::advance(MOMENT).await;
    assert_eq!((permits(&store), listed(&store).len()), ((3, 3), 0));
    assert!(store.look(&name()).holders.is_empty());
    let renewal = Renewal {
        ticket: two.ticket.clone(),
        lease: LEASE,
        wish: ReplicaAck::Off,
    };
    assert!(matches!(store.renew_one(&renewal), Renewed::Gone));
    assert_eq!(store.end(&two.ticket), Released::NotHeld);
    assert_eq!(permits(&store), (3, 3));
    // The next request takes them back, if none has done so before.
    for _ in 0..2 {
        granted(&store, &ask(LockKind::Permits(3)));
        tokio::time::advance(LEASE).await;
    }
}

/// Each wake costs its waiter a request.
#[tokio::test(start_paused = true)]
async fn only_permits_that_come_back_wake_the_waiters_of_a_semaphore() {
    let [store] = clients();
    assert!(change(&store, PermitChange::SetIfNew(3)));
    let one = ask(LockKind::Permits(1));
    granted(&store, &one);
    let big = patient(LockKind::Permits(3));
    let mut wake = refused(&store, &big).wake.unwrap();
    let again = AttemptRequest {
        armed_by: Some(0),
        ..big
    };
    assert!(refused(&store, &again).wake.is_none(), "it has one");
    let stranger = ask(LockKind::Permits(1));
    assert_eq!(store.end(&stranger.ticket), Released::NotHeld);
    for (asked, changes) in [
        (PermitChange::SetIfNew(9), false),
        (PermitChange::Set(3), false),
        (PermitChange::Add(0), false),
        (PermitChange::Add(-1), true),
    ] {
        assert_eq!(change(&store, asked), changes, "{asked:?}");
    }
    assert!(!is_woken(&mut wake), "there are not more than before");
    assert!(change(&store, PermitChange::Add(1)));
    assert!(is_woken(&mut wake));
    assert_eq!(store.end(&one.ticket), Released::Freed);
    assert!(is_woken(&mut wake));
    assert_eq!(store.semaphores.force(&name(), None), Some(false));
    assert!(!is_woken(&mut wake), "nobody had any");
}

/// A request after the end of a lease takes the permits back. Others are told if it leaves some.
#[tokio::test(start_paused = true)]
async fn permits_that_a_taker_leaves_wake_the_others() {
    for (taken, wakes) in [(1, true), (2, false)] {
        let [store] = clients();
        assert!(change(&store, PermitChange::Set(2)));
        granted(&store, &ask(LockKind::Permits(2)));
        let waiter = patient(LockKind::Permits(2));
        let mut wake = refused(&store, &waiter).wake.unwrap();
        tokio::time::advance(LEASE).await;
        granted(&store, &ask(LockKind::Permits(taken)));
        assert_eq!(is_woken(&mut wake), wakes, "{taken} of 2");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_finds_ended_permits_wakes_the_waiters() {
    let ([store], name, mint) = (clients(), name(), OwnerMint::new());
    assert!(change(&store, PermitChange::Set(2)));
    granted(&store, &ask(LockKind::Permits(2)));
    let armed = store.arm(&name, CountKind::Semaphore).now_or_never();
    let armed = armed.unwrap().unwrap();
    assert_eq!(armed.recheck, Some(LEASE / 3));
    let mut wake = armed.wake.unwrap();
    for (passed, takes) in [(LEASE.saturating_sub(MOMENT), false), (MOMENT, true)] {
        tokio::time::advance(passed).await;
        let take = CountChange::Semaphore(SemaphoreChange::Take(1));
        let id = mint.fresh();
        let answer = store.change(&name, take, &id, &[]).now_or_never();
        assert_eq!(answer.unwrap().unwrap().changed, takes);
        assert_eq!(is_woken(&mut wake), takes);
    }
}

/// Each wake costs its waiter a request.
#[tokio::test(start_paused = true)]
async fn a_change_that_adds_no_permits_wakes_no_waiter() {
    use SemaphoreChange::{Add, GiveBack, SetIfNew};
    let ([store], name, mint) = (clients(), name(), OwnerMint::new());
    let armed = store.arm(&name, CountKind::Semaphore).now_or_never();
    let mut wake = armed.unwrap().unwrap().wake.unwrap();
    for (change, wakes) in [
        (SetIfNew(0), false),
        (Add(0), false),
        (GiveBack(0), false),
        (GiveBack(1), true),
    ] {
        let (asked, id) = (CountChange::Semaphore(change), mint.fresh());
        let answer = store.change(&name, asked, &id, &[]).now_or_never();
        assert!(answer.unwrap().unwrap().changed, "{change:?}");
        assert_eq!(is_woken(&mut wake), wakes, "{change:?}");
    }
}

/// A client repeats a change for a shorter time, so a later one with the same id is another change.
#[tokio::test(start_paused = true)]
async fn the_answer_to_a_change_is_kept_for_its_time() {
    let ([store], name, mint) = (clients(), name(), OwnerMint::new());
    let changes = |change, id: &OwnerId| {
        let change = CountChange::Semaphore(change);
        let answer = store.change(&name, change, id, &[]).now_or_never();
        answer.unwrap().unwrap().changed
    };
    assert!(changes(SemaphoreChange::SetIfNew(5), &mint.fresh()));
    let id = mint.fresh();
    let kept = answers_kept(LEASE);
    for (passed, left) in [
        (Duration::ZERO, 3),
        (kept.saturating_sub(MOMENT), 3),
        (MOMENT, 1),
    ] {
        tokio::time::advance(passed).await;
        assert!(changes(SemaphoreChange::Take(2), &id));
        let count = store.count(&name, CountKind::Semaphore).now_or_never();
        assert_eq!(count.unwrap().unwrap(), left, "after {passed:?} more");
    }
}

/// They are looked through only when there are many.
#[tokio::test(start_paused = true)]
async fn withdrawals_are_forgotten_at_the_instant_at_which_their_time_ends() {
    let ([store], mint) = (clients(), OwnerMint::new());
    let (now, kept) = (store.timers.now(), mint.fresh());
    let mut records = store.world.lock();
    let ended = (0..2000).map(|_| (mint.fresh(), now));
    records.withdrawn.extend(ended);
    records.withdrawn.insert(kept.clone(), now + MOMENT);
    records.make_room(now);
    assert_eq!(records.withdrawn.len(), 1);
    assert!(records.withdrawn.contains_key(&kept));
}

#[tokio::test(start_paused = true)]
async fn a_mark_lasts_as_long_as_asked_by_the_clock_of_the_store() {
    let ([store], name) = (clients(), name());
    let wall = || store.now(&name).now_or_never().unwrap().unwrap();
    let mark = || store.read(&name, "slot").now_or_never().unwrap().unwrap();
    let begun = wall();
    let change = MarkChange::unacknowledged("slot", None, "done", LEASE);
    let replaced = store.replace(&name, change).now_or_never();
    assert!(replaced.unwrap().unwrap());
    tokio::time::advance(LEASE.saturating_sub(MOMENT)).await;
    assert_eq!(mark().as_deref(), Some("done"));
    tokio::time::advance(MOMENT).await;
    assert_eq!(mark(), None);
    assert_eq!(wall().duration_since(begun).unwrap(), LEASE);
}
