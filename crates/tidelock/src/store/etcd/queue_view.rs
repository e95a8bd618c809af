//! The holders and waiters of a read-write lock, from all keys of its queue.

use std::collections::HashMap;

use crate::snapshot::Mode;
use crate::store::etcd::api::KeyValue;
use crate::store::etcd::keys::{self, Folder};

/// The keys of a queue's holders and waiters, first come, first served. Markers and places are left out.
pub(crate) struct KeyQueue<'a> {
    /// All keys of the queue, in no order.
    all: HashMap<&'a [u8], &'a KeyValue>,
    keys: Vec<&'a KeyValue>,
    /// How many of them hold the lock.
    holders: usize,
}

impl<'a> KeyQueue<'a> {
    /// Reads all keys of the queue in this folder.
    pub(crate) fn of(folder: &Folder, kvs: &'a [KeyValue]) -> Self {
        let by_key: HashMap<&[u8], &KeyValue> = kvs.iter().map(|kv| (&*kv.key, kv)).collect();
        let reads = |kv: &KeyValue| folder.mode(&kv.key) == Mode::Read;
        // A reader that was a writer stands at that writer's place, ahead of all that waited meanwhile.
        let position = |kv: &KeyValue| {
            let place = folder.place(&kv.key).filter(|_| reads(kv));
            let place = place.and_then(|place| by_key.get(&*place));
            let place = place.filter(|place| place.value == kv.value);
            place.map_or(kv.create_revision, |place| place.create_revision)
        };
        let own = kvs.iter().filter(|kv| !keys::stands_beside(&kv.key));
        let mut placed: Vec<_> = own.map(|kv| (position(kv), reads(kv), kv)).collect();
        placed.sort_by_key(|(position, reads, _)| (*position, *reads));
        let first = placed.first().map_or(i64::MAX, |(position, ..)| *position);
        // A lock-delay without its holder is left of a hold that ended without a release.
        let delayed = kvs.iter().any(|kv| {
            let left = keys::marked(&kv.key).is_some_and(|key| !by_key.contains_key(key));
            left && kv.create_revision < first
        });
        let readers = placed.iter().take_while(|(_, reads, _)| *reads).count();
        // A writer, and during its downgrade the reader at the same place.
        let writer = placed.iter().take_while(|(at, ..)| *at == first).count();
        Self {
            all: by_key,
            keys: placed.into_iter().map(|(.., kv)| kv).collect(),
            holders: if delayed { 0 } else { readers.max(writer) },
        }
    }

    pub(crate) fn holders(&self) -> &[&'a KeyValue] {
        self.keys.get(..self.holders).unwrap_or_default()
    }

    pub(crate) fn first_waiter(&self) -> Option<&'a KeyValue> {
        self.keys.get(self.holders).copied()
    }

    /// Whether the queue has this key. It may be a marker, or a place.
    pub(crate) fn has_key(&self, key: &[u8]) -> bool {
        self.all.contains_key(key)
    }

    pub(crate) fn waiters(&self) -> u64 {
        (self.keys.len() - self.holders().len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Name;
    use crate::store::etcd::keys::Keys;

    fn kv((key, revision): &(&str, i64)) -> KeyValue {
        let owner = key
            .trim_end_matches(".downgrade")
            .trim_end_matches(".delay");
        KeyValue {
            key: format!("a/{key}").into_bytes(),
            create_revision: *revision,
            value: owner.as_bytes().to_vec(),
            ..KeyValue::default()
        }
    }

    #[test]
    fn holders_and_waiters_are_told_apart() {
        let folder = Keys::new("").folder(&Name::new("a").unwrap());
        for (keys, holders, waiters) in [
            (&[][..], &[][..], 0),
            (
                &[("read/1", 3), ("read/2", 4), ("2f", 5), ("read/3", 6)],
                &["read/1", "read/2"],
                2,
            ),
            // Each writer has a place beside its key.
            (
                &[
                    ("read/1.downgrade", 3),
                    ("write/1", 3),
                    ("write/2", 4),
                    ("read/2.downgrade", 4),
                    ("read/3", 5),
                ],
                &["write/1"],
                2,
            ),
            // During a downgrade, and after it: the reader's own key is newer than that of the writer that waits.
            (
                &[
                    ("write/1", 3),
                    ("read/1.downgrade", 3),
                    ("write/2", 4),
                    ("read/2.downgrade", 4),
                    ("read/1", 5),
                ],
                &["write/1", "read/1"],
                1,
            ),
            (
                &[
                    ("read/1.downgrade", 3),
                    ("read/4", 4),
                    ("write/2", 5),
                    ("read/2.downgrade", 5),
                    ("read/1", 6),
                ],
                &["read/1", "read/4"],
                1,
            ),
            // A lock-delay without its holder keeps back both sides.
            (&[("1f.delay", 3), ("read/2", 4), ("read/3", 5)], &[], 2),
            (&[("1f", 3), ("1f.delay", 3), ("read/2", 4)], &["1f"], 1),
        ] {
            let kvs: Vec<KeyValue> = keys.iter().map(kv).collect();
            let queue = KeyQueue::of(&folder, &kvs);
            let owners = queue.holders().iter().map(|kv| &*kv.value);
            let owners: Vec<&[u8]> = owners.collect();
            let expected: Vec<&[u8]> = holders.iter().map(|owner| owner.as_bytes()).collect();
            assert_eq!((owners, queue.waiters()), (expected, waiters), "{keys:?}");
        }
    }
}
