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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::ErrorKind;
    use crate::store::etcd::api::{Done, Header, KeyValue, RangeResponse, ResponseOp};
    use crate::store::{Name, ReplicaAck, Ticket};
    use crate::types::OwnerMint;

    /// The reader holds the lock only with both keys, and both must be its own.
    #[test]
    fn a_repeated_downgrade_finds_the_hold_of_its_own_reader_only() {
        let ticket = Ticket {
            kind: LockKind::Read,
            name: Name::new("a").unwrap(),
            owner: OwnerMint::new().fresh(),
        };
        let ask = AttemptRequest::once(ticket, Duration::from_secs(1), ReplicaAck::Off);
        let keys = QueueKeys::named(&Keys::new(""), &ask.ticket, 0x1f, true);
        let own = ask.ticket.owner.text();
        let kv = |key: &str, owner: &str| KeyValue {
            key: key.as_bytes().to_vec(),
            value: owner.as_bytes().to_vec(),
            create_revision: 7,
            ..KeyValue::default()
        };
        let (key, place) = ("a/read/1f", "a/read/1f.downgrade");
        for (hold, is_held) in [
            (vec![kv(key, own), kv(place, own)], true),
            (vec![kv(key, own)], false),
            (vec![kv(key, own), kv(place, "other:1")], false),
            (vec![kv(key, "other:1"), kv(place, "other:1")], false),
            (Vec::new(), false),
        ] {
            let range = |kvs| ResponseOp {
                done: Some(Done::Range(RangeResponse {
                    kvs,
                    ..RangeResponse::default()
                })),
            };
            let answer = TxnResponse {
                responses: vec![range(Vec::new()), range(hold)],
                ..TxnResponse::default()
            };
            match decide(&ask, &keys, &answer) {
                Ok(QueuePosition::First(7)) => assert!(is_held, "{answer:?}"),
                Err(error) if error.kind() == ErrorKind::Lost => assert!(!is_held, "{answer:?}"),
                _ => panic!("{answer:?}"),
            }
        }
        let granted = TxnResponse {
            header: Some(Header { revision: 9 }),
            succeeded: true,
            ..TxnResponse::default()
        };
        let granted = decide(&ask, &keys, &granted);
        assert!(matches!(granted, Ok(QueuePosition::First(9))));
    }
}
