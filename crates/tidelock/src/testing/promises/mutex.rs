//! Promises about mutual exclusion and the end of a hold.

use std::sync::Arc;
use std::time::Duration;

use crate::testing::fixture::{Fixture, eventually, unique, within};
use crate::testing::history::History;

/// Many tasks of two clients acquire concurrently. Only one holds the lock at a time.
pub async fn one_holder_at_a_time(fixture: &Fixture) {
    let (name, history) = (unique("stock"), Arc::new(History::default()));
    let (a, b) = (fixture.party().await, fixture.party().await);
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..12 {
        let lock = if n % 2 == 0 { &a } else { &b }.lock(&name);
        let history = Arc::clone(&history);
        tasks.spawn(async move {
            for _ in 0..6 {
                let held = lock.acquire().await.expect("it waits");
                let span = history.begin(held.owner_id().await, None);
                // The hold lasts long enough for the other client to request the lock. Otherwise fast hand-offs within
                // one client would finish before the two clients compete.
                tokio::time::sleep(Duration::from_millis(1)).await;
                history.end(span);
                held.release().await.expect("it was held");
            }
        });
    }
    within(
        "all have had their turns",
        fixture.lease() * 40,
        tasks.join_all(),
    )
    .await;
    assert_eq!(history.check(), Ok(()));
    assert_eq!(history.len(), 72);
    assert!(!a.lock(&name).is_locked().await);
}

/// A refused `try_acquire` changes nothing, and does not affect the holder.
pub async fn a_refused_try_changes_nothing(fixture: &Fixture) {
    let name = unique("stock");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let held = a.lock(&name).acquire().await.expect("free");
    let before = a.lock(&name).lock().inspect().await.expect("readable");
    for party in [&a, &b] {
        assert!(
            party
                .lock(&name)
                .try_acquire()
                .await
                .expect("answered")
                .is_none()
        );
    }
    let after = a.lock(&name).lock().inspect().await.expect("readable");
    assert_eq!(before.holders, after.holders);
    assert_eq!(before.token, after.token);
    assert!(held.is_held().await);
    held.release().await.expect("still held");
    let again = b.lock(&name).try_acquire().await.expect("answered");
    again.expect("free now").release().await.expect("held");
}

/// A dropped guard releases the lock in the background.
pub async fn a_dropped_guard_releases(fixture: &Fixture) {
    let name = unique("stock");
    let (a, b) = (fixture.party().await, fixture.party().await);
    drop(a.lock(&name).acquire().await.expect("free"));
    let next = b.lock(&name);
    let held = within("the next holder", fixture.soon(), next.acquire()).await;
    held.expect("it waits").release().await.expect("held");
}

/// A release has taken effect when it returns: every client sees the lock free.
pub async fn a_release_is_done_when_it_returns(fixture: &Fixture) {
    let name = unique("stock");
    let (a, b) = (fixture.party().await, fixture.party().await);
    for turn in 0..10 {
        let (one, other) = if turn % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let held = one.lock(&name).acquire().await.expect("free");
        held.release().await.expect("held");
        let next = other.lock(&name).try_acquire().await.expect("answered");
        next.expect("free").release().await.expect("held");
    }
}

/// The parts of a multi lock have one owner in one store. Each is held, renewed and released, and waits for its own holder.
pub async fn each_part_of_a_multi_lock_is_held_and_released(fixture: &Fixture) {
    if !fixture.has_sets() {
        return;
    }
    let names = [unique("from"), unique("to")];
    let (a, b) = (fixture.party().await, fixture.party().await);
    let both = || {
        let parts = names.each_ref().map(|name| a.client().lock(name));
        a.client().multi_lock(&parts).expect("plain locks")
    };
    let faulty = fixture.is_faulty();
    let held = acquired(both(), faulty).await;
    tokio::time::sleep(fixture.lease() * 4 / 3).await;
    assert!(held.is_held(), "each part is renewed");
    for name in &names {
        assert!(b.lock(name).is_locked().await, "{name}");
    }
    held.release().await.expect("held");
    for name in &names {
        let other = b.lock(name);
        let other = within("a part", fixture.soon(), other.acquire()).await;
        let waiter = tokio::spawn(acquired(both(), faulty));
        let waits = async || a.client().stats().waiting == 1;
        eventually("the set waits", fixture.soon(), waits).await;
        other.expect("it waits").release().await.expect("held");
        let held = within("the set", fixture.soon(), waiter).await;
        held.expect("it waits").release().await.expect("held");
    }
    for name in &names {
        assert!(!b.lock(name).is_locked().await, "{name}");
    }
}

/// Faults in a row are bounded for each name. Those of several names together can last for a whole lease, which ends a wait.
async fn acquired(set: crate::Lock, faulty: bool) -> crate::Guard {
    loop {
        match set.acquire().await {
            Err(error) if faulty && error.is_retryable() => {}
            guard => return guard.expect("free sooner or later"),
        }
    }
}

/// Two acquires of one task exclude each other: a task is not an owner.
pub async fn two_acquisitions_of_one_task_exclude_each_other(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let builder = fixture.builder();
    // A wait that ends blames the store if a request has been without an answer for a quarter of the response timeout.
    let builder = if fixture.is_faulty() {
        builder
    } else {
        builder.response_timeout(fixture.asked() * 2)
    };
    let (name, a) = (unique("stock"), fixture.party_with(builder).await);
    let held = a.lock(&name).acquire().await.expect("free");
    assert!(
        a.lock(&name)
            .try_acquire()
            .await
            .expect("answered")
            .is_none()
    );
    let limit = if fixture.is_faulty() {
        fixture.lease() / 4
    } else {
        fixture.asked() / 3
    };
    let short = crate::AcquireOptions::new().wait(limit);
    let error = a.lock(&name).acquire_with(short).await.expect_err("held");
    // With faults, the last attempt before the end of the wait may have got no answer.
    assert!(error.is_timeout() || fixture.is_faulty() && error.is_retryable());
    assert_eq!(error.lock_name(), Some(&*name));
    drop(held);
}

/// `inspect` shows the holder, and shows a free lock after the release.
pub async fn inspect_shows_the_holder(fixture: &Fixture) {
    let (name, a) = (unique("stock"), fixture.party().await);
    let held = a.lock(&name).acquire().await.expect("free");
    let seen = a.lock(&name).lock().inspect().await.expect("readable");
    assert_eq!(seen.name, name);
    assert_eq!(seen.holders.len(), 1);
    let owner = fixture.shown(&held.owner_id().await);
    assert_eq!(seen.holders[0].owner, owner);
    assert_eq!(seen.holders[0].holds, 1);
    let left = seen.expires_in.expect("a lease");
    assert!(left <= fixture.lease() && !left.is_zero(), "{left:?}");
    held.release().await.expect("held");
    let seen = a.lock(&name).lock().inspect().await.expect("readable");
    assert_eq!((seen.is_locked(), seen.expires_in), (false, None));
}

/// `list` returns held locks that match a pattern, and no free ones.
pub async fn list_finds_what_is_held(fixture: &Fixture) {
    let (base, a) = (unique("list"), fixture.party().await);
    let (one, two) = (format!("{base}:one"), format!("{base}:two"));
    let held = a.lock(&one).acquire().await.expect("free");
    let other = a.lock(&two).acquire().await.expect("free");
    let mut found = a
        .client()
        .list(&format!("{base}:*"))
        .limit(10)
        .await
        .expect("listed");
    found.sort();
    assert_eq!(found, [one.clone(), two]);
    let found = a.client().list(&format!("{base}:t?o")).limit(10).await;
    assert_eq!(found.expect("listed").len(), 1);
    assert_eq!(
        a.client()
            .list(&format!("{base}:*"))
            .limit(1)
            .await
            .expect("listed")
            .len(),
        1
    );
    other.release().await.expect("held");
    held.release().await.expect("held");
    eventually("the list is empty", fixture.soon(), || async {
        a.client()
            .list(&format!("{base}:*"))
            .limit(10)
            .await
            .expect("listed")
            .is_empty()
    })
    .await;
}

/// A name that is released while a list is read does not hide the next one. `most` is more than a page of the store.
pub async fn a_name_that_goes_between_two_pages_hides_no_other(
    client: &crate::Client,
    most: usize,
) {
    let base = unique("page");
    let names: Vec<String> = (0..most).map(|at| format!("{base}:{at:04}")).collect();
    let mut held = std::collections::HashMap::new();
    for some in names.chunks(50) {
        let locks: Vec<_> = some.iter().map(|name| client.lock(name)).collect();
        let guards = futures_util::future::try_join_all(locks.iter().map(crate::Lock::acquire));
        held.extend(some.iter().cloned().zip(guards.await.expect("free")));
    }
    let mut listed = client.list(&format!("{base}:*"));
    let first = listed.next().await.expect("a name").expect("listed");
    // The first page was read, the second was not.
    let gone = held.remove(&first).expect("held");
    gone.release().await.expect("held");
    while let Some(name) = listed.next().await {
        held.remove(&name.expect("listed"));
    }
    assert_eq!(held.into_keys().collect::<Vec<_>>(), Vec::<String>::new());
}
