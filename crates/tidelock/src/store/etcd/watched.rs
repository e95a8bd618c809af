//! The keys that a waiter watches, and what happened to them before the watch was established.

use crate::store::etcd::api::{KeyValue, RangeRequest, WatchCreateRequest};
use crate::store::etcd::keys::Folder;

/// Filter `NOPUT`: the server reports deletions only.
const NO_PUTS: i32 = 0;

/// A key, or a range of keys, that a waiter watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WatchRange {
    key: Vec<u8>,
    /// The end of the range, exclusive. Empty: one key.
    end: Vec<u8>,
    /// Whether a change wakes too, and not only a deletion.
    changes: bool,
    /// How many keys were seen.
    count: usize,
}

impl WatchRange {
    /// A key that exists, until it is deleted.
    pub(crate) fn until_deleted(key: &[u8]) -> Self {
        Self {
            key: key.to_vec(),
            end: Vec::new(),
            changes: false,
            count: 1,
        }
    }

    /// A folder with this many keys, until one of them is deleted.
    pub(crate) fn until_one_is_deleted(folder: &Folder, count: usize) -> Self {
        Self {
            key: folder.first.clone(),
            end: folder.end.clone(),
            changes: false,
            count,
        }
    }

    /// A key that may not exist, until it is created, changed or deleted.
    pub(crate) fn until_changed(key: &[u8], exists: bool) -> Self {
        Self {
            changes: true,
            count: usize::from(exists),
            ..Self::until_deleted(key)
        }
    }

    pub(crate) fn create(&self, watch_id: i64) -> WatchCreateRequest {
        WatchCreateRequest {
            key: self.key.clone(),
            range_end: self.end.clone(),
            filters: if self.changes {
                Vec::new()
            } else {
                vec![NO_PUTS]
            },
            watch_id,
        }
    }

    /// Reads the keys again. Newer ones only matter if a change does: they do not make up for one that was deleted.
    pub(crate) fn look(&self, seen: i64) -> RangeRequest {
        RangeRequest {
            key: self.key.clone(),
            range_end: self.end.clone(),
            keys_only: true,
            max_create_revision: if self.changes { 0 } else { seen },
            ..RangeRequest::default()
        }
    }

    /// Whether nothing that wakes has happened since, from the answer to [`look`](Self::look).
    pub(crate) fn is_unchanged(&self, kvs: &[KeyValue], seen: i64) -> bool {
        kvs.len() >= self.count && !(self.changes && kvs.iter().any(|kv| kv.mod_revision > seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_before_a_watch_was_established_wakes() {
        let kv = |changed| KeyValue {
            mod_revision: changed,
            ..KeyValue::default()
        };
        let folder = Folder {
            first: b"a/".to_vec(),
            end: b"a0".to_vec(),
        };
        let (one, two) = (
            WatchRange::until_deleted(b"a"),
            WatchRange::until_one_is_deleted(&folder, 2),
        );
        let number = |exists| WatchRange::until_changed(b"a", exists);
        for (keys, kvs, unchanged) in [
            (&one, &[kv(9)][..], true),
            (&one, &[], false),
            (&two, &[kv(3), kv(4)], true),
            (&two, &[kv(3)], false),
            (&number(true), &[kv(7)], true),
            (&number(true), &[kv(8)], false),
            (&number(true), &[], false),
            (&number(false), &[], true),
            (&number(false), &[kv(8)], false),
        ] {
            assert_eq!(keys.is_unchanged(kvs, 7), unchanged, "{keys:?} {kvs:?}");
        }
        assert_eq!(two.look(7).max_create_revision, 7);
        assert_eq!(number(true).look(7).max_create_revision, 0);
    }
}
