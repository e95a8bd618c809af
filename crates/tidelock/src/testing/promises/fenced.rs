//! Promises about fencing tokens.

use std::sync::Arc;

use crate::error::ErrorKind;
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
                let token = held.token().await.expect("a fenced lock has tokens");
                let span = history.begin("fenced", Some(token));
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
    assert!(guard.token().is_some());
    assert_eq!(guard.token(), inner.token());
    drop(guard);
    inner.release().await.expect("held");
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
    assert_eq!(seen.token, held.token().await);
    held.release().await.expect("held");
}
