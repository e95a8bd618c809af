//! Promises about barriers whose members die, leave or lose their replies: they hold up nobody.

use std::time::Duration;

use super::barrier::{
    clients, entered, gave_up, left, nothing_is_left, patient_clients, present, soon,
    until_looks_are_rare, waiting,
};
use crate::error::ErrorKind;
use crate::testing::fixture::{Fixture, eventually, unique, within};
use crate::testing::polls::{Polled, poll_times};

/// Bounds the polls. Every operation completes with fewer.
const MAX_AWAITS: usize = 2000;

/// A member whose process dies while it waits is not counted: the next one takes its place.
pub async fn a_member_that_dies_before_is_not_counted(fixture: &Fixture) {
    let [client, other] = clients(fixture).await;
    let name = unique("solver");
    let (mortal, plug) = fixture.mortal(fixture.builder()).await;
    let barrier = client.barrier(&name, 2);
    let dead = mortal.client().barrier(&name, 2);
    let dead = tokio::spawn(async move { dead.enter().await });
    eventually("it waits", soon(fixture), async || {
        present(&barrier).await == (0, 1)
    })
    .await;
    plug.pull();
    eventually("its lease has ended", soon(fixture), async || {
        present(&barrier).await == (0, 0)
    })
    .await;
    let first = waiting(fixture, &barrier, 1).await;
    let second = other.barrier(&name, 2);
    let second = within("the second", soon(fixture), second.enter()).await;
    left(
        fixture,
        [second.expect("all"), entered(fixture, first).await],
    )
    .await;
    let ended = within("the dead one is told", soon(fixture), dead).await;
    ended.expect("no panic").expect_err("it was not counted");
}

/// A member whose process dies inside does not hold up those that leave, nor the next use.
pub async fn a_member_that_dies_inside_does_not_hold_up_the_others(fixture: &Fixture) {
    let [client, other] = clients(fixture).await;
    let name = unique("solver");
    let (mortal, plug) = fixture.mortal(fixture.builder()).await;
    let barrier = client.barrier(&name, 2);
    let first = waiting(fixture, &barrier, 1).await;
    let dead = mortal.client().barrier(&name, 2);
    let dead = within("the last", soon(fixture), dead.enter())
        .await
        .expect("all");
    let first = entered(fixture, first).await;
    plug.pull();
    within("its lease ends", soon(fixture), first.leave())
        .await
        .expect("the other one is dead");
    // The dead one is told, before or after that by the drift of the clocks.
    within("it is told", soon(fixture), dead.lost()).await;
    assert!(!dead.is_held());
    let third = waiting(fixture, &barrier, 1).await;
    let fourth = other.barrier(&name, 2);
    let fourth = within("the next use", soon(fixture), fourth.enter()).await;
    left(
        fixture,
        [fourth.expect("all"), entered(fixture, third).await],
    )
    .await;
}

/// A member that waits learns of its loss.
pub async fn a_waiting_member_is_told_of_its_loss(fixture: &Fixture) {
    let [client] = clients(fixture).await;
    let barrier = client.barrier(&unique("solver"), 2);
    let lost = waiting(fixture, &barrier, 1).await;
    // All holds of the name are taken from their owners.
    assert!(
        client
            .lock(barrier.name())
            .force_release()
            .await
            .expect("answered")
    );
    let ended = within("it is told", soon(fixture), lost).await;
    let error = ended.expect("no panic").expect_err("lost");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    nothing_is_left(fixture, &client, &barrier).await;
}

/// A member whose hold was taken while it was inside is told so when it leaves: the others need not have waited for it.
pub async fn a_member_that_leaves_is_told_of_its_loss(fixture: &Fixture) {
    let [client, other] = clients(fixture).await;
    let name = unique("solver");
    let barrier = client.barrier(&name, 2);
    let first = waiting(fixture, &barrier, 1).await;
    let second = other.barrier(&name, 2);
    let second = within("the last", soon(fixture), second.enter()).await;
    let members = [second.expect("all"), entered(fixture, first).await];
    let forced = client.lock(&name).force_release().await;
    assert!(forced.expect("answered"), "two members have holds");
    for member in members {
        let left = within("it leaves", soon(fixture), member.leave()).await;
        let error = left.expect_err("its hold was taken");
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    }
    nothing_is_left(fixture, &client, &barrier).await;
}

/// A member that is dropped while it waits leaves nothing, and nobody is let in because of it.
pub async fn a_cancelled_member_leaves_nothing_behind(fixture: &Fixture) {
    let [a, b] = clients(fixture).await;
    let name = unique("solver");
    let [barrier, other] = [a.barrier(&name, 3), b.barrier(&name, 3)];
    let stays = waiting(fixture, &barrier, 1).await;
    let leaves = waiting(fixture, &other, 2).await;
    leaves.abort();
    assert!(leaves.await.is_err_and(|ended| ended.is_cancelled()));
    eventually("it has left", soon(fixture), async || {
        present(&barrier).await == (0, 1)
    })
    .await;
    let second = waiting(fixture, &other, 2).await;
    let third = within("the last", soon(fixture), other.enter())
        .await
        .expect("all");
    let all = [
        third,
        entered(fixture, second).await,
        entered(fixture, stays).await,
    ];
    left(fixture, all).await;
    nothing_is_left(fixture, &a, &barrier).await;
}

/// The drop of a guard leaves without waiting, and wakes the one that waits for it.
pub async fn a_dropped_member_has_left(fixture: &Fixture) {
    let [a, b] = patient_clients(fixture).await;
    let name = unique("solver");
    let [a, b] = [a.barrier(&name, 2), b.barrier(&name, 2)];
    let first = waiting(fixture, &a, 1).await;
    let second = within("the last", soon(fixture), b.enter()).await;
    let second = second.expect("all are there");
    let first = entered(fixture, first).await;
    let leaving = tokio::spawn(second.leave());
    until_looks_are_rare(fixture).await;
    assert!(!leaving.is_finished());
    drop(first);
    let left = within("the message", fixture.soon(), leaving).await;
    left.expect("no panic").expect("the other one has left");
}

/// A wait ends with `Closed` when its client closes. The members of other clients wait on.
pub async fn a_close_ends_the_members_of_its_client(fixture: &Fixture) {
    let [a, b] = clients(fixture).await;
    let name = unique("solver");
    let [stays, ends] = [a.barrier(&name, 3), b.barrier(&name, 3)];
    let one = waiting(fixture, &stays, 1).await;
    let other = waiting(fixture, &ends, 2).await;
    b.close(Duration::ZERO).await;
    let ended = within("the close", soon(fixture), other).await;
    let error = ended.expect("no panic").expect_err("closed");
    let is_told = error.kind() == ErrorKind::Closed || error.kind() == ErrorKind::Lost;
    assert!(is_told, "{error}");
    let error = ends.enter().await.expect_err("closed");
    assert_eq!(error.kind(), ErrorKind::Closed);
    eventually("it has left", soon(fixture), async || {
        present(&stays).await == (0, 1)
    })
    .await;
    one.abort();
}

/// Requests whose replies are lost are repeated, and count once.
pub async fn a_member_whose_replies_are_lost_enters_once(fixture: &Fixture) {
    let name = unique("solver");
    let [client] = clients(fixture).await;
    let (mortal, plug) = fixture.mortal(fixture.builder()).await;
    let (a, b) = (client.barrier(&name, 2), mortal.client().barrier(&name, 2));
    for lost in 1..6 {
        let first = waiting(fixture, &a, 1).await;
        plug.lose_replies(lost);
        let second = within("the last", soon(fixture), b.enter())
            .await
            .expect("all");
        let first = entered(fixture, first).await;
        assert_eq!(first.together().len(), 2);
        assert_eq!(first.together(), second.together());
        plug.lose_replies(lost);
        left(fixture, [first, second]).await;
        eventually("all have left", soon(fixture), async || {
            present(&a).await == (0, 0)
        })
        .await;
    }
}

/// A member that is dropped at any await, while it enters or leaves, leaves nothing, and holds up nobody.
pub async fn a_barrier_cancelled_at_every_await_leaves_nothing(fixture: &Fixture) {
    let [a, b] = clients(fixture).await;
    let name = unique("solver");
    let [mine, other] = [a.barrier(&name, 2), b.barrier(&name, 2)];
    for polls in 0..MAX_AWAITS {
        let stays = other.clone();
        let stays = tokio::spawn(async move { stays.enter().await?.leave().await });
        let both = async { mine.enter().await?.leave().await };
        let done = match poll_times(both, polls, soon(fixture) * 2).await {
            Polled::Done(done) => {
                done.expect("both are there");
                true
            }
            Polled::Dropped => false,
            Polled::Asleep => panic!("nothing woke it after {polls} polls"),
        };
        // The other one has entered and left, or waits for a second one.
        let helper = async {
            while !stays.is_finished() {
                let helped = mine.enter_timeout(fixture.lease() / 20).await;
                match helped {
                    Ok(inside) => inside.leave().await.expect("left"),
                    Err(error) => assert!(gave_up(&error), "{error}"),
                }
            }
        };
        within("the other one goes on", soon(fixture) * 2, helper).await;
        stays.await.expect("no panic").expect("it was helped");
        nothing_is_left(fixture, &a, &mine).await;
        eventually("the clients are idle", soon(fixture), async || {
            a.is_idle() && b.is_idle()
        })
        .await;
        if done {
            return;
        }
    }
    panic!("not done after {MAX_AWAITS} polls");
}
