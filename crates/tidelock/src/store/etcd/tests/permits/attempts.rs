//! Attempts that are repeated, or that others come between: which keys and leases they use, and what an error means.

use super::*;
use crate::store::etcd::api::{Op, TxnRequest};

const PLACE: &str = "shop/%permits/stock/waiting/1a.2";

#[tokio::test]
async fn a_refused_ticket_keeps_its_place_in_a_queue() {
    let server = ModelServer::start().await;
    let etcd = semaphore(&server, 1).await;
    assert!(etcd.queues());
    etcd.refuses(&two(LIMIT)).await;
    assert!(server.key(PLACE).is_some());
}

#[tokio::test]
async fn a_waiter_that_has_a_wake_gets_no_second_one() {
    let server = ModelServer::start().await;
    let etcd = semaphore(&server, 1).await;
    let waits = two(LIMIT);
    let first = etcd.refuses(&waits).await;
    let again = AttemptRequest {
        armed_by: Some(0),
        ..waits
    };
    let second = etcd.refuses(&again).await;
    assert!(first.wake.is_some() && second.wake.is_none());
    assert_eq!(second.recheck, Some(LEASE / 3));
}

#[tokio::test]
async fn permits_that_are_given_back_leave_their_lease_to_the_next_ticket() {
    let server = ModelServer::start().await;
    let etcd = semaphore(&server, 3).await;
    for _ in 0..2 {
        let holds = two(LIMIT);
        etcd.grants(&holds).await;
        assert_eq!(server.key(HELD).unwrap().lease, FIRST);
        etcd.release(&holds.ticket).await.unwrap();
    }
    assert_eq!(server.connections("LeaseGrant").len(), 1);
    assert_eq!(server.leases(), [FIRST]);
}

/// While a ticket's key is there, its lease has no key of an earlier ticket.
#[tokio::test]
async fn a_waiter_is_granted_its_permits_under_its_lease_when_the_store_has_gone_back() {
    let server = ModelServer::start().await;
    let etcd = semaphore(&server, 1).await;
    let waits = two(LIMIT);
    etcd.refuses(&waits).await;
    server.etcd(|model| {
        model.put_by_hand(NUMBER, "2", 0);
        model.revision = 1;
    });
    etcd.grants(&waits).await;
    assert_eq!(server.key(HELD).unwrap().lease, FIRST);
    assert_eq!(server.leases(), [FIRST]);
}

/// Its second attempt has a lease already, so it looks after that and not before.
#[tokio::test]
async fn a_try_that_fails_after_its_look_has_written_nothing() {
    let server = ModelServer::start().await;
    let etcd = semaphore(&server, 3).await;
    let tries = two(Duration::ZERO);
    for _ in 0..2 {
        server.in_turn("Txn", &[Turn::Usual, NO_LEADER]);
        let error = etcd.fails(&tries).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(server.keys(), [NUMBER]);
    }
    etcd.grants(&tries).await;
}

#[tokio::test]
async fn a_try_that_is_repeated_only_reads_if_there_are_too_few_permits() {
    let server = ModelServer::start().await;
    let etcd = semaphore(&server, 3).await;
    let tries = two(Duration::ZERO);
    server.in_turn("Txn", &[Turn::Usual, NO_LEADER]);
    etcd.fails(&tries).await;
    etcd.change(&stock(), PermitChange::Set(1)).await.unwrap();
    server.forget_heard();
    etcd.refuses(&tries).await;
    let txns = server.heard::<TxnRequest>("Txn");
    assert_eq!(txns.len(), 1);
    let mut ops = txns[0].success.iter().chain(&txns[0].failure);
    assert!(ops.all(|op| matches!(op.op, Some(Op::Range(_)))));
}

/// The step that was refused has written nothing, but one before it has written the place of the ticket.
#[tokio::test]
async fn a_step_that_fails_after_one_that_was_refused_leaves_the_outcome_open() {
    let server = ModelServer::start().await;
    let etcd = semaphore(&server, 3).await;
    let changes = Turn::Meanwhile(|model| model.put_by_hand(NUMBER, "4", 0));
    server.in_turn("Txn", &[Turn::Usual, changes, NO_LEADER]);
    let error = etcd.fails(&two(LIMIT)).await;
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    assert!(server.key(PLACE).is_some());
}

#[tokio::test]
async fn a_waiter_whose_place_goes_between_two_steps_takes_another() {
    let server = ModelServer::start().await;
    let etcd = semaphore(&server, 3).await;
    // It would have been granted its permits in this step.
    let comes = Turn::Meanwhile(|model| {
        model.delete_by_hand(PLACE);
        let lease = model.grant(60);
        let key = format!("shop/%permits/stock/held/{lease:x}.2");
        model.put_by_hand(&key, "another:1", lease);
    });
    server.in_turn("Txn", &[Turn::Usual, comes]);
    etcd.refuses(&two(LIMIT)).await;
    assert!(server.key(PLACE).is_some());
}
