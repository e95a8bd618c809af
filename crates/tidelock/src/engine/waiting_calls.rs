//! The acquire calls of a client that wait, for the record that operators see of this process.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;

use crate::engine::runtime::clock::BootInstant;
use crate::engine::runtime::id_hasher::IdHasher;
use crate::engine::runtime::sync::Mutex;
use crate::name::Name;
use crate::types::LockKind;

/// The calls that wait. A call that gets its lock at once is never in it.
#[derive(Debug, Default)]
pub(crate) struct WaitingCalls(Mutex<WaitingById>);

type WaitingById = HashMap<u64, (Name, LockKind, BootInstant), BuildHasherDefault<IdHasher>>;

/// The calls that wait for one lock.
#[derive(Debug, Clone)]
pub(crate) struct NameWaiters {
    pub(crate) name: Name,
    pub(crate) kind: LockKind,
    pub(crate) waiters: u64,
    /// Since when the first of them waits.
    pub(crate) since: BootInstant,
}

impl WaitingCalls {
    /// A call begins to wait. `id`: no other call has it as long as this one waits.
    pub(crate) fn begin(&self, id: u64, name: &Name, kind: LockKind, now: BootInstant) {
        self.0.lock().insert(id, (name.clone(), kind, now));
    }

    pub(crate) fn end(&self, id: u64) {
        let ended = self.0.lock().remove(&id);
        drop(ended); // without the lock: it may be the last reference to the name
    }

    /// The locks with the longest waits, the longest first.
    pub(crate) fn longest(&self, most: usize) -> Vec<NameWaiters> {
        let mut by_name: HashMap<Name, NameWaiters, BuildHasherDefault<IdHasher>> =
            HashMap::default();
        for (name, kind, since) in self.0.lock().values() {
            match by_name.entry(name.clone()) {
                Entry::Occupied(known) => {
                    let known = known.into_mut();
                    known.waiters += 1;
                    known.since = known.since.min(*since);
                }
                Entry::Vacant(new) => {
                    new.insert(NameWaiters {
                        name: name.clone(),
                        kind: *kind,
                        waiters: 1,
                        since: *since,
                    });
                }
            }
        }
        let mut longest: Vec<_> = by_name.into_values().collect();
        longest.sort_by(|a, b| (a.since, &a.name).cmp(&(b.since, &b.name)));
        longest.truncate(most);
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_waits_are_listed_with_the_number_of_their_waiters() {
        let calls = WaitingCalls::default();
        let name = |text: &str| Name::new(text).unwrap();
        for (id, lock, since) in [(1, "b", 50), (2, "a", 40), (3, "b", 30), (4, "c", 90)] {
            calls.begin(id, &name(lock), LockKind::Mutex, BootInstant(since));
        }
        let seen = |most| -> Vec<(String, u64, u64)> {
            let longest = calls.longest(most).into_iter();
            longest
                .map(|one| (one.name.as_str().to_owned(), one.waiters, one.since.0))
                .collect()
        };
        assert_eq!(seen(2), [("b".to_owned(), 2, 30), ("a".to_owned(), 1, 40)]);
        calls.end(3);
        calls.end(4);
        assert_eq!(seen(9), [("a".to_owned(), 1, 40), ("b".to_owned(), 1, 50)]);
    }
}
