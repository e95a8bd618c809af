//! Promises about `close`.

use tokio::time::{Duration, Instant};

use crate::error::ErrorKind;
use crate::testing::fixture::{Fixture, unique, within};
use crate::types::LostReason;

/// A closed client refuses every request.
pub async fn a_closed_client_refuses(fixture: &Fixture) {
    let (name, a) = (unique("stock"), fixture.party().await);
    assert_eq!(a.close(Duration::ZERO).await, 0);
    let lock = a.lock(&name);
    assert_eq!(
        lock.acquire().await.expect_err("closed").kind(),
        ErrorKind::Closed
    );
    assert_eq!(
        lock.try_acquire().await.expect_err("closed").kind(),
        ErrorKind::Closed
    );
    let seen = lock.lock().inspect().await;
    assert_eq!(seen.expect_err("closed").kind(), ErrorKind::Closed);
    assert_eq!(
        a.close(Duration::ZERO).await,
        0,
        "closing twice is harmless"
    );
}

/// `close` fires `closing`, and keeps the locks during the grace period without a word of a loss. It returns as soon as
/// the guards are released.
pub async fn closing_tells_and_gives_a_grace(fixture: &Fixture) {
    let (name, a) = (unique("stock"), fixture.party().await);
    let held = a.lock(&name).acquire().await.expect("free");
    let b = fixture.party().await;
    let (place, pause) = (b.lock(&name), fixture.lease() / 20);
    let task = tokio::spawn(async move {
        held.closing().await;
        let quiet = tokio::time::timeout(pause, held.lost()).await;
        assert!(quiet.is_err(), "told of a loss: {quiet:?}");
        assert!(held.is_held().await, "it is still kept");
        assert!(place.try_acquire().await.expect("answered").is_none());
        held.release().await.expect("held until now");
    });
    let begun = Instant::now();
    assert_eq!(a.close(fixture.lease() * 10).await, 0);
    assert!(
        begun.elapsed() < fixture.lease() * 5,
        "it did not wait for the whole grace"
    );
    task.await.expect("no panic");
}

/// Guards that are left after the grace period are told of the loss then, and not before.
pub async fn the_end_of_the_grace_is_told_as_a_loss(fixture: &Fixture) {
    let (name, a) = (unique("stock"), fixture.party().await);
    let held = a.lock(&name).acquire().await.expect("free");
    // Longer than a lease: the lock is renewed during the grace period.
    let grace = fixture.lease() + fixture.lease() / 2;
    let begun = Instant::now();
    let (left, reason) = tokio::join!(a.close(grace), held.lost());
    assert_eq!(reason, LostReason::Closed);
    assert!(begun.elapsed() >= grace, "told after {:?}", begun.elapsed());
    assert_eq!(left, 1);
}

/// `close` releases the holds that are left after the grace period, and their guards report the loss.
pub async fn closing_releases_the_rest(fixture: &Fixture) {
    let name = unique("stock");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let held = a.lock(&name).acquire().await.expect("free");
    assert_eq!(a.close(Duration::from_millis(20)).await, 1);
    assert!(!held.is_held().await);
    let next = b.lock(&name).try_acquire().await.expect("answered");
    let next = next.expect("released when close returned");
    let error = held.release().await.expect_err("lost");
    assert_eq!(
        error.lost_reason().or(Some(LostReason::Closed)),
        Some(LostReason::Closed)
    );
    next.release().await.expect("untouched");
}

/// Guards dropped just before `close` are released when it returns.
pub async fn closing_waits_for_releases_under_way(fixture: &Fixture) {
    let base = unique("stock");
    let (a, b) = (fixture.party().await, fixture.party().await);
    for n in 0..20 {
        drop(
            a.lock(&format!("{base}:{n}"))
                .acquire()
                .await
                .expect("free"),
        );
    }
    // A guard of the blocking API is dropped on its own thread. We wait until that has happened.
    tokio::time::sleep(Duration::from_millis(5)).await;
    a.close(fixture.lease()).await;
    for n in 0..20 {
        let next = b.lock(&format!("{base}:{n}")).try_acquire().await;
        drop(
            next.expect("answered")
                .expect("released before close returned"),
        );
    }
}

/// `close` ends every wait at once, with `Closed`.
pub async fn closing_ends_waits(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("stock");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let held = b.lock(&name).acquire().await.expect("free");
    let mut waits = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let place = a.lock(&name);
        waits.spawn(async move { place.acquire().await.map(drop) });
    }
    tokio::time::sleep(fixture.lease() / 10).await;
    a.close(Duration::ZERO).await;
    for wait in within("all waits", fixture.soon(), waits.join_all()).await {
        assert_eq!(wait.expect_err("closed").kind(), ErrorKind::Closed);
    }
    assert!(held.is_held().await);
    held.release().await.expect("held");
}

/// A `close` at any moment of an acquire leaves no lock without an informed holder.
pub async fn closing_meets_an_acquire_anywhere(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("stock");
    let b = fixture.party().await;
    for round in 0..12_u64 {
        let a = fixture.client(fixture.builder()).await;
        let lock = a.lock(&name);
        let taker = tokio::spawn(async move { lock.acquire().await });
        tokio::time::sleep(Duration::from_micros(round * 300)).await;
        a.close(Duration::ZERO).await;
        match taker.await.expect("no panic") {
            Ok(guard) => assert!(!guard.is_held(), "told"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Closed),
        }
        let wait = crate::AcquireOptions::new().wait(fixture.soon());
        let next = b.lock(&name).acquire_with(wait).await.expect("no ghost");
        next.release().await.expect("held");
    }
}

/// A closed client renews nothing: a lock that it could not release expires.
pub async fn closing_stops_renewals(fixture: &Fixture) {
    let name = unique("stock");
    // The client gives up an unanswered release before the lease ends. So a renewal after that would be visible.
    let (lease, timeout) = (fixture.lease() * 2, fixture.lease());
    let settings = fixture.builder().lease(lease).response_timeout(timeout);
    let (a, plug) = fixture.mortal(settings).await;
    let b = fixture.party().await;
    let held = a.lock(&name).acquire().await.expect("free");
    plug.pull();
    assert_eq!(a.close(Duration::ZERO).await, 1);
    plug.put_back();
    let next = within("the lease's end", lease * 2, b.lock(&name).acquire()).await;
    next.expect("it waits").release().await.expect("held");
    drop(held);
}
