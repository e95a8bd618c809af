//! Promises about barriers: members enter together and leave together.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinHandle;

use crate::barrier::{Barrier, BarrierGuard};
use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::testing::fixture::{Fixture, eventually, unique, within};

pub(super) type Entering = JoinHandle<Result<BarrierGuard>>;

pub(super) async fn clients<const N: usize>(fixture: &Fixture) -> [Client; N] {
    let mut clients = Vec::new();
    for _ in 0..N {
        clients.push(fixture.client(fixture.builder()).await);
    }
    clients.try_into().expect("so many")
}

/// Two clients whose members look by themselves so seldom that a test can tell it from a message.
pub(super) async fn patient_clients(fixture: &Fixture) -> [Client; 2] {
    let lease = fixture.lease() * 10;
    [
        fixture.client(fixture.builder().lease(lease)).await,
        fixture.client(fixture.builder().lease(lease)).await,
    ]
}

/// Waits until the pause between two looks of a [patient](patient_clients) member has grown.
pub(super) async fn until_looks_are_rare(fixture: &Fixture) {
    tokio::time::sleep(fixture.lease() * 4).await;
}

/// Bounds what takes several round trips of several members.
pub(super) fn soon(fixture: &Fixture) -> Duration {
    fixture.lease() * 6
}

/// Spawns a member, and returns when so many wait.
pub(super) async fn waiting(fixture: &Fixture, barrier: &Barrier, many: usize) -> Entering {
    let member = barrier.clone();
    let mut task = tokio::spawn(async move { member.enter().await });
    let waits = eventually("the member waits", soon(fixture), async || {
        present(barrier).await.1 == many
    });
    tokio::select! {
        biased;
        () = waits => task,
        ended = &mut task => panic!("too few have come: {ended:?}"),
    }
}

/// How many members are inside, and how many wait. Repeated if a request is lost.
pub(super) async fn present(barrier: &Barrier) -> (usize, usize) {
    loop {
        match barrier.members().await {
            Ok(members) => return (members.inside.len(), members.waiting.len()),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}

/// The time was over, or a busy machine did not answer within it.
pub(super) fn gave_up(error: &Error) -> bool {
    error.is_timeout() || error.is_retryable()
}

pub(super) async fn entered(fixture: &Fixture, task: Entering) -> BarrierGuard {
    let entered = within("the member enters", soon(fixture), task).await;
    entered.expect("no panic").expect("all are there")
}

pub(super) async fn left(fixture: &Fixture, guards: impl IntoIterator<Item = BarrierGuard>) {
    let leaving = guards.into_iter().map(BarrierGuard::leave);
    let left = within("all leave", soon(fixture), join_all(leaving)).await;
    for one in left {
        one.expect("all leave");
    }
}

/// Nothing is in the store: no state, no holder, and nobody waits for a signal.
pub(super) async fn nothing_is_left(fixture: &Fixture, client: &Client, barrier: &Barrier) {
    let signal = client.lock(&format!("{}%barrier", barrier.name()));
    let held = client.lock(barrier.name());
    eventually("nothing is left", soon(fixture), async || {
        let (seen, waits) = (held.inspect().await, signal.inspect().await);
        let free = |seen: Result<crate::Snapshot>| {
            seen.is_ok_and(|seen| !seen.is_locked() && seen.waiters.unwrap_or(0) == 0)
        };
        present(barrier).await == (0, 0) && free(seen) && free(waits)
    })
    .await;
}

/// No member enters before the last has come, and none has left before the last leaves. Members of several clients, and
/// two of one client.
pub async fn members_enter_together_and_leave_together(fixture: &Fixture) {
    let [a, b] = clients(fixture).await;
    let name = unique("solver");
    let [a, b] = [a.barrier(&name, 3), b.barrier(&name, 3)];
    for _ in 0..2 {
        let first = waiting(fixture, &a, 1).await;
        let second = waiting(fixture, &b, 2).await;
        let third = within("the last", soon(fixture), b.enter()).await;
        let third = third.expect("all are there");
        let (first, second) = (
            entered(fixture, first).await,
            entered(fixture, second).await,
        );
        assert_eq!(present(&a).await, (3, 0));
        assert!(
            [&first, &second, &third]
                .iter()
                .all(|inside| inside.is_held())
        );
        let first = tokio::spawn(first.leave());
        eventually("one has left", soon(fixture), async || {
            present(&b).await == (2, 0)
        })
        .await;
        let second = tokio::spawn(second.leave());
        eventually("two have left", soon(fixture), async || {
            present(&b).await == (1, 0)
        })
        .await;
        assert!(
            !first.is_finished() && !second.is_finished(),
            "the third is inside"
        );
        left(fixture, [third]).await;
        for one in [first, second] {
            let ended = within("the others leave", soon(fixture), one).await;
            ended.expect("no panic").expect("all have left");
        }
    }
}

/// The last member wakes those that wait, and the last to leave wakes those that have left. Nobody waits for the end of a
/// lease.
pub async fn the_last_member_wakes_the_others(fixture: &Fixture) {
    let [a, b] = patient_clients(fixture).await;
    let name = unique("solver");
    let [a, b] = [a.barrier(&name, 2), b.barrier(&name, 2)];
    let first = waiting(fixture, &a, 1).await;
    until_looks_are_rare(fixture).await;
    let second = within("the last", soon(fixture), b.enter()).await;
    let second = second.expect("all are there");
    let first = within("the message", fixture.soon(), first).await;
    let first = first.expect("no panic").expect("all are there");
    let leaving = tokio::spawn(first.leave());
    until_looks_are_rare(fixture).await;
    assert!(!leaving.is_finished());
    second.leave().await.expect("the other one has left");
    let ended = within("the message", fixture.soon(), leaving).await;
    ended.expect("no panic").expect("all have left");
}

/// Many members come and go in several uses. All see the same members in each use, and nobody is in two uses.
pub async fn uses_of_a_barrier_do_not_mix(fixture: &Fixture) {
    const USES: usize = 4;
    let clients: [Client; 3] = clients(fixture).await;
    let name = unique("solver");
    let tasks = clients.iter().map(|client| {
        let barrier = client.barrier(&name, 3);
        async move {
            let mut uses = Vec::new();
            while uses.len() < USES {
                let inside = barrier.enter().await.expect("all are there");
                uses.push(inside.together().to_vec());
                inside.leave().await.expect("all leave");
            }
            uses
        }
    });
    let uses = within("all uses", soon(fixture) * 4, join_all(tasks)).await;
    assert!(uses.windows(2).all(|pair| pair[0] == pair[1]), "{uses:?}");
    let mut owners = uses[0].concat();
    owners.sort_unstable();
    owners.dedup();
    assert_eq!(owners.len(), clients.len() * USES, "{uses:?}");
    nothing_is_left(fixture, &clients[0], &clients[0].barrier(&name, 3)).await;
}

/// A further member waits until all of this use have left, and enters with those of the next.
pub async fn a_further_member_waits_for_the_next_use(fixture: &Fixture) {
    let [a, b] = clients(fixture).await;
    let name = unique("solver");
    let [a, b] = [a.barrier(&name, 2), b.barrier(&name, 2)];
    let first = waiting(fixture, &a, 1).await;
    let second = within("the last", soon(fixture), b.enter())
        .await
        .expect("all");
    let first = entered(fixture, first).await;
    let third = waiting(fixture, &a, 1).await;
    let fourth = waiting(fixture, &b, 2).await;
    drop(second);
    eventually("one has left", soon(fixture), async || {
        present(&a).await == (1, 2)
    })
    .await;
    assert!(!third.is_finished() && !fourth.is_finished());
    within("it leaves", soon(fixture), first.leave())
        .await
        .expect("the other one has left");
    let (third, fourth) = (
        entered(fixture, third).await,
        entered(fixture, fourth).await,
    );
    assert_eq!(third.together(), fourth.together());
    left(fixture, [third, fourth]).await;
}

/// A member whose time is over leaves nothing, and the next one is the first.
pub async fn a_member_whose_time_is_over_leaves_nothing(fixture: &Fixture) {
    let [client] = clients(fixture).await;
    let barrier = client.barrier(&unique("solver"), 2);
    for limit in [Duration::ZERO, fixture.lease() / 3] {
        let ended = within("the limit", soon(fixture), barrier.enter_timeout(limit)).await;
        let error = ended.expect_err("too few");
        assert!(error.is_timeout(), "{error}");
        nothing_is_left(fixture, &client, &barrier).await;
    }
    let first = waiting(fixture, &barrier, 1).await;
    let second = within(
        "the last",
        soon(fixture),
        barrier.enter_timeout(soon(fixture)),
    )
    .await;
    let (first, second) = (
        entered(fixture, first).await,
        second.expect("all are there"),
    );
    let ended = within(
        "the limit",
        soon(fixture),
        first.leave_timeout(fixture.lease() / 10),
    )
    .await;
    let error = ended.expect_err("the other one is inside");
    assert!(error.is_timeout(), "{error}");
    assert_eq!(present(&barrier).await, (1, 0));
    left(fixture, [second]).await;
    nothing_is_left(fixture, &client, &barrier).await;
}

/// No member enters with one that was told that its time is over, whenever that is.
pub async fn a_time_limit_meets_the_last_member(fixture: &Fixture) {
    let [a, b] = clients(fixture).await;
    let name = unique("solver");
    let [a, b] = [a.barrier(&name, 2), b.barrier(&name, 2)];
    for part in 0..8 {
        let limit = fixture.lease() / 30 * part;
        let both = async { tokio::join!(a.enter_timeout(limit), b.enter_timeout(limit)) };
        match within("both end", soon(fixture), both).await {
            (Ok(one), Ok(other)) => left(fixture, [one, other]).await,
            (Err(one), Err(other)) => {
                assert!(gave_up(&one) && gave_up(&other), "{one}, {other}");
            }
            // Not the answer that its time is over: it may have entered.
            (Ok(one), Err(error)) | (Err(error), Ok(one)) if !error.is_timeout() => {
                assert!(gave_up(&error), "{error}");
                left(fixture, [one]).await;
            }
            (one, other) => panic!("only one has entered: {one:?}, {other:?}"),
        }
    }
}

/// All members must name the same number. The one that does not is refused, and the others go on.
pub async fn members_that_name_another_number_are_refused(fixture: &Fixture) {
    let [client] = clients(fixture).await;
    let name = unique("solver");
    let barrier = client.barrier(&name, 2);
    let first = waiting(fixture, &barrier, 1).await;
    let wrong = within("refused", soon(fixture), client.barrier(&name, 3).enter()).await;
    let error = wrong.expect_err("another number");
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    assert!(error.to_string().contains('3'), "{error}");
    let second = within("the last", soon(fixture), barrier.enter())
        .await
        .expect("all");
    left(fixture, [second, entered(fixture, first).await]).await;
    for senseless in [0, 101] {
        let error = client
            .barrier(&name, senseless)
            .enter()
            .await
            .expect_err("senseless");
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    }
}

/// A store without barriers refuses them before any traffic.
pub async fn a_store_without_barriers_refuses_them(fixture: &Fixture) {
    let (mortal, plug) = fixture.mortal(fixture.builder()).await;
    plug.pull();
    let barrier = mortal.client().barrier(&unique("solver"), 2);
    for refused in [
        barrier.enter().await.map(drop),
        barrier.enter_timeout(Duration::ZERO).await.map(drop),
        barrier.members().await.map(drop),
    ] {
        let error = refused.expect_err("no barriers");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("barriers"), "{error}");
    }
}
