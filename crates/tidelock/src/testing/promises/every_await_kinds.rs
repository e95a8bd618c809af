//! Cancel safety of the other kinds, at each await point: both sides of a read-write lock, several permits of a semaphore,
//! counted permits that are given back, and a lock that is not re-entered. Use it as [`every_await`](super::every_await).
#![allow(
    clippy::async_yields_async,
    reason = "what is begun is polled a given number of times"
)]

use tokio::task::JoinHandle;

use crate::counting_semaphore::CountingSemaphore;
use crate::error::{Error, ErrorKind, Result};
use crate::fenced::LockGuard;
use crate::guard::Guard;
use crate::lock::Acquire;
use crate::options::AcquireOptions;
use crate::owner::Owner;
use crate::snapshot::PermitCount;
use crate::testing::fixture::{Fixture, eventually, within};
use crate::testing::polls::{Polled, poll_times};
use crate::testing::promises::every_await::{MAX_AWAITS, Stage, at_every_await};

/// The permits of the semaphores.
const TOTAL: u16 = 3;

fn ghost(error: &Error, polls: usize) -> ! {
    panic!("a ghost after {polls} polls: {error}")
}

/// An acquisition beside a hold that another client has.
///
/// # Errors
/// If the hold `stays` until the wait is over: that of its release. Otherwise that of the release of what was acquired.
async fn beside<G: LockGuard>(held: G, wait: Acquire<G>, stays: bool) -> Result<()> {
    let held: Guard = held.into();
    if stays {
        // Here the wait sleeps, with a place in the queue of the store.
        let got = wait.await.map(Into::into);
        got.map(|_: Guard| ()).expect_err("somebody is inside");
        return held.release().await;
    }
    // Both run concurrently, so the release meets the wait at each of its await points.
    let (got, released) = tokio::join!(wait, held.release());
    released.expect("held");
    let got: Guard = got.expect("its turn").into();
    got.release().await
}

/// A reader or a writer that is dropped while it enters, waits or leaves has left nothing, whether a reader or a writer is
/// inside, and whether that one leaves meanwhile or stays.
///
/// # Panics
/// If the store has no read-write locks.
pub async fn a_side_cancelled_at_every_await_leaves_nothing(fixture: &Fixture) {
    let stage = Stage::new(fixture).await;
    let mine = stage.one.read_write_lock(&stage.name);
    let others = stage.other.read_write_lock(&stage.name);
    for (inside, wanted, stays) in [
        (others.read(), mine.read(), false),
        (others.read(), mine.write(), false),
        (others.read(), mine.write(), true),
        (others.write(), mine.read(), false),
        (others.write(), mine.read(), true),
        (others.write(), mine.write(), true),
    ] {
        let begin = async || {
            let held = inside.acquire().await.expect("free");
            beside(held, wanted.acquire_with(stage.limit(stays)), stays)
        };
        at_every_await(&stage, begin, async |done, polls| {
            if let Some(released) = done {
                released.expect("held");
            }
            // First the write side: a store may keep a lock and the sides of one name apart.
            let next = others.write().acquire_with(stage.soon()).await;
            let next = next.unwrap_or_else(|error| ghost(&error, polls));
            next.release().await.expect("held");
            // On Redis a lock refuses the name while the steward still releases a side of it.
            stage.is_idle().await;
            stage.is_clean(polls).await;
        })
        .await;
    }
}

/// An acquisition of two permits that is dropped while it takes them, waits for them or gives them back leaves all permits
/// of the semaphore available, also those that another one gives back meanwhile.
///
/// # Panics
/// If the store has no semaphores.
pub async fn permits_cancelled_at_every_await_all_come_back(fixture: &Fixture) {
    let stage = Stage::new(fixture).await;
    let [mine, others] = [&stage.one, &stage.other].map(|client| client.semaphore(&stage.name));
    let set = mine.set_permits_if_new(TOTAL.into()).await;
    assert!(set.expect("answered"));
    // With one permit held by another client there are enough. With two it waits.
    for (count, stays) in [(1, false), (2, false), (2, true)] {
        let begin = async || {
            let held = others.permits(count).acquire().await.expect("there are 3");
            let wait = mine.permits(2).acquire_with(stage.limit(stays));
            beside(held, wait, stays)
        };
        at_every_await(&stage, begin, async |done, polls| {
            if let Some(released) = done {
                released.expect("held");
            }
            let all = others.permits(TOTAL).acquire_with(stage.soon()).await;
            let all = all.unwrap_or_else(|error| ghost(&error, polls));
            all.release().await.expect("held");
            eventually("all have come back", stage.patience(), || async {
                let seen = mine.inspect().await.expect("readable");
                let all = PermitCount::new(TOTAL.into(), TOTAL.into());
                seen.holders.is_empty() && seen.permits == Some(all)
            })
            .await;
            stage.is_idle().await;
        })
        .await;
    }
    // On Redis a waiter is a subscription, which lingers for a moment. So we look for it once.
    eventually("no waiter is left", stage.patience(), || async {
        let seen = mine.inspect().await.expect("readable");
        seen.waiters.unwrap_or(0) == 0
    })
    .await;
}

/// Starts a waiter for two permits, and returns when the store shows it.
async fn waiter(stage: &Stage<'_>, slots: &CountingSemaphore) -> JoinHandle<Result<()>> {
    let wanted = slots.clone();
    let waiter = tokio::spawn(async move { wanted.acquire(2).await });
    eventually("it waits", stage.patience(), || async {
        let seen = slots.inspect().await.expect("readable");
        seen.waiters >= Some(1)
    })
    .await;
    waiter
}

/// A release of two counted permits that is dropped has given both back, once, or none of them. Another release still wakes
/// those that wait.
///
/// # Panics
/// If the store has no counting semaphores.
pub async fn a_counted_release_cancelled_at_every_await_counts_once_or_not_at_all(
    fixture: &Fixture,
) {
    let stage = Stage::new(fixture).await;
    let [mine, others] =
        [&stage.one, &stage.other].map(|client| client.counting_semaphore(&stage.name));
    assert!(mine.set_permits_if_new(0).await.expect("answered"));
    for polls in 0..MAX_AWAITS {
        let waiter = waiter(&stage, &others).await;
        let done = match poll_times(mine.release(2), polls, stage.patience()).await {
            Polled::Done(given) => {
                given.expect("answered");
                true
            }
            Polled::Dropped => false,
            Polled::Asleep => panic!("nothing woke it after {polls} polls"),
        };
        // A request of the dropped release that is still on its way comes before this one, on the same connection.
        mine.release(2).await.expect("answered");
        let ended = within("the waiter", stage.patience(), waiter).await;
        ended.expect("no panic").expect("it was woken");
        let left = mine.drain().await.expect("answered");
        let may_be = if done {
            vec![2]
        } else if polls == 0 {
            vec![0]
        } else {
            vec![0, 2]
        };
        assert!(may_be.contains(&left), "{left} left after {polls} polls");
        stage.is_idle().await;
        if done {
            return;
        }
    }
    panic!("not done after {MAX_AWAITS} polls");
}

/// A dropped acquisition of a non-reentrant lock leaves nothing, also not in the memory of its owner, who can acquire the
/// lock again. While it holds the lock, it is refused a second guard.
pub async fn a_non_reentrant_lock_cancelled_at_every_await_leaves_nothing(fixture: &Fixture) {
    let stage = Stage::new(fixture).await;
    let lock = stage.one.lock(&stage.name).non_reentrant();
    let others = stage.other.lock(&stage.name);
    let owner = Owner::new();
    let mine = || AcquireOptions::new().owner(&owner);
    let begin = async || {
        let held = others.acquire().await.expect("free");
        let (first, second) = (lock.acquire_with(mine()), lock.acquire_with(mine()));
        async move {
            let (got, released) = tokio::join!(first, held.release());
            released.expect("held");
            let guard = got.expect("its turn");
            let again = second.await.map(drop);
            guard.release().await.expect("held");
            again
        }
    };
    at_every_await(&stage, begin, async |done, polls| {
        if let Some(again) = done {
            let error = again.expect_err("held by the same owner");
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
        }
        let next = lock.acquire_with(stage.soon().owner(&owner)).await;
        let next = next.unwrap_or_else(|error| ghost(&error, polls));
        next.release().await.expect("held");
        stage.is_clean(polls).await;
    })
    .await;
}
