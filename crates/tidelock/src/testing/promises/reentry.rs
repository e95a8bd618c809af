//! Promises about re-entry. Guards of one hold are counted within the process.

use crate::error::ErrorKind;
use crate::options::AcquireOptions;
use crate::owner::Owner;
use crate::testing::fixture::{Fixture, unique, within};

/// The last guard of an acquisition releases the lock, in whatever order the guards go.
pub async fn the_last_guard_out_releases(fixture: &Fixture) {
    let name = unique("stock");
    let (a, b) = (
        fixture.client(fixture.builder()).await,
        fixture.client(fixture.builder()).await,
    );
    let outer = a.lock(&name).acquire().await.expect("free");
    let (inner, third) = (outer.reenter(), outer.reenter());
    outer.release().await.expect("still held by two");
    assert!(
        b.lock(&name)
            .try_acquire()
            .await
            .expect("answered")
            .is_none()
    );
    drop(third);
    assert!(
        b.lock(&name)
            .try_acquire()
            .await
            .expect("answered")
            .is_none()
    );
    assert!(inner.is_held());
    inner.release().await.expect("held");
    let next = b.lock(&name).try_acquire().await.expect("answered");
    next.expect("free").release().await.expect("held");
}

/// After two concurrent releases of one hold have returned, the lock is free.
pub async fn guards_released_together_release(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("stock");
    let (a, b) = (
        fixture.client(fixture.builder()).await,
        fixture.client(fixture.builder()).await,
    );
    for _ in 0..50 {
        let one = a.lock(&name).acquire().await.expect("free");
        let two = one.reenter();
        let (one, two) = (
            tokio::spawn(async move { one.release().await }),
            tokio::spawn(async move { two.release().await }),
        );
        one.await.expect("no panic").expect("held");
        two.await.expect("no panic").expect("held");
        let next = b.lock(&name).try_acquire().await.expect("answered");
        next.expect("free when both have returned")
            .release()
            .await
            .expect("held");
    }
}

/// Re-entry sends no request.
pub async fn a_reentry_costs_no_trip(fixture: &Fixture) {
    let (a, plug) = fixture
        .mortal(fixture.builder().lease(fixture.lease() * 20))
        .await;
    let owner = Owner::new();
    let lock = a.client().lock(&unique("stock"));
    let options = AcquireOptions::new().owner(&owner);
    let outer = lock.acquire_with(options.clone()).await.expect("free");
    let before = plug.requests();
    let guards = [
        outer.reenter(),
        lock.acquire_with(options.clone())
            .await
            .expect("the same owner"),
        lock.try_acquire_with(options)
            .await
            .expect("answered")
            .expect("the same owner"),
    ];
    drop(guards);
    assert_eq!(plug.requests(), before);
    outer.release().await.expect("held");
}

/// An explicit owner re-enters the lock that it holds; another owner does not.
pub async fn an_explicit_owner_reenters(fixture: &Fixture) {
    let (name, a) = (unique("stock"), fixture.client(fixture.builder()).await);
    let (me, you) = (Owner::new(), Owner::new());
    let lock = a.lock(&name);
    let as_me = || AcquireOptions::new().owner(&me);
    let outer = lock.acquire_with(as_me()).await.expect("free");
    let inner = within("the same owner", fixture.soon(), lock.acquire_with(as_me())).await;
    let inner = inner.expect("at once");
    assert_eq!(outer.owner_id(), inner.owner_id());
    let other = lock
        .try_acquire_with(AcquireOptions::new().owner(&you))
        .await;
    assert!(other.expect("answered").is_none());
    assert!(lock.try_acquire().await.expect("answered").is_none());
    drop(outer);
    assert!(lock.try_acquire().await.expect("answered").is_none());
    inner.release().await.expect("held");
    lock.try_acquire()
        .await
        .expect("answered")
        .expect("free")
        .release()
        .await
        .expect("held");
}

/// Tasks of one owner that acquire concurrently share one hold.
pub async fn an_owner_in_two_tasks_shares_one_hold(fixture: &Fixture) {
    let (name, a) = (unique("stock"), fixture.client(fixture.builder()).await);
    let owner = Owner::new();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (lock, options) = (a.lock(&name), AcquireOptions::new().owner(&owner));
        tasks.spawn(async move { lock.acquire_with(options).await.expect("one of us") });
    }
    let guards = within("all", fixture.lease() * 2, tasks.join_all()).await;
    assert!(
        guards
            .windows(2)
            .all(|pair| pair[0].owner_id() == pair[1].owner_id())
    );
    drop(guards);
}

/// An owner that holds the lock gets an error instead of a second guard, as soon as it asks. The hold is not affected, and
/// other owners wait as ever.
pub async fn an_owner_does_not_reenter_a_non_reentrant_lock(fixture: &Fixture) {
    let (name, a) = (unique("stock"), fixture.client(fixture.builder()).await);
    let (me, you) = (Owner::new(), Owner::new());
    let lock = a.lock(&name).non_reentrant();
    let outer = lock.acquire_with(AcquireOptions::new().owner(&me));
    let outer = outer.await.expect("free");
    let again = lock.acquire_with(AcquireOptions::new().owner(&me));
    let again = within("an answer", fixture.soon(), again).await;
    assert_eq!(again.expect_err("held").kind(), ErrorKind::InvalidOptions);
    let tried = lock.try_acquire_with(AcquireOptions::new().owner(&me));
    let tried = tried.await.expect_err("held");
    assert!(tried.to_string().contains("non-reentrant"), "{tried}");
    let other = lock.try_acquire_with(AcquireOptions::new().owner(&you));
    assert!(other.await.expect("answered").is_none());
    // The same lock, as everybody else knows it.
    let reentered = a.lock(&name);
    let reentered = reentered.acquire_with(AcquireOptions::new().owner(&me));
    drop(reentered.await.expect("the same owner"));
    assert!(outer.is_held());
    outer.release().await.expect("held");
    let next = lock.acquire_with(AcquireOptions::new().owner(&me));
    next.await.expect("free").release().await.expect("held");
}

/// An owner's hold belongs to one client. Another client does not re-enter it: it may use another store.
pub async fn an_owner_holds_per_client(fixture: &Fixture) {
    let name = unique("stock");
    let (a, b) = (
        fixture.client(fixture.builder()).await,
        fixture.client(fixture.builder()).await,
    );
    let owner = Owner::new();
    let guard = a
        .lock(&name)
        .acquire_with(AcquireOptions::new().owner(&owner))
        .await;
    let other = b
        .lock(&name)
        .try_acquire_with(AcquireOptions::new().owner(&owner))
        .await;
    assert!(
        other.expect("answered").is_none(),
        "another client is another holder"
    );
    guard.expect("free").release().await.expect("held");
}

/// An owner whose hold was lost acquires the lock again instead of re-entering, and every guard of the lost hold
/// reports the loss at its release.
pub async fn a_lost_hold_is_not_reentered(fixture: &Fixture) {
    let (name, a) = (unique("stock"), fixture.client(fixture.builder()).await);
    let owner = Owner::new();
    let options = AcquireOptions::new().owner(&owner);
    let guard = a
        .lock(&name)
        .acquire_with(options.clone())
        .await
        .expect("free");
    let inner = guard.reenter();
    assert!(a.lock(&name).force_release().await.expect("done"));
    let reason = within("the loss", fixture.lease() * 2, guard.lost()).await;
    assert_eq!(reason, crate::LostReason::Taken);
    let again = a.lock(&name).acquire_with(options).await.expect("free");
    assert_ne!(again.owner_id(), guard.owner_id());
    // This is not the last guard, but its caller must learn of the loss too.
    assert_eq!(
        guard.release().await.expect_err("lost").kind(),
        ErrorKind::Lost
    );
    assert_eq!(
        inner.release().await.expect_err("lost").kind(),
        ErrorKind::Lost
    );
    assert!(again.is_held());
    again.release().await.expect("untouched by the lost ones");
}
