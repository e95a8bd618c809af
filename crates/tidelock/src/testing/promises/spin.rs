//! Promises about spin locks: waiters that ask again and again, beside others that wait for a message.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::options::AcquireOptions;
use crate::testing::fixture::{Fixture, eventually, unique, within};
use crate::testing::party::PartyMember;
use crate::testing::polls::poll_times;

async fn free(fixture: &Fixture, lock: &PartyMember) {
    let soon = AcquireOptions::new().wait(fixture.soon());
    let held = lock.acquire_with(soon).await.expect("free");
    held.release().await.expect("held");
}

/// A spin lock is the lock of its name.
pub async fn a_spin_lock_excludes_the_other_locks_of_its_name(fixture: &Fixture) {
    let name = unique("seat");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let kinds = |party: &crate::testing::party::Party| {
        [
            party.spin(&name),
            party.lock(&name),
            party.fair(&name),
            party.spin(&name).fenced(),
        ]
    };
    for held in kinds(&a) {
        let guard = held.acquire().await.expect("free");
        assert!(guard.is_held().await);
        for other in kinds(&b) {
            assert!(other.try_acquire().await.expect("answered").is_none());
        }
        guard.release().await.expect("held");
    }
}

/// The tasks of two clients that want one lock all the time have it, and one at a time.
pub async fn waiters_that_spin_all_have_their_turn(fixture: &Fixture) {
    let name = unique("seat");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let inside = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for party in [&a, &a, &b, &b] {
        let (lock, inside) = (party.spin(&name), inside.clone());
        tasks.spawn(async move {
            for _ in 0..10 {
                let guard = lock.acquire().await.expect("its turn");
                let before = inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                assert_eq!(before, 0, "two are inside");
                tokio::time::sleep(Duration::from_millis(1)).await;
                inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                guard.release().await.expect("held");
            }
        });
    }
    let all = within("all turns", fixture.lease() * 40, tasks.join_all()).await;
    assert_eq!(all.len(), 4);
}

/// A waiter of another kind sleeps until it is told, so a spin lock tells it.
pub async fn a_spin_lock_wakes_those_who_wait_for_a_message(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("seat");
    let (a, b) = (fixture.party().await, fixture.party().await);
    for kind in [b.lock(&name), b.fair(&name)] {
        let guard = a.spin(&name).acquire().await.expect("free");
        let waiter = kind.clone();
        let waiter = tokio::spawn(async move { waiter.acquire().await.expect("told") });
        eventually("it waits", fixture.lease() * 4, || async {
            kind.waiters().await > 0
        })
        .await;
        guard.release().await.expect("held");
        let held = within("the waiter", fixture.soon(), waiter).await;
        held.expect("no panic").release().await.expect("held");
    }
}

/// A wait leaves nothing behind when it is dropped after any number of polls.
pub async fn a_wait_for_a_spin_lock_dropped_anywhere_leaves_nothing(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("seat");
    let (a, b) = (fixture.party().await, fixture.party().await);
    for polls in 0..12 {
        let held = b.spin(&name).acquire().await.expect("free");
        let left = a.spin(&name).lock().clone();
        let waiter =
            tokio::spawn(
                async move { poll_times(left.acquire(), polls, Duration::from_secs(5)).await },
            );
        if polls % 2 == 0 {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        held.release().await.expect("held");
        drop(waiter.await.expect("no panic"));
        free(fixture, &b.spin(&name)).await;
    }
}

/// A holder that never releases is followed by a waiter when its lease ends.
pub async fn a_spin_holder_that_vanishes_is_followed_by_another(fixture: &Fixture) {
    let name = unique("seat");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let once = AcquireOptions::new().expires_after(fixture.lease());
    let held = a.spin(&name).acquire_with(once).await.expect("free");
    let next = within("the next", fixture.lease() * 2, b.spin(&name).acquire()).await;
    assert!(!held.is_held().await, "two believe that they hold it");
    next.expect("its turn").release().await.expect("held");
    drop(held);
}

/// All fenced locks of a name count together.
pub async fn tokens_grow_across_the_kinds_of_a_name(fixture: &Fixture) {
    let name = unique("seat");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let mut newest = None;
    for lock in [
        a.spin(&name).fenced(),
        b.lock(&name).fenced(),
        b.spin(&name).fenced(),
        a.spin(&name).fenced(),
    ] {
        let held = lock.acquire().await.expect("free");
        let token = Some(held.token());
        assert!(token > newest, "{token:?} after {newest:?}");
        newest = token;
        held.release().await.expect("held");
    }
}
