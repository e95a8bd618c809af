//! Promises of stores that tell a waiter its position in the queue.

use crate::error::Result;
use crate::store::{
    Attempt, AttemptRequest, Backend, LockKind, Name, Released, ReplicaAck, Ticket,
};
use crate::testing::fixture::{Fixture, unique};
use crate::types::OwnerMint;

/// How many are ahead of a ticket. `None`: it holds the lock.
async fn ahead(store: &dyn Backend, ask: &AttemptRequest) -> Option<u32> {
    let outcome: Result<Attempt> = store.attempt(ask).await.outcome;
    match outcome.expect("answered") {
        Attempt::Acquired(_) => None,
        Attempt::Held(wait) => Some(wait.ahead.expect("told")),
    }
}

/// Each refused ticket is told how many are ahead of it, also by a later attempt, when one of them has gone.
pub async fn a_refused_ticket_is_told_how_many_are_ahead(fixture: &Fixture) {
    let (bare, mint) = (fixture.bare().await, OwnerMint::new());
    let store = &*bare.store.front;
    let name = Name::new(unique("prices")).expect("a good name");
    let asks = [(); 3].map(|()| {
        let (kind, name, owner) = (LockKind::Write, name.clone(), mint.fresh());
        let ticket = Ticket { kind, name, owner };
        AttemptRequest {
            patience: fixture.lease() * 9,
            ..AttemptRequest::once(ticket, fixture.lease() * 9, ReplicaAck::Any)
        }
    });
    let [first, second, third] = &asks;
    assert_eq!(ahead(store, first).await, None, "it is free");
    assert_eq!(ahead(store, second).await, Some(1));
    assert_eq!(ahead(store, third).await, Some(2));
    let released = store.release(&first.ticket).await.expect("answered");
    assert_eq!(released, Released::Freed);
    assert_eq!(ahead(store, third).await, Some(1));
    assert_eq!(ahead(store, second).await, None, "it is next");
}
