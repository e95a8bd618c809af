//! Transactions of attempts on a small model of etcd: what they read, and what is decided from that.

use super::*;
use crate::store::etcd::tests::model::ModelEtcd;

const SECOND: Duration = Duration::from_secs(1);

/// Executes the transaction of an attempt, and decides from its answer.
fn asks(etcd: &mut ModelEtcd, ask: &AttemptRequest, keys: &QueueKeys) -> Result<QueuePosition> {
    let answer = etcd.txn(&transaction(ask, keys, 7, None));
    decide(ask, keys, &answer)
}

/// The key of the ticket was deleted by hand, and its marker was not.
#[test]
fn a_marker_that_is_left_of_a_ticket_hides_no_key_ahead_of_it() {
    let (ask, keys) = waits(LockKind::Mutex, None);
    let ask = AttemptRequest {
        delay: SECOND,
        ..ask
    };
    let mut etcd = ModelEtcd::default();
    etcd.put_by_hand("a/1e", "other:1", 7);
    etcd.put_by_hand("a/1f.delay", ask.ticket.owner.text(), 7);
    let position = asks(&mut etcd, &ask, &keys);
    assert_eq!(shown(position), "behind a/1e at 4");
}

#[test]
fn a_reader_that_waits_reads_no_key_that_it_does_not_use() {
    for (known, patience, reads) in [
        (None, SECOND, 3),
        // The keys that block it are in two ranges: before the folder of the readers, and behind it.
        (None, Duration::ZERO, 5),
        (Some(9), SECOND, 5),
    ] {
        let (ask, keys) = waits(LockKind::Read, known);
        let ask = AttemptRequest { patience, ..ask };
        let txn = transaction(&ask, &keys, 7, None);
        assert_eq!(txn.failure.len(), reads, "{known:?} {patience:?}");
    }
}

/// Otherwise it would neither wait nor hear of an error.
#[test]
fn a_waiter_at_a_semaphore_is_refused_also_if_a_lock_stands_before_the_number() {
    for kind in [LockKind::Mutex, LockKind::Read] {
        let (ask, keys) = waits(kind, None);
        let mut etcd = ModelEtcd::default();
        etcd.put_by_hand("a/1e", "other:1", 7);
        etcd.put_by_hand("a/permits", "3", 0);
        let position = asks(&mut etcd, &ask, &keys);
        assert_eq!(shown(position), "WrongType", "{kind:?}");
    }
}

#[test]
fn a_try_of_a_semaphore_is_told_that_it_is_one() {
    let expected = is_semaphore();
    for kind in [LockKind::Mutex, LockKind::Read] {
        let (ask, keys) = waits(kind, None);
        let ask = AttemptRequest {
            patience: Duration::ZERO,
            ..ask
        };
        let mut etcd = ModelEtcd::default();
        etcd.put_by_hand("a/permits", "3", 0);
        let refused = asks(&mut etcd, &ask, &keys).err();
        let told = refused.as_ref().and_then(Error::detail);
        assert_eq!(told, expected.detail(), "{kind:?}");
    }
}
