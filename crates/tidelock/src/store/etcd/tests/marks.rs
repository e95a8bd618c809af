//! The marks of jobs: which are replaced, and which leases that leaves.

use super::*;
use crate::store::{MarkChange, Marks};

const KEEP: Duration = Duration::from_secs(600);

async fn replaced(etcd: &Etcd, slot: &str, before: Option<&str>, after: &str) -> Result<bool> {
    let change = MarkChange::unacknowledged(slot, before, after, KEEP);
    etcd.replace(&stock(), change).await
}

#[tokio::test]
async fn a_mark_is_replaced_if_it_is_as_expected_and_each_keeps_one_lease() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let name = stock();
    for (before, after, is_replaced, mark, leases) in [
        (Some("none"), "first", false, None, 0),
        (None, "first", true, Some("first"), 1),
        (None, "second", false, Some("first"), 1),
        (Some("first"), "second", true, Some("second"), 1),
        (Some("first"), "", false, Some("second"), 1),
        (Some("second"), "", true, None, 0),
    ] {
        let told = replaced(&etcd, "1", before, after).await.unwrap();
        assert_eq!(told, is_replaced, "{before:?} {after}");
        let read = etcd.read(&name, "1").await.unwrap();
        assert_eq!(read.as_deref(), mark, "{before:?} {after}");
        etcd.settles().await;
        assert_eq!(server.leases().len(), leases, "{before:?} {after}");
        let ttl = server.ttl_of("shop/%marks/stock/1");
        assert_eq!(ttl, mark.map(|_| 600), "{before:?} {after}");
    }
}

#[tokio::test]
async fn the_lease_of_a_mark_is_given_back_only_if_it_was_certainly_not_written() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    for (turn, kind, leases) in [
        (NO_LEADER, ErrorKind::Unavailable, 0),
        (Turn::Lost, ErrorKind::OutcomeUnknown, 1),
    ] {
        server.in_turn("Txn", &[turn]);
        let error = replaced(&etcd, "1", None, "first").await.unwrap_err();
        assert_eq!(error.kind(), kind);
        etcd.settles().await;
        assert_eq!(server.leases().len(), leases, "{kind:?}");
    }
    server.in_turn("LeaseGrant", &[Turn::Lost]);
    let error = replaced(&etcd, "2", None, "first").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn nothing_is_written_for_a_caller_that_has_left_before_the_lease_was_granted() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    tokio::select! {
        biased;
        told = replaced(&etcd, "1", None, "first") => panic!("{told:?}"),
        () = std::future::ready(()) => {}
    }
    etcd.settles().await;
    assert_eq!(server.connections("LeaseGrant").len(), 1);
    assert!(server.connections("Txn").is_empty());
    assert!(server.leases().is_empty());
}

#[tokio::test]
async fn history_begins_with_the_newest_mark() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    for (slot, before) in [("1", None), ("2", None), ("3", None), ("1", Some("at 1"))] {
        let after = format!("at {slot}");
        assert!(replaced(&etcd, slot, before, &after).await.unwrap());
    }
    let newest = etcd.history(&stock(), 2).await.unwrap();
    let slot = |slot: &str| (slot.to_owned(), format!("at {slot}"));
    assert_eq!(newest, [slot("1"), slot("3")]);
}
