//! Promises about force release.

use crate::error::ErrorKind;
use crate::testing::fixture::{Fixture, unique, within};
use crate::types::LostReason;

/// A force release wakes the waiters, and the holder learns of its loss at the next renewal.
pub async fn force_release_wakes_and_is_told(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let (name, wakes) = (unique("stock"), fixture.capabilities().await.wakes);
    let (a, b, c) = (
        fixture.party().await,
        fixture.party().await,
        fixture.party().await,
    );
    let held = a.lock(&name).acquire().await.expect("free");
    let place = b.lock(&name);
    let next = tokio::spawn(async move { place.acquire().await.expect("it waits") });
    tokio::time::sleep(fixture.lease() / 8).await;
    assert!(c.lock(&name).lock().force_release().await.expect("done"));
    let bound = if wakes {
        fixture.soon()
    } else {
        fixture.lease() * 2
    };
    let next = within("the waiter", bound, next).await.expect("no panic");
    let told = within("the loss", fixture.next_renewal(), held.lost()).await;
    assert_eq!(told, LostReason::Taken);
    let error = held.release().await.expect_err("lost");
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(error.lost_reason(), Some(LostReason::Taken));
    next.release()
        .await
        .expect("untouched by the former holder");
}

/// A force release of a free lock returns `false`.
pub async fn forcing_a_free_lock_says_so(fixture: &Fixture) {
    let (name, a) = (unique("stock"), fixture.party().await);
    assert!(!a.lock(&name).lock().force_release().await.expect("done"));
    let held = a.lock(&name).acquire().await.expect("free");
    held.release().await.expect("held");
    assert!(!a.lock(&name).lock().force_release().await.expect("done"));
}

/// A hold whose first reply was lost behaves like any other: after a force release, its own release reports the loss.
pub async fn a_loss_is_told_also_after_a_lost_reply(fixture: &Fixture) {
    let name = unique("stock");
    let (a, plug) = fixture.mortal(fixture.builder()).await;
    let b = fixture.client(fixture.builder()).await;
    plug.lose_replies(1);
    let held = a.lock(&name).acquire().await.expect("asked again");
    assert!(b.lock(&name).force_release().await.expect("done"));
    let error = held.release().await.expect_err("it was taken");
    assert_eq!(error.lost_reason(), Some(LostReason::Taken));
    // The same for a dropped guard: the background release does not affect the next holder.
    plug.lose_replies(1);
    let held = a.lock(&name).acquire().await.expect("asked again");
    assert!(b.lock(&name).force_release().await.expect("done"));
    let next = b.lock(&name).acquire().await.expect("free");
    drop(held);
    next.release().await.expect("untouched");
}

/// A forced release of a hold that was seen frees this hold only. The next owner keeps the lock.
pub async fn a_forced_release_of_what_was_seen_spares_the_next_owner(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("stock");
    let (a, b, c) = (
        fixture.party().await,
        fixture.party().await,
        fixture.party().await,
    );
    let (lock, operator) = (a.lock(&name), c.lock(&name));
    let operator = operator.lock();
    let first = lock.acquire().await.expect("free");
    let seen = operator.inspect().await.expect("answered");
    assert_eq!(seen.holders.len(), 1, "{seen:?}");
    first.release().await.expect("held");
    assert!(
        !operator.force_release_if(&seen).await.expect("done"),
        "it is free"
    );
    let next = b.lock(&name).acquire().await.expect("free");
    assert!(
        !operator.force_release_if(&seen).await.expect("done"),
        "another owner"
    );
    assert!(operator.inspect().await.expect("answered").is_locked());
    let now = operator.inspect().await.expect("answered");
    assert!(
        operator.force_release_if(&now).await.expect("done"),
        "the owner that was seen"
    );
    let told = within("the loss", fixture.next_renewal(), next.lost()).await;
    assert_eq!(told, LostReason::Taken);
    lock.acquire()
        .await
        .expect("free")
        .release()
        .await
        .expect("held");
}

/// A forced release takes a snapshot of this lock, and no other.
pub async fn a_forced_release_refuses_the_snapshot_of_another_lock(fixture: &Fixture) {
    let (name, a) = (unique("stock"), fixture.party().await);
    let other = a
        .lock(&unique("other"))
        .lock()
        .inspect()
        .await
        .expect("answered");
    let refused = a.lock(&name).lock().force_release_if(&other).await;
    assert_eq!(
        refused.expect_err("refused").kind(),
        ErrorKind::InvalidOptions
    );
}
