//! Promises about counting semaphores: no call counts twice, and a cancelled acquisition takes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::client::Client;
use crate::counting_semaphore::CountingSemaphore;
use crate::error::{ErrorKind, Result};
use crate::store::{CountChange, CountChanged, CountKind, Name, SemaphoreChange};
use crate::testing::fixture::{Fixture, eventually, unique, within};
use crate::testing::polls::{Polled, poll_times};
use crate::types::{OwnerId, OwnerMint};

/// Bounds the polls. Every operation completes with fewer.
const MAX_AWAITS: usize = 500;

/// Two clients, each with the same semaphore.
async fn pair(fixture: &Fixture, permits: u32) -> ([Client; 2], [CountingSemaphore; 2]) {
    let name = unique("slots");
    let clients = [
        fixture.client(fixture.builder()).await,
        fixture.client(fixture.builder()).await,
    ];
    let semaphores = [
        clients[0].counting_semaphore(&name),
        clients[1].counting_semaphore(&name),
    ];
    let set = semaphores[0].set_permits_if_new(permits).await;
    assert!(set.expect("answered"));
    (clients, semaphores)
}

/// How many are available, also if a request is lost.
pub(super) async fn available(semaphore: &CountingSemaphore) -> i64 {
    loop {
        match semaphore.available().await {
            Ok(number) => return number,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}

/// Spawns a waiter, and returns when it has asked and sleeps.
async fn waiting(
    fixture: &Fixture,
    semaphore: &CountingSemaphore,
    permits: u32,
) -> JoinHandle<Result<()>> {
    let semaphore = semaphore.clone();
    let task = tokio::spawn(async move { semaphore.acquire(permits).await });
    tokio::time::sleep(fixture.lease() / 20).await;
    assert!(!task.is_finished(), "there are too few permits");
    task
}

async fn got_them(fixture: &Fixture, what: &str, waiter: JoinHandle<Result<()>>) {
    let ended = within(what, fixture.soon(), waiter).await;
    ended.expect("no panic").expect("taken");
}

/// A request for more than there are takes nothing, and what was taken can be given back by another process.
pub async fn counted_permits_are_taken_all_or_none(fixture: &Fixture) {
    let (_clients, [a, b]) = pair(fixture, 3).await;
    assert!(!b.set_permits_if_new(9).await.expect("answered"));
    assert!(a.try_acquire(2).await.expect("answered"));
    assert!(!b.try_acquire(2).await.expect("answered"));
    assert_eq!(available(&b).await, 1);
    b.acquire(1).await.expect("there is one");
    assert!(!a.try_acquire(1).await.expect("answered"));
    assert_eq!(b.release(3).await.expect("answered"), 3);
    assert_eq!(a.drain().await.expect("answered"), 3);
    assert_eq!(b.drain().await.expect("answered"), 0);
    assert_eq!(available(&a).await, 0);
}

/// Tasks of two clients take and give back. There are never more inside than permits, and none is lost.
pub async fn takers_together_never_have_too_many(fixture: &Fixture) {
    const PERMITS: u32 = 3;
    let (_clients, pair) = pair(fixture, PERMITS).await;
    let inside = Arc::new(AtomicU32::new(0));
    let tasks = (0..6).map(|n: u32| {
        let (semaphore, inside) = (pair[n as usize % 2].clone(), Arc::clone(&inside));
        tokio::spawn(async move {
            for round in 0..10 {
                let permits = 1 + (n + round) % 2;
                semaphore.acquire(permits).await.expect("in time");
                let now = inside.fetch_add(permits, Ordering::SeqCst) + permits;
                assert!(now <= PERMITS, "{now} inside");
                tokio::task::yield_now().await;
                inside.fetch_sub(permits, Ordering::SeqCst);
                semaphore.release(permits).await.expect("answered");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("never too many");
    }
    assert_eq!(available(&pair[0]).await, i64::from(PERMITS));
}

/// A waiter sleeps until enough permits have come back, and then takes them.
pub async fn a_waiter_takes_permits_as_soon_as_enough_are_there(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let (clients, [a, b]) = pair(fixture, 0).await;
    let waiter = waiting(fixture, &a, 2).await;
    assert_eq!(b.release(1).await.expect("answered"), 1);
    tokio::time::sleep(fixture.lease() / 20).await;
    assert!(!waiter.is_finished(), "one is not enough");
    b.release(1).await.expect("answered");
    got_them(fixture, "two releases", waiter).await;
    assert_eq!(available(&a).await, 0);
    let waiter = waiting(fixture, &b, 1).await;
    a.add_permits(1).await.expect("answered");
    got_them(fixture, "added", waiter).await;
    let fresh = unique("slots");
    let [a, b] = [&clients[0], &clients[1]].map(|client| client.counting_semaphore(&fresh));
    let waiter = waiting(fixture, &a, 1).await;
    assert!(b.set_permits_if_new(1).await.expect("answered"));
    got_them(fixture, "the first permits", waiter).await;
}

/// More permits can be removed than are available. Then releases fill the gap first.
pub async fn removed_permits_are_missing_until_they_come_back(fixture: &Fixture) {
    let (_clients, [a, b]) = pair(fixture, 2).await;
    a.acquire(2).await.expect("there are two");
    assert_eq!(b.add_permits(-1).await.expect("answered"), -1);
    assert_eq!(available(&a).await, -1);
    assert_eq!(b.drain().await.expect("answered"), 0);
    assert_eq!(a.release(1).await.expect("answered"), 0);
    assert!(!b.try_acquire(1).await.expect("answered"));
    assert_eq!(a.release(1).await.expect("answered"), 1);
    assert!(b.try_acquire(1).await.expect("answered"));
}

/// A wait ends at its time limit, says what is missing, and has taken nothing. Others wait on.
pub async fn a_wait_for_counted_permits_ends_at_its_limit(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let (_clients, [a, b]) = pair(fixture, 1).await;
    let waiter = waiting(fixture, &a, 2).await;
    for limit in [Duration::ZERO, fixture.lease() / 10] {
        let ended = within(
            "the limit",
            fixture.lease() * 3,
            b.acquire_timeout(2, limit),
        )
        .await;
        let error = ended.expect_err("there is one");
        assert!(error.is_timeout(), "{error}");
        assert!(error.to_string().contains("1 are available"), "{error}");
    }
    assert!(!waiter.is_finished());
    b.release(1).await.expect("answered");
    got_them(fixture, "released", waiter).await;
    assert_eq!(available(&b).await, 0);
}

/// A wait ends with `Closed` when its client closes, and has taken nothing. The waiters of other clients wait on.
pub async fn a_close_ends_the_acquires_of_its_client(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let ([_one, other], [a, b]) = pair(fixture, 0).await;
    let (stays, ends) = (waiting(fixture, &a, 1).await, waiting(fixture, &b, 1).await);
    other.close(Duration::ZERO).await;
    let ended = within("the close", fixture.soon(), ends).await;
    let error = ended.expect("no panic").expect_err("closed");
    assert_eq!(error.kind(), ErrorKind::Closed);
    let error = b.release(1).await.expect_err("closed");
    assert_eq!(error.kind(), ErrorKind::Closed);
    a.release(1).await.expect("answered");
    got_them(fixture, "released", stays).await;
}

/// Requests for no permit are refused before any traffic.
pub async fn zero_counted_permits_are_refused(fixture: &Fixture) {
    let (_clients, [a, _]) = pair(fixture, 1).await;
    for answer in [
        a.try_acquire(0).await.map(drop),
        a.acquire(0).await,
        a.acquire_timeout(0, Duration::ZERO).await,
        a.release(0).await.map(drop),
    ] {
        let error = answer.expect_err("senseless");
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    }
    assert_eq!(available(&a).await, 1);
}

/// A request whose reply is lost is repeated, and counts once.
pub async fn a_counted_change_whose_reply_was_lost_counts_once(fixture: &Fixture) {
    let (mortal, plug) = fixture.mortal(fixture.builder()).await;
    let semaphore = mortal.client().counting_semaphore(&unique("slots"));
    plug.lose_replies(1);
    assert!(semaphore.set_permits_if_new(5).await.expect("repeated"));
    for _ in 0..3 {
        plug.lose_replies(2);
        semaphore.acquire(2).await.expect("repeated");
        assert_eq!(available(&semaphore).await, 3);
        plug.lose_replies(1);
        assert!(semaphore.try_acquire(1).await.expect("repeated"));
        plug.lose_replies(1);
        assert_eq!(semaphore.drain().await.expect("repeated"), 2);
        plug.lose_replies(2);
        assert_eq!(semaphore.release(4).await.expect("repeated"), 4);
        plug.lose_replies(1);
        assert_eq!(semaphore.add_permits(1).await.expect("repeated"), 5);
    }
}

/// An acquisition that ends while the reply is lost gives back what its request took.
pub async fn an_acquire_that_ends_in_doubt_takes_nothing(fixture: &Fixture) {
    let (mortal, plug) = fixture.mortal(fixture.builder()).await;
    let client = mortal.client();
    let semaphore = client.counting_semaphore(&unique("slots"));
    assert!(semaphore.set_permits_if_new(3).await.expect("answered"));
    for dropped in [true, false] {
        plug.lose_replies(u64::MAX);
        if dropped {
            let waited = tokio::time::timeout(fixture.lease() / 10, semaphore.acquire(2)).await;
            waited.expect_err("no reply comes");
        } else {
            let limit = fixture.lease() / 10;
            let error = semaphore.acquire_timeout(2, limit).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
        plug.lose_replies(0);
        eventually("it is given back", fixture.lease() * 4, || async {
            available(&semaphore).await == 3 && client.is_idle()
        })
        .await;
    }
}

/// T51. A waiter whose client loses the store meanwhile takes permits when the store is back.
pub async fn t51_an_acquire_goes_on_after_an_outage(fixture: &Fixture) {
    let name = unique("slots");
    let (mortal, plug) = fixture.mortal(fixture.builder()).await;
    let other = fixture.client(fixture.builder()).await;
    let (a, b) = (
        mortal.client().counting_semaphore(&name),
        other.counting_semaphore(&name),
    );
    assert!(b.set_permits_if_new(0).await.expect("answered"));
    let waiter = waiting(fixture, &a, 1).await;
    plug.pull();
    b.release(1).await.expect("answered");
    tokio::time::sleep(fixture.lease() / 4).await;
    assert!(!waiter.is_finished(), "it cannot know");
    plug.put_back();
    let ended = within("the store is back", fixture.lease() * 2, waiter).await;
    ended.expect("no panic").expect("taken");
    assert_eq!(available(&b).await, 0);
}

/// Requests of the bare store that are repeated or late.
pub async fn no_counted_request_counts_twice(fixture: &Fixture) {
    let (bare, mint) = (fixture.bare().await, OwnerMint::new());
    let counts = bare.store.front.extensions().counts.expect("it has them");
    let name = Name::new(unique("slots")).expect("a good name");
    let change = async |change: SemaphoreChange, id: &OwnerId, settled: &[OwnerId]| {
        let answer = counts.change(&name, CountChange::Semaphore(change), id, settled);
        answer.await.expect("answered")
    };
    let left = async || {
        let count = counts.count(&name, CountKind::Semaphore).await;
        count.expect("readable")
    };
    let is = |changed, count| CountChanged { changed, count };
    let (set, taken, late, back) = (mint.fresh(), mint.fresh(), mint.fresh(), mint.fresh());
    assert_eq!(
        change(SemaphoreChange::Take(1), &late, &[]).await,
        is(false, 0)
    );
    for _ in 0..3 {
        let new = SemaphoreChange::SetIfNew(4);
        assert_eq!(change(new, &set, &[]).await, is(true, 4));
        let take = SemaphoreChange::Take(3);
        assert_eq!(change(take, &taken, &[]).await, is(true, 3));
        assert_eq!(left().await, 1);
    }
    // A refused request leaves no answer: the same id may take later.
    let two = SemaphoreChange::Take(2);
    assert_eq!(change(two, &late, &[]).await, is(false, 1));
    for _ in 0..3 {
        let give = SemaphoreChange::GiveBack(1);
        assert_eq!(change(give, &back, &[]).await, is(true, 2));
    }
    assert_eq!(change(two, &late, &[]).await, is(true, 2));
    // What was taken is given back once, and a late request takes nothing.
    for back in [2, 0, 0] {
        let undone = change(SemaphoreChange::Undo, &late, &[]).await;
        assert_eq!(undone.count, back);
        assert_eq!(change(two, &late, &[]).await, is(false, 0));
        assert_eq!(left().await, 2);
    }
    // An undo that comes first stops the request, and a request of others is not undone.
    let never = mint.fresh();
    assert_eq!(change(SemaphoreChange::Undo, &never, &[]).await.count, 0);
    assert_eq!(change(two, &never, &[]).await, is(false, 0));
    let drain = mint.fresh();
    for _ in 0..2 {
        let all = change(SemaphoreChange::Drain, &drain, &[]).await;
        assert_eq!((all, left().await), (is(true, 2), 0));
    }
    // The answers that a caller has got are forgotten, and no others.
    let one = SemaphoreChange::GiveBack(1);
    let settled = [back.clone(), set.clone()];
    assert_eq!(change(one, &mint.fresh(), &settled).await, is(true, 1));
    assert_eq!(change(one, &back, &[]).await, is(true, 2));
    assert_eq!(
        change(SemaphoreChange::Drain, &drain, &[]).await,
        is(true, 2)
    );
    assert_eq!(left().await, 2);
}

/// A lock and a counting semaphore do not use each other's names. Both stay as they are.
pub async fn locks_and_counting_semaphores_refuse_each_others_names(fixture: &Fixture) {
    let ([client, _other], [a, _]) = pair(fixture, 2).await;
    let error = client.lock(a.name()).try_acquire().await.map(drop);
    let error = error.expect_err("a semaphore");
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    assert_eq!(available(&a).await, 2);
    let name = unique("stock");
    let guard = client.lock(&name).acquire().await.expect("free");
    let semaphore = client.counting_semaphore(&name);
    for answer in [
        semaphore.available().await.map(drop),
        semaphore.set_permits_if_new(1).await.map(drop),
        semaphore.add_permits(1).await.map(drop),
        semaphore.try_acquire(1).await.map(drop),
        semaphore.acquire(1).await,
        semaphore.release(1).await.map(drop),
        semaphore.drain().await.map(drop),
    ] {
        let error = answer.expect_err("a lock");
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        assert_eq!(error.lock_name(), Some(&*name), "{error}");
    }
    guard.release().await.expect("untouched");
}

/// A counting semaphore and a semaphore of one name count in the same number.
pub async fn a_semaphore_with_holders_shares_the_number(fixture: &Fixture) {
    let ([client, _other], [a, b]) = pair(fixture, 3).await;
    let held = client.semaphore(a.name());
    let permit = held.acquire().await.expect("there are three");
    assert_eq!(available(&b).await, 2);
    b.acquire(2).await.expect("there are two");
    assert!(held.try_acquire().await.expect("answered").is_none());
    let seen = a.inspect().await.expect("readable");
    let permits = seen.permits.expect("it has permits");
    assert_eq!((permits.available, permits.total), (0, 1));
    permit.release().await.expect("held");
    assert_eq!(available(&a).await, 1);
}

/// An acquisition that is dropped at any await has taken nothing, and leaves no waiter.
pub async fn an_acquire_of_counted_permits_cancelled_at_every_await_takes_nothing(
    fixture: &Fixture,
) {
    let ([client, other], [a, b]) = pair(fixture, 0).await;
    let patience = fixture.lease() * 10;
    for polls in 0..MAX_AWAITS {
        let both = async {
            // Both run concurrently, so the release meets the acquisition at each of its await points.
            let release = b.clone();
            let release = tokio::spawn(async move { release.release(2).await });
            a.acquire(2).await.expect("taken");
            (release,)
        };
        let polled = poll_times(both, polls, patience).await;
        let done = match polled {
            Polled::Done((release,)) => {
                release.await.expect("no panic").expect("answered");
                true
            }
            Polled::Dropped => false,
            Polled::Asleep => panic!("nothing woke it after {polls} polls"),
        };
        // We await this before we count; otherwise the request of the dropped acquisition, which may still be on its way,
        // could take the permits that we have counted.
        eventually("the clients are idle", patience, || async {
            client.is_idle() && other.is_idle()
        })
        .await;
        if !done && polls > 0 {
            eventually("nothing is taken", patience, || async {
                available(&b).await == 2
            })
            .await;
            assert_eq!(b.drain().await.expect("answered"), 2);
        }
        let lock = client.lock(a.name());
        eventually("no waiter is left", patience, || async {
            let seen = lock.inspect().await.expect("readable");
            seen.waiters.unwrap_or(0) == 0
        })
        .await;
        assert_eq!(available(&a).await, 0);
        if done {
            return;
        }
    }
    panic!("not done after {MAX_AWAITS} polls");
}
