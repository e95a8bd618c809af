//! Promises about waiters: every waiter is woken, and a waiter that leaves blocks nobody.

use std::sync::Arc;
use std::time::Duration;

use crate::store::Capabilities;
use crate::testing::fixture::{Fixture, unique, within};
use crate::testing::party::{Held, PartyMember};

/// Spawns a waiter, and returns when the store shows it.
async fn waiting(fixture: &Fixture, place: &PartyMember) -> tokio::task::JoinHandle<Held> {
    let mine = place.clone();
    let task = tokio::spawn(async move { mine.acquire().await.expect("it waits") });
    let begun = tokio::time::Instant::now();
    // For a store that cannot count waiters, we wait a fixed time instead.
    while place.nobody_waits().await && begun.elapsed() < fixture.lease() / 10 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    task
}

/// How soon a waiter must get the lock: at once if the store wakes, otherwise within two leases.
fn bound(fixture: &Fixture, abilities: Capabilities) -> Duration {
    if abilities.wakes {
        fixture.soon()
    } else {
        fixture.lease() * 2
    }
}

/// After a release, a waiter of another client gets the lock, without polling if the store wakes.
pub async fn a_waiter_gets_the_lock_when_it_is_released(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let (name, abilities) = (unique("stock"), fixture.capabilities().await);
    let (a, b) = (fixture.party().await, fixture.party().await);
    for _ in 0..3 {
        let held = a.lock(&name).acquire().await.expect("free");
        let waiter = waiting(fixture, &b.lock(&name)).await;
        held.release().await.expect("held");
        let next = within("the waiter", bound(fixture, abilities), waiter).await;
        next.expect("no panic").release().await.expect("held");
    }
}

/// Every waiter gets the lock, one after another.
pub async fn every_waiter_gets_its_turn(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let (name, abilities) = (unique("stock"), fixture.capabilities().await);
    let (a, b) = (fixture.party().await, fixture.party().await);
    let held = a.lock(&name).acquire().await.expect("free");
    let mut waiters = tokio::task::JoinSet::new();
    for n in 0..8 {
        let place = if n % 2 == 0 { &a } else { &b }.lock(&name);
        waiters.spawn(async move { place.acquire().await?.release().await });
    }
    tokio::time::sleep(fixture.lease() / 10).await;
    held.release().await.expect("held");
    let all = within(
        "all waiters",
        bound(fixture, abilities) * 4,
        waiters.join_all(),
    )
    .await;
    for turn in all {
        turn.expect("each had its turn");
    }
}

/// A waiter that leaves at the moment of its wake passes the wake on.
pub async fn wakes_reach_someone_who_is_still_waiting(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let (name, abilities) = (unique("stock"), fixture.capabilities().await);
    let (a, b) = (fixture.party().await, fixture.party().await);
    for round in 0..12_u32 {
        let held = a.lock(&name).acquire().await.expect("free");
        let leaver = waiting(fixture, &b.lock(&name)).await;
        let place = b.lock(&name);
        let stayer = tokio::spawn(async move { place.acquire().await.expect("it waits") });
        tokio::time::sleep(Duration::from_millis(5)).await;
        held.release().await.expect("held");
        // Each round aborts the waiter at a different moment of the hand-off.
        for _ in 0..round * 3 {
            tokio::task::yield_now().await;
        }
        leaver.abort();
        drop(leaver.await); // if it got the lock, this releases it
        let next = within("the stayer", bound(fixture, abilities), stayer).await;
        next.expect("no panic").release().await.expect("held");
    }
}

/// A dropped wait leaves neither a waiter nor a lock.
pub async fn a_dropped_waiter_leaves_nothing(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("stock");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let held = a.lock(&name).acquire().await.expect("free");
    for _ in 0..8 {
        let waiter = waiting(fixture, &b.lock(&name)).await;
        waiter.abort();
        drop(waiter.await);
    }
    let place = a.lock(&name);
    super::super::fixture::eventually("nobody waits", fixture.lease() * 4, || place.nobody_waits())
        .await;
    held.release().await.expect("held");
    // With faults, a late attempt may still take the lock until its withdrawal arrives. So we wait instead of trying
    // once.
    let taken = within(
        "the lock, no ghost",
        fixture.soon(),
        a.lock(&name).acquire(),
    )
    .await;
    taken.expect("free").release().await.expect("held");
}

/// Locks with different names do not block each other, and are renewed together.
pub async fn names_do_not_wait_for_each_other(fixture: &Fixture) {
    let (base, a) = (unique("many"), Arc::new(fixture.party().await));
    let mut all = Vec::new();
    for n in 0..30 {
        all.push(
            a.lock(&format!("{base}:{n}"))
                .acquire()
                .await
                .expect("free"),
        );
    }
    tokio::time::sleep(fixture.lease() * 3 / 2).await;
    for held in all {
        held.release()
            .await
            .expect("kept together, for longer than a lease");
    }
}
