//! Inspections: what is shown of a name with waiters for permits or with a lock-delay, and how much is read for it.

use super::*;
use crate::snapshot::Mode;
use crate::store::etcd::api::RangeRequest;

#[tokio::test]
async fn waiters_for_permits_are_shown_unless_the_name_has_a_lock() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    // There is no number of permits yet.
    etcd.refuses(&patient(LockKind::Permits(2))).await;
    let seen = etcd.inspect(&stock()).await.unwrap();
    assert_eq!((seen.holders.len(), seen.waiters), (0, Some(1)));
    etcd.grants(&ask(LockKind::Mutex)).await;
    let seen = etcd.inspect(&stock()).await.unwrap();
    assert_eq!((seen.holders.len(), seen.waiters), (1, Some(0)));
    assert_eq!(seen.holders[0].mode, Mode::Exclusive);
}

/// Only the sides of a read-write lock need all keys, and a queue may have thousands of them.
#[tokio::test]
async fn a_lock_without_sides_is_shown_without_reading_its_whole_queue() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    etcd.grants(&ask(LockKind::Mutex)).await;
    let seen = etcd.inspect(&stock()).await.unwrap();
    assert_eq!(seen.holders.len(), 1);
    // That of the details of the holder's client.
    let reads = server.heard::<RangeRequest>("Range");
    assert_eq!(reads.len(), 1, "{reads:?}");
    assert!(reads[0].range_end.is_empty(), "{reads:?}");
}

#[tokio::test]
async fn all_waiters_of_a_lock_with_a_delay_are_counted() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let delayed = AttemptRequest {
        delay: Duration::from_secs(10),
        ..ask(LockKind::Mutex)
    };
    etcd.grants(&delayed).await;
    for count in 0..3 {
        let seen = etcd.inspect(&stock()).await.unwrap();
        assert_eq!((seen.holders.len(), seen.waiters), (1, Some(count)));
        etcd.refuses(&patient(LockKind::Mutex)).await;
    }
}
