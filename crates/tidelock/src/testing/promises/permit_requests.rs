//! Promises about single requests for permits to the bare store.

use std::time::Duration;

use crate::error::ErrorKind;
use crate::store::{
    Attempt, AttemptRequest, Backend, LockKind, Name, PermitChange, Released, Renewal, Renewed,
    ReplicaAck, Ticket,
};
use crate::testing::fixture::{Fixture, eventually, unique};
use crate::types::OwnerMint;

/// Requests of the bare store that are repeated, late, or come after the end of the lease.
pub async fn no_request_makes_a_permit_too_many(fixture: &Fixture) {
    let (bare, mint) = (fixture.bare().await, OwnerMint::new());
    let store = &*bare.store.front;
    let name = Name::new(unique("render")).expect("a good name");
    let counter = store.extensions().permit_counter.expect("it has permits");
    let set = counter.change(&name, PermitChange::SetIfNew(5)).await;
    assert!(set.expect("answered"));
    let ask = |count, lease| {
        let ticket = Ticket {
            kind: LockKind::Permits(count),
            name: name.clone(),
            owner: mint.fresh(),
        };
        AttemptRequest::once(ticket, lease, ReplicaAck::Any)
    };
    let left = async || {
        let seen = store.inspect(&name).await.expect("readable");
        seen.permits.expect("a semaphore").available
    };
    let two = ask(2, fixture.lease() * 9);
    for _ in 0..3 {
        assert!(took(store, &two).await);
        assert_eq!(left().await, 3, "a repeated attempt takes them once");
    }
    for released in [Released::Freed, Released::NotHeld, Released::NotHeld] {
        let answer = store.release(&two.ticket).await.expect("answered");
        assert_eq!(answer, released);
        assert_eq!(left().await, 5);
    }
    let withdrawn = ask(2, fixture.lease() * 9);
    assert!(took(store, &withdrawn).await);
    for released in [Released::Freed, Released::NotHeld] {
        let answer = store.withdraw(&withdrawn.ticket).await.expect("answered");
        assert_eq!(answer, released);
        let late = store.attempt(&withdrawn).await.outcome;
        assert_eq!(late.expect_err("too late").kind(), ErrorKind::Cancelled);
        assert_eq!(left().await, 5);
    }
    let short = ask(3, Duration::from_millis(20));
    assert!(took(store, &short).await);
    // etcd counts leases in whole seconds.
    let limit = fixture.lease() * 4;
    eventually("its end", limit, || async { left().await == 5 }).await;
    assert!(is_gone(store, &short.ticket, fixture.lease()).await);
    for _ in 0..2 {
        let answer = store.release(&short.ticket).await.expect("answered");
        assert_eq!(answer, Released::NotHeld);
        assert_eq!(left().await, 5);
    }
    let forced = ask(3, fixture.lease() * 9);
    assert!(took(store, &forced).await);
    assert!(store.force_release(&name, None).await.expect("answered"));
    let answer = store.release(&forced.ticket).await.expect("answered");
    assert_eq!((answer, left().await), (Released::NotHeld, 5));
}

async fn took(store: &dyn Backend, ask: &AttemptRequest) -> bool {
    matches!(
        store.attempt(ask).await.outcome.expect("answered"),
        Attempt::Acquired(_)
    )
}

async fn is_gone(store: &dyn Backend, ticket: &Ticket, lease: Duration) -> bool {
    let renewal = Renewal {
        ticket: ticket.clone(),
        lease,
        wish: ReplicaAck::Any,
    };
    let answers = store.renew(&[renewal]).await.expect("answered");
    matches!(answers[0], Renewed::Gone)
}
