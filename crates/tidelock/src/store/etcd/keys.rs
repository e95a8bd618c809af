//! The key layout of locks. It is that of etcd's own `concurrency` package, so `etcdctl lock` can share locks with us.
//!
//! Each holder or waiter has a key `PREFIX/NAME/ID`; the oldest key holds the lock. In names `/` is escaped as `%2F`
//! and `%` as `%25`. Otherwise the keys of a lock `a/b` would be in the queue of the lock `a`.
//!
//! The sides of a read-write lock are in the same queue, with keys `PREFIX/NAME/read/ID` and `PREFIX/NAME/write/ID`.
//!
//! The number of permits of a semaphore is at `PREFIX/NAME/permits`: in the queue, so that a client that knows only locks
//! waits for it. Its holders and waiters have keys `PREFIX/%permits/NAME/held/ID.COUNT` and `…/waiting/ID.COUNT`.

use crate::snapshot::Mode;
use crate::store::{ClientId, LockKind, Name};

/// Builds and reads the keys under a prefix.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    /// Empty, or ends with a slash.
    prefix: String,
}

/// A range of keys: the queue of one lock, or all keys under the prefix.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    pub(crate) first: Vec<u8>,
    /// The end of the range, exclusive.
    pub(crate) end: Vec<u8>,
}

/// Prefix of the keys with client details. No escaped name contains it: there, two hexadecimal digits follow each `%`.
const CLIENTS: &str = "%clients/";

/// Prefix of the keys with the marks of jobs, as [`CLIENTS`].
const MARKS: &str = "%marks/";

/// Prefix of the keys that remember a token, as [`CLIENTS`].
const TOKENS: &str = "%tokens/";

/// Prefix of the keys of those that hold permits or wait for some, as [`CLIENTS`].
const PERMITS: &str = "%permits/";

/// Folder of the holders of a semaphore, in its folder.
const HELD: &str = "held/";

/// Folder of the waiters of a semaphore, in its folder.
const WAITING: &str = "waiting/";

/// The key with the number of permits of a semaphore, in the queue of a lock. All ids there are hexadecimal numbers, or in
/// the folder of a side.
const NUMBER: &str = "permits";

/// Suffix of the key of a lock-delay marker. A ticket's key ends with a number, so it never has this suffix.
const MARKER: &str = ".delay";

/// Folder of the readers in the queue of a lock. All other ids are hexadecimal numbers, so none begins like this.
pub(crate) const READ: &str = "read/";

/// Folder of the writers, as [`READ`].
pub(crate) const WRITE: &str = "write/";

/// Suffix of the key that keeps a writer's place for the reader that it may become. It is in the folder of the readers,
/// so that it blocks none of them.
const PLACE: &str = ".downgrade";

/// The marker's key for a ticket's key.
pub(crate) fn marker(key: &str) -> String {
    format!("{key}{MARKER}")
}

/// As [`marker`], for the bytes of a key.
pub(crate) fn marker_of(key: &[u8]) -> Vec<u8> {
    [key, MARKER.as_bytes()].concat()
}

/// The ticket's key for a marker's key. `None`: this is not a marker.
pub(crate) fn marked(key: &[u8]) -> Option<&[u8]> {
    key.strip_suffix(MARKER.as_bytes())
}

/// The key of the reader that has, or would have, the place at this key. `None`: this is no place.
pub(crate) fn placed(key: &[u8]) -> Option<&[u8]> {
    key.strip_suffix(PLACE.as_bytes())
}

/// Whether a key only stands beside the key of a holder or waiter.
pub(crate) fn stands_beside(key: &[u8]) -> bool {
    marked(key).is_some() || placed(key).is_some()
}

impl Folder {
    /// The folder of the readers within the queue of a lock.
    pub(crate) fn readers(&self) -> Self {
        let [before, behind] = self.without_readers();
        Self {
            first: before.end,
            end: behind.first,
        }
    }

    /// The queue of a lock without the folder of the readers: the range before it and the one behind it.
    pub(crate) fn without_readers(&self) -> [Self; 2] {
        let (first, end) = (self.first.clone(), self.end.clone());
        let readers = [&*first, READ.as_bytes()].concat();
        let behind = [&*first, READ.trim_end_matches('/').as_bytes(), b"0"].concat(); // as in `Keys::folder`
        [
            Self {
                first,
                end: readers,
            },
            Self { first: behind, end },
        ]
    }

    /// How the owner of a key in this queue wants the lock.
    pub(crate) fn mode(&self, key: &[u8]) -> Mode {
        let id = key.strip_prefix(&*self.first).unwrap_or_default();
        if id.starts_with(READ.as_bytes()) {
            Mode::Read
        } else if id.starts_with(WRITE.as_bytes()) {
            Mode::Write
        } else {
            Mode::Exclusive
        }
    }

    /// The folder of the holders within that of a semaphore.
    pub(crate) fn holders(&self) -> Self {
        let end = HELD.replace('/', "0"); // as in `Keys::folder`
        Self {
            first: [&*self.first, HELD.as_bytes()].concat(),
            end: [&*self.first, end.as_bytes()].concat(),
        }
    }

    /// How many permits the owner of a key in the folder of a semaphore wants, and whether it has them. `None`: it is
    /// another kind of key.
    pub(crate) fn permits(&self, key: &[u8]) -> Option<(u16, bool)> {
        let rest = std::str::from_utf8(key.strip_prefix(&*self.first)?).ok()?;
        let (rest, held) = match rest.strip_prefix(HELD) {
            Some(rest) => (rest, true),
            None => (rest.strip_prefix(WAITING)?, false),
        };
        Some((count_of(rest)?, held))
    }

    /// The place that belongs to a key of this queue. `None`: its owner neither reads nor writes.
    pub(crate) fn place(&self, key: &[u8]) -> Option<Vec<u8>> {
        let id = key.strip_prefix(&*self.first)?;
        let sides = [READ, WRITE].into_iter();
        let id = { sides }.find_map(|side| id.strip_prefix(side.as_bytes()))?;
        Some([&*self.first, READ.as_bytes(), id, PLACE.as_bytes()].concat())
    }
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        let prefix = prefix.trim_end_matches('/');
        let slash = if prefix.is_empty() { "" } else { "/" };
        Self {
            prefix: format!("{prefix}{slash}"),
        }
    }

    /// The key range of a lock's queue.
    pub(crate) fn folder(&self, name: &Name) -> Folder {
        let mut folder = format!("{}{}", self.prefix, escaped(name.as_str()));
        let end = format!("{folder}0").into_bytes(); // `0` is the byte after `/`
        folder.push('/');
        Folder {
            first: folder.into_bytes(),
            end,
        }
    }

    /// The key of a ticket that holds or waits. As in `concurrency`, the id of the lease that it was first written under
    /// names it. For permits, this is the key of a holder; a waiter has [another one](Self::waits_for_permits).
    pub(crate) fn own(&self, name: &Name, kind: LockKind, id: i64) -> String {
        let side = match kind {
            LockKind::Permits(count) => return self.permits_of(name, HELD, (id, count)),
            LockKind::Read | LockKind::ReadFenced => READ,
            LockKind::Write | LockKind::WriteFenced => WRITE,
            _ => "",
        };
        format!("{}{}/{side}{id:x}", self.prefix, escaped(name.as_str()))
    }

    /// The key of a ticket that waits for so many permits.
    pub(crate) fn waits_for_permits(&self, name: &Name, count: u16, id: i64) -> String {
        self.permits_of(name, WAITING, (id, count))
    }

    fn permits_of(&self, name: &Name, folder: &str, (id, count): (i64, u16)) -> String {
        let name = escaped(name.as_str());
        format!("{}{PERMITS}{name}/{folder}{id:x}.{count}", self.prefix)
    }

    /// The folder of the holders and waiters of a semaphore.
    pub(crate) fn permits(&self, name: &Name) -> Folder {
        let folder = format!("{}{PERMITS}{}", self.prefix, escaped(name.as_str()));
        Folder {
            first: format!("{folder}/").into_bytes(),
            end: format!("{folder}0").into_bytes(), // `0` is the byte after `/`
        }
    }

    /// The key with the number of permits of a semaphore.
    pub(crate) fn number(&self, name: &Name) -> String {
        format!("{}{}/{NUMBER}", self.prefix, escaped(name.as_str()))
    }

    /// The key that keeps the place of the writer with this id.
    pub(crate) fn place(&self, name: &Name, id: i64) -> String {
        format!("{}{PLACE}", self.own(name, LockKind::Read, id))
    }

    /// The key whose last change is the newest token of a lock that is not the creation revision of a key in its queue.
    pub(crate) fn tokens(&self, name: &Name) -> String {
        format!("{}{TOKENS}{}", self.prefix, escaped(name.as_str()))
    }

    /// The range of all keys under the prefix.
    pub(crate) fn all(&self) -> Folder {
        if self.prefix.is_empty() {
            // etcd reads a range from zero byte to zero byte as all keys.
            return Folder {
                first: vec![0],
                end: vec![0],
            };
        }
        let end = format!("{}0", self.prefix.trim_end_matches('/'));
        Folder {
            first: self.prefix.clone().into_bytes(),
            end: end.into_bytes(),
        }
    }

    /// The name of the lock that a ticket's key belongs to, or of the semaphore whose holder has this key. `None`: it is
    /// another kind of key. The key of a waiter for permits is one: a semaphore may have waiters and no holder.
    pub(crate) fn name_of(&self, key: &[u8]) -> Option<String> {
        let key = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        if let Some(key) = key.strip_prefix(PERMITS) {
            let (name, rest) = key.split_once('/')?;
            count_of(rest.strip_prefix(HELD)?)?;
            return unescaped(name);
        }
        let (name, id) = key.split_once('/')?;
        let mut sides = [READ, WRITE].into_iter();
        let id = sides.find_map(|side| id.strip_prefix(side)).unwrap_or(id);
        is_id(id).then(|| unescaped(name)).flatten()
    }

    /// The key of a client's details.
    pub(crate) fn client(&self, id: &ClientId) -> String {
        self.client_of(id.as_str())
    }

    /// The key of the mark of a job's slot.
    pub(crate) fn mark(&self, name: &Name, slot: &str) -> String {
        let name = escaped(name.as_str());
        format!("{}{MARKS}{name}/{}", self.prefix, escaped(slot))
    }

    /// The range of the marks of a job.
    pub(crate) fn marks(&self, name: &Name) -> Folder {
        let folder = format!("{}{MARKS}{}", self.prefix, escaped(name.as_str()));
        Folder {
            first: format!("{folder}/").into_bytes(),
            end: format!("{folder}0").into_bytes(), // `0` is the byte after `/`
        }
    }

    /// The slot of a mark's key in [`marks`](Self::marks).
    pub(crate) fn slot_of(marks: &Folder, key: &[u8]) -> Option<String> {
        let slot = key.strip_prefix(&*marks.first)?;
        unescaped(std::str::from_utf8(slot).ok()?)
    }

    pub(crate) fn client_of(&self, uuid: &str) -> String {
        format!("{}{CLIENTS}{uuid}", self.prefix)
    }
}

fn is_id(id: &str) -> bool {
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    (1..=16).contains(&id.len()) && id.bytes().all(hex) && !id.starts_with('0')
}

/// The number of permits in the last part of a key, `ID.COUNT`. `None`: it is another kind of key.
fn count_of(part: &str) -> Option<u16> {
    let (id, count) = part.split_once('.')?;
    let count = count.parse().ok()?;
    is_id(id).then_some(count)
}

fn escaped(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}

/// `None`: the name is empty, or [`escaped`] would not produce it.
fn unescaped(name: &str) -> Option<String> {
    let plain = name.replace("%2F", "/").replace("%25", "%");
    (!plain.is_empty() && escaped(&plain) == name).then_some(plain)
}

#[cfg(test)]
mod tests;
