//! The blocking API has every method of the asynchronous one, and what it has besides is listed here.

use std::collections::BTreeSet;

use super::sources;

/// The types that both APIs have. Their methods may be in several files.
const TYPES: [&str; 14] = [
    "Barrier",
    "BarrierGuard",
    "Client",
    "Election",
    "Lock",
    "FencedLock",
    "Guard",
    "FencedGuard",
    "Leadership",
    "OnceJob",
    "ReadWriteLock",
    "Semaphore",
    "CountingSemaphore",
    "Latch",
];

/// Methods of one API alone, with the reason.
const ALONE: [(&str, &str); 11] = [
    ("Leadership::lost_timeout", "a thread has no select"),
    ("OnceJob::begin", "the blocking run takes any code"),
    ("Client::is_idle", "for tests of leaks"),
    ("Client::as_async", "the way to the asynchronous client"),
    ("Client::from_async", "any asynchronous connect"),
    ("Client::wrap", "a lock of an asynchronous RedLock"),
    ("Client::closing_timeout", "a thread has no select"),
    ("Guard::closing_timeout", "a thread has no select"),
    ("Guard::on_closing", "a thread has no select"),
    ("Guard::lost_timeout", "a thread has no select"),
    ("Guard::on_lost", "a thread has no select"),
];

/// The public methods of a type, from its `impl` blocks without a trait.
fn methods(code: &str, of: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut inside = false;
    for line in code.lines() {
        if line.starts_with("impl") {
            let head = line.trim_end_matches(" {");
            let own = head.rsplit(' ').next().unwrap_or_default();
            inside = !line.contains(" for ") && own.split('<').next() == Some(of);
        } else if line == "}" {
            inside = false;
        }
        let name = ["    pub fn ", "    pub async fn ", "    pub const fn "]
            .iter()
            .find_map(|start| line.strip_prefix(start));
        if let Some(name) = name.filter(|_| inside) {
            let end = name.find(['(', '<']).unwrap_or(name.len());
            found.insert(format!("{of}::{}", &name[..end]));
        }
    }
    found
}

#[test]
fn the_blocking_api_has_the_methods_of_the_async_one() {
    let sources = sources();
    let mut unused: BTreeSet<&str> = ALONE.iter().map(|(name, _)| *name).collect();
    for of in TYPES {
        let mut both = [BTreeSet::new(), BTreeSet::new()];
        for (file, code) in &sources {
            let faces = !["engine", "store", "testing"]
                .iter()
                .any(|room| file.starts_with(room));
            if faces {
                both[usize::from(file.starts_with("blocking"))].extend(methods(code, of));
            }
        }
        assert!(!both[0].is_empty() && !both[1].is_empty(), "{of} is found");
        for name in both[0].symmetric_difference(&both[1]) {
            assert!(
                unused.remove(name.as_str()),
                "{name} is in one API only: add it to the other, or to this list with the reason"
            );
        }
    }
    assert!(unused.is_empty(), "not in one API only: {unused:?}");
}
