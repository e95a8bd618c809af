//! Promises about single requests to the bare store. The acquire loop relies on them.

use std::sync::Arc;
use std::time::Duration;

use crate::error::ErrorKind;
use crate::store::{
    Attempt, AttemptRequest, Backend, LockKind, Name, Released, Renewal, Renewed, ReplicaAck,
    Ticket,
};
use crate::testing::fixture::{Fixture, unique};
use crate::types::OwnerMint;

/// How often we repeat a test whose result depends on timing.
const ROUNDS: u32 = 20;

fn ask(mint: &OwnerMint, name: &str, lease: Duration) -> AttemptRequest {
    let ticket = Ticket {
        kind: LockKind::Mutex,
        name: Name::new(name).expect("a good name"),
        owner: mint.fresh(),
    };
    AttemptRequest::once(ticket, lease, ReplicaAck::Any)
}

async fn acquired(store: &dyn Backend, ask: &AttemptRequest) -> bool {
    match store.attempt(ask).await.outcome.expect("answered") {
        Attempt::Acquired(_) => true,
        Attempt::Held(_) => false,
    }
}

async fn left(store: &dyn Backend, name: &Name) -> Option<Duration> {
    store.inspect(name).await.expect("readable").expires_in
}

/// An attempt that arrives after its withdrawal has no effect.
pub async fn an_acquire_after_its_withdrawal_takes_no_effect(fixture: &Fixture) {
    let (bare, mint) = (fixture.bare().await, OwnerMint::new());
    let store = &*bare.store.front;
    let mut late = ask(&mint, &unique("stock"), fixture.lease());
    let withdrawn = store.withdraw(&late.ticket).await.expect("done");
    assert_eq!(withdrawn, Released::NotHeld);
    for refused in [false, true] {
        late.refused = refused;
        let error = store.attempt(&late).await.outcome.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert_eq!(left(store, &late.ticket.name).await, None);
    }
    // The withdrawal does not affect other owners.
    let mut next = late.clone();
    next.ticket.owner = mint.fresh();
    assert!(acquired(store, &next).await);
    assert_eq!(
        store.release(&next.ticket).await.expect("done"),
        Released::Freed
    );
}

/// A withdrawal releases a held lock, and may be repeated.
pub async fn a_withdrawal_frees_what_was_held(fixture: &Fixture) {
    let (bare, mint) = (fixture.bare().await, OwnerMint::new());
    let store = &*bare.store.front;
    let held = ask(&mint, &unique("stock"), fixture.lease());
    assert!(acquired(store, &held).await);
    assert_eq!(
        store.withdraw(&held.ticket).await.expect("done"),
        Released::Freed
    );
    assert_eq!(
        store.withdraw(&held.ticket).await.expect("done"),
        Released::NotHeld
    );
    assert_eq!(left(store, &held.ticket.name).await, None);
    assert!(store.attempt(&held).await.outcome.is_err());
}

/// A repeated attempt with the same ticket counts once, keeps its token, and never shortens the lease.
pub async fn a_repeated_attempt_neither_counts_nor_shortens(fixture: &Fixture) {
    let (bare, mint) = (fixture.bare().await, OwnerMint::new());
    let store = &*bare.store.front;
    let long = ask(&mint, &unique("stock"), fixture.lease() * 20);
    let Ok(Attempt::Acquired(first)) = store.attempt(&long).await.outcome else {
        panic!("it was free");
    };
    for refused in [false, true, false] {
        let short = AttemptRequest {
            lease: fixture.lease(),
            refused,
            ..long.clone()
        };
        let Ok(Attempt::Acquired(again)) = store.attempt(&short).await.outcome else {
            panic!("it is held by this ticket");
        };
        assert_eq!(first.token, again.token);
    }
    let seen = store.inspect(&long.ticket.name).await.expect("readable");
    assert_eq!(seen.holders.len(), 1);
    assert_eq!(seen.holders[0].holds, 1);
    assert!(seen.expires_in.expect("a lease") > fixture.lease() * 10);
    assert_eq!(
        store.release(&long.ticket).await.expect("done"),
        Released::Freed
    );
    assert_eq!(left(store, &long.ticket.name).await, None);
}

/// Concurrent attempts with one ticket (a late one and its retries) result in one hold, which can be renewed.
pub async fn attempts_of_one_ticket_that_meet_are_one(fixture: &Fixture) {
    let (bare, mint) = (fixture.bare().await, OwnerMint::new());
    let store = &*bare.store.front;
    // All rounds use one name, so that later rounds meet an existing record.
    let name = unique("stock");
    for round in 0..ROUNDS {
        // A different lease each round, so that nothing from an earlier round fits.
        let lease = fixture.lease() * 10 + Duration::from_secs(1) * round;
        let ask = ask(&mint, &name, lease);
        // Three tasks, so that any two attempts may meet in any order.
        let attempts = [(); 3].map(|()| {
            let (store, ask) = (Arc::clone(&bare.store.front), ask.clone());
            tokio::spawn(async move { store.attempt(&ask).await.outcome })
        });
        let mut tokens = Vec::new();
        for attempt in attempts {
            match attempt.await.expect("no panic") {
                Ok(Attempt::Acquired(grant)) => tokens.push(grant.token),
                other => panic!("it was free: {other:?}"),
            }
        }
        tokens.dedup();
        assert_eq!(tokens.len(), 1, "{tokens:?}");
        let seen = store.inspect(&ask.ticket.name).await.expect("readable");
        assert_eq!((seen.holders.len(), seen.holders[0].holds), (1, 1));
        let renewal = Renewal {
            ticket: ask.ticket.clone(),
            lease: ask.lease,
            wish: ask.wish,
        };
        let kept = store.renew(&[renewal]).await.expect("answered");
        assert!(matches!(kept[..], [Renewed::Kept]), "{kept:?}");
        assert_eq!(
            store.release(&ask.ticket).await.expect("done"),
            Released::Freed
        );
        assert_eq!(left(store, &ask.ticket.name).await, None);
    }
}

/// A withdrawal that runs concurrently with its attempt leaves nothing, even if it is repeated, and does not affect
/// later owners.
pub async fn a_withdrawal_that_meets_its_attempt_touches_nobody_else(fixture: &Fixture) {
    let (bare, mint) = (fixture.bare().await, OwnerMint::new());
    let store = &*bare.store.front;
    for round in 0..ROUNDS {
        let late = ask(&mint, &unique("stock"), fixture.lease());
        let next = ask(&mint, &unique("stock"), fixture.lease() * 10);
        let withdrawn = async |after: u32| {
            tokio::time::sleep(Duration::from_micros(100) * after).await;
            store.withdraw(&late.ticket).await.expect("done");
        };
        let follow = async {
            withdrawn(round + 2).await;
            assert!(acquired(store, &next).await);
        };
        // The attempt may run before the withdrawal or be refused; both are correct.
        let (_, (), ()) = tokio::join!(store.attempt(&late), withdrawn(round), follow);
        assert_eq!(left(store, &late.ticket.name).await, None);
        let renewal = Renewal {
            ticket: next.ticket.clone(),
            lease: next.lease,
            wish: next.wish,
        };
        let kept = store.renew(&[renewal]).await.expect("answered");
        assert!(matches!(kept[..], [Renewed::Kept]), "{kept:?}");
        assert_eq!(
            store.release(&next.ticket).await.expect("done"),
            Released::Freed
        );
    }
}

/// A renewal may lengthen a lease, never shortens it, and does not revive a hold that has ended.
pub async fn a_renewal_never_shortens(fixture: &Fixture) {
    let (bare, mint) = (fixture.bare().await, OwnerMint::new());
    let store = &*bare.store.front;
    let held = ask(&mint, &unique("stock"), fixture.lease() * 10);
    assert!(acquired(store, &held).await);
    let renew = |lease| Renewal {
        ticket: held.ticket.clone(),
        lease,
        wish: ReplicaAck::Any,
    };
    let kept = store
        .renew(&[renew(fixture.lease())])
        .await
        .expect("answered");
    assert!(matches!(kept[..], [Renewed::Kept]));
    assert!(left(store, &held.ticket.name).await.expect("a lease") > fixture.lease() * 8);
    let kept = store
        .renew(&[renew(fixture.lease() * 20)])
        .await
        .expect("answered");
    assert!(matches!(kept[..], [Renewed::Kept]));
    assert!(left(store, &held.ticket.name).await.expect("a lease") > fixture.lease() * 18);
    assert_eq!(
        store.release(&held.ticket).await.expect("done"),
        Released::Freed
    );
    let gone = store
        .renew(&[renew(fixture.lease())])
        .await
        .expect("answered");
    assert!(matches!(gone[..], [Renewed::Gone]));
    assert_eq!(left(store, &held.ticket.name).await, None);
}

/// A batch of renewals has one answer per name, in order.
pub async fn a_batch_answers_each_name_apart(fixture: &Fixture) {
    let (bare, mint) = (fixture.bare().await, OwnerMint::new());
    let store = &*bare.store.front;
    let mut batch = Vec::new();
    for n in 0..100 {
        let one = ask(&mint, &unique("stock"), fixture.lease() * 10);
        if n % 3 != 0 {
            assert!(acquired(store, &one).await);
        }
        batch.push(Renewal {
            ticket: one.ticket,
            lease: fixture.lease() * 20,
            wish: ReplicaAck::Any,
        });
    }
    batch.sort_by_key(|renewal| store.lane(&renewal.ticket.name));
    for lane in batch.chunk_by(|a, b| store.lane(&a.ticket.name) == store.lane(&b.ticket.name)) {
        let answers = store.renew(lane).await.expect("answered");
        assert_eq!(answers.len(), lane.len());
        for (renewal, answer) in lane.iter().zip(answers) {
            let held = (renewal.ticket.owner.number() - 1) % 3 != 0;
            assert!(matches!(
                (held, answer),
                (true, Renewed::Kept) | (false, Renewed::Gone)
            ));
        }
    }
    for renewal in &batch {
        store.release(&renewal.ticket).await.expect("done");
    }
}

/// Only a hold's own ticket can end it.
pub async fn a_strangers_release_changes_nothing(fixture: &Fixture) {
    let (bare, mint) = (fixture.bare().await, OwnerMint::new());
    let store = &*bare.store.front;
    let held = ask(&mint, &unique("stock"), fixture.lease() * 10);
    assert!(acquired(store, &held).await);
    let mut stranger = held.clone();
    stranger.ticket.owner = mint.fresh();
    assert!(!acquired(store, &stranger).await);
    assert_eq!(
        store.release(&stranger.ticket).await.expect("done"),
        Released::NotHeld
    );
    assert_eq!(
        store.withdraw(&stranger.ticket).await.expect("done"),
        Released::NotHeld
    );
    assert!(left(store, &held.ticket.name).await.is_some());
    assert_eq!(
        store.release(&held.ticket).await.expect("done"),
        Released::Freed
    );
    assert_eq!(
        store.release(&held.ticket).await.expect("done"),
        Released::NotHeld
    );
}

/// A refused attempt with patience returns a wake that was armed before the decision, or the time of the next attempt.
pub async fn a_refusal_says_when_to_ask_again(fixture: &Fixture) {
    let (bare, mint) = (fixture.bare().await, OwnerMint::new());
    let store = &*bare.store.front;
    let held = ask(&mint, &unique("stock"), fixture.lease() * 10);
    assert!(acquired(store, &held).await);
    let mut waiter = held.clone();
    waiter.ticket.owner = mint.fresh();
    waiter.patience = fixture.lease() * 10;
    let Ok(Attempt::Held(wait)) = store.attempt(&waiter).await.outcome else {
        panic!("it is held");
    };
    assert!(
        wait.recheck
            .is_none_or(|recheck| recheck <= fixture.lease() * 10)
    );
    if let Some(mut wake) = wait.wake {
        assert_eq!(
            store.release(&held.ticket).await.expect("done"),
            Released::Freed
        );
        super::super::fixture::within("the wake", fixture.soon(), wake.woken()).await;
    } else {
        assert!(wait.recheck.is_some() || !store.capabilities().wakes);
    }
}
