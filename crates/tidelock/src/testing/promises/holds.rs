//! The promise about a client that holds locks of different kinds at the same time.

use crate::client::Client;
use crate::store::LockKind;
use crate::testing::any_lock::{AnyGuard, AnyLock};
use crate::testing::fixture::{Fixture, unique, within};

/// Two locks of each kind that the store has, in turn, so that no two neighbours are of one kind. A mutex is the first.
async fn of_each_kind(fixture: &Fixture, client: &Client) -> Vec<AnyLock> {
    let can = fixture.capabilities().await;
    let base = unique("each");
    let mut locks = Vec::new();
    for number in 1..=2 {
        let name = |kind: &str| format!("{base}-{kind}-{number}");
        let sides = |kind| client.read_write_lock(&name(kind));
        let seats = client.semaphore(&name("seats"));
        if can.has(LockKind::Permits(1)) {
            seats.set_permits(3).await.expect("answered");
        }
        let all = [
            (LockKind::Mutex, AnyLock::from(client.lock(&name("lock")))),
            (LockKind::Read, sides("read").read().into()),
            (LockKind::Permits(2), seats.permits(2).into()),
            (
                LockKind::Fenced,
                client.lock(&name("fenced")).fenced().into(),
            ),
            (LockKind::Write, sides("write").write().into()),
            (LockKind::Fair, client.fair_lock(&name("fair")).into()),
            (LockKind::Spin, client.spin_lock(&name("spin")).into()),
        ];
        locks.extend(all.into_iter().filter(|(kind, _)| can.has(*kind)));
    }
    locks.into_iter().map(|(_, lock)| lock).collect()
}

/// A store may need a request of its own for each kind. All holds of a client are renewed, and the loss of one is told to
/// its holder and to no other.
pub async fn holds_of_all_kinds_are_renewed_together(fixture: &Fixture) {
    let client = fixture.client(fixture.builder()).await;
    let locks = of_each_kind(fixture, &client).await;
    let mut held = Vec::new();
    for lock in &locks {
        held.push((lock, lock.acquire().await.expect("free")));
    }
    let all_are_held = |held: &[(&AnyLock, AnyGuard)]| {
        for (lock, guard) in held {
            assert!(guard.is_held(), "{}", lock.name());
        }
    };
    tokio::time::sleep(fixture.lease() * 2).await;
    all_are_held(&held);
    for _ in 0..held.len() / 2 {
        let (lock, lost) = held.remove(0);
        while let Err(error) = lock.force_release().await {
            assert!(error.is_retryable(), "{error}");
        }
        within(lock.name(), fixture.lease(), lost.lost()).await;
        all_are_held(&held);
    }
    tokio::time::sleep(fixture.lease()).await;
    for (lock, guard) in held {
        guard
            .release()
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", lock.name()));
    }
}
