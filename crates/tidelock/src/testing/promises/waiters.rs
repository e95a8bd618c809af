//! What promises about locks with a queue share: waiters that the store shows, and locks that must be free.

use tokio::task::JoinHandle;

use crate::error::ErrorKind;
use crate::options::AcquireOptions;
use crate::testing::fixture::{Fixture, eventually, within};
use crate::testing::party::{Held, PartyMember};

/// Spawns a waiter, and returns when the store shows `count` waiters.
pub(super) async fn waiting(
    fixture: &Fixture,
    place: &PartyMember,
    count: u64,
) -> JoinHandle<Held> {
    let mine = place.clone();
    let task = tokio::spawn(async move { mine.acquire().await.expect("it waits") });
    until_wait(fixture, place, count).await;
    task
}

/// Returns when the store shows `count` waiters.
pub(super) async fn until_wait(fixture: &Fixture, place: &PartyMember, count: u64) {
    eventually("it waits", fixture.lease() * 4, || async {
        place.waiters().await == count
    })
    .await;
}

pub(super) async fn next(fixture: &Fixture, what: &str, waiter: JoinHandle<Held>) -> Held {
    within(what, fixture.soon(), waiter)
        .await
        .expect("no panic")
}

pub(super) async fn refused(place: &PartyMember) -> bool {
    place.try_acquire().await.expect("answered").is_none()
}

/// Refused, or told that the name is in use as another kind of lock: a store may keep a lock and the sides of a
/// read-write lock of one name apart.
pub(super) async fn excluded(place: &PartyMember) -> bool {
    let tried = place.try_acquire().await.map_err(|error| error.kind());
    matches!(tried, Ok(None) | Err(ErrorKind::WrongType))
}

pub(super) async fn free(fixture: &Fixture, place: &PartyMember) {
    let soon = AcquireOptions::new().wait(fixture.soon());
    let held = place.acquire_with(soon).await.expect("free");
    held.release().await.expect("held");
}
