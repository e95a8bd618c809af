//! Promises about leases: they are renewed, they end, and a holder learns of its loss before the next one has the lock.

use std::sync::Arc;

use tokio::time::Instant;

use crate::error::ErrorKind;
use crate::options::AcquireOptions;
use crate::testing::fixture::{Fixture, unique, within};
use crate::testing::promises::losses::{listening, told_before};
use crate::types::LostReason;

/// A hold that lasts for several leases is renewed, and excludes other clients all the time.
pub async fn a_kept_lease_is_renewed(fixture: &Fixture) {
    let name = unique("stock");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let held = a.lock(&name).acquire().await.expect("free");
    let end = Instant::now() + fixture.lease() * 3;
    while Instant::now() < end {
        assert!(held.is_held().await);
        assert!(
            b.lock(&name)
                .try_acquire()
                .await
                .expect("answered")
                .is_none()
        );
        tokio::time::sleep(fixture.lease() / 8).await;
    }
    held.release().await.expect("held all the time");
}

/// A hold whose lease is shorter than its client's is renewed in time for that lease. The client's own renewals would come
/// too late for it.
pub async fn a_lease_of_ones_own_is_renewed(fixture: &Fixture) {
    let name = unique("stock");
    let longer = fixture.builder().lease(fixture.lease() * 4);
    let a = fixture.party_with(longer).await;
    let options = AcquireOptions::new().lease(fixture.lease());
    let held = a.lock(&name).acquire_with(options).await.expect("free");
    assert!(held.valid_for().await <= fixture.lease());
    tokio::time::sleep(fixture.lease() * 2).await;
    held.release().await.expect("held all the time");
}

/// A hold with `expires_after` learns of its end before another client has the lock.
pub async fn expires_after_ends_and_is_told_before_another_gets_it(fixture: &Fixture) {
    let name = unique("stock");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let options = AcquireOptions::new().expires_after(fixture.lease());
    let held = a.lock(&name).acquire_with(options).await.expect("free");
    assert!(held.valid_for().await <= fixture.lease());
    let held = Arc::new(held);
    let told = listening(&held);
    let next = within(
        "the next holder",
        fixture.lease() * 4,
        b.lock(&name).acquire(),
    )
    .await;
    told_before(fixture, &held, told).await;
    let held = Arc::into_inner(held).expect("the task has ended");
    assert_eq!(
        held.release().await.expect_err("lost").kind(),
        ErrorKind::Lost
    );
    next.expect("it waits")
        .release()
        .await
        .expect("untouched by the late release");
}

/// A hold that reaches `max_hold` learns of its end, and the lock is free within a lease.
pub async fn max_hold_is_told(fixture: &Fixture) {
    let name = unique("stock");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let cap = fixture.lease() * 3 / 2;
    let options = AcquireOptions::new().max_hold(cap);
    let begun = Instant::now();
    let held = a.lock(&name).acquire_with(options).await.expect("free");
    let reason = within("the cap", cap * 2, held.lost()).await;
    assert_eq!(reason, LostReason::MaxHold);
    assert!(begun.elapsed() >= cap);
    assert!(!held.is_held().await);
    let next = within(
        "the next holder",
        fixture.lease() * 2,
        b.lock(&name).acquire(),
    )
    .await;
    next.expect("it waits").release().await.expect("held");
    drop(held);
}

/// After a holder's connection fails, a waiter gets the lock when the lease ends, and only after the holder knows its
/// loss.
pub async fn a_crashed_holder_is_followed_within_its_lease(fixture: &Fixture) {
    let name = unique("stock");
    let (a, plug) = fixture.mortal(fixture.builder()).await;
    let b = fixture.party().await;
    let held = Arc::new(a.lock(&name).acquire().await.expect("free"));
    let told = listening(&held);
    let place = b.lock(&name);
    let next = tokio::spawn(async move { place.acquire().await.expect("it waits") });
    tokio::time::sleep(fixture.lease() / 2).await;
    plug.pull();
    let follower = within("the follower", fixture.lease() * 5 / 2, next).await;
    let next = follower.expect("no panic");
    told_before(fixture, &held, told).await;
    plug.put_back();
    next.release().await.expect("held");
}

/// A release after a loss does not affect the next holder.
pub async fn release_after_loss_never_touches_the_next_holder(fixture: &Fixture) {
    let name = unique("stock");
    let (a, plug) = fixture.mortal(fixture.builder()).await;
    let b = fixture.party().await;
    let (first, second) = (a.lock(&name), b.lock(&name));
    let held = first.acquire().await.expect("free");
    plug.pull();
    let next = within("the follower", fixture.lease() * 5 / 2, second.acquire()).await;
    let next = next.expect("it waits");
    plug.put_back();
    assert_eq!(
        held.release().await.expect_err("lost").kind(),
        ErrorKind::Lost
    );
    tokio::time::sleep(fixture.lease()).await;
    let seen = second.lock().inspect().await.expect("readable");
    assert_eq!(seen.holders.len(), 1);
    let owner = fixture.shown(&next.owner_id().await);
    assert_eq!(seen.holders[0].owner, owner);
    next.release().await.expect("untouched");
}

/// A lost renewal reply does not lose the lock.
pub async fn a_lost_renewal_reply_loses_nothing(fixture: &Fixture) {
    let name = unique("stock");
    let (a, plug) = fixture.mortal(fixture.builder()).await;
    let held = a.lock(&name).acquire().await.expect("free");
    plug.lose_replies(1);
    tokio::time::sleep(fixture.lease() * 2).await;
    assert!(held.is_held().await);
    held.release().await.expect("held");
}

/// A hold with `expires_after` can be extended.
pub async fn an_extended_lease_lasts_longer(fixture: &Fixture) {
    let (name, a) = (unique("stock"), fixture.client(fixture.builder()).await);
    let options = AcquireOptions::new().expires_after(fixture.lease());
    let guard = a.lock(&name).acquire_with(options).await.expect("free");
    while let Err(error) = guard.extend(fixture.lease() * 4).await {
        assert!(error.is_retryable(), "{error}");
    }
    assert!(guard.valid_for() > fixture.lease() * 2);
    tokio::time::sleep(fixture.lease() * 3 / 2).await;
    assert!(guard.is_held());
    guard.release().await.expect("held");
}
