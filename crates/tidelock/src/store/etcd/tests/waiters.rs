//! Waiters: when their lease is kept alive, and what they wait for after a lost reply.

use std::pin::pin;

use futures_util::FutureExt;

use super::*;

/// An attempt with a lease that stays young for minutes.
fn long(patience: Duration) -> AttemptRequest {
    AttemptRequest {
        lease: LEASE * 100,
        patience,
        ..ask(LockKind::Mutex)
    }
}

/// A refusal under a young lease needs no keep-alive, and each one costs the server a request.
#[tokio::test]
async fn an_attempt_has_a_keep_alive_beside_it_unless_the_lock_was_just_found_taken() {
    for (is_taken, keep_alives) in [(false, 1), (true, 0)] {
        let server = ModelServer::start().await;
        let (etcd, other) = (server.client(), server.client());
        let spare = long(Duration::ZERO);
        etcd.grants(&spare).await;
        etcd.release(&spare.ticket).await.unwrap();
        other.grants(&ask(LockKind::Mutex)).await;
        let waits = long(LIMIT);
        let mut attempt = pin!(etcd.refuses(&waits));
        // A lock counts as taken for half a second. That cannot pass while the clock stands still.
        tokio::time::pause();
        if is_taken {
            etcd.shared.ticket_leases.taken(&stock());
        }
        assert!(attempt.as_mut().now_or_never().is_none());
        tokio::time::resume();
        attempt.await;
        let key = server.key("shop/stock/1a").unwrap();
        assert_eq!(key.lease, FIRST, "the spare lease");
        let heard = server.heard_of("LeaseKeepAlive");
        assert_eq!(heard.len(), keep_alives, "taken: {is_taken}");
    }
}

/// Its key was there before the attempt, so only a second request can find the key ahead of it.
#[tokio::test]
async fn a_waiter_whose_reply_was_lost_is_woken_by_the_key_ahead_of_its_own() {
    let server = ModelServer::start().await;
    let etcd = server.client();
    let (holds, waits) = (ask(LockKind::Mutex), patient(LockKind::Mutex));
    etcd.grants(&holds).await;
    server.in_turn("Txn", &[Turn::Lost]);
    etcd.fails(&waits).await;
    let Wait { wake, recheck, .. } = etcd.refuses(&waits).await;
    assert_eq!(recheck, Some(LEASE / 3));
    etcd.release(&holds.ticket).await.unwrap();
    in_time(wake.unwrap().woken()).await;
    etcd.grants(&waits).await;
}
