//! Promises about fencing tokens.

use std::sync::Arc;

use crate::error::ErrorKind;
use crate::options::AcquireOptions;
use crate::owner::Owner;
use crate::store::LockKind;
use crate::testing::fixture::{Fixture, unique, within};
use crate::testing::history::History;

/// Every grant has a larger token than all grants before it, across clients. A store without tokens returns
/// `Unsupported`.
pub async fn tokens_only_grow(fixture: &Fixture) {
    let (name, history) = (unique("ledger"), Arc::new(History::default()));
    let (a, b) = (fixture.party().await, fixture.party().await);
    if !fixture.capabilities().await.has(LockKind::Fenced) {
        let error = a
            .lock(&name)
            .fenced()
            .acquire()
            .await
            .expect_err("no tokens");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("these have: memory:"), "{error}");
        return;
    }
    let mut tasks = tokio::task::JoinSet::new();
    for party in [&a, &b, &a, &b] {
        let (lock, history) = (party.lock(&name).fenced(), Arc::clone(&history));
        tasks.spawn(async move {
            for _ in 0..8 {
                let held = lock.acquire().await.expect("it waits");
                let span = history.begin("fenced", Some(held.token()));
                history.end(span);
                held.release().await.expect("held");
            }
        });
    }
    within("all turns", fixture.lease() * 40, tasks.join_all()).await;
    assert_eq!(history.check(), Ok(()));
    assert_eq!(history.len(), 32);
}

/// A fenced lock and a plain lock with the same name exclude each other.
pub async fn a_fenced_lock_excludes_a_plain_one(fixture: &Fixture) {
    if !fixture.capabilities().await.has(LockKind::Fenced) {
        return tokens_only_grow(fixture).await;
    }
    let name = unique("ledger");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let held = a.lock(&name).fenced().acquire().await.expect("free");
    assert!(
        b.lock(&name)
            .try_acquire()
            .await
            .expect("answered")
            .is_none()
    );
    held.release().await.expect("held");
    let held = b.lock(&name).acquire().await.expect("free");
    assert!(
        a.lock(&name)
            .fenced()
            .try_acquire()
            .await
            .expect("answered")
            .is_none()
    );
    held.release().await.expect("held");
}

/// Re-entry keeps the token, and so does a retry after a lost reply.
pub async fn a_reentry_keeps_the_token(fixture: &Fixture) {
    let client = fixture.client(fixture.builder()).await;
    if !fixture.capabilities().await.has(LockKind::Fenced) {
        return tokens_only_grow(fixture).await;
    }
    let guard = client
        .lock(&unique("ledger"))
        .fenced()
        .acquire()
        .await
        .expect("free");
    let inner = guard.reenter();
    assert_eq!(guard.token(), inner.token());
    drop(guard);
    inner.release().await.expect("held");
}

/// An owner that holds the lock without a token is refused one, on a store that counts every grant too: to wait for it
/// would be to wait for itself. An owner with a token re-enters the lock both ways.
pub async fn an_owner_without_a_token_is_refused_one(fixture: &Fixture) {
    if !fixture.capabilities().await.has(LockKind::Fenced) {
        return tokens_only_grow(fixture).await;
    }
    let client = fixture.client(fixture.builder()).await;
    let lock = client.lock(&unique("ledger"));
    let fenced = lock.clone().fenced();
    let me = AcquireOptions::new().owner(&Owner::new());
    let plain = lock.acquire_with(me.clone()).await.expect("free");
    let asked = fenced.acquire_with(me.clone());
    let refusal = within("the refusal", fixture.soon(), asked).await;
    let error = refusal.expect_err("it has no token");
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    assert_eq!(error.lock_name(), Some(lock.name()));
    plain.release().await.expect("held");
    let outer = fenced.acquire_with(me.clone()).await.expect("free");
    let again = within("itself", fixture.soon(), lock.acquire_with(me.clone())).await;
    let counted = within("itself", fixture.soon(), fenced.acquire_with(me)).await;
    let (again, counted) = (again.expect("held"), counted.expect("held"));
    assert_eq!(counted.token(), outer.token());
    assert_eq!(again.owner_id(), outer.owner_id());
    drop((again, counted));
    outer.release().await.expect("held");
}

/// `inspect` shows the holder's token.
pub async fn inspect_shows_the_token(fixture: &Fixture) {
    if !fixture.capabilities().await.has(LockKind::Fenced) {
        return tokens_only_grow(fixture).await;
    }
    let (name, a) = (unique("ledger"), fixture.party().await);
    let lock = a.lock(&name).fenced();
    let held = lock.acquire().await.expect("free");
    let seen = lock.lock().inspect().await.expect("readable");
    assert_eq!(seen.token, Some(held.token()));
    held.release().await.expect("held");
}
