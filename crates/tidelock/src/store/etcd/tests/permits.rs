//! Permits of a semaphore: attempts, their repetitions, and what operators do with the number.

mod attempts;

use super::*;
use crate::snapshot::Mode;
use crate::store::{PermitChange, PermitCounter};

const NUMBER: &str = "shop/stock/permits";
const HELD: &str = "shop/%permits/stock/held/1a.2";

fn two(patience: Duration) -> AttemptRequest {
    AttemptRequest {
        patience,
        ..ask(LockKind::Permits(2))
    }
}

/// A client of a semaphore with so many permits.
async fn semaphore(server: &ModelServer, total: u32) -> Etcd {
    let etcd = server.client();
    let changed = etcd.change(&stock(), PermitChange::Set(total)).await;
    assert!(changed.unwrap());
    etcd
}

#[tokio::test]
async fn permits_are_held_until_they_are_given_back() {
    for patience in [Duration::ZERO, LIMIT] {
        let server = ModelServer::start().await;
        let etcd = semaphore(&server, 3).await;
        let holds = two(patience);
        assert_eq!(etcd.grants(&holds).await, 0, "there is no token");
        assert_eq!(server.keys(), [HELD, NUMBER]);
        etcd.refuses(&two(Duration::ZERO)).await;
        assert_eq!(server.keys(), [HELD, NUMBER]);
        let kept = etcd.renews(&holds.ticket, LEASE).await;
        assert!(matches!(kept, Renewed::Kept), "{kept:?}");
        let released = etcd.release(&holds.ticket).await.unwrap();
        assert_eq!(released, Released::Freed);
        assert_eq!(server.keys(), [NUMBER]);
    }
}

#[tokio::test]
async fn a_try_that_finds_too_few_permits_asks_for_no_lease() {
    let server = ModelServer::start().await;
    let etcd = semaphore(&server, 1).await;
    etcd.refuses(&two(Duration::ZERO)).await;
    assert!(server.leases().is_empty());
    server.in_turn("Txn", &[Turn::Lost]);
    let error = etcd.fails(&two(Duration::ZERO)).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_waiter_is_woken_when_permits_come_back() {
    let server = ModelServer::start().await;
    let etcd = semaphore(&server, 3).await;
    let (holds, waits) = (two(LIMIT), two(LIMIT));
    etcd.grants(&holds).await;
    let wait = etcd.refuses(&waits).await;
    assert_eq!(wait.recheck, Some(LEASE / 3));
    let place = "shop/%permits/stock/waiting/1b.2";
    assert!(server.key(place).is_some());
    etcd.release(&holds.ticket).await.unwrap();
    in_time(wait.wake.unwrap().woken()).await;
    etcd.grants(&waits).await;
    assert!(server.key(place).is_none());
    let released = etcd.release(&waits.ticket).await.unwrap();
    assert_eq!(released, Released::Freed);
}

#[tokio::test]
async fn a_waiter_is_woken_when_the_number_grows() {
    let server = ModelServer::start().await;
    let etcd = semaphore(&server, 1).await;
    let waits = two(LIMIT);
    let wait = etcd.refuses(&waits).await;
    etcd.change(&stock(), PermitChange::Add(1)).await.unwrap();
    in_time(wait.wake.unwrap().woken()).await;
    etcd.grants(&waits).await;
}

#[tokio::test]
async fn a_waiter_that_leaves_held_no_permits() {
    let server = ModelServer::start().await;
    let etcd = semaphore(&server, 1).await;
    let waits = two(LIMIT);
    etcd.refuses(&waits).await;
    let left = etcd.withdraw(&waits.ticket).await.unwrap();
    assert_eq!(left, Released::NotHeld);
    assert_eq!(server.keys(), [NUMBER]);
}

#[tokio::test]
async fn a_grant_whose_reply_was_lost_is_found_by_the_next_attempt() {
    let server = ModelServer::start().await;
    let etcd = semaphore(&server, 3).await;
    let waits = two(LIMIT);
    server.in_turn("Txn", &[Turn::Usual, Turn::Lost]);
    let error = etcd.fails(&waits).await;
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    assert_eq!(server.keys(), [HELD, NUMBER]);
    etcd.grants(&waits).await;
    assert_eq!(server.keys(), [HELD, NUMBER]);
    let released = etcd.release(&waits.ticket).await.unwrap();
    assert_eq!(released, Released::Freed);
}

#[tokio::test]
async fn a_withdrawal_after_a_lost_reply_gives_the_permits_back() {
    for turns in [&[Turn::Usual, Turn::Lost][..], &[Turn::Lost]] {
        let server = ModelServer::start().await;
        let etcd = semaphore(&server, 3).await;
        let waits = two(LIMIT);
        server.in_turn("Txn", turns);
        etcd.fails(&waits).await;
        etcd.withdraw(&waits.ticket).await.unwrap();
        assert_eq!(server.keys(), [NUMBER]);
        assert!(server.leases().is_empty());
    }
}

/// It has written the place of the ticket before, so the attempt as a whole may have had an effect.
#[tokio::test]
async fn a_step_that_fails_after_one_that_wrote_leaves_the_outcome_open() {
    let server = ModelServer::start().await;
    let etcd = semaphore(&server, 3).await;
    server.in_turn("Txn", &[Turn::Usual, NO_LEADER]);
    let error = etcd.fails(&two(LIMIT)).await;
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    // The first step has written nothing.
    server.in_turn("Txn", &[NO_LEADER]);
    let error = etcd.fails(&two(LIMIT)).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_holder_whose_keep_alive_has_failed_may_hold_its_permits() {
    let server = ModelServer::start().await;
    let etcd = semaphore(&server, 3).await;
    let holds = two(LIMIT);
    etcd.grants(&holds).await;
    server.in_turn("LeaseKeepAlive", &[NO_LEADER]);
    let error = etcd.fails(&holds).await;
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    etcd.grants(&holds).await;
}

#[tokio::test]
async fn a_waiter_whose_lease_has_ended_gets_another_and_enters_again() {
    let server = ModelServer::start().await;
    let etcd = semaphore(&server, 1).await;
    let waits = two(LIMIT);
    etcd.refuses(&waits).await;
    server.etcd(|model| model.end_lease(FIRST));
    etcd.refuses(&waits).await;
    let place = server.key("shop/%permits/stock/waiting/1a.2").unwrap();
    assert_eq!(place.lease, FIRST + 1);
    server.etcd(|model| model.end_lease(FIRST + 1));
    etcd.change(&stock(), PermitChange::Set(2)).await.unwrap();
    etcd.grants(&waits).await;
    assert_eq!(server.key(HELD).unwrap().lease, FIRST + 2);
}

/// Without patience it takes a place after some steps that others were faster in, and gives it up if there are too few.
#[tokio::test]
async fn a_try_that_others_overtake_leaves_no_place() {
    let server = ModelServer::start().await;
    let etcd = semaphore(&server, 9).await;
    let comes = Turn::Meanwhile(|model| {
        let lease = model.grant(60);
        let key = format!("shop/%permits/stock/held/{lease:x}.2");
        model.put_by_hand(&key, "another:1", lease);
    });
    // The look, and three grants.
    server.in_turn("Txn", &[Turn::Usual, comes, comes, comes, comes]);
    let tries = two(Duration::ZERO);
    etcd.refuses(&tries).await;
    let waiting = "shop/%permits/stock/waiting/";
    assert!(!server.keys().iter().any(|key| key.starts_with(waiting)));
    // Nothing of it is left that would hinder its release.
    let withdrawn = etcd.withdraw(&tries.ticket).await.unwrap();
    assert_eq!(withdrawn, Released::NotHeld);
}

#[tokio::test]
async fn a_lock_and_a_semaphore_refuse_each_others_names() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let lock = ask(LockKind::Mutex);
    etcd.grants(&lock).await;
    for patience in [Duration::ZERO, LIMIT] {
        let error = etcd.fails(&two(patience)).await;
        assert_eq!(error.kind(), ErrorKind::WrongType, "{patience:?}");
    }
    let error = etcd.change(&stock(), PermitChange::Add(1)).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::WrongType);
    assert!(server.key(NUMBER).is_none());
}

#[tokio::test]
async fn a_change_of_the_number_tells_whether_it_changed_it() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    for (change, is_changed, total) in [
        (PermitChange::SetIfNew(3), true, "3"),
        (PermitChange::SetIfNew(5), false, "3"),
        (PermitChange::Set(3), false, "3"),
        (PermitChange::Set(4), true, "4"),
        (PermitChange::Add(-1), true, "3"),
        (PermitChange::Add(0), false, "3"),
    ] {
        let changed = etcd.change(&stock(), change).await.unwrap();
        assert_eq!(changed, is_changed, "{change:?}");
        let number = server.key(NUMBER).unwrap();
        assert_eq!(number.value, total.as_bytes(), "{change:?}");
    }
    // Another client changes it between the look and the change.
    let meanwhile = Turn::Meanwhile(|model| model.put_by_hand(NUMBER, "10", 0));
    server.in_turn("Txn", &[Turn::Usual, meanwhile]);
    etcd.change(&stock(), PermitChange::Add(1)).await.unwrap();
    assert_eq!(server.key(NUMBER).unwrap().value, b"11");
    server.in_turn("Txn", &[Turn::Usual, Turn::Lost]);
    let error = etcd.change(&stock(), PermitChange::Add(1)).await;
    assert!(error.unwrap_err().outcome_unknown());
    server.in_turn("Txn", &[Turn::Lost]);
    let error = etcd.change(&stock(), PermitChange::Add(1)).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_semaphore_is_shown_with_its_holders_and_waiters() {
    let server = ModelServer::start().await;
    let etcd = semaphore(&server, 3).await;
    let holds = two(LIMIT);
    etcd.grants(&holds).await;
    etcd.refuses(&two(LIMIT)).await;
    let seen = etcd.inspect(&stock()).await.unwrap();
    let permits = seen.permits.unwrap();
    assert_eq!((permits.available, permits.total), (1, 3));
    assert_eq!((seen.waiters, seen.expires_in), (Some(1), Some(LEASE)));
    assert_eq!(seen.holders.len(), 1);
    let holder = &seen.holders[0];
    assert_eq!((holder.mode, holder.holds), (Mode::Permits, 2));
    assert_eq!(holder.owner, holds.ticket.owner.permit_id(0));
    server.set(|settings| settings.left = Some(0));
    let seen = etcd.inspect(&stock()).await.unwrap();
    assert_eq!(seen.expires_in, Some(Duration::from_millis(1)));
    let listed = etcd.list("st*", None).await.unwrap();
    assert_eq!(
        (listed.names, listed.next),
        (vec!["stock".to_owned()], None)
    );
}

#[tokio::test]
async fn permits_are_taken_back_by_force_from_those_that_were_seen() {
    let server = ModelServer::start().await;
    let etcd = semaphore(&server, 4).await;
    let name = stock();
    assert!(!etcd.force_release(&name, None).await.unwrap());
    etcd.grants(&two(LIMIT)).await;
    let seen = etcd.inspect(&name).await.unwrap();
    let late = two(LIMIT);
    etcd.grants(&late).await;
    let freed = etcd.force_release(&name, Some(&seen)).await.unwrap();
    assert!(!freed, "another holder has come");
    etcd.release(&late.ticket).await.unwrap();
    let freed = etcd.force_release(&name, Some(&seen)).await.unwrap();
    assert!(freed);
    etcd.grants(&two(Duration::ZERO)).await;
    assert!(etcd.force_release(&name, None).await.unwrap());
    assert_eq!(server.keys(), [NUMBER]);
}
