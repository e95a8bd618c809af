//! Permits: how often an attempt asks, and a spare lease that has a key of an earlier ticket.

use super::*;
use crate::store::{PermitChange, PermitCounter};

const HELD: &str = "shop/%permits/stock/held/1a.2";
const WAITING: &str = "shop/%permits/stock/waiting/1a.2";

/// A client of a semaphore with four permits.
async fn semaphore(server: &ModelServer) -> Etcd {
    let etcd = server.client();
    let changed = etcd.change(&stock(), PermitChange::Set(4)).await;
    assert!(changed.unwrap());
    etcd
}

#[tokio::test]
async fn a_try_that_finds_enough_permits_looks_once_and_writes_once() {
    let server = ModelServer::start().await;
    let etcd = semaphore(&server).await;
    server.forget_heard();
    etcd.grants(&ask(LockKind::Permits(2))).await;
    assert_eq!(server.connections("Txn").len(), 2);
}

/// The store was restored from a snapshot that has a key of a ticket that has left since.
#[tokio::test]
async fn a_spare_lease_that_has_a_permit_key_of_an_earlier_ticket_is_ended() {
    for left in [HELD, WAITING] {
        let server = ModelServer::start().await;
        let etcd = semaphore(&server).await;
        let mint = OwnerMint::new();
        let by = |owner| AttemptRequest {
            ticket: Ticket {
                owner,
                ..ticket(LockKind::Permits(2))
            },
            ..patient(LockKind::Permits(2))
        };
        let (earlier, next) = (by(mint.fresh()), by(mint.fresh()));
        etcd.grants(&earlier).await;
        etcd.release(&earlier.ticket).await.unwrap();
        let owner = earlier.ticket.owner.text();
        server.etcd(|model| model.put_by_hand(left, owner, FIRST));
        etcd.grants(&next).await;
        assert_eq!(server.leases(), [FIRST + 1], "{left}");
        let key = server.key(HELD).unwrap();
        assert_eq!(key.value, next.ticket.owner.text().as_bytes());
        assert!(server.key(WAITING).is_none());
    }
}
