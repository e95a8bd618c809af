//! Promises about single requests for a side of a read-write lock to the bare store.

use std::sync::Arc;

use crate::store::{
    Attempt, AttemptRequest, Backend, LockKind, Name, Released, ReplicaAck, Ticket,
};
use crate::testing::fixture::{Fixture, unique};
use crate::types::OwnerMint;

/// How often we repeat a test whose result depends on timing.
const ROUNDS: u32 = 20;

async fn acquired(store: &dyn Backend, ask: &AttemptRequest) -> bool {
    let outcome = store.attempt(ask).await.outcome.expect("answered");
    matches!(outcome, Attempt::Acquired(_))
}

/// Concurrent attempts of one reader (a late one and its retries) wait, all of them, as long as a writer has the lock.
pub async fn attempts_of_a_reader_that_meet_wait_for_the_writer(fixture: &Fixture) {
    let (bare, mint) = (fixture.bare().await, OwnerMint::new());
    let store = &*bare.store.front;
    let name = Name::new(unique("prices")).expect("a good name");
    let ask = |kind| {
        let (name, owner) = (name.clone(), mint.fresh());
        let ticket = Ticket { kind, name, owner };
        AttemptRequest {
            patience: fixture.lease() * 9,
            ..AttemptRequest::once(ticket, fixture.lease() * 9, ReplicaAck::Any)
        }
    };
    for _ in 0..ROUNDS {
        let (writer, reader) = (ask(LockKind::Write), ask(LockKind::Read));
        assert!(acquired(store, &writer).await, "it is free");
        let attempts = [(); 3].map(|()| {
            let (store, reader) = (Arc::clone(&bare.store.front), reader.clone());
            tokio::spawn(async move { acquired(&*store, &reader).await })
        });
        for attempt in attempts {
            assert!(!attempt.await.expect("no panic"), "a writer has it");
        }
        for (held, next) in [(&writer, Some(&reader)), (&reader, None)] {
            let released = store.release(&held.ticket).await.expect("answered");
            assert_eq!(released, Released::Freed);
            if let Some(next) = next {
                assert!(acquired(store, next).await, "it is next");
            }
        }
    }
}
