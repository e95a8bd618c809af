//! The module layout: which module may name which, one meaning for each type name, and comments that a new reader
//! understands.

use std::collections::BTreeMap;

use super::imports::Files;
use super::{sources, used};

/// Type names that mean the same thing in every store, so each store may define its own.
const FLOOR_PLAN: [&str; 14] = [
    "Address",
    "ByteStream",
    "Connection",
    "ConnectionInner",
    "ConnectionRuntime",
    "ConnectionSlot",
    "Endpoint",
    "HostAddress",
    "LiveConnection",
    "Reply",
    "RequestError",
    "Shared",
    // Associated types of the standard library's traits.
    "Output",
    "Error",
];

/// The blocking types have the names of the asynchronous ones.
const BLOCKING: [&str; 17] = [
    "Barrier",
    "BarrierGuard",
    "Client",
    "CountingSemaphore",
    "Election",
    "FencedGuard",
    "FencedLock",
    "Guard",
    "Latch",
    "LeaderChanges",
    "Leadership",
    "Lock",
    "LockGuard",
    "OnceJob",
    "Permits",
    "ReadWriteLock",
    "Semaphore",
];

/// The types a file defines, without the associated types of traits.
pub(super) fn defined(code: &str) -> impl Iterator<Item = &str> {
    code.lines().filter_map(|line| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let line = match line.strip_prefix("pub(") {
            Some(rest) => rest.split_once(") ")?.1,
            None => line,
        };
        let rest = ["struct ", "enum ", "trait ", "type "]
            .iter()
            .find_map(|word| line.strip_prefix(word))?;
        rest.split(|c: char| !c.is_alphanumeric() && c != '_')
            .next()
    })
}

#[test]
fn no_type_name_means_two_things() {
    let mut homes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, code) in sources() {
        if file.starts_with("testing/") || file.contains("/tests") {
            continue;
        }
        for name in defined(&code) {
            homes.entry(name.to_owned()).or_default().push(file.clone());
        }
    }
    for (name, files) in homes {
        let shared = FLOOR_PLAN.contains(&&*name)
            || BLOCKING.contains(&&*name) && files.iter().any(|file| file.starts_with("blocking"));
        assert!(
            files.len() == 1 || shared,
            "{name} is defined in {}: give each its own name",
            files.join(", ")
        );
    }
}

/// The first module of the list is the lowest. A module may name those before it, and itself.
fn lower_rooms_name_no_higher_one(rooms: &[&str], exceptions: &[(&str, &str)]) {
    for (file, code) in sources() {
        let here = file.trim_end_matches(".rs").replace('/', "::");
        let Some(level) = rooms.iter().position(|room| here.starts_with(room)) else {
            continue;
        };
        for path in used(&code) {
            let Some(other) = rooms.iter().position(|room| path.starts_with(room)) else {
                continue;
            };
            let known = exceptions
                .iter()
                .any(|(from, to)| here.starts_with(from) && path.starts_with(to));
            assert!(
                other <= level || known,
                "{file} must not use crate::{path}: {} is above {}",
                rooms[other],
                rooms[level]
            );
        }
    }
}

#[test]
fn rooms_of_the_engine_name_lower_ones() {
    lower_rooms_name_no_higher_one(
        &[
            "types",
            "engine::runtime",
            "engine::instruments",
            "engine::lease",
            "engine::fairness",
            "engine::local_queue",
            "engine::acquire",
        ],
        &[],
    );
}

#[test]
fn no_circle_of_imports() {
    let files = sources();
    let files = files.iter().map(|(file, code)| (&**file, &**code));
    if let Some(circle) = Files::of(files).circle() {
        panic!("these files import each other in a circle: {circle:?}");
    }
}

#[test]
fn rooms_of_redis_name_lower_ones() {
    lower_rooms_name_no_higher_one(
        &[
            "store::redis::keys",
            "store::redis::address",
            "store::redis::slots",
            "store::redis::wire",
            "store::redis::topology",
            "store::redis::replicas",
            "store::redis::pubsub",
            "store::redis::layouts",
            "store::redis::inspect",
            "store::redis::doctor",
            "store::redis::open",
        ],
        &[],
    );
}

#[test]
fn no_comment_begins_with_a_riddle() {
    for (file, code) in sources() {
        for line in code.lines().map(str::trim_start) {
            let Some(text) = line
                .strip_prefix("//")
                .map(|rest| rest.trim_start_matches(['/', '!']).trim_start())
            else {
                continue;
            };
            for word in ["Who ", "Whoever ", "What is "] {
                assert!(!text.starts_with(word), "{file}: {line}");
            }
        }
    }
}
