//! A downgrade: a writer becomes a reader, and keeps its place in the queue.
//!
//! A key keeps its creation revision, and with it its place, as long as it exists. So a writer creates two keys in one
//! transaction: its own, and `NAME/read/ID.downgrade`, which blocks all that wait behind it but no readers. The downgrade
//! moves that second key to the lease of the reader, and creates the reader's own key, whose revision is the reader's
//! token. Both take effect only if the writer's key is there at that instant. Then the writer's key may go.

use crate::error::{Error, Result};
use crate::store::AttemptRequest;
use crate::store::etcd::api::{Op, TxnRequest, TxnResponse};
use crate::store::etcd::calls::{created, found, get, ops, put, says};
use crate::store::etcd::keys::Keys;
use crate::store::etcd::queue::{self, QueueKeys, QueuePosition};
use crate::store::etcd::ticket_leases::TakenPlace;
use crate::types::{LockKind, LostReason, OwnerId};

/// Builds the transaction of one attempt; [`decide`] reads its answer.
pub(crate) fn transaction(
    ask: &AttemptRequest,
    writer: &OwnerId,
    (keys, queue_keys): (&Keys, &QueueKeys),
    joined: TakenPlace,
    lease: i64,
) -> TxnRequest {
    let (name, owner) = (&ask.ticket.name, ask.ticket.owner.text());
    let written = keys.own(name, LockKind::Write, joined.id);
    let place = keys.place(name, joined.id);
    TxnRequest {
        compare: vec![
            created(queue_keys.key.as_bytes(), 0),
            says(&written, writer.text()),
            created(written.as_bytes(), joined.revision),
            // A place that was deleted by hand would come back at the end of the queue.
            created(place.as_bytes(), joined.revision),
        ],
        success: ops([
            put(&queue_keys.key, owner, lease),
            put(&place, owner, lease),
            // Those that wait already have smaller revisions than the reader. Their tokens must be larger.
            put(&queue_keys.tokens, "", 0),
        ]),
        failure: ops([get(&queue_keys.key), queue_keys.hold()].map(Op::Range)),
    }
}

/// Reads the reader's position from the answer to [`transaction`].
///
/// # Errors
/// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the writer's key has gone: another writer may have had the lock since.
pub(crate) fn decide(
    ask: &AttemptRequest,
    queue_keys: &QueueKeys,
    answer: &TxnResponse,
) -> Result<QueuePosition> {
    if answer.succeeded {
        return Ok(QueuePosition::First(queue::now(answer)));
    }
    // An earlier attempt of this ticket may have taken effect.
    let hold = found(answer.responses.get(1)).map(|hold| &*hold.kvs);
    let own = hold.and_then(|hold| queue_keys.held(hold));
    let own = own.filter(|own| own.value == ask.ticket.owner.text().as_bytes());
    own.map(|own| QueuePosition::First(own.create_revision))
        .ok_or_else(|| Error::lost(LostReason::Taken))
}
