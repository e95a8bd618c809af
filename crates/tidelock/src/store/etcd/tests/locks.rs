//! Attempts: which of them are granted, which key and lease they leave, and what becomes of one whose reply is lost.

use super::*;
use crate::store::etcd::api::{LeaseResponse, Op, TxnRequest};

const FIRST_KEY: &str = "shop/stock/1a";

/// The error of a put under a lease that has ended.
const LEASE_GONE: Turn = Turn::Fails(Code::NotFound, "etcdserver: requested lease not found");

/// Whether a transaction may write.
fn writes(txn: &TxnRequest) -> bool {
    let mut ops = txn.success.iter().chain(&txn.failure);
    ops.any(|op| !matches!(op.op, Some(Op::Range(_))))
}

#[tokio::test]
async fn a_grant_has_a_key_as_etcdctl_writes_it_and_its_revision_is_the_token() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let ask = AttemptRequest {
        lease: Duration::from_millis(29_001),
        ..ask(LockKind::Fenced)
    };
    server.etcd(|model| model.put_by_hand("other", "", 0));
    let token = etcd.grants(&ask).await;
    let key = server.key(FIRST_KEY).unwrap();
    assert_eq!(token, token_at(key.create_revision));
    assert_eq!(key.value, ask.ticket.owner.text().as_bytes());
    assert_eq!(key.lease, FIRST);
    assert_eq!(server.ttl_of(FIRST_KEY), Some(30));
}

#[tokio::test]
async fn each_request_asks_for_a_member_that_has_a_leader() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    etcd.grants(&ask(LockKind::Mutex)).await;
    let calls = [server.tokens("LeaseGrant"), server.tokens("Txn")].concat();
    assert_eq!(calls, [(None, true), (None, true)]);
}

#[tokio::test]
async fn a_try_of_a_held_lock_leaves_no_key_and_the_next_one_only_reads() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    etcd.grants(&ask(LockKind::Mutex)).await;
    let wait = etcd.refuses(&ask(LockKind::Mutex)).await;
    assert!(wait.wake.is_none() && wait.recheck.is_none());
    assert_eq!(server.keys(), [FIRST_KEY]);
    let ticket_leases = &etcd.shared.ticket_leases;
    assert!(ticket_leases.is_taken(&stock()));
    server.forget_heard();
    ticket_leases.taken(&stock());
    etcd.refuses(&ask(LockKind::Mutex)).await;
    let txns = server.heard::<TxnRequest>("Txn");
    assert_eq!(txns.len(), 1);
    assert!(!writes(&txns[0]));
    assert!(server.connections("LeaseGrant").is_empty());
}

#[tokio::test]
async fn a_lock_that_was_taken_a_moment_ago_is_granted_if_it_is_free_by_now() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    etcd.shared.ticket_leases.taken(&stock());
    etcd.grants(&ask(LockKind::Mutex)).await;
    assert_eq!(server.keys(), [FIRST_KEY]);
}

#[tokio::test]
async fn a_look_that_fails_has_changed_nothing() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    etcd.shared.ticket_leases.taken(&stock());
    server.in_turn("Txn", &[Turn::Lost]);
    let error = etcd.fails(&ask(LockKind::Mutex)).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_waiter_is_woken_by_the_release_ahead_of_it_and_holds_the_lock_by_its_place() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let (holds, waits) = (ask(LockKind::Mutex), patient(LockKind::Mutex));
    etcd.grants(&holds).await;
    let Wait { wake, recheck, .. } = etcd.refuses(&waits).await;
    assert_eq!(recheck, Some(LEASE / 3));
    let place = server.key("shop/stock/1b").unwrap();
    assert_eq!(etcd.release(&holds.ticket).await.unwrap(), Released::Freed);
    in_time(wake.unwrap().woken()).await;
    assert_eq!(etcd.grants(&waits).await, token_at(place.create_revision));
    assert_eq!(server.key("shop/stock/1b"), Some(place));
}

#[tokio::test]
async fn a_waiter_that_asks_again_keeps_its_place_and_its_lease() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    etcd.grants(&ask(LockKind::Mutex)).await;
    let waits = patient(LockKind::Mutex);
    let first = etcd.refuses(&waits).await;
    let place = server.key("shop/stock/1b");
    assert!(server.heard_of("LeaseKeepAlive").is_empty());
    let again = AttemptRequest {
        armed_by: Some(0),
        ..waits.clone()
    };
    let second = etcd.refuses(&again).await;
    assert!(first.wake.is_some() && second.wake.is_none());
    assert_eq!(server.key("shop/stock/1b"), place);
    assert_eq!(server.heard_of("LeaseKeepAlive"), [FIRST + 1]);
}

/// A spare lease is old: a grant under it counts only after a keep-alive, also if the lock was just found taken.
#[tokio::test]
async fn a_grant_under_a_spare_lease_counts_after_a_keep_alive() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    for round in 0..2 {
        let ask = patient(LockKind::Mutex);
        etcd.shared.ticket_leases.taken(&stock());
        etcd.grants(&ask).await;
        assert_eq!(server.heard_of("LeaseKeepAlive").len(), round);
        etcd.release(&ask.ticket).await.unwrap();
    }
    assert_eq!(server.connections("LeaseGrant").len(), 1);
    assert_eq!(server.leases(), [FIRST]);
}

#[tokio::test]
async fn an_attempt_whose_keep_alive_has_failed_may_have_written_its_key() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let ask = ask(LockKind::Mutex);
    etcd.grants(&ask).await;
    server.in_turn("LeaseKeepAlive", &[NO_LEADER]);
    let error = etcd.fails(&ask).await;
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    etcd.grants(&ask).await;
}

#[tokio::test]
async fn a_waiter_whose_lease_has_ended_gets_another_and_enters_again() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    etcd.grants(&ask(LockKind::Mutex)).await;
    let waits = patient(LockKind::Mutex);
    etcd.refuses(&waits).await;
    server.etcd(|model| model.end_lease(FIRST + 1));
    etcd.refuses(&waits).await;
    // Its first lease names the key.
    assert_eq!(server.key("shop/stock/1b").unwrap().lease, FIRST + 2);
    etcd.withdraw(&waits.ticket).await.unwrap();
    assert_eq!(server.keys(), [FIRST_KEY]);
}

#[tokio::test]
async fn an_attempt_gives_up_if_each_new_lease_has_ended_at_once() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    server.in_turn("Txn", &[LEASE_GONE; 3]);
    let error = etcd.fails(&ask(LockKind::Mutex)).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(server.connections("LeaseGrant").len(), 3);
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn an_attempt_repeated_after_a_lost_reply_finds_its_own_grant() {
    for patience in [Duration::ZERO, LIMIT] {
        let server = ModelServer::start().await;
        let etcd = server.client();
        let ask = AttemptRequest {
            patience,
            ..ask(LockKind::Mutex)
        };
        server.in_turn("Txn", &[Turn::Lost]);
        let error = etcd.fails(&ask).await;
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
        let key = server.key(FIRST_KEY).unwrap();
        let token = etcd.grants(&ask).await;
        assert_eq!(token, token_at(key.create_revision));
        let released = etcd.release(&ask.ticket).await.unwrap();
        assert_eq!(released, Released::Freed);
        assert!(server.keys().is_empty());
        // The first request may still be on its way, so nobody else gets that lease.
        etcd.settles().await;
        assert!(server.leases().is_empty());
    }
}

#[tokio::test]
async fn a_request_that_certainly_failed_leaves_its_lease_to_the_next_ticket() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let busy = Turn::Fails(Code::ResourceExhausted, "etcdserver: too many requests");
    server.in_turn("Txn", &[busy]);
    let first = ask(LockKind::Mutex);
    let error = etcd.fails(&first).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    etcd.grants(&first).await;
    etcd.release(&first.ticket).await.unwrap();
    etcd.grants(&ask(LockKind::Mutex)).await;
    assert_eq!(server.leases(), [FIRST]);
}

#[tokio::test]
async fn a_grant_whose_lease_could_not_be_had_has_changed_nothing() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    server.in_turn("LeaseGrant", &[Turn::Lost]);
    let error = etcd.fails(&ask(LockKind::Mutex)).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    for (id, ttl) in [(7, 29), (0, 30), (-7, 30)] {
        let granted = LeaseResponse { id, ttl };
        server.set(|settings| settings.granted = Some(granted));
        let error = etcd.fails(&ask(LockKind::Mutex)).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{id} {ttl}");
    }
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn a_key_of_another_client_with_the_name_of_the_tickets_key_is_refused() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    server.etcd(|model| {
        let lease = model.grant(60);
        model.put_by_hand("shop/stock/1b", "a stranger", lease);
    });
    let error = etcd.fails(&patient(LockKind::Mutex)).await;
    assert_eq!(error.kind(), ErrorKind::WrongType);
}

#[tokio::test]
async fn a_try_of_a_semaphore_as_a_lock_is_refused_however_it_is_noticed() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    server.etcd(|model| model.put_by_hand("shop/stock/permits", "3", 0));
    for was_taken in [false, true] {
        if was_taken {
            etcd.shared.ticket_leases.taken(&stock());
        }
        let error = etcd.fails(&ask(LockKind::Mutex)).await;
        assert_eq!(error.kind(), ErrorKind::WrongType, "{was_taken}");
    }
    assert_eq!(server.keys(), ["shop/stock/permits"]);
}

#[tokio::test]
async fn a_try_behind_a_foreign_key_is_refused_however_it_is_noticed() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    server.etcd(|model| model.put_by_hand("shop/stock/readme", "", 0));
    for was_taken in [false, true] {
        if was_taken {
            etcd.shared.ticket_leases.taken(&stock());
        }
        let error = etcd.fails(&ask(LockKind::Mutex)).await;
        assert_eq!(error.kind(), ErrorKind::WrongType, "{was_taken}");
    }
}

/// The store was restored from a snapshot that has the key of a lock that was released since.
#[tokio::test]
async fn a_spare_lease_that_has_a_key_of_an_earlier_ticket_is_ended() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let mint = OwnerMint::new();
    let by = |owner| AttemptRequest {
        ticket: Ticket {
            owner,
            ..ticket(LockKind::Mutex)
        },
        ..ask(LockKind::Mutex)
    };
    let (earlier, next) = (by(mint.fresh()), by(mint.fresh()));
    etcd.grants(&earlier).await;
    etcd.release(&earlier.ticket).await.unwrap();
    let left = earlier.ticket.owner.text();
    server.etcd(|model| model.put_by_hand(FIRST_KEY, left, FIRST));
    etcd.grants(&next).await;
    assert_eq!(server.leases(), [FIRST + 1]);
    let key = server.key(FIRST_KEY).unwrap();
    assert_eq!(key.value, next.ticket.owner.text().as_bytes());
}

#[tokio::test]
async fn a_store_that_has_gone_back_ends_the_leases_that_were_used_before() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let first = ask(LockKind::Mutex);
    etcd.grants(&first).await;
    etcd.release(&first.ticket).await.unwrap();
    server.etcd(|model| model.revision = 0);
    etcd.grants(&ask(LockKind::Mutex)).await;
    assert_eq!(server.leases(), [FIRST + 1]);
    assert_eq!(server.key(FIRST_KEY).unwrap().lease, FIRST + 1);
}
