//! Promises about the forced release of a read-write lock.

use crate::lock::Lock;
use crate::snapshot::Snapshot;
use crate::testing::fixture::{Fixture, unique, within};
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

async fn forced(lock: &Lock, seen: &Snapshot) -> bool {
    loop {
        match lock.force_release_if(seen).await {
            Ok(freed) => return freed,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}
