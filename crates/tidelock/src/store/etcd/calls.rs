//! The gRPC calls and transaction parts that a lock needs, as named functions.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::stream;

use crate::store::BootInstant;
use crate::store::etcd::api::{
    ASCENDING, Against, BY_CREATION, Compare, DESCENDING, DeleteRangeRequest, Done, LESS,
    LeaseGrantRequest, LeaseRequest, LeaseResponse, Nothing, Op, PutRequest, RangeRequest,
    RangeResponse, RequestOp, ResponseOp, TxnRequest, TxnResponse,
};
use crate::store::etcd::connection::Connection;
use crate::store::etcd::errors::RequestError;
use crate::store::etcd::keys::Folder;
use crate::store::etcd::live_connection;
use crate::store::etcd::ticket_leases::Lease;

/// Upper bound of a lease's time to live, in seconds; etcd rejects longer leases.
const MAX_TTL_SECONDS: i64 = 9_000_000_000;

impl Connection {
    pub(crate) async fn txn(
        &self,
        txn: TxnRequest,
        deadline: BootInstant,
    ) -> Result<TxnResponse, RequestError> {
        self.ask("/etcdserverpb.KV/Txn", txn, deadline).await
    }

    pub(crate) async fn range(
        &self,
        range: RangeRequest,
        deadline: BootInstant,
    ) -> Result<RangeResponse, RequestError> {
        self.ask("/etcdserverpb.KV/Range", range, deadline).await
    }

    /// Grants a lease of at least `asked` seconds. etcd enforces a minimum, so the lease may be longer.
    pub(crate) async fn grant(
        &self,
        asked: u64,
        deadline: BootInstant,
    ) -> Result<Lease, RequestError> {
        let ttl = i64::try_from(asked).unwrap_or(MAX_TTL_SECONDS);
        let question = LeaseGrantRequest { ttl };
        let path = "/etcdserverpb.Lease/LeaseGrant";
        let sent = self.endpoint.timers.now();
        let answer: LeaseResponse = self.ask(path, question, deadline).await?;
        // A lease shorter than requested would let a lock expire while its holder believes to hold it.
        if answer.id <= 0 || answer.ttl < ttl {
            return Err(RequestError::Broken(
                "a lease that was not asked for".to_owned(),
            ));
        }
        Ok(Lease {
            id: answer.id,
            asked,
            ttl: seconds(answer.ttl),
            kept_at: sent,
        })
    }

    /// Revokes a lease; etcd deletes its keys. A lease that does not exist counts as success.
    pub(crate) async fn revoke(&self, id: i64, deadline: BootInstant) -> Result<(), RequestError> {
        let path = "/etcdserverpb.Lease/LeaseRevoke";
        let question = LeaseRequest { id };
        match self.ask::<_, Nothing>(path, question, deadline).await {
            Err(failure) if !failure.is_lease_gone() => Err(failure),
            _ => Ok(()),
        }
    }

    /// Keeps leases alive, all on one stream. Returns the leases that exist, with their time to live.
    pub(crate) async fn keep_alive(
        &self,
        ids: &[i64],
        deadline: BootInstant,
    ) -> Result<HashMap<i64, Duration>, RequestError> {
        self.with(deadline, |conn| {
            let questions: Vec<LeaseRequest> = ids.iter().map(|&id| LeaseRequest { id }).collect();
            async move {
                let (count, path) = (questions.len(), "/etcdserverpb.Lease/LeaseKeepAlive");
                let mut answers = conn.talk(path, stream::iter(questions)).await?;
                let mut kept = HashMap::with_capacity(count);
                for _ in 0..count {
                    let answer: Option<LeaseResponse> = live_connection::next(&mut answers).await?;
                    let answer = answer.ok_or_else(|| {
                        RequestError::Broken("fewer answers than leases".to_owned())
                    })?;
                    if answer.ttl > 0 {
                        kept.insert(answer.id, seconds(answer.ttl));
                    }
                }
                Ok(kept)
            }
        })
        .await
    }

    /// The remaining time of a lease. `None`: it no longer exists.
    pub(crate) async fn left(
        &self,
        id: i64,
        deadline: BootInstant,
    ) -> Result<Option<Duration>, RequestError> {
        let path = "/etcdserverpb.Lease/LeaseTimeToLive";
        let answer: LeaseResponse = self.ask(path, LeaseRequest { id }, deadline).await?;
        // etcd answers -1 for an unknown lease.
        Ok(u64::try_from(answer.ttl).ok().map(Duration::from_secs))
    }
}

pub(crate) fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0))
}

/// Rounds up to whole seconds, because etcd counts leases in seconds.
pub(crate) fn whole_seconds(length: Duration) -> u64 {
    let whole = length.as_secs() + u64::from(length.subsec_nanos() > 0);
    whole.clamp(1, MAX_TTL_SECONDS.unsigned_abs())
}

/// The operations of a transaction, in order.
pub(crate) fn ops(ops: impl IntoIterator<Item = Op>) -> Vec<RequestOp> {
    ops.into_iter()
        .map(|op| RequestOp { op: Some(op) })
        .collect()
}

/// Reads one key.
pub(crate) fn get(key: &str) -> RangeRequest {
    RangeRequest {
        key: key.as_bytes().to_vec(),
        ..RangeRequest::default()
    }
}

/// Reads the oldest key of a queue, which holds the lock. The response also counts all keys of the queue.
pub(crate) fn oldest(folder: &Folder) -> RangeRequest {
    RangeRequest {
        key: folder.first.clone(),
        range_end: folder.end.clone(),
        limit: 1,
        sort_order: ASCENDING,
        sort_target: BY_CREATION,
        ..RangeRequest::default()
    }
}

/// Reads all keys of a queue, oldest first.
pub(crate) fn all(folder: &Folder) -> RangeRequest {
    RangeRequest {
        limit: 0,
        ..oldest(folder)
    }
}

/// Reads the newest `limit` keys of a queue, created at revision `up_to` or before it. An `up_to` of 0 means no bound.
pub(crate) fn newest(folder: &Folder, limit: i64, up_to: i64) -> RangeRequest {
    RangeRequest {
        limit,
        sort_order: DESCENDING,
        max_create_revision: up_to,
        ..oldest(folder)
    }
}

pub(crate) fn put(key: &str, value: &str, lease: i64) -> Op {
    Op::Put(PutRequest {
        key: key.as_bytes().to_vec(),
        value: value.as_bytes().to_vec(),
        lease,
    })
}

pub(crate) fn delete(key: &[u8]) -> Op {
    Op::Delete(DeleteRangeRequest {
        key: key.to_vec(),
        range_end: Vec::new(),
    })
}

/// Deletes all keys of a folder.
pub(crate) fn delete_all(folder: &Folder) -> Op {
    Op::Delete(DeleteRangeRequest {
        key: folder.first.clone(),
        range_end: folder.end.clone(),
    })
}

/// Condition: the key was created at `revision`. Revision 0 means that the key does not exist.
pub(crate) fn created(key: &[u8], revision: i64) -> Compare {
    Compare {
        target: 1,
        key: key.to_vec(),
        against: Some(Against::CreateRevision(revision)),
        ..Compare::default()
    }
}

/// Condition: the last change of the key was at `revision`. Revision 0 means that the key does not exist.
pub(crate) fn changed(key: &[u8], revision: i64) -> Compare {
    Compare {
        target: 2,
        key: key.to_vec(),
        against: Some(Against::ModRevision(revision)),
        ..Compare::default()
    }
}

/// Condition: the queue has no key that was created after this revision.
pub(crate) fn none_since(folder: &Folder, revision: i64) -> Compare {
    Compare {
        result: LESS,
        range_end: folder.end.clone(),
        ..created(&folder.first, revision.saturating_add(1))
    }
}

/// Condition: the queue has no key.
pub(crate) fn is_empty(folder: &Folder) -> Compare {
    Compare {
        range_end: folder.end.clone(),
        ..created(&folder.first, 0)
    }
}

/// Condition: the key has this value.
pub(crate) fn says(key: &str, value: &str) -> Compare {
    Compare {
        target: 3,
        key: key.as_bytes().to_vec(),
        against: Some(Against::Value(value.as_bytes().to_vec())),
        ..Compare::default()
    }
}

/// Condition: the key is under this lease.
pub(crate) fn is_under(key: &str, lease: i64) -> Compare {
    Compare {
        target: 4,
        key: key.as_bytes().to_vec(),
        against: Some(Against::Lease(lease)),
        ..Compare::default()
    }
}

/// The result of a range operation within a transaction. `None`: it is missing, or belongs to another operation.
pub(crate) fn found(response: Option<&ResponseOp>) -> Option<&RangeResponse> {
    match response?.done.as_ref()? {
        Done::Range(range) => Some(range),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_never_shorter_than_asked_and_never_longer_than_etcd_grants() {
        let second = Duration::from_secs(1);
        for (length, seconds) in [
            (Duration::ZERO, 1),
            (Duration::from_nanos(1), 1),
            (second, 1),
            (second + Duration::from_nanos(1), 2),
            (Duration::from_millis(29_999), 30),
            (second * 30, 30),
            (Duration::from_secs(u64::MAX), 9_000_000_000),
        ] {
            assert_eq!(whole_seconds(length), seconds, "{length:?}");
        }
    }

    #[test]
    fn a_negative_time_is_none() {
        assert_eq!(seconds(30), Duration::from_secs(30));
        assert_eq!(seconds(-1), Duration::ZERO);
    }
}
