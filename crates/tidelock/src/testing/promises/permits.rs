//! Promises about semaphores: never one permit too many, waiters, leases, and numbers that change.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::error::ErrorKind;
use crate::options::AcquireOptions;
use crate::owner::Owner;
use crate::permits::Permits;
use crate::semaphore::Semaphore;
use crate::snapshot::PermitCount;
use crate::testing::fixture::{Fixture, eventually, unique, within};
use crate::testing::polls::poll_times;
use crate::types::LostReason;

/// Two clients, each with the same semaphore.
async fn pair(fixture: &Fixture, total: u32) -> [Semaphore; 2] {
    let name = unique("render");
    let one = fixture.party().await.client().semaphore(&name);
    let other = fixture.party().await.client().semaphore(&name);
    assert!(one.set_permits_if_new(total).await.expect("answered"));
    [one, other]
}

async fn count(semaphore: &Semaphore) -> (i64, i64) {
    let seen = semaphore.inspect().await.expect("readable");
    let PermitCount { available, total } = seen.permits.expect("a semaphore");
    (available, total)
}

async fn comes_to(fixture: &Fixture, semaphore: &Semaphore, available: i64, total: i64) {
    let what = format!("{available} of {total} permits are available");
    eventually(&what, fixture.lease() * 4, || async {
        count(semaphore).await == (available, total)
    })
    .await;
}

/// Spawns a waiter, and returns when it has asked the store and sleeps.
async fn waiting(fixture: &Fixture, semaphore: &Semaphore, count: u16) -> JoinHandle<Permits> {
    let wanted = semaphore.permits(count);
    let task = tokio::spawn(async move { wanted.acquire().await.expect("it waits") });
    tokio::time::sleep(fixture.lease() / 20).await;
    assert!(!task.is_finished(), "there are too few permits");
    task
}

async fn next(fixture: &Fixture, what: &str, waiter: JoinHandle<Permits>) -> Permits {
    let got = within(what, fixture.soon(), waiter).await;
    got.expect("no panic")
}

/// Tasks of two clients take one to three permits at a time. Together they never have more than there are.
pub async fn holders_together_never_have_too_many(fixture: &Fixture) {
    const TOTAL: u32 = 5;
    let pair = pair(fixture, TOTAL).await;
    let inside = Arc::new(AtomicU32::new(0));
    let mut tasks = Vec::new();
    for n in 0..8_u16 {
        let (semaphore, inside) = (pair[usize::from(n % 2)].clone(), Arc::clone(&inside));
        tasks.push(tokio::spawn(async move {
            for round in 0..10 {
                let wanted = u32::from((n + round) % 3 + 1);
                let wanted_permits = semaphore.permits((n + round) % 3 + 1);
                let permits = wanted_permits.acquire().await.expect("in its turn");
                let now = inside.fetch_add(wanted, Ordering::SeqCst) + wanted;
                assert!(now <= TOTAL, "{now} permits are out");
                tokio::task::yield_now().await;
                assert!(permits.is_held());
                inside.fetch_sub(wanted, Ordering::SeqCst);
                permits.release().await.expect("held");
            }
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    comes_to(fixture, &pair[0], TOTAL.into(), TOTAL.into()).await;
}

/// An acquisition takes all the permits that it asks for, or none.
pub async fn permits_are_taken_all_or_none(fixture: &Fixture) {
    let [a, b] = pair(fixture, 5).await;
    let three = a.permits(3).acquire().await.expect("there are 5");
    assert_eq!(three.count(), 3);
    assert!(
        b.permits(3)
            .try_acquire()
            .await
            .expect("answered")
            .is_none()
    );
    comes_to(fixture, &b, 2, 5).await;
    let two = b.permits(2).try_acquire().await.expect("answered");
    let two = two.expect("two are left");
    let seen = a.inspect().await.expect("readable");
    let mut holders: Vec<_> = seen
        .holders
        .iter()
        .map(|it| (&*it.owner, it.holds))
        .collect();
    holders.sort_by_key(|(_, holds)| *holds);
    let (ids, more) = (two.ids(), three.ids());
    assert_eq!(holders, [(&*ids[0], 2), (&*more[0], 3)]);
    assert_eq!(ids[0], two.owner_id());
    three.release().await.expect("held");
    two.release().await.expect("held");
    comes_to(fixture, &a, 5, 5).await;
}

/// A waiter for several permits gets them as soon as enough have come back, from several holders.
pub async fn a_waiter_gets_permits_as_soon_as_enough_come_back(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let [a, b] = pair(fixture, 3).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(a.acquire().await.expect("there are 3"));
    }
    let waiter = waiting(fixture, &b, 2).await;
    for left in [false, true] {
        let one = held.pop().expect("it was pushed");
        one.release().await.expect("held");
        if !left {
            tokio::time::sleep(fixture.lease() / 20).await;
            assert!(!waiter.is_finished(), "one is not enough");
        }
    }
    let two = next(fixture, "two came back", waiter).await;
    assert_eq!(two.count(), 2);
    // Several small waiters enter when many permits come back at once.
    let waiters = [waiting(fixture, &a, 1).await, waiting(fixture, &b, 1).await];
    two.release().await.expect("held");
    for waiter in waiters {
        let permit = next(fixture, "one of two", waiter).await;
        permit.release().await.expect("held");
    }
}

/// The number grows and shrinks while permits are held and waited for. No holder loses its permit by that.
pub async fn the_number_of_permits_changes_at_run_time(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let [a, b] = pair(fixture, 2).await;
    assert!(!b.set_permits_if_new(9).await.expect("answered"));
    let two = a.permits(2).acquire().await.expect("there are 2");
    let waiter = waiting(fixture, &b, 2).await;
    b.set_permits(4).await.expect("answered");
    let more = next(fixture, "the number has grown", waiter).await;
    assert_eq!(count(&a).await, (0, 4));
    b.set_permits(3).await.expect("answered");
    assert_eq!(count(&a).await, (-1, 3));
    assert!(two.is_held() && more.is_held());
    two.release().await.expect("held");
    assert_eq!(count(&a).await, (1, 3));
    let waiter = waiting(fixture, &a, 2).await;
    a.add_permits(1).await.expect("answered");
    let two = next(fixture, "one was added", waiter).await;
    a.add_permits(-4).await.expect("answered");
    assert_eq!(count(&a).await, (-4, 0));
    drop((two, more));
    comes_to(fixture, &a, 0, 0).await;
    assert!(a.try_acquire().await.expect("answered").is_none());
}

/// A waiter for a semaphore without a number waits until it gets one.
pub async fn a_waiter_waits_for_the_first_permits(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("render");
    let party = fixture.party().await;
    let semaphore = party.client().semaphore(&name);
    assert!(semaphore.try_acquire().await.expect("answered").is_none());
    let waiter = waiting(fixture, &semaphore, 2).await;
    let other = fixture.party().await.client().semaphore(&name);
    assert!(other.set_permits_if_new(2).await.expect("answered"));
    let two = next(fixture, "it has permits", waiter).await;
    two.release().await.expect("held");
}

/// The lease of permits is renewed while their guard lives.
pub async fn permits_are_renewed_while_their_guard_lives(fixture: &Fixture) {
    let [a, b] = pair(fixture, 2).await;
    let two = a.permits(2).acquire().await.expect("there are 2");
    tokio::time::sleep(fixture.lease() * 2).await;
    assert!(two.is_held());
    assert!(b.try_acquire().await.expect("answered").is_none());
    two.release().await.expect("held");
    assert_eq!(count(&a).await, (2, 2));
}

/// Permits that are not renewed end, their holder is told first, and an extension moves that end.
pub async fn permits_that_end_are_told_before_others_have_them(fixture: &Fixture) {
    let [a, b] = pair(fixture, 1).await;
    let once = AcquireOptions::new().expires_after(fixture.lease() * 2);
    let held = Arc::new(a.permits(1).acquire_with(once).await.expect("there is 1"));
    let begun = tokio::time::Instant::now();
    held.extend(fixture.lease() * 4).await.expect("held");
    let waiter = waiting(fixture, &b, 1).await;
    let former = Arc::clone(&held);
    let taken = tokio::spawn(async move { (waiter.await, former.is_held()) });
    let reason = within("the loss", fixture.lease() * 6, held.lost()).await;
    assert_eq!(reason, LostReason::Expired);
    assert!(begun.elapsed() > fixture.lease() * 3, "it was extended");
    let (permit, still_held) = within("the next", fixture.lease() * 2, taken)
        .await
        .expect("no panic");
    let permit = permit.expect("no panic");
    assert!(!still_held, "the next had it before the loss was told");
    let held = Arc::into_inner(held).expect("the other task has ended");
    let late = held.release().await.expect_err("lost");
    assert_eq!(late.kind(), ErrorKind::Lost);
    assert!(permit.is_held());
    assert_eq!(count(&a).await, (0, 1));
    permit.release().await.expect("untouched");
    assert_eq!(count(&a).await, (1, 1));
}

/// The permits of a process that vanished come back when their lease ends, each of them once.
pub async fn permits_of_a_process_that_vanished_come_back_once(fixture: &Fixture) {
    let name = unique("render");
    let (mortal, plug) = fixture.mortal(fixture.builder()).await;
    let a = mortal.client().semaphore(&name);
    let b = fixture.party().await.client().semaphore(&name);
    assert!(a.set_permits_if_new(3).await.expect("answered"));
    let two = Arc::new(a.permits(2).acquire().await.expect("there are 3"));
    let waiter = waiting(fixture, &b, 3).await;
    let former = Arc::clone(&two);
    let taken = tokio::spawn(async move { (waiter.await, former.is_held()) });
    plug.pull();
    let reason = within("the loss", fixture.lease() * 2, two.lost()).await;
    assert_eq!(reason, LostReason::Expired);
    let (three, still_held) = within("the next", fixture.lease() * 5 / 2, taken)
        .await
        .expect("no panic");
    assert!(!still_held, "the next had them before the loss was told");
    plug.put_back();
    drop(two); // it gives back nothing
    three.expect("no panic").release().await.expect("held");
    tokio::time::sleep(fixture.lease() / 2).await;
    assert_eq!(count(&b).await, (3, 3));
}

/// A forced release takes all permits back. Their former holders are told, and give back nothing.
pub async fn a_forced_release_makes_no_permit_too_many(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let [a, b] = pair(fixture, 3).await;
    let two = a.permits(2).acquire().await.expect("there are 3");
    let one = b.acquire().await.expect("one is left");
    let waiter = waiting(fixture, &b, 3).await;
    assert!(b.force_release().await.expect("answered"));
    let three = next(fixture, "all came back", waiter).await;
    for lost in [&two, &one] {
        let reason = within("the loss", fixture.next_renewal(), lost.lost()).await;
        assert_eq!(reason, LostReason::Taken);
    }
    assert_eq!(
        two.release().await.expect_err("lost").kind(),
        ErrorKind::Lost
    );
    drop(one);
    assert!(three.is_held());
    assert_eq!(count(&a).await, (0, 3));
    three.release().await.expect("held");
    tokio::time::sleep(fixture.lease() / 10).await;
    assert_eq!(count(&a).await, (3, 3));
    assert!(!a.force_release().await.expect("answered"), "none is held");
}

/// A wait leaves no permit taken when it is dropped after any number of polls.
pub async fn a_wait_for_permits_dropped_anywhere_leaves_nothing(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let [a, b] = pair(fixture, 2).await;
    for polls in 0..20 {
        let held = b.acquire().await.expect("one of two");
        let left = a.permits(2);
        let waiter =
            tokio::spawn(
                async move { poll_times(left.acquire(), polls, Duration::from_secs(5)).await },
            );
        if polls % 2 == 0 {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        held.release().await.expect("held");
        drop(waiter.await.expect("no panic"));
        let soon = AcquireOptions::new().wait(fixture.soon());
        let both = b.permits(2).acquire_with(soon).await.expect("free");
        both.release().await.expect("held");
    }
    comes_to(fixture, &a, 2, 2).await;
}

/// Whether a lost reply hides an acquisition or a release, the permits are counted once.
pub async fn permits_whose_reply_was_lost_are_counted_once(fixture: &Fixture) {
    let name = unique("render");
    let (mortal, plug) = fixture.mortal(fixture.builder()).await;
    let semaphore = mortal.client().semaphore(&name);
    assert!(semaphore.set_permits_if_new(3).await.expect("answered"));
    for _ in 0..5 {
        plug.lose_replies(1);
        let two = semaphore.permits(2).acquire().await.expect("there are 3");
        comes_to(fixture, &semaphore, 1, 3).await;
        plug.lose_replies(1);
        two.release().await.expect("released");
        comes_to(fixture, &semaphore, 3, 3).await;
    }
}

/// A lock does not use the name of a semaphore, nor the reverse. Both stay as they are.
pub async fn locks_and_semaphores_refuse_each_others_names(fixture: &Fixture) {
    let [semaphore, _] = pair(fixture, 2).await;
    let party = fixture.party().await;
    let client = party.client();
    let permit = semaphore.acquire().await.expect("there are 2");
    let locks = [
        client.lock(semaphore.name()),
        client.fair_lock(semaphore.name()),
    ];
    for lock in locks {
        let error = lock.try_acquire().await.expect_err("a semaphore");
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    }
    assert!(permit.is_held());
    assert_eq!(count(&semaphore).await, (1, 2));
    let name = unique("stock");
    let guard = client.lock(&name).acquire().await.expect("free");
    let other = client.semaphore(&name);
    let error = other.try_acquire().await.expect_err("a lock");
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    let error = other.set_permits_if_new(2).await.expect_err("a lock");
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    guard.release().await.expect("untouched");
}

/// Held semaphores are listed beside locks, and their holders are shown.
pub async fn a_held_semaphore_is_listed(fixture: &Fixture) {
    let [a, b] = pair(fixture, 2).await;
    let party = fixture.party().await;
    let listed = async || party.client().list(a.name()).await.expect("listed");
    assert!(listed().await.is_empty());
    let permit = b.acquire().await.expect("there are 2");
    assert_eq!(listed().await, [a.name()]);
    permit.release().await.expect("held");
    assert!(listed().await.is_empty());
}

/// A new semaphore may get no permits at first, and more later.
pub async fn a_semaphore_may_begin_without_permits(fixture: &Fixture) {
    let party = fixture.party().await;
    for first in [true, false] {
        let semaphore = party.client().semaphore(&unique("render"));
        if first {
            assert!(semaphore.set_permits_if_new(0).await.expect("answered"));
        } else {
            semaphore.set_permits(0).await.expect("answered");
        }
        assert!(!semaphore.set_permits_if_new(2).await.expect("answered"));
        assert_eq!(count(&semaphore).await, (0, 0));
        semaphore.add_permits(1).await.expect("answered");
        let permit = semaphore.acquire().await.expect("there is one");
        permit.release().await.expect("held");
    }
}

/// Numbers that make no sense, and an owner, are refused before any traffic.
pub async fn senseless_permits_are_refused(fixture: &Fixture) {
    let [a, _] = pair(fixture, 2).await;
    for count in [0, 1001] {
        let error = a.permits(count).try_acquire().await.expect_err("senseless");
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    }
    let owned = AcquireOptions::new().owner(&Owner::new());
    let error = a.permits(1).try_acquire_with(owned).await;
    let error = error.expect_err("permits have no owner");
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    let delayed = AcquireOptions::new().lock_delay(Duration::from_secs(1));
    let error = a.permits(1).try_acquire_with(delayed).await;
    assert_eq!(error.expect_err("no delay").kind(), ErrorKind::Unsupported);
    assert_eq!(count(&a).await, (2, 2));
}
