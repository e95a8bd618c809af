//! The module layout: which module may name which, one meaning for each type name, and comments that a new reader
//! understands.

use std::collections::{BTreeMap, BTreeSet};

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
const BLOCKING: [&str; 7] = [
    "Client",
    "FencedGuard",
    "FencedLock",
    "Guard",
    "Lock",
    "LockGuard",
    "ReadWriteLock",
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
            "engine::lease",
            "engine::local_queue",
            "engine::acquire",
        ],
        &[],
    );
}

/// The most files of a room that may import each other in a circle. A file that belongs to none of these rooms is in no
/// circle. The numbers are what is left; make them smaller.
const CIRCLES: [(&str, usize); 12] = [
    // A builder makes a client, `Client::builder` makes a builder, and `redis::Topology::connect` takes one, while the
    // builder passes a topology to its store.
    ("builder", 3),
    ("client", 3),
    ("redis", 3),
    // A queue has waiters, a waiter gets a notification, one notification makes it the leader, and a leader has the
    // queue.
    ("engine::local_queue", 4),
    // A wake has a timer, and the timers wake tasks.
    ("engine::runtime", 2),
    ("store::etcd", 2),
    ("store::memcached", 3),
    ("store::postgres", 2),
    ("store::redis", 11),
    ("store::set", 2),
    ("store::sqlite", 3),
    ("store::zookeeper", 3),
];

/// The files that each file imports, by module path.
fn imports() -> BTreeMap<String, BTreeSet<String>> {
    let files: BTreeMap<String, String> = sources()
        .into_iter()
        .filter(|(file, _)| !file.starts_with("testing/") && !file.ends_with("fuzz.rs"))
        .map(|(file, code)| {
            let module = file.trim_end_matches(".rs").trim_end_matches("/mod");
            (module.replace('/', "::"), code)
        })
        .collect();
    let file_of = |path: &str| {
        let mut path = path;
        while !files.contains_key(path) {
            path = path.rsplit_once("::")?.0;
        }
        Some(path.to_owned())
    };
    let each = files.iter().map(|(module, code)| {
        // An import for the docs is no dependency.
        let code = code.replace("#[cfg(doc)]\nuse crate::", "");
        let named = used(&code).into_iter().filter_map(|path| file_of(&path));
        (
            module.clone(),
            named.filter(|file| file != module).collect(),
        )
    });
    each.collect()
}

/// The files that can be reached from a file by imports.
fn reached<'a>(
    from: &'a str,
    imports: &'a BTreeMap<String, BTreeSet<String>>,
) -> BTreeSet<&'a str> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        for import in &imports[file] {
            if reached.insert(&**import) {
                next.push(import);
            }
        }
    }
    reached
}

#[test]
fn no_circle_of_imports_grows() {
    let imports = imports();
    let reached: BTreeMap<&str, BTreeSet<&str>> = imports
        .keys()
        .map(|file| (&**file, reached(file, &imports)))
        .collect();
    for (file, others) in &reached {
        if !others.contains(file) {
            continue;
        }
        let circle: Vec<_> = others
            .iter()
            .filter(|other| reached[*other].contains(file))
            .collect();
        let room = CIRCLES.iter().find(|(room, _)| file.starts_with(room));
        let most = room.map_or(0, |(_, most)| *most);
        assert!(
            circle.len() <= most,
            "{} files import each other in a circle, {most} may: {circle:?}",
            circle.len()
        );
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
