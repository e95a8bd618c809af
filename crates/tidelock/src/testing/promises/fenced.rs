//! Promises about fencing tokens.

use std::sync::Arc;

use crate::error::{ErrorKind, Result};
use crate::hand_off::HandOff;
use crate::lock::FencedLock;
use crate::options::AcquireOptions;
use crate::owner::Owner;
use crate::store::LockKind;
use crate::testing::fixture::{Fixture, unique, within};
use crate::testing::history::History;
use crate::types::{FencingToken, LostReason};

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

/// After a raise, every grant has at least the requested token. A smaller number changes nothing, and the call may be
/// repeated. A store whose tokens cannot be raised says so before any traffic.
pub async fn a_raised_token_is_never_undercut(fixture: &Fixture) {
    let name = unique("ledger");
    let (a, b) = (
        fixture.client(fixture.builder()).await,
        fixture.party().await,
    );
    let lock = a.lock(&name).fenced();
    let Some(first) = raisable(fixture, &lock).await else {
        return;
    };
    let wanted = FencingToken::new(first.get() + 5000);
    for _ in 0..2 {
        assert!(raised(&lock, wanted).await.expect("raised") >= wanted);
    }
    let lower = raised(&lock, FencingToken::new(1)).await;
    assert!(lower.expect("nothing to raise") >= wanted, "never lower");
    let held = b.lock(&name).fenced().acquire().await.expect("free");
    let token = held.token();
    assert!(token >= wanted, "{token} after {wanted}");
    let above = raised(&lock, FencingToken::new(0)).await.expect("readable");
    assert!(above > token, "{above} with {token}");
    held.release().await.expect("held");
    let error = lock.raise_token(FencingToken::new(u64::MAX)).await;
    assert_eq!(
        error.expect_err("no token").kind(),
        ErrorKind::InvalidOptions
    );
}

/// A raise leaves a hold and its token as they are, and whoever comes next has a larger one.
pub async fn a_raise_leaves_the_holder_alone(fixture: &Fixture) {
    let (name, a) = (unique("ledger"), fixture.party().await);
    let b = fixture.client(fixture.builder()).await;
    let Some(first) = raisable(fixture, &b.lock(&name).fenced()).await else {
        return;
    };
    let held = a.lock(&name).fenced().acquire().await.expect("free");
    let token = held.token();
    let wanted = FencingToken::new(first.get() + 5000);
    let next = raised(&b.lock(&name).fenced(), wanted).await;
    assert!(next.expect("raised") >= wanted);
    tokio::time::sleep(fixture.lease() / 2).await; // a renewal comes between
    assert!(held.is_held().await, "renewed as before");
    assert_eq!(held.token(), token);
    held.release().await.expect("it was held to the end");
    let next = b.lock(&name).fenced().acquire().await.expect("free");
    assert!(next.token() >= wanted, "{}", next.token());
    next.release().await.expect("held");
}

/// Tokens that a leader term has reserved are not handed on after a raise.
pub async fn a_raise_ends_hand_offs_with_reserved_tokens(fixture: &Fixture) {
    let name = unique("ledger");
    let hand_off = HandOff::default().within(fixture.lease() * 10);
    let a = fixture.client(fixture.builder().hand_off(hand_off)).await;
    let lock = a.lock(&name).fenced();
    let Some(first) = raisable(fixture, &lock).await else {
        return;
    };
    let held = lock.acquire().await.expect("free");
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (lock, tell) = (lock.clone(), tell.clone());
        tasks.spawn(async move {
            let guard = lock.acquire().await.expect("it waits");
            tell.send(guard).await.expect("somebody looks");
        });
    }
    tokio::time::sleep(fixture.lease() / 4).await; // they all wait
    held.release().await.expect("held");
    // This one leads, with tokens for those behind it.
    let leads = within("the first turn", fixture.lease() * 4, told.recv()).await;
    let wanted = FencingToken::new(first.get() + 1_000_000);
    raised(&lock, wanted).await.expect("raised");
    leads.expect("a guard").release().await.expect("held");
    for _ in 0..3 {
        let next = within("a turn", fixture.lease() * 4, told.recv()).await;
        let next = next.expect("a guard");
        assert!(next.token() >= wanted, "{}", next.token());
        next.release().await.expect("held");
    }
}

/// If the reply to a raise is lost, the call says that its outcome is unknown, and may be repeated.
pub async fn a_raise_without_a_reply_is_repeated(fixture: &Fixture) {
    let name = unique("ledger");
    let (a, plug) = fixture.mortal(fixture.builder()).await;
    let lock = a.client().lock(&name).fenced();
    let Some(first) = raisable(fixture, &lock).await else {
        return;
    };
    let wanted = FencingToken::new(first.get() + 5000);
    plug.lose_replies(1);
    let error = lock.raise_token(wanted).await.expect_err("no reply");
    assert!(error.outcome_unknown(), "{error}");
    assert!(raised(&lock, wanted).await.expect("raised") >= wanted);
    let held = lock.acquire().await.expect("free");
    assert!(held.token() >= wanted, "{}", held.token());
    held.release().await.expect("held");
}

/// The next token. `None`: the store says that its tokens cannot be raised.
async fn raisable(fixture: &Fixture, lock: &FencedLock) -> Option<FencingToken> {
    match raised(lock, FencingToken::new(0)).await {
        Ok(next) => Some(next),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            let (a, plug) = fixture.mortal(fixture.builder()).await;
            plug.pull();
            let lock = a.client().lock(lock.name()).fenced();
            let error = lock.raise_token(FencingToken::new(1)).await;
            let error = error.expect_err("not on this store");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "before any traffic");
            None
        }
    }
}

/// Raises the counter, and repeats the call after a fault of the network.
async fn raised(lock: &FencedLock, at_least: FencingToken) -> Result<FencingToken> {
    loop {
        match lock.raise_token(at_least).await {
            Err(error) if error.is_retryable() || error.outcome_unknown() => {}
            done => return done,
        }
    }
}

/// A forced release of a hold that was seen needs the token that was seen too.
pub async fn a_forced_release_needs_the_token_that_was_seen(fixture: &Fixture) {
    if !fixture.capabilities().await.has(LockKind::Fenced) {
        return tokens_only_grow(fixture).await;
    }
    let fixture = &fixture.patient();
    let (name, a) = (unique("ledger"), fixture.party().await);
    let lock = a.lock(&name);
    let operator = lock.lock();
    let held = lock.clone().fenced().acquire().await.expect("free");
    let seen = operator.inspect().await.expect("answered");
    let mut earlier = seen.clone();
    let token = seen.token.expect("inspect shows it").get();
    earlier.token = Some(FencingToken::new(token - 1));
    assert!(!operator.force_release_if(&earlier).await.expect("done"));
    assert!(held.is_held().await);
    assert!(operator.inspect().await.expect("answered").is_locked());
    assert!(operator.force_release_if(&seen).await.expect("done"));
    let told = within("the loss", fixture.next_renewal(), held.lost());
    assert_eq!(told.await, LostReason::Taken);
}
