//! The promise about kinds of locks that a store does not have.

use crate::error::{ErrorKind, Result};
use crate::store::LockKind;
use crate::testing::fixture::{Fixture, unique};

/// Each kind that the store does not declare is refused with an error that says so, before any traffic: the store does not answer
/// here.
pub async fn kinds_that_a_store_lacks_are_refused_before_any_traffic(fixture: &Fixture) {
    let can = fixture.capabilities().await;
    let (mortal, plug) = fixture.mortal(fixture.builder()).await;
    plug.pull();
    let (client, name) = (mortal.client(), unique("none"));
    let refused = |answer: Result<()>| {
        let error = answer.expect_err("the store lacks it");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("these have: "), "{error}");
    };
    let lock = client.lock(&name);
    let sides = client.read_write_lock(&name);
    for (kind, lock) in [
        (LockKind::Fair, client.fair_lock(&name)),
        (LockKind::Spin, client.spin_lock(&name)),
        (LockKind::Read, sides.read()),
        (LockKind::Write, sides.write()),
    ] {
        if !can.has(kind) {
            refused(lock.try_acquire().await.map(drop));
            refused(lock.acquire().await.map(drop));
        }
    }
    if !can.has(LockKind::Fenced) {
        refused(lock.fenced().acquire().await.map(drop));
    }
    if !can.has(LockKind::Permits(1)) {
        let semaphore = client.semaphore(&name);
        refused(semaphore.acquire().await.map(drop));
        refused(semaphore.try_acquire().await.map(drop));
        refused(semaphore.set_permits(1).await);
    }
    if !can.counts {
        let (seats, gate) = (client.counting_semaphore(&name), client.latch(&name));
        refused(seats.acquire(1).await);
        refused(seats.release(1).await.map(drop));
        refused(gate.count_down().await.map(drop));
        refused(gate.wait().await);
    }
}
