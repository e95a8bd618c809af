//! Promises about options: they are refused with a reason, or take effect.

use tokio::time::{Duration, Instant};

use crate::error::ErrorKind;
use crate::options::{AcquireOptions, CancelToken};
use crate::testing::fixture::{Fixture, unique, within};

/// Invalid durations are refused without a request to the store.
pub async fn senseless_durations_are_refused(fixture: &Fixture) {
    let (a, plug) = fixture.mortal(fixture.builder()).await;
    let lock = a.lock(&unique("stock"));
    let new = AcquireOptions::new;
    for bad in [
        new().lease(Duration::ZERO),
        new().lease(Duration::from_micros(999)),
        new().lease(Duration::MAX),
        new().lease(Duration::from_millis(u64::MAX)),
        new().expires_after(Duration::ZERO),
        new().expires_after(Duration::from_millis(1)),
        new().expires_after(Duration::MAX),
        new().max_hold(Duration::ZERO),
        new().max_hold(Duration::MAX),
        new().wait(Duration::MAX),
        new().lease(fixture.lease()).expires_after(fixture.lease()),
    ] {
        let error = lock.acquire_with(bad.clone()).await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{bad:?}");
        assert!(!error.to_string().is_empty());
    }
    assert_eq!(plug.requests(), 0);
}

/// A limited wait ends at its limit, not earlier and not much later.
pub async fn a_wait_ends_in_time(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("stock");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let held = a.lock(&name).acquire().await.expect("free");
    let wait = fixture.lease() / 3;
    let begun = Instant::now();
    let waiting = b.lock(&name);
    let waited = waiting.acquire_with(AcquireOptions::new().wait(wait));
    let error = within("the end of the wait", wait + fixture.soon(), waited).await;
    assert!(begun.elapsed() >= wait);
    assert!(error.expect_err("held by another").is_retryable());
    assert!(held.is_held().await);
    drop(held);
}

/// A wait of zero makes one attempt.
pub async fn a_wait_of_zero_asks_once(fixture: &Fixture) {
    let name = unique("stock");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let now = || AcquireOptions::new().wait(Duration::ZERO);
    let held = a.lock(&name).acquire_with(now()).await.expect("free");
    let error = b.lock(&name).acquire_with(now()).await.expect_err("held");
    assert!(error.is_timeout() || fixture.is_faulty() && error.is_retryable());
    assert_eq!(error.lock_name(), Some(&*name));
    held.release().await.expect("held");
}

/// Another task can cancel a wait. The wait leaves nothing behind.
pub async fn a_cancelled_wait_ends(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("stock");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let held = a.lock(&name).acquire().await.expect("free");
    let cancel = CancelToken::new();
    let options = AcquireOptions::new().cancel(&cancel);
    let place = b.lock(&name);
    let waiter = tokio::spawn(async move { place.acquire_with(options).await.map(drop) });
    tokio::time::sleep(fixture.lease() / 10).await;
    cancel.cancel();
    let result = within("the cancelled wait", fixture.soon(), waiter).await;
    let error = result.expect("no panic").expect_err("cancelled");
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(error.lock_name(), Some(&*name));
    held.release().await.expect("held");
    // A waiter stays in a store's queue until its withdrawal arrives, and an attempt in flight may be granted and released
    // again, as at the servers of a majority. So the next acquire may have to wait, but not for a lease.
    let soon = AcquireOptions::new().wait(fixture.soon());
    let taken = a.lock(&name).acquire_with(soon).await;
    taken.expect("free").release().await.expect("held");
}

/// A token that is cancelled before the acquire ends it without a request, even if the lock is free.
pub async fn a_cancel_that_was_fired_before_stops_it_at_once(fixture: &Fixture) {
    let (a, plug) = fixture.mortal(fixture.builder()).await;
    let cancel = CancelToken::new();
    cancel.cancel();
    let options = AcquireOptions::new().cancel(&cancel);
    let error = a.lock(&unique("stock")).acquire_with(options).await;
    assert_eq!(error.expect_err("cancelled").kind(), ErrorKind::Cancelled);
    assert_eq!(plug.requests(), 0);
}
