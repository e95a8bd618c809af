//! Promises about fair locks: the order of the queue, waiters that leave, and holders that vanish.

use std::time::Duration;

use crate::options::AcquireOptions;
use crate::testing::fixture::{Fixture, eventually, unique, within};
use crate::testing::polls::poll_times;
use crate::testing::promises::waiters::{free, next, waiting};

/// Waiters of two clients, some of them several times, get the lock in the order in which they came.
pub async fn fair_waiters_are_served_in_order_of_arrival(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("turns");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let held = a.fair(&name).acquire().await.expect("free");
    let mut waiters = Vec::new();
    for (n, party) in (1..).zip([&b, &a, &a, &b, &b, &a]) {
        waiters.push(waiting(fixture, &party.fair(&name), n).await);
    }
    held.release().await.expect("held");
    for (n, waiter) in waiters.into_iter().enumerate() {
        let held = next(fixture, &format!("waiter {n}"), waiter).await;
        assert!(held.is_held().await);
        held.release().await.expect("held");
    }
    free(fixture, &a.fair(&name)).await;
}

/// A caller that does not wait gets a free lock only if nobody waits for it.
pub async fn a_try_does_not_overtake_the_queue(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("turns");
    let (a, b) = (fixture.party().await, fixture.party().await);
    for _ in 0..5 {
        let held = a.fair(&name).acquire().await.expect("free");
        let waiter = waiting(fixture, &b.fair(&name), 1).await;
        held.release().await.expect("held");
        let tried = a.fair(&name).try_acquire().await.expect("answered");
        assert!(tried.is_none(), "somebody waited");
        let held = next(fixture, "the waiter", waiter).await;
        held.release().await.expect("held");
    }
    let tried = a.fair(&name).try_acquire().await.expect("answered");
    tried.expect("free").release().await.expect("held");
}

/// The first waiter leaves while the lock is held, or at about the moment when it gets the lock.
pub async fn a_fair_waiter_that_leaves_lets_those_behind_it_pass(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("turns");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let (one, two) = (a.fair(&name), b.fair(&name));
    for round in 0..8_u32 {
        let held = one.acquire().await.expect("free");
        let leaver = waiting(fixture, &two, 1).await;
        let stayer = waiting(fixture, &one, 2).await;
        let mut held = Some(held);
        if round % 2 == 1 {
            let held = held.take().expect("not yet");
            held.release().await.expect("held");
            for _ in 0..round * 3 {
                tokio::task::yield_now().await;
            }
        }
        leaver.abort();
        drop(leaver.await); // if it got the lock, this releases it
        drop(held);
        let stayer = next(fixture, "the stayer", stayer).await;
        stayer.release().await.expect("held");
        free(fixture, &two).await;
    }
}

/// A wait leaves no place in the queue when it is dropped after any number of polls.
pub async fn a_wait_for_a_fair_lock_dropped_anywhere_leaves_nothing(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("turns");
    let (a, b) = (fixture.party().await, fixture.party().await);
    for polls in 0..20 {
        let held = b.fair(&name).acquire().await.expect("free");
        let left = a.fair(&name).lock().clone();
        let waiter =
            tokio::spawn(
                async move { poll_times(left.acquire(), polls, Duration::from_secs(5)).await },
            );
        if polls % 2 == 0 {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        held.release().await.expect("held");
        drop(waiter.await.expect("no panic"));
        free(fixture, &b.fair(&name)).await;
    }
    eventually("nobody waits", fixture.lease() * 4, || async {
        a.fair(&name).nobody_waits().await
    })
    .await;
}

/// A holder that never releases is followed by the first waiter when its lease ends, and by the second after that.
pub async fn a_fair_holder_that_vanishes_is_followed_by_the_next(fixture: &Fixture) {
    let name = unique("turns");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let once = AcquireOptions::new().expires_after(fixture.lease());
    let held = a.fair(&name).acquire_with(once).await.expect("free");
    let first = waiting(fixture, &b.fair(&name), 1).await;
    let second = waiting(fixture, &a.fair(&name), 2).await;
    for (what, waiter) in [("the first", first), ("the second", second)] {
        let held = within(what, fixture.lease() * 2, waiter).await;
        held.expect("no panic").release().await.expect("held");
    }
    drop(held);
}

/// A forced release passes the lock to the first waiter.
pub async fn a_forced_release_hands_over_to_the_next(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("turns");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let held = a.fair(&name).acquire().await.expect("free");
    let first = waiting(fixture, &b.fair(&name), 1).await;
    let second = waiting(fixture, &a.fair(&name), 2).await;
    assert!(a.fair(&name).lock().force_release().await.expect("held"));
    let first = next(fixture, "the first", first).await;
    assert!(!second.is_finished());
    first.release().await.expect("held");
    let second = next(fixture, "the second", second).await;
    second.release().await.expect("held");
    drop(held);
}

/// Each waiter has a larger token than those before it.
pub async fn fair_tokens_grow_in_the_order_of_the_queue(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("turns");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let held = a.fair(&name).fenced().acquire().await.expect("free");
    let mut newest = held.token();
    let mut waiters = Vec::new();
    for (n, party) in (1..).zip([&b, &a, &b]) {
        waiters.push(waiting(fixture, &party.fair(&name).fenced(), n).await);
    }
    held.release().await.expect("held");
    for waiter in waiters {
        let held = next(fixture, "a waiter", waiter).await;
        let token = held.token();
        assert!(token > newest, "{token:?} after {newest:?}");
        newest = token;
        held.release().await.expect("held");
    }
}

/// `inspect` shows the waiters in the order in which they will have the lock.
pub async fn the_queue_is_shown_in_its_order(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("turns");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let lock = a.fair(&name);
    let held = lock.acquire().await.expect("free");
    let mut waiters = Vec::new();
    for (n, party) in (1..).zip([&b, &a, &b]) {
        waiters.push(waiting(fixture, &party.fair(&name), n).await);
    }
    let shown = lock.lock().inspect().await.expect("readable").queue;
    assert_eq!(shown.len(), 3);
    held.release().await.expect("held");
    for (waiter, shown) in waiters.into_iter().zip(shown) {
        let held = next(fixture, "a waiter", waiter).await;
        assert_eq!(held.owner_id().await, shown);
        held.release().await.expect("held");
    }
    let shown = lock.lock().inspect().await.expect("readable").queue;
    assert!(shown.is_empty());
}
