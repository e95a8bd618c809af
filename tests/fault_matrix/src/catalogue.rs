//! The rows of the matrix: each fault, and the stories and tests that cover it for each store.

mod command;
mod files;
mod first;
mod servers;
mod uses;
mod wakes;
mod written;

use crate::stage::Story;
use crate::store::Store::{self, Cluster, Memory, Redis, Replicas, Sentinel, Sqlite};
use crate::stories as s;

/// The stories and tests that cover a row for one store.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) stories: Vec<Story>,
    /// Names of tests besides those that begin with the row's number. Most are promises of the suite. Each must be the name of a
    /// test for this store.
    pub(crate) tests: Vec<&'static str>,
    /// The reason why the row does not apply.
    pub(crate) not_applicable: Option<&'static str>,
}

impl Answer {
    fn played(stories: &[Story]) -> Self {
        Self {
            stories: stories.to_vec(),
            ..Self::default()
        }
    }

    fn tested(tests: &[&'static str]) -> Self {
        Self {
            tests: tests.to_vec(),
            ..Self::default()
        }
    }

    fn no(why: &'static str) -> Self {
        Self {
            not_applicable: Some(why),
            ..Self::default()
        }
    }

    fn and(mut self, tests: &[&'static str]) -> Self {
        self.tests.extend(tests);
        self
    }

    /// Also covered by promises of the suite. Behind replicas the suite does not run: the code is that of one server.
    fn and_promised(self, store: Store, promises: &[&'static str]) -> Self {
        if store == Replicas {
            return self;
        }
        self.and(promises)
    }

    /// Also covered by promises about elections and jobs, which a store without tokens does not have.
    fn and_of_marks(self, store: Store, promises: &[&'static str]) -> Self {
        if store.has_tokens() {
            self.and(promises)
        } else {
            self
        }
    }

    /// Covered by tests that begin with the row's number.
    fn own() -> Self {
        Self::default()
    }
}

/// One fault.
pub(crate) struct Row {
    pub(crate) id: u32,
    pub(crate) what: &'static str,
    pub(crate) answer: fn(Store) -> Answer,
}

const fn row(id: u32, what: &'static str, answer: fn(Store) -> Answer) -> Row {
    Row { id, what, answer }
}

const NO_SERVER: &str = "no server";
const ONE_PROCESS: &str = "one process, which dies with its locks";
const NAMED_ADDRESSES: &str =
    "clients learn the servers' own addresses, where no proxy stands; shown on redis";
const REDIS_ONLY: &str = "an order of Redis";
const NO_MESSAGES: &str = "nothing is told to waiters, they look";
const NO_KIND: &str = "no such kind of lock yet";
const NOT_REPLICATED: &str = "one server";
const TYPES: &str = "its records have one type";
const OWN_RECORDS: &str = "nobody else writes its records";
const CORE: &str = "leases are counted by the core, the same for all stores; shown on redis";
const ELSEWHERE: &str = "about another store";
const SAME_SERVER: &str = "the same code and servers as redis; shown there";

/// Applies to every store except the in-process one.
fn several(store: Store, stories: &[Story]) -> Answer {
    match store {
        Memory => Answer::no(ONE_PROCESS),
        _ => Answer::played(stories),
    }
}

/// Applies to every store that has a server.
fn served(store: Store, stories: &[Story]) -> Answer {
    if store.has_server() {
        Answer::played(stories)
    } else {
        Answer::no(NO_SERVER)
    }
}

/// Applies to every store that the clients reach through a proxy.
fn proxied(store: Store, stories: &[Story]) -> Answer {
    if store.has_server() && !store.has_proxy() {
        return Answer::no(NAMED_ADDRESSES);
    }
    served(store, stories)
}

/// Applies to every Redis topology.
fn redis(store: Store, stories: &[Story]) -> Answer {
    if store.is_redis() {
        Answer::played(stories)
    } else {
        Answer::no(REDIS_ONLY)
    }
}

/// Covered by tests of some stores only.
fn only(store: Store, of: &[Store], otherwise: &'static str) -> Answer {
    if of.contains(&store) {
        Answer::own()
    } else if store.is_redis() && of.contains(&Redis) {
        Answer::no(SAME_SERVER)
    } else {
        Answer::no(otherwise)
    }
}

/// Every row.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    first::ROWS
        .iter()
        .chain(&servers::ROWS)
        .chain(&uses::ROWS)
        .chain(&command::ROWS)
        .chain(&wakes::ROWS)
        .chain(&written::ROWS)
        .chain(&files::ROWS)
}

fn lost_replies(store: Store) -> Answer {
    match store {
        // The suite loses replies in front of every store.
        Sentinel | Cluster | Sqlite | Memory => Answer::own(),
        _ => Answer::played(&[s::REPLIES_LOST]),
    }
}

/// Covered by promises of the suite, which runs on every store.
fn promised(store: Store, promises: &[&'static str]) -> Answer {
    match store {
        Replicas => Answer::no(SAME_SERVER),
        _ => Answer::tested(promises),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The text of all sources below this folder.
    fn sources(folder: &Path, text: &mut String) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, text);
            } else if path.extension().is_some_and(|it| it == "rs") {
                text.push_str(&fs::read_to_string(&path).unwrap());
            }
        }
    }

    /// Whether such a test exists for that store shows only in a run of the matrix.
    #[test]
    fn every_test_that_a_row_names_exists() {
        let mut text = String::new();
        for folder in [
            "crates/tidelock",
            "crates/tidelock-cli",
            "tests/real_servers",
        ] {
            sources(&testkit::workspace().join(folder), &mut text);
        }
        for row in rows() {
            for name in Store::ALL
                .iter()
                .flat_map(|store| (row.answer)(*store).tests)
            {
                let own = name.rsplit("::").next().unwrap_or(name);
                let is_there = text.contains(&format!("fn {own}("));
                assert!(is_there, "T{:02} names {name}, which is no test", row.id);
            }
        }
    }
}
