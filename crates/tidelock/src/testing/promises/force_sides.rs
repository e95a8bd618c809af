//! Promises about the forced release of a read-write lock.

use crate::lock::Lock;
use crate::snapshot::Snapshot;
use crate::testing::fixture::{Fixture, eventually, unique, within};
use crate::types::LostReason;

/// A forced release of readers that were seen spares a reader that came since. One that has left since does not matter.
pub async fn a_forced_release_of_seen_readers_spares_a_new_one(fixture: &Fixture) {
    let name = unique("prices");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let lock = a.client().lock(&name);
    let first = a.read(&name).acquire().await.expect("free");
    let seen = lock.inspect().await.expect("answered");
    let second = b.read(&name).acquire().await.expect("shared");
    assert!(!forced(&lock, &seen).await, "the second was not seen");
    let both = lock.inspect().await.expect("answered");
    assert_eq!(both.holders.len(), 2, "{both:?}");
    first.release().await.expect("held");
    // With faults the reply may be lost, and the second request finds a free lock.
    assert!(forced(&lock, &both).await || fixture.is_faulty());
    let reason = within("the loss", fixture.lease(), second.lost()).await;
    assert_eq!(reason, LostReason::Taken);
}

/// A reader whose process has died is no holder any more, although another reader still has the lock. A forced release of the
/// holders that are shown does not need it.
pub async fn a_reader_that_has_died_is_not_shown(fixture: &Fixture) {
    let name = unique("prices");
    let (mortal, plug) = fixture.mortal(fixture.builder()).await;
    let living = fixture.party().await;
    let lock = living.client().lock(&name);
    let dead = mortal.read(&name).acquire().await.expect("free");
    let reader = living.read(&name).acquire().await.expect("shared");
    let both = lock.inspect().await.expect("answered");
    assert_eq!(both.holders.len(), 2, "{both:?}");
    plug.pull();
    eventually("only one is shown", fixture.lease() * 6, async || {
        let seen = lock.inspect().await.expect("answered");
        seen.holders.len() == 1
    })
    .await;
    within("it is told", fixture.lease() * 2, dead.lost()).await;
    let seen = lock.inspect().await.expect("answered");
    assert_eq!(seen.holders.len(), 1, "the other one is renewed: {seen:?}");
    assert!(forced(&lock, &seen).await || fixture.is_faulty());
    let reason = within("the loss", fixture.lease(), reader.lost()).await;
    assert_eq!(reason, LostReason::Taken);
}

async fn forced(lock: &Lock, seen: &Snapshot) -> bool {
    loop {
        match lock.force_release_if(seen).await {
            Ok(freed) => return freed,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}
