//! The marks of a job's slots: one key for each, under a lease as long as the mark is kept.
//!
//! etcd tells no time, so the slots of jobs follow the clock of this machine.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};
use crate::store::etcd::Etcd;
use crate::store::etcd::api::{BY_CHANGE, DESCENDING, Op, RangeRequest, TxnRequest};
use crate::store::etcd::calls::{created, delete, found, get, ops, put, says};
use crate::store::etcd::errors::{RequestError, untouched};
use crate::store::etcd::keys::Keys;
use crate::store::{BoxFuture, MarkChange, Marks, Name, ready};

impl Etcd {
    async fn read_mark(&self, name: &Name, slot: &str) -> Result<Option<String>> {
        let key = self.shared.keys.mark(name, slot);
        let deadline = self.connection.deadline();
        let read = self.connection.range(get(&key), deadline).await;
        let read = read.map_err(untouched)?;
        Ok(read.kvs.first().map(|kv| text(&kv.value)))
    }

    async fn replace_mark(&self, name: &Name, change: MarkChange<'_>) -> Result<bool> {
        let key = self.shared.keys.mark(name, change.slot);
        let (before, after) = (change.before.map(str::to_owned), change.after.to_owned());
        let keep = change.keep;
        let etcd = Self {
            connection: Arc::clone(&self.connection),
            shared: Arc::clone(&self.shared),
        };
        let (tell, told) = oneshot::channel();
        let in_flight = self.shared.count_write();
        // In the background: otherwise a caller that leaves would leave a lease without a key, for as long as a mark is kept.
        self.shared.background.spawn(async move {
            let replaced = etcd.write_mark(&key, before.as_deref(), &after, keep, &tell);
            let replaced = replaced.await;
            // An error means that the caller has left.
            let _ = tell.send(replaced);
            drop(in_flight);
        });
        told.await
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Closed)))
    }

    /// Writes a mark for this caller. Nothing is written for one that has left before the lease was granted.
    async fn write_mark(
        &self,
        key: &str,
        before: Option<&str>,
        after: &str,
        keep: Duration,
        caller: &oneshot::Sender<Result<bool>>,
    ) -> Result<bool> {
        let deadline = self.connection.deadline();
        let lease = match after {
            "" => None,
            _ => Some(self.side_lease(keep, deadline).await?.id),
        };
        if caller.is_closed() {
            self.revoke_in_background(lease.into_iter().collect());
            return Ok(false);
        }
        let unchanged = match before {
            None => created(key.as_bytes(), 0),
            Some(before) => says(key, before),
        };
        let txn = TxnRequest {
            compare: vec![unchanged],
            // The read comes first: it finds the lease that the key leaves.
            success: ops([
                Op::Range(get(key)),
                match lease {
                    Some(lease) => put(key, after, lease),
                    None => delete(key.as_bytes()),
                },
            ]),
            failure: Vec::new(),
        };
        let answer = self.connection.txn(txn, deadline).await;
        if answer.as_ref().is_err_and(RequestError::is_certain) {
            self.revoke_in_background(lease.into_iter().collect());
        }
        let answer = answer.map_err(RequestError::error)?;
        // We revoke the lease that has no key now. It would stay for as long as a mark is kept.
        let old = found(answer.responses.first()).and_then(|range| range.kvs.first());
        let unused = if answer.succeeded {
            old.map(|old| old.lease).filter(|id| *id != 0)
        } else {
            lease
        };
        self.revoke_in_background(unused.into_iter().collect());
        Ok(answer.succeeded)
    }

    async fn newest_marks(&self, name: &Name, limit: u32) -> Result<Vec<(String, String)>> {
        let folder = self.shared.keys.marks(name);
        let newest = RangeRequest {
            key: folder.first.clone(),
            range_end: folder.end.clone(),
            limit: i64::from(limit),
            sort_order: DESCENDING,
            sort_target: BY_CHANGE,
            ..RangeRequest::default()
        };
        let deadline = self.connection.deadline();
        let found = self.connection.range(newest, deadline).await;
        let found = found.map_err(untouched)?;
        let marks = found.kvs.iter().filter_map(|kv| {
            let slot = Keys::slot_of(&folder, &kv.key)?;
            Some((slot, text(&kv.value)))
        });
        Ok(marks.collect())
    }
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

impl Marks for Etcd {
    fn now<'a>(&'a self, _name: &'a Name) -> BoxFuture<'a, Result<SystemTime>> {
        ready(Ok(SystemTime::now()))
    }

    fn read<'a>(&'a self, name: &'a Name, slot: &'a str) -> BoxFuture<'a, Result<Option<String>>> {
        Box::pin(self.read_mark(name, slot))
    }

    fn replace<'a>(
        &'a self,
        name: &'a Name,
        change: MarkChange<'a>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.replace_mark(name, change))
    }

    fn history<'a>(
        &'a self,
        name: &'a Name,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<(String, String)>>> {
        Box::pin(self.newest_marks(name, limit))
    }
}
