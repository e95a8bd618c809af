//! Promises about latches: each call counts once, and all waiters go on at zero.

use std::time::Duration;

use tokio::task::JoinHandle;

use crate::client::Client;
use crate::error::{ErrorKind, Result};
use crate::latch::Latch;
use crate::store::{CountChange, CountChanged, CountKind, LatchChange, Name};
use crate::testing::fixture::{Fixture, eventually, unique, within};
use crate::testing::polls::{Polled, poll_times};
use crate::types::{OwnerId, OwnerMint};

/// Bounds the polls. Every operation completes with fewer.
const MAX_AWAITS: usize = 500;

/// Two clients, each with the same latch.
async fn pair(fixture: &Fixture, count: u32) -> ([Client; 2], [Latch; 2]) {
    let name = unique("imported");
    let clients = [
        fixture.client(fixture.builder()).await,
        fixture.client(fixture.builder()).await,
    ];
    let latches = [clients[0].latch(&name), clients[1].latch(&name)];
    assert!(latches[0].set_count_if_new(count).await.expect("answered"));
    (clients, latches)
}

/// Spawns a waiter, and returns when it has read the count and sleeps.
async fn waiting(fixture: &Fixture, latch: &Latch) -> JoinHandle<Result<()>> {
    let latch = latch.clone();
    let task = tokio::spawn(async move { latch.wait().await });
    tokio::time::sleep(fixture.lease() / 20).await;
    assert!(!task.is_finished(), "the latch is not open");
    task
}

/// The count, also if a request is lost.
async fn count(latch: &Latch) -> u64 {
    loop {
        match latch.count().await {
            Ok(count) => return count,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}

async fn went_on(fixture: &Fixture, what: &str, waiter: JoinHandle<Result<()>>) {
    let ended = within(what, fixture.soon(), waiter).await;
    ended.expect("no panic").expect("open");
}

/// The waiters of all clients sleep until the last count, and go on then.
pub async fn all_waiters_go_on_at_zero_and_not_before(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let (_clients, [a, b]) = pair(fixture, 3).await;
    let mut waiters = Vec::new();
    for latch in [&a, &b, &a, &b] {
        waiters.push(waiting(fixture, latch).await);
    }
    for left in [2, 1] {
        assert_eq!(a.count_down().await.expect("answered"), left);
        tokio::time::sleep(fixture.lease() / 20).await;
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        assert_eq!(count(&b).await, left);
    }
    assert_eq!(b.count_down().await.expect("answered"), 0);
    for waiter in waiters {
        went_on(fixture, "zero", waiter).await;
    }
    a.wait().await.expect("it stays open");
    assert_eq!(a.count_down().await.expect("answered"), 0);
    assert_eq!(count(&a).await, 0);
}

/// Tasks of two clients count down at the same time. Each call gets another number, and the waiter goes on at the last.
pub async fn calls_at_the_same_time_each_count_once(fixture: &Fixture) {
    const COUNT: u32 = 40;
    let fixture = &fixture.patient();
    let (_clients, pair) = pair(fixture, COUNT).await;
    let waiter = waiting(fixture, &pair[0]).await;
    let calls = (0..COUNT).map(|n| {
        let latch = pair[n as usize % 2].clone();
        tokio::spawn(async move { latch.count_down().await.expect("answered") })
    });
    let calls: Vec<_> = calls.collect();
    let mut left = Vec::new();
    for call in calls {
        left.push(call.await.expect("no panic"));
    }
    left.sort_unstable();
    let each: Vec<u64> = (0..COUNT.into()).collect();
    assert_eq!(left, each);
    went_on(fixture, "zero", waiter).await;
}

/// The first count stays until the latch is open. Then the name can be used again.
pub async fn the_first_count_stays_until_zero(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let (_clients, [a, b]) = pair(fixture, 1).await;
    assert!(!b.set_count_if_new(5).await.expect("answered"));
    assert_eq!(count(&b).await, 1);
    a.count_down().await.expect("answered");
    assert!(b.set_count_if_new(2).await.expect("answered"));
    let waiter = waiting(fixture, &a).await;
    b.count_down().await.expect("answered");
    b.count_down().await.expect("answered");
    went_on(fixture, "the second use", waiter).await;
}

/// A latch without a count is open: nobody waits for it, and counting it down changes nothing.
pub async fn a_latch_without_a_count_is_open(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let client = fixture.client(fixture.builder()).await;
    let latch = client.latch(&unique("imported"));
    within("no count", fixture.soon(), latch.wait())
        .await
        .expect("open");
    let open = latch.wait_timeout(fixture.soon()).await;
    open.expect("open");
    assert_eq!(latch.count_down().await.expect("answered"), 0);
    assert!(!latch.delete().await.expect("answered"));
    assert!(latch.set_count_if_new(1).await.expect("answered"));
    assert_eq!(count(&latch).await, 1);
}

/// A latch that is deleted wakes its waiters.
pub async fn a_deleted_latch_wakes_its_waiters(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let (_clients, [a, b]) = pair(fixture, 9).await;
    let waiters = [waiting(fixture, &a).await, waiting(fixture, &b).await];
    assert!(a.delete().await.expect("answered"));
    for waiter in waiters {
        went_on(fixture, "deleted", waiter).await;
    }
    assert!(!b.delete().await.expect("answered"));
}

/// A wait ends at its time limit, and says what the count is. Others wait on.
pub async fn a_wait_ends_at_its_limit(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let (_clients, [a, b]) = pair(fixture, 2).await;
    let waiter = waiting(fixture, &a).await;
    for limit in [Duration::ZERO, fixture.lease() / 10] {
        let ended = within("the limit", fixture.lease() * 3, b.wait_timeout(limit)).await;
        let error = ended.expect_err("it is not open");
        assert!(error.is_timeout(), "{error}");
        assert!(error.to_string().contains('2'), "{error}");
    }
    assert!(!waiter.is_finished());
    b.delete().await.expect("answered");
    went_on(fixture, "deleted", waiter).await;
}

/// A wait ends with `Closed` when its client closes. The waiters of other clients wait on.
pub async fn a_close_ends_the_waits_of_its_client(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let ([_one, other], [a, b]) = pair(fixture, 1).await;
    let (stays, ends) = (waiting(fixture, &a).await, waiting(fixture, &b).await);
    other.close(Duration::ZERO).await;
    let ended = within("the close", fixture.soon(), ends).await;
    let error = ended.expect("no panic").expect_err("closed");
    assert_eq!(error.kind(), ErrorKind::Closed);
    let error = b.count_down().await.expect_err("closed");
    assert_eq!(error.kind(), ErrorKind::Closed);
    a.count_down().await.expect("answered");
    went_on(fixture, "zero", stays).await;
}

/// A request whose reply is lost is repeated: it counts once, and its answer is that of the request that took effect.
pub async fn a_change_whose_reply_was_lost_counts_once(fixture: &Fixture) {
    let (mortal, plug) = fixture.mortal(fixture.builder()).await;
    let latch = mortal.client().latch(&unique("imported"));
    for _ in 0..3 {
        plug.lose_replies(1);
        assert!(latch.set_count_if_new(3).await.expect("repeated"));
        plug.lose_replies(2);
        assert_eq!(latch.count_down().await.expect("repeated"), 2);
        assert_eq!(count(&latch).await, 2);
        plug.lose_replies(1);
        assert!(latch.delete().await.expect("repeated"));
    }
}

/// T52. A waiter whose client loses the store meanwhile goes on when the store is back.
pub async fn t52_a_waiter_goes_on_after_an_outage(fixture: &Fixture) {
    let name = unique("imported");
    let (mortal, plug) = fixture.mortal(fixture.builder()).await;
    let (a, other) = (
        mortal.client().latch(&name),
        fixture.client(fixture.builder()).await,
    );
    let b = other.latch(&name);
    assert!(b.set_count_if_new(1).await.expect("answered"));
    let waiter = waiting(fixture, &a).await;
    plug.pull();
    b.count_down().await.expect("answered");
    tokio::time::sleep(fixture.lease() / 4).await;
    assert!(!waiter.is_finished(), "it cannot know");
    plug.put_back();
    let ended = within("the store is back", fixture.lease() * 2, waiter).await;
    ended.expect("no panic").expect("open");
}

/// Requests of the bare store that are repeated or late.
pub async fn no_request_counts_twice(fixture: &Fixture) {
    let (bare, mint) = (fixture.bare().await, OwnerMint::new());
    let counts = bare.store.front.extensions().counts.expect("it has them");
    let name = Name::new(unique("imported")).expect("a good name");
    let change = async |change: LatchChange, id: &OwnerId| {
        let answer = counts.change(&name, CountChange::Latch(change), id, &[]);
        answer.await.expect("answered")
    };
    let count = async || {
        let count = counts.count(&name, CountKind::Latch).await;
        count.expect("readable")
    };
    let is = |changed, count| CountChanged { changed, count };
    let (set, first, last) = (mint.fresh(), mint.fresh(), mint.fresh());
    let new = LatchChange::SetIfNew(2);
    for _ in 0..3 {
        assert_eq!(change(new, &set).await, is(true, 2));
    }
    for _ in 0..3 {
        assert_eq!(change(LatchChange::CountDown, &first).await, is(true, 1));
        assert_eq!(count().await, 1);
    }
    assert_eq!(change(new, &mint.fresh()).await, is(false, 1));
    assert_eq!(change(LatchChange::CountDown, &last).await, is(true, 0));
    // Late requests. They neither close the open latch nor count down its next use.
    assert_eq!(change(new, &set).await, is(true, 2));
    assert_eq!(count().await, 0);
    assert_eq!(change(new, &mint.fresh()).await, is(true, 2));
    assert_eq!(change(LatchChange::CountDown, &last).await, is(true, 0));
    assert_eq!(count().await, 2);
    let delete = mint.fresh();
    for _ in 0..2 {
        assert_eq!(change(LatchChange::Delete, &delete).await, is(true, 0));
    }
    let none = change(LatchChange::CountDown, &mint.fresh()).await;
    assert_eq!(none, is(false, 0));
}

/// Locks, semaphores whose permits are held, and latches do not use the name of each other. All stay as they are.
pub async fn locks_and_latches_refuse_each_others_names(fixture: &Fixture) {
    let ([client, _other], [latch, _]) = pair(fixture, 2).await;
    for lock in [client.lock(latch.name()), client.fair_lock(latch.name())] {
        let error = lock.try_acquire().await.expect_err("a latch");
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    }
    assert_eq!(count(&latch).await, 2);
    let names = [unique("stock"), unique("render")];
    let guard = client.lock(&names[0]).acquire().await.expect("free");
    let render = client.semaphore(&names[1]);
    assert!(render.set_permits_if_new(2).await.expect("answered"));
    let permit = render.acquire().await.expect("there are 2");
    for name in &names {
        let latch = client.latch(name);
        for answer in [
            latch.count().await.map(drop),
            latch.count_down().await.map(drop),
            latch.set_count_if_new(1).await.map(drop),
            latch.delete().await.map(drop),
            latch.wait().await,
        ] {
            let error = answer.expect_err("no latch");
            assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
            assert_eq!(error.lock_name(), Some(&**name), "{error}");
        }
    }
    guard.release().await.expect("untouched");
    permit.release().await.expect("untouched");
    let count = render.inspect().await.expect("readable").permits;
    assert_eq!(count.map(|count| count.available), Some(2));
}

/// An operator sees a latch that is waited for.
pub async fn a_latch_with_a_waiter_is_shown(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let ([client, _other], [a, _]) = pair(fixture, 7).await;
    let waiter = waiting(fixture, &a).await;
    let lock = client.lock(a.name());
    eventually("it is shown", fixture.lease() * 4, || async {
        let seen = lock.inspect().await.expect("readable");
        seen.latch == Some(7) && seen.permits.is_none() && seen.waiters >= Some(1)
    })
    .await;
    let seen = lock.inspect().await.expect("readable");
    assert!(!seen.is_locked());
    let shown = seen.to_string();
    assert!(shown.contains("a latch with the count 7"), "{shown}");
    a.delete().await.expect("answered");
    went_on(fixture, "deleted", waiter).await;
    assert_eq!(lock.inspect().await.expect("readable").latch, None);
}

/// A count of zero is refused before any traffic.
pub async fn a_latch_of_zero_is_refused(fixture: &Fixture) {
    let client = fixture.client(fixture.builder()).await;
    let latch = client.latch(&unique("imported"));
    let error = latch.set_count_if_new(0).await.expect_err("senseless");
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
}

/// A wait that is dropped at any await leaves no waiter, and takes no message from the others.
pub async fn a_wait_for_a_latch_cancelled_at_every_await_leaves_nothing(fixture: &Fixture) {
    let ([client, other], [a, b]) = pair(fixture, 1).await;
    let patience = fixture.lease() * 10;
    for polls in 0..MAX_AWAITS {
        let stays = a.clone();
        let stays = tokio::spawn(async move { stays.wait().await });
        let both = async {
            // Both run concurrently, so the last count meets the wait at each of its await points.
            let (open, counted) = tokio::join!(a.wait(), b.count_down());
            counted.expect("answered");
            open.expect("open");
        };
        let done = match poll_times(both, polls, patience).await {
            Polled::Done(()) => true,
            Polled::Dropped => false,
            Polled::Asleep => panic!("nothing woke it after {polls} polls"),
        };
        // A late request of a dropped count-down may come before or after this.
        b.delete().await.expect("answered");
        let ended = within("the waiter that stays", patience, stays).await;
        ended.expect("no panic").expect("open");
        let lock = client.lock(a.name());
        eventually("no waiter is left", patience, || async {
            let seen = lock.inspect().await.expect("readable");
            seen.waiters.unwrap_or(0) == 0
        })
        .await;
        eventually("the clients are idle", patience, || async {
            client.is_idle() && other.is_idle()
        })
        .await;
        if done {
            return;
        }
        assert!(b.set_count_if_new(1).await.expect("answered"));
    }
    panic!("not done after {MAX_AWAITS} polls");
}

/// A count-down that is dropped at any await has counted once or not at all.
pub async fn a_count_down_cancelled_at_every_await_counts_at_most_once(fixture: &Fixture) {
    for polls in 0..MAX_AWAITS {
        let (_clients, [a, b]) = pair(fixture, 3).await;
        let polled = poll_times(a.count_down(), polls, fixture.lease() * 10).await;
        let left = count(&b).await;
        b.delete().await.expect("answered");
        match polled {
            Polled::Done(answer) => {
                assert_eq!((answer.expect("answered"), left), (2, 2));
                return;
            }
            Polled::Dropped => assert!((2..=3).contains(&left), "{left} after {polls} polls"),
            Polled::Asleep => panic!("nothing woke it after {polls} polls"),
        }
    }
    panic!("not done after {MAX_AWAITS} polls");
}
