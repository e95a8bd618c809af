//! etcd as a model: its keys, its transactions and its leases. A lease ends when a test says so.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use tonic::{Code, Status};

use crate::store::etcd::api::{
    Against, BY_CHANGE, Compare, DESCENDING, DeleteRangeResponse, Done, Header, KeyValue, LESS, Op,
    PutRequest, PutResponse, RangeRequest, RangeResponse, RequestOp, ResponseOp, TxnRequest,
    TxnResponse,
};
use crate::store::etcd::calls::{delete, ops};

/// The answers of etcd to transactions and other requests.
pub(crate) struct ModelEtcd {
    pub(crate) revision: i64,
    pub(crate) keys: BTreeMap<Vec<u8>, KeyValue>,
    /// The length of each lease, in seconds.
    pub(crate) leases: BTreeMap<i64, i64>,
    /// The keys that were put or deleted since a watcher was told, and whether they were deleted.
    pub(crate) changes: Vec<(Vec<u8>, bool)>,
}

impl Default for ModelEtcd {
    fn default() -> Self {
        Self {
            // That of an etcd without data. A limit of 0 is none, so a first key of revision 1 could not be excluded.
            revision: 1,
            keys: BTreeMap::new(),
            leases: BTreeMap::new(),
            changes: Vec::new(),
        }
    }
}

impl ModelEtcd {
    pub(crate) fn header(&self) -> Header {
        let revision = self.revision;
        Header { revision }
    }

    /// The key with this name.
    pub(crate) fn key(&self, key: &str) -> Option<&KeyValue> {
        self.keys.get(key.as_bytes())
    }

    /// The names of all keys, in the order of the bytes.
    pub(crate) fn names(&self) -> Vec<String> {
        let names = self.keys.keys();
        names
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect()
    }

    /// Puts a key as another client does.
    pub(crate) fn put_by_hand(&mut self, key: &str, value: &str, lease: i64) {
        let put = PutRequest {
            key: key.as_bytes().to_vec(),
            value: value.as_bytes().to_vec(),
            lease,
        };
        self.txn(&unconditional(Op::Put(put)));
    }

    /// Deletes a key as another client does.
    pub(crate) fn delete_by_hand(&mut self, key: &str) {
        self.txn(&unconditional(delete(key.as_bytes())));
    }

    /// Grants a lease of this length, in seconds.
    pub(crate) fn grant(&mut self, ttl: i64) -> i64 {
        // Larger than nine, so that an id in hexadecimal is told from one in decimal.
        let id = self
            .leases
            .last_key_value()
            .map_or(0x1a, |(last, _)| last + 1);
        self.leases.insert(id, ttl);
        id
    }

    /// Ends a lease, and deletes its keys. False: there is no such lease.
    pub(crate) fn end_lease(&mut self, id: i64) -> bool {
        let known = self.leases.insert(id, 0).is_some_and(|ttl| ttl > 0);
        let gone = self.keys.values().filter(|kv| kv.lease == id);
        let gone: Vec<Vec<u8>> = gone.map(|kv| kv.key.clone()).collect();
        self.revision += i64::from(!gone.is_empty());
        for key in gone {
            self.keys.remove(&key);
            self.changes.push((key, true));
        }
        known
    }

    /// The length of a lease in seconds. 0: it does not exist.
    pub(crate) fn ttl(&self, id: i64) -> i64 {
        self.leases.get(&id).copied().unwrap_or(0)
    }

    /// The leases that exist.
    pub(crate) fn live_leases(&self) -> Vec<i64> {
        let live = self.leases.iter().filter(|(_, ttl)| **ttl > 0);
        live.map(|(id, _)| *id).collect()
    }

    /// As [`txn`](Self::txn), with the refusal of a put under a lease that does not exist.
    pub(crate) fn checked_txn(&mut self, txn: &TxnRequest) -> Result<TxnResponse, Status> {
        let mut puts = self.chosen(txn).1.iter().filter_map(|op| match &op.op {
            Some(Op::Put(put)) => Some(put),
            _ => None,
        });
        if puts.any(|put| put.lease != 0 && self.ttl(put.lease) == 0) {
            return Err(lease_gone());
        }
        Ok(self.txn(txn))
    }

    /// Executes a transaction. It does not look at leases.
    pub(crate) fn txn(&mut self, txn: &TxnRequest) -> TxnResponse {
        let (succeeded, chosen) = self.chosen(txn);
        let (at, mut wrote) = (self.revision + 1, false);
        let mut responses = Vec::new();
        for op in chosen {
            let done = match op.op.as_ref().unwrap() {
                Op::Range(range) => Done::Range(self.read(range)),
                Op::Put(put) => {
                    wrote = true;
                    self.put(put, at);
                    Done::Put(PutResponse::default())
                }
                Op::Delete(all) => {
                    let gone = self.range(&all.key, &all.range_end);
                    wrote |= !gone.is_empty();
                    for kv in &gone {
                        self.keys.remove(&kv.key);
                        self.changes.push((kv.key.clone(), true));
                    }
                    let deleted = i64::try_from(gone.len()).unwrap();
                    Done::Delete(DeleteRangeResponse { deleted })
                }
            };
            responses.push(ResponseOp { done: Some(done) });
        }
        self.revision += i64::from(wrote);
        TxnResponse {
            header: Some(self.header()),
            succeeded,
            responses,
        }
    }

    fn put(&mut self, put: &PutRequest, at: i64) {
        let kv = self.keys.entry(put.key.clone()).or_default();
        if kv.key.is_empty() {
            (kv.key, kv.create_revision) = (put.key.clone(), at);
        }
        (kv.value, kv.lease, kv.mod_revision) = (put.value.clone(), put.lease, at);
        self.changes.push((put.key.clone(), false));
    }

    /// Whether all comparisons hold, and the operations that follow from that.
    fn chosen<'a>(&self, txn: &'a TxnRequest) -> (bool, &'a [RequestOp]) {
        let succeeded = txn.compare.iter().all(|compare| self.fits(compare));
        let chosen = if succeeded {
            &txn.success
        } else {
            &txn.failure
        };
        (succeeded, chosen)
    }

    fn range(&self, key: &[u8], end: &[u8]) -> Vec<KeyValue> {
        let all = self.keys.values().filter(|kv| is_inside(&kv.key, key, end));
        all.cloned().collect()
    }

    fn fits(&self, compare: &Compare) -> bool {
        let mut found = self.range(&compare.key, &compare.range_end);
        if found.is_empty() {
            if matches!(compare.against, Some(Against::Value(_))) {
                return false;
            }
            found.push(KeyValue::default());
        }
        let order = if compare.result == LESS {
            Ordering::Less
        } else {
            Ordering::Equal
        };
        found.iter().all(|kv| match &compare.against {
            Some(Against::CreateRevision(against)) => kv.create_revision.cmp(against) == order,
            Some(Against::ModRevision(against)) => kv.mod_revision.cmp(against) == order,
            Some(Against::Value(against)) => kv.value.cmp(against) == order,
            Some(Against::Lease(against)) => kv.lease.cmp(against) == order,
            None => panic!("a comparison with nothing"),
        })
    }

    pub(crate) fn read(&self, range: &RangeRequest) -> RangeResponse {
        let mut kvs = self.range(&range.key, &range.range_end);
        let count = i64::try_from(kvs.len()).unwrap();
        let (least, most) = (range.min_create_revision, range.max_create_revision);
        kvs.retain(|kv| kv.create_revision >= least && (most == 0 || kv.create_revision <= most));
        let position = |kv: &KeyValue| match range.sort_target {
            0 => 0, // by key, as they are
            BY_CHANGE => kv.mod_revision,
            _ => kv.create_revision,
        };
        if range.sort_order == DESCENDING {
            kvs.sort_by_key(|kv| Reverse(position(kv)));
        } else {
            kvs.sort_by_key(position);
        }
        let limit = usize::try_from(range.limit).unwrap();
        let more = limit > 0 && kvs.len() > limit;
        if more {
            kvs.truncate(limit);
        }
        if range.keys_only {
            for kv in &mut kvs {
                kv.value.clear();
                // As etcd 3.7 answers.
                kv.lease = 0;
            }
        }
        RangeResponse {
            header: Some(self.header()),
            kvs,
            more,
            count,
        }
    }
}

/// Whether a key is in the range from `first` to `end`. Without an end it is one key; with a zero byte, there is none.
pub(crate) fn is_inside(key: &[u8], first: &[u8], end: &[u8]) -> bool {
    key == first || first < key && (key < end || end == [0])
}

/// The refusal of a request that needs a lease that does not exist.
pub(crate) fn lease_gone() -> Status {
    Status::new(Code::NotFound, "etcdserver: requested lease not found")
}

/// A transaction that does this in any case.
pub(crate) fn unconditional(op: Op) -> TxnRequest {
    TxnRequest {
        success: ops([op]),
        ..TxnRequest::default()
    }
}
