//! Tests of renewals in many slots, beside a scripted node that has all of them.

use super::*;
use crate::store::redis::tests::{LEASE, ticket};
use crate::store::redis::wire::tests::ScriptedServer;
use crate::store::{Name, ReplicaAck};

fn renewal(kind: LockKind, name: &str) -> Renewal {
    Renewal {
        ticket: Ticket {
            name: Name::new(name).unwrap(),
            ..ticket(kind)
        },
        lease: LEASE,
        wish: ReplicaAck::Off,
    }
}

/// Renews locks of two slots. Returns the results, with `None` for an error of the whole batch, and the calls of the
/// scripts: that of the node, and those of the slots.
async fn renew(node: &str, slots: &[&str]) -> (Option<Vec<Renewed>>, usize, usize) {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::RENEW_SLOTS, node);
    server.in_turn(&format!("EVALSHA {}", scripts::RENEW.sha()), slots);
    let store = server.cluster().await;
    let batch = ["stock", "price"].map(|name| renewal(LockKind::Mutex, name));
    let renewed = store.front.renew(&batch).await.ok();
    let each = [&scripts::RENEW_SLOTS, &scripts::RENEW];
    let [at_node, at_slots] = each.map(|script| server.calls(script).len());
    (renewed, at_node, at_slots)
}

#[tokio::test]
async fn locks_of_many_slots_share_a_request_and_only_a_lock_that_is_kept_is_settled_by_it() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::RENEW_SLOTS, "[ 1 0 ]");
    server.on_script(&scripts::RENEW, "[ 1 ]");
    let store = server.cluster().await;
    let batch = ["stock", "price"].map(|name| renewal(LockKind::Mutex, name));
    assert_ne!(slots::of("stock"), slots::of("price"));
    let renewed = store.front.renew(&batch).await.unwrap();
    assert!(
        matches!(renewed[..], [Renewed::Kept, Renewed::Kept]),
        "{renewed:?}"
    );
    let [stock, price] = batch.each_ref().map(|one| one.ticket.owner.text());
    let at_node = [format!(" | stock 30000 {stock} price 30000 {price}")];
    assert_eq!(server.calls(&scripts::RENEW_SLOTS), at_node);
    let at_slots = [format!("price | 30000 {price} settling")];
    assert_eq!(server.calls(&scripts::RENEW), at_slots);
}

#[tokio::test]
async fn locks_of_one_slot_are_renewed_by_the_script_of_the_slot() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::RENEW, "[ 1 0 ]");
    let store = server.cluster().await;
    let batch = ["{shop}stock", "{shop}price"].map(|name| renewal(LockKind::Mutex, name));
    let renewed = store.front.renew(&batch).await.unwrap();
    assert!(
        matches!(renewed[..], [Renewed::Kept, Renewed::Gone]),
        "{renewed:?}"
    );
    assert_eq!(server.calls(&scripts::RENEW).len(), 1);
    assert_eq!(server.calls(&scripts::RENEW_SLOTS), [""; 0]);
}

/// Sides and permits have keys beside that of the lock, so only the script of their slot can renew them. A lock that is left
/// alone at its node needs no script for many.
#[tokio::test]
async fn what_has_more_than_one_key_is_renewed_by_the_script_of_its_slot() {
    for (kind, script) in [
        (LockKind::Read, &scripts::RENEW_SIDE),
        (LockKind::Permits(1), &scripts::RENEW_PERMITS),
    ] {
        let server = ScriptedServer::start().await;
        server.on_script(&scripts::RENEW, "[ 1 ]");
        server.on_script(script, "[ 1 ]");
        let store = server.cluster().await;
        let batch = [renewal(LockKind::Mutex, "stock"), renewal(kind, "price")];
        let renewed = store.front.renew(&batch).await.unwrap();
        assert!(
            matches!(renewed[..], [Renewed::Kept, Renewed::Kept]),
            "{renewed:?}"
        );
        assert_eq!(server.calls(&scripts::RENEW_SLOTS), [""; 0]);
        assert_eq!(server.calls(script).len(), 1);
    }
}

#[tokio::test]
async fn plain_locks_of_many_slots_share_a_request() {
    let server = ScriptedServer::start().await;
    server.on_script(&scripts::PLAIN_RENEW_SLOTS, "[ 1 1 ]");
    let store = server.cluster().await;
    let batch = ["stock", "price"].map(|name| renewal(LockKind::Mutex, name));
    let renewed = store.plain.unwrap().front.renew(&batch).await.unwrap();
    assert!(
        matches!(renewed[..], [Renewed::Kept, Renewed::Kept]),
        "{renewed:?}"
    );
    assert_eq!(server.calls(&scripts::PLAIN_RENEW), [""; 0]);
}

#[tokio::test]
async fn a_node_that_refuses_the_script_for_many_slots_costs_requests_and_no_lock() {
    for refusal in ["-NOPERM no", "-ERR something new"] {
        let (renewed, at_node, at_slots) = renew(refusal, &["[ 1 ]"]).await;
        let renewed = renewed.unwrap();
        assert!(
            matches!(renewed[..], [Renewed::Kept, Renewed::Kept]),
            "{renewed:?}"
        );
        assert_eq!((at_node, at_slots), (1, 2), "{refusal}");
    }
}

/// Its reply may still come, and a second request would wait for the same node once more.
#[tokio::test]
async fn a_node_whose_reply_makes_no_sense_is_not_asked_again() {
    let (renewed, at_node, at_slots) = renew("[ 1 ]", &["[ 1 ]"]).await;
    assert!(renewed.is_none(), "{renewed:?}");
    assert_eq!((at_node, at_slots), (1, 0));
}

#[tokio::test]
async fn a_batch_fails_as_one_only_if_none_of_its_locks_was_renewed() {
    let (renewed, ..) = renew("-NOPERM no", &["-NOPERM no"]).await;
    assert!(renewed.is_none(), "{renewed:?}");
    let (renewed, ..) = renew("-NOPERM no", &["-NOPERM no", "[ 1 ]"]).await;
    let renewed = renewed.unwrap();
    let failed = renewed.iter().filter(|one| has_failed(one)).count();
    assert_eq!((renewed.len(), failed), (2, 1), "{renewed:?}");
}
