//! The key layout of locks. It is that of etcd's own `concurrency` package, so `etcdctl lock` can share locks with us.
//!
//! Each holder or waiter has a key `PREFIX/NAME/ID`; the oldest key holds the lock. In names `/` is escaped as `%2F`
//! and `%` as `%25`. Otherwise the keys of a lock `a/b` would be in the queue of the lock `a`.

use crate::store::{ClientId, Name};

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

/// Suffix of the key of a lock-delay marker. A ticket's key ends with a number, so it never has this suffix.
const MARKER: &str = ".delay";

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

    /// The key of a ticket. As in `concurrency`, the id of the lease that it was first written under names it.
    pub(crate) fn own(&self, name: &Name, id: i64) -> String {
        format!("{}{}/{id:x}", self.prefix, escaped(name.as_str()))
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

    /// The name of the lock that a ticket's key belongs to. `None`: it is another kind of key.
    pub(crate) fn name_of(&self, key: &[u8]) -> Option<String> {
        let key = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        let (name, id) = key.split_once('/')?;
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let fits = (1..=16).contains(&id.len()) && id.bytes().all(hex) && !id.starts_with('0');
        fits.then(|| unescaped(name)).flatten()
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

fn escaped(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}

/// `None`: the name is empty, or [`escaped`] would not produce it.
fn unescaped(name: &str) -> Option<String> {
    let plain = name.replace("%2F", "/").replace("%25", "%");
    (!plain.is_empty() && escaped(&plain) == name).then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn the_folder_is_that_of_etcdctl() {
        let folder = Keys::new("").folder(&name("stock"));
        assert_eq!(
            (&*folder.first, &*folder.end),
            (&b"stock/"[..], &b"stock0"[..])
        );
        let folder = Keys::new("shop/locks/").folder(&name("stock"));
        assert_eq!(folder.first, b"shop/locks/stock/");
        assert_eq!(Keys::new("/shop").folder(&name("a")).first, b"/shop/a/");
    }

    #[test]
    fn names_come_back_and_do_not_lie_in_each_other() {
        let keys = Keys::new("shop");
        for text in ["a", "a/b", "50%", "%2F", "a%2Fb/", "/", "ä b\n"] {
            let mut key = keys.folder(&name(text)).first;
            assert_eq!(key.split(|b| *b == b'/').count(), 3, "{text}");
            key.extend(b"1f");
            assert_eq!(keys.name_of(&key).as_deref(), Some(text));
        }
        for foreign in [
            "shop/a",
            "shop/a/b/1f",
            "shop/a/xyz",
            "other/a/1f",
            "shop/a%/1f",
            "shop//1f",
            "shop/a/01",
        ] {
            assert_eq!(keys.name_of(foreign.as_bytes()), None, "{foreign}");
        }
    }

    #[test]
    fn clients_are_no_locks() {
        let keys = Keys::new("");
        let key = keys.client_of("abc");
        assert_eq!(keys.name_of(key.as_bytes()), None);
    }

    #[test]
    fn marks_are_no_locks_and_their_slots_come_back() {
        let keys = Keys::new("shop");
        for slot in ["1f", "2026-11-20T03:00:00Z", "a/b", "50%"] {
            let key = keys.mark(&name("a/b"), slot);
            assert_eq!(keys.name_of(key.as_bytes()), None, "{key}");
            let marks = keys.marks(&name("a/b"));
            assert!(*marks.first <= *key.as_bytes() && *key.as_bytes() < *marks.end);
            assert_eq!(Keys::slot_of(&marks, key.as_bytes()).as_deref(), Some(slot));
        }
    }

    #[test]
    fn markers_stand_in_the_queue_and_are_no_holders() {
        let keys = Keys::new("shop");
        let (name, folder) = (name("a"), keys.folder(&name("a")));
        let key = keys.own(&name, 0x1f);
        let beside = marker(&key);
        assert_eq!(beside, "shop/a/1f.delay");
        assert!(*folder.first <= *beside.as_bytes() && *beside.as_bytes() < *folder.end);
        assert_eq!(keys.name_of(beside.as_bytes()), None);
        assert_eq!(marked(beside.as_bytes()), Some(key.as_bytes()));
        assert_eq!(marked(key.as_bytes()), None);
    }
}
