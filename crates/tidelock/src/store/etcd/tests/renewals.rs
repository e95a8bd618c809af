//! Renewals: what is told of a hold by its key and its lease, and a key that moves to a longer lease.

mod moves;
mod warnings;

use super::*;
use crate::store::etcd::api::TxnRequest;

const KEY: &str = "shop/stock/1a";

/// A ticket that holds the lock of this name.
async fn held(etcd: &Etcd, name: &str) -> Ticket {
    let one = Ticket {
        name: Name::new(name).unwrap(),
        ..ticket(LockKind::Mutex)
    };
    let ask = AttemptRequest::once(one.clone(), LEASE, ReplicaAck::Off);
    etcd.grants(&ask).await;
    one
}

/// Renews some holds together. Of each, what was told, and of a failed one its kind.
async fn renewed(etcd: &Etcd, tickets: &[Ticket]) -> Result<Vec<String>> {
    let one = |ticket: &Ticket| Renewal {
        ticket: ticket.clone(),
        lease: LEASE,
        wish: ReplicaAck::Off,
    };
    let batch: Vec<Renewal> = tickets.iter().map(one).collect();
    let told = etcd.renew(&batch).await?.into_iter();
    let told = told.map(|one| match one {
        Renewed::Failed(error) => format!("{:?}", error.kind()),
        other => format!("{other:?}"),
    });
    Ok(told.collect())
}

#[tokio::test]
async fn a_hold_has_gone_with_its_key_or_its_lease_or_its_place_in_the_queue() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let mut tickets = Vec::new();
    for name in ["kept", "deleted", "ended", "again", "others"] {
        tickets.push(held(&etcd, name).await);
    }
    server.etcd(|model| {
        model.delete_by_hand("shop/deleted/1b");
        model.end_lease(FIRST + 2);
        // Written again, it is behind those that came meanwhile.
        let again = model.key("shop/again/1d").unwrap().clone();
        model.delete_by_hand("shop/again/1d");
        let value = String::from_utf8(again.value).unwrap();
        model.put_by_hand("shop/again/1d", &value, again.lease);
        model.put_by_hand("shop/others/1e", "another", FIRST + 4);
    });
    let told = renewed(&etcd, &tickets).await.unwrap();
    assert_eq!(told, ["Kept", "Gone", "Gone", "Gone", "Gone"]);
}

#[tokio::test]
async fn a_ticket_that_was_never_granted_a_lease_has_gone() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let unknown = ticket(LockKind::Mutex);
    let told = renewed(&etcd, std::slice::from_ref(&unknown)).await;
    assert_eq!(told.unwrap(), ["Gone"]);
    assert!(server.connections("Txn").is_empty());
    // Beside others it takes the answer of none of them.
    let kept = held(&etcd, "kept").await;
    let told = renewed(&etcd, &[unknown, kept]).await.unwrap();
    assert_eq!(told, ["Gone", "Kept"]);
}

#[tokio::test]
async fn a_key_that_a_user_may_not_read_fails_alone() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let mut tickets = Vec::new();
    for name in ["a", "b", "secret", "d", "e"] {
        tickets.push(held(&etcd, name).await);
    }
    server.set(|settings| settings.forbidden = Some("secret"));
    for guards_leases in [false, true] {
        server.set(|settings| settings.guards_leases = guards_leases);
        let told = renewed(&etcd, &tickets).await.unwrap();
        assert_eq!(told, ["Kept", "Kept", "Refused", "Kept", "Kept"]);
    }
    // Alone, it is not asked for again and again.
    server.forget_heard();
    let error = renewed(&etcd, &tickets[2..3]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(server.connections("Txn").len(), 1);
}

/// As by etcd 3.7, for a key that the user may read and no longer write.
#[tokio::test]
async fn a_lease_that_the_server_refuses_to_keep_alive_costs_no_other_hold() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let tickets = [held(&etcd, "a").await, held(&etcd, "b").await];
    let denied = Turn::Fails(Code::PermissionDenied, "etcdserver: permission denied");
    server.in_turn("LeaseKeepAlive", &[denied, denied, Turn::Usual]);
    let told = renewed(&etcd, &tickets).await.unwrap();
    assert_eq!(told, ["Refused", "Kept"]);
    assert_eq!(renewed(&etcd, &tickets).await.unwrap(), ["Kept"; 2]);
}

#[tokio::test]
async fn a_server_that_allows_few_operations_is_asked_in_parts() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let mut tickets = Vec::new();
    for number in 0..7 {
        tickets.push(held(&etcd, &format!("lock {number}")).await);
    }
    server.set(|settings| settings.most_ops = 2);
    let told = renewed(&etcd, &tickets).await.unwrap();
    assert_eq!(told, ["Kept"; 7]);
}

#[tokio::test]
async fn an_error_that_concerns_all_is_not_asked_about_in_parts() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let tickets = [held(&etcd, "a").await, held(&etcd, "b").await];
    for (turn, kind) in [
        (NO_LEADER, ErrorKind::Unavailable),
        (Turn::Lost, ErrorKind::OutcomeUnknown),
    ] {
        server.forget_heard();
        server.in_turn("Txn", &[turn]);
        let error = renewed(&etcd, &tickets).await.unwrap_err();
        assert_eq!(error.kind(), kind);
        assert_eq!(server.connections("Txn").len(), 1);
    }
    server.in_turn("LeaseKeepAlive", &[NO_LEADER]);
    let error = renewed(&etcd, &tickets).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(renewed(&etcd, &tickets).await.unwrap(), ["Kept"; 2]);
}

#[tokio::test]
async fn more_holds_than_a_transaction_may_have_are_renewed_in_their_order() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let mut tickets = Vec::new();
    for number in 0..101 {
        tickets.push(held(&etcd, &format!("lock {number}")).await);
    }
    server.etcd(|model| model.end_lease(FIRST + 100));
    server.forget_heard();
    let told = renewed(&etcd, &tickets).await.unwrap();
    let gone = told.iter().position(|one| one == "Gone");
    assert_eq!((told.len(), gone), (101, Some(100)));
    let reads = server.heard::<TxnRequest>("Txn").into_iter();
    let mut reads: Vec<usize> = reads.map(|txn| txn.success.len()).collect();
    reads.sort_unstable();
    assert_eq!(reads, [1, 100]);
}

#[tokio::test]
async fn a_longer_lease_moves_the_key_and_keeps_its_place() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let one = held(&etcd, "stock").await;
    let before = server.key(KEY).unwrap();
    let kept = etcd.renews(&one, LEASE * 2).await;
    assert!(matches!(kept, Renewed::Kept), "{kept:?}");
    etcd.settles().await;
    let after = server.key(KEY).unwrap();
    assert_eq!(after.create_revision, before.create_revision);
    assert_eq!(server.ttl_of(KEY), Some(60));
    assert_eq!(server.leases(), [after.lease]);
    // From now on it is long enough, also for a shorter one.
    for lease in [LEASE, LEASE * 2] {
        etcd.renews(&one, lease).await;
    }
    assert_eq!(server.leases(), [after.lease]);
    let released = etcd.release(&one).await.unwrap();
    assert_eq!(released, Released::Freed);
}

#[tokio::test]
async fn a_move_whose_reply_was_lost_is_found_out_by_the_next_renewals() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let one = held(&etcd, "stock").await;
    server.in_turn("Txn", &[Turn::Usual, Turn::Lost]);
    let failed = etcd.renews(&one, LEASE * 2).await;
    let Renewed::Failed(error) = failed else {
        panic!("{failed:?}");
    };
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    let moved = server.key(KEY).unwrap().lease;
    assert_ne!(moved, FIRST);
    // The lease that a late request may still use lives on as well.
    assert_eq!(etcd.shared.ticket_leases.in_doubt(&one), [FIRST]);
    server.forget_heard();
    let kept = etcd.renews(&one, LEASE * 2).await;
    assert!(matches!(kept, Renewed::Kept), "{kept:?}");
    assert!(server.heard_of("LeaseKeepAlive").contains(&FIRST));
}

#[tokio::test]
async fn a_move_that_did_not_arrive_is_found_out_by_the_next_renewals() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let one = held(&etcd, "stock").await;
    let late = Turn::Fails(Code::Unavailable, "etcdserver: request timed out");
    server.in_turn("Txn", &[Turn::Usual, late]);
    etcd.renews(&one, LEASE * 2).await;
    assert_eq!(server.key(KEY).unwrap().lease, FIRST);
    // It took the new lease for that of the key.
    let failed = etcd.renews(&one, LEASE * 2).await;
    let Renewed::Failed(error) = failed else {
        panic!("{failed:?}");
    };
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    let kept = etcd.renews(&one, LEASE * 2).await;
    assert!(matches!(kept, Renewed::Kept), "{kept:?}");
    assert_eq!(server.ttl_of(KEY), Some(60));
}

#[tokio::test]
async fn a_key_that_goes_before_it_moves_is_told_and_its_new_lease_is_given_back() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let one = held(&etcd, "stock").await;
    let goes = Turn::Meanwhile(|model| model.delete_by_hand(KEY));
    server.in_turn("Txn", &[Turn::Usual, goes]);
    let gone = etcd.renews(&one, LEASE * 2).await;
    assert!(matches!(gone, Renewed::Gone), "{gone:?}");
    etcd.settles().await;
    assert_eq!(server.leases(), [FIRST]);
}

/// Another renewal has moved it: the later request must not take it from a longer lease.
#[tokio::test]
async fn a_key_that_moves_elsewhere_before_it_moves_stays_there() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let one = held(&etcd, "stock").await;
    let moves = Turn::Meanwhile(|model| {
        let value = String::from_utf8(model.key(KEY).unwrap().value.clone()).unwrap();
        let longer = model.grant(90);
        model.put_by_hand(KEY, &value, longer);
    });
    server.in_turn("Txn", &[Turn::Usual, moves]);
    let failed = etcd.renews(&one, LEASE * 2).await;
    assert!(matches!(failed, Renewed::Failed(_)), "{failed:?}");
    assert_eq!(server.ttl_of(KEY), Some(90));
}

#[tokio::test]
async fn a_writer_whose_place_a_reader_has_taken_moves_without_it() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let writer = ask(LockKind::Write);
    etcd.grants(&writer).await;
    let place = "shop/stock/read/1a.downgrade";
    etcd.renews(&writer.ticket, LEASE * 2).await;
    assert_eq!(server.ttl_of(place), Some(60));
    let reader = AttemptRequest {
        downgrade_of: Some(writer.ticket.owner.clone()),
        ..ask(LockKind::Read)
    };
    etcd.grants(&reader).await;
    assert_eq!(server.ttl_of(place), Some(30));
    let kept = etcd.renews(&writer.ticket, LEASE * 3).await;
    assert!(matches!(kept, Renewed::Kept), "{kept:?}");
    assert_eq!(server.ttl_of("shop/stock/write/1a"), Some(90));
    let kept = etcd.renews(&reader.ticket, LEASE * 4).await;
    assert!(matches!(kept, Renewed::Kept), "{kept:?}");
    assert_eq!(server.ttl_of(place), Some(120));
}
