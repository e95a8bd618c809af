//! Which cell of the page a test belongs to: a kind of lock, a version of Redisson, and a topology.

use anyhow::{Context, Result};

/// The versions of Redisson in the tests, newest first, and the form in which a test names each.
pub(super) const VERSIONS: [(&str, &str); 7] = [
    ("4.7.0", "newest"),
    ("3.52.0", "3_52_0"),
    ("3.29.0", "3_29_0"),
    ("3.27.2", "3_27_2"),
    ("3.22.0", "3_22_0"),
    ("3.15.6", "3_15_6"),
    ("3.12.5", "3_12_5"),
];

/// What Redisson calls it, what tidelock calls it, and how many of [`VERSIONS`] have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) redisson: &'static str,
    pub(super) versions: usize,
}

const fn kind(name: &'static str, redisson: &'static str, versions: usize) -> Kind {
    Kind {
        name,
        redisson,
        versions,
    }
}

const PLAIN: Kind = kind("lock", "`RLock`", 7);
const FENCED: Kind = kind("fenced lock", "`RFencedLock`, since 3.19", 5);
const FAIR: Kind = kind("fair lock", "`RLock` of `getFairLock`", 7);
const SPIN: Kind = kind("spin lock", "`RLock` of `getSpinLock`, since 3.15", 6);
const NON_REENTRANT: Kind = kind(
    "non-reentrant lock",
    "`RLock` of `getNonReentrantLock`, since 4.4",
    1,
);
const SIDES: Kind = kind("read-write lock", "`RReadWriteLock`", 7);
const PERMITS: Kind = kind("semaphore", "`RPermitExpirableSemaphore`", 7);
const COUNTING: Kind = kind("counting semaphore", "`RSemaphore`", 7);
const LATCH: Kind = kind("latch", "`RCountDownLatch`", 7);
const MULTI: Kind = kind("multi lock", "`RedissonMultiLock`", 7);
const MAJORITY: Kind = kind("majority of servers", "`RedissonRedLock`", 7);
const MIXED: Kind = kind("two kinds on one name", "`RReadWriteLock` and `RLock`", 7);

/// All kinds, in the order of the page.
pub(super) const KINDS: [Kind; 12] = [
    PLAIN,
    FENCED,
    FAIR,
    SPIN,
    NON_REENTRANT,
    SIDES,
    PERMITS,
    COUNTING,
    LATCH,
    MULTI,
    MAJORITY,
    MIXED,
];

/// The topologies, in the order of the page.
pub(super) const TOPOLOGIES: [&str; 3] = ["one server", "Sentinel", "Cluster"];

/// The kind of the tests of a module.
const MODULES: [(&str, Kind); 21] = [
    ("counting", COUNTING),
    ("counts", PLAIN),
    ("elections", PLAIN),
    ("fair", FAIR),
    ("fair_load", FAIR),
    ("fair_queue", FAIR),
    ("fenced", FENCED),
    ("force", PLAIN),
    ("generations", PLAIN),
    ("latches", LATCH),
    ("leases", PLAIN),
    ("load", PLAIN),
    ("mixed", MIXED),
    ("non_reentrant", NON_REENTRANT),
    ("permits", PERMITS),
    ("processes", PLAIN),
    ("remains", PLAIN),
    ("sets", MULTI),
    ("sides", SIDES),
    ("spin", SPIN),
    ("wakes", PLAIN),
];

/// Modules with tests of several kinds. The first of these words in the name of a test tells its kind.
const WORDS: [(&str, Kind); 13] = [
    ("non_reentrant", NON_REENTRANT),
    ("spin", SPIN),
    ("majorities", MAJORITY),
    ("counted", COUNTING),
    ("permits", PERMITS),
    ("latch", LATCH),
    ("readers_and_writers", SIDES),
    ("fair_queue_leaves", FAIR),
    ("fair_locks", FAIR),
    ("queue_of_a_fair_lock", FAIR),
    ("fenced", FENCED),
    ("tokens_of", FENCED),
    ("sets_of", MULTI),
];

/// A test, and where it stands on the page.
#[derive(Debug)]
pub(super) struct Cell {
    /// As the test binary names it.
    pub(super) test: String,
    /// Without the version.
    pub(super) row: String,
    pub(super) kind: Kind,
    /// A place in [`TOPOLOGIES`].
    pub(super) topology: usize,
    /// A place in [`VERSIONS`].
    pub(super) version: usize,
}

impl Cell {
    /// # Errors
    /// Fails if nothing tells the kind: a new module needs an entry here.
    pub(super) fn of(test: &str) -> Result<Self> {
        let (module, name) = test.split_once("::").unwrap_or((test, test));
        let of_module = MODULES.iter().find(|(known, _)| *known == module);
        let fixed = matches!(
            module,
            "counting" | "latches" | "permits" | "sides" | "mixed"
        );
        let word = WORDS.iter().find(|(word, _)| !fixed && name.contains(word));
        let (_, kind) = word
            .or(of_module)
            .or_else(|| SEVERAL.contains(&module).then_some(&("", PLAIN)))
            .with_context(|| format!("{test}: no cell of the page has this test"))?;
        let version = VERSIONS.iter().position(|(_, word)| test.contains(word));
        let topology = if name.contains("in_a_cluster") {
            2
        } else {
            usize::from(name.contains("behind_sentinels"))
        };
        Ok(Self {
            test: test.to_owned(),
            row: row(test),
            kind: *kind,
            topology,
            // A test without a version is of the newest.
            version: version.unwrap_or(0),
        })
    }

    /// The tests that run together: a module, or the long loads of one version, which take as long as all other modules.
    pub(super) fn group(&self) -> &str {
        let names = if self.test.starts_with("loads::") {
            2
        } else {
            1
        };
        let end = self.test.match_indices("::").nth(names - 1);
        end.map_or(&*self.test, |(end, _)| &self.test[..end])
    }
}

/// Modules whose tests are of the lock unless a word of the name says otherwise.
const SEVERAL: [&str; 3] = ["topologies", "turns", "loads"];

/// The name of a test without its version: the same row for all versions.
fn row(test: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in test.split("::") {
        let bare = part.strip_prefix("redisson_").unwrap_or(part);
        if VERSIONS.iter().any(|(_, word)| bare == *word) {
            continue;
        }
        let mut part = part.to_owned();
        for (_, word) in VERSIONS {
            part = part.replace(word, "…");
        }
        parts.push(part);
    }
    parts.join("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_has_one_cell() {
        for (test, row, kind, topology, version) in [
            (
                "topologies::newest::in_a_cluster_readers_and_writers_never_meet",
                "topologies::in_a_cluster_readers_and_writers_never_meet",
                SIDES,
                2,
                0,
            ),
            (
                "topologies::redisson_3_15_6::behind_sentinels_nobody_overlaps",
                "topologies::behind_sentinels_nobody_overlaps",
                PLAIN,
                1,
                5,
            ),
            (
                "fair_load::full::t73_a_fair_queue_with_3_52_0_keeps_its_order",
                "fair_load::full::t73_a_fair_queue_with_…_keeps_its_order",
                FAIR,
                0,
                1,
            ),
            (
                "load::tokens_of_java_and_rust_grow_under_load",
                "load::tokens_of_java_and_rust_grow_under_load",
                FENCED,
                0,
                0,
            ),
            (
                "loads::redisson_3_12_5::behind_sentinels_counted_permits_are_never_too_many",
                "loads::behind_sentinels_counted_permits_are_never_too_many",
                COUNTING,
                1,
                6,
            ),
        ] {
            let cell = Cell::of(test).unwrap();
            let seen = (&*cell.row, cell.kind, cell.topology, cell.version);
            assert_eq!(seen, (row, kind, topology, version), "{test}");
        }
        let refuses = "non_reentrant::two_processes_without_reentry_never_overlap";
        assert_eq!(Cell::of(refuses).unwrap().kind, NON_REENTRANT);
        Cell::of("of_nothing::newest::it_works").unwrap_err();
        let group = |test| Cell::of(test).unwrap().group().to_owned();
        assert_eq!(group("loads::newest::a_latch_opens_once"), "loads::newest");
        assert_eq!(group("fair::newest::t73_x"), "fair");
    }

    /// Otherwise the command fails, an hour after the tests were written.
    #[test]
    fn each_module_of_the_tests_has_a_kind() {
        let path = crate::sh::root().join("tests/real_servers/tests/interop/main.rs");
        let source = std::fs::read_to_string(path).unwrap();
        let modules = source.lines().filter_map(|line| line.strip_prefix("mod "));
        let modules = modules.filter_map(|name| name.strip_suffix(';'));
        let tests: Vec<&str> = modules.filter(|name| *name != "world").collect();
        assert!(tests.len() > 20, "{tests:?}");
        for module in tests {
            Cell::of(&format!("{module}::newest::it_works")).unwrap();
        }
    }

    /// The page would name a version that the tests do not run.
    #[test]
    fn the_versions_are_those_of_the_tests() {
        let path = crate::sh::root().join("tests/testkit/src/java.rs");
        let source = std::fs::read_to_string(path).unwrap();
        let numbers: Vec<&str> = source
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Self::"))
            .filter_map(|line| line.split_once(" => \""))
            .filter_map(|(_, number)| number.strip_suffix("\","))
            .collect();
        assert_eq!(numbers, VERSIONS.map(|(number, _)| number));
    }
}
