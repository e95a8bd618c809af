//! Finds the tests that cover rows by name, builds them once, runs them, and reports the results.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::workspace;

use crate::catalogue::Answer;
use crate::store::Store;

const PACKAGES: [&str; 3] = ["tidelock", "tidelock-cli", "real_servers"];

/// One test of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Test {
    /// The test binary.
    target: String,
    /// The name with its modules.
    path: String,
}

impl Test {
    /// The name without its modules: readers can search for it.
    pub(crate) fn name(&self) -> &str {
        let mut parts = self.path.rsplit("::");
        // A promise of the fleet is a module with a test for each store.
        let last = usize::from(self.target == "fleet");
        parts.nth(last).unwrap_or(&self.path)
    }

    /// The store that this test covers.
    fn store(&self) -> Option<Store> {
        let module = self.path.split("::").next().unwrap_or_default();
        if matches!(&*self.target, "interop" | "shares") {
            let topologies = [
                ("sentinels", Store::Sentinel),
                ("cluster", Store::Cluster),
                ("majorities", Store::Redlock),
            ];
            let found = topologies
                .iter()
                .find(|(word, _)| self.name().contains(word));
            return Some(found.map_or(Store::Redis, |(_, store)| *store));
        }
        let last = self.path.rsplit("::").next().unwrap_or_default();
        Some(match (&*self.target, module) {
            ("fleet", _) => return in_the_fleet(last),
            ("redis" | "redis_faults" | "leaks" | "round_trips", _) | ("sets", "all") => {
                Store::Redis
            }
            ("redis_plain", _) => Store::Plain,
            ("replicas", _) => Store::Replicas,
            ("sentinel" | "failovers", _) => Store::Sentinel,
            ("cluster", _) => Store::Cluster,
            ("sets", _) => Store::Redlock,
            ("postgres", _) => Store::Postgres,
            ("mysql", _) => Store::Mariadb,
            ("zookeeper", _) => Store::Zookeeper,
            ("etcd", _) => Store::Etcd,
            ("memcached", _) => Store::Memcached,
            ("it", "sqlite") | ("cli" | "sqlite", _) => Store::Sqlite,
            ("it", "memory") => Store::Memory,
            _ => return None,
        })
    }

    /// Whether it shows something of this store: one test of the fleet may be about several stores.
    fn covers(&self, store: Store) -> bool {
        if self.target == "fleet" && self.path.ends_with("::on_every_store") {
            return OF_THE_FLEET.contains(&store);
        }
        self.store() == Some(store)
    }

    /// Whether a row means this test by that name. A name with a module matches exactly; tests that run in several modules
    /// need it.
    fn is_called(&self, name: &str) -> bool {
        if name.contains("::") {
            self.path == name
        } else {
            self.name() == name && self.is_plain()
        }
    }

    /// The suite runs in several variants: with injected faults, from threads, as part of other tests. The plain
    /// variant is enough here.
    fn is_plain(&self) -> bool {
        let other = [
            "all_of_one",
            "all_of_three",
            "majority_of_three",
            "chaos",
            "threads",
            "of_a_set",
            "without_scripts",
            "blocking",
            "simulated",
        ];
        !self
            .path
            .split("::")
            .any(|part| other.iter().any(|other| part.contains(other)))
    }
}

/// The stores of a test of the fleet that runs on all of them at once.
const OF_THE_FLEET: [Store; 6] = [
    Store::Redis,
    Store::Sqlite,
    Store::Postgres,
    Store::Mariadb,
    Store::Zookeeper,
    Store::Etcd,
];

/// The store of a test of the fleet, which has its name.
fn in_the_fleet(name: &str) -> Option<Store> {
    Some(match name {
        "redis" => Store::Redis,
        "redis_plain" => Store::Plain,
        "redis_replicas" => Store::Replicas,
        "redis_sentinels" => Store::Sentinel,
        "redis_cluster" => Store::Cluster,
        "sqlite" => Store::Sqlite,
        "postgres" => Store::Postgres,
        "mysql" => Store::Mariadb,
        "zookeeper" => Store::Zookeeper,
        "etcd" => Store::Etcd,
        _ => return None,
    })
}

/// All tests of the packages.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// The path of each binary, and the directory of its package.
    binaries: BTreeMap<String, (PathBuf, PathBuf)>,
    tests: Vec<Test>,
}

impl Index {
    /// Builds the tests and lists those of each binary.
    pub(crate) fn build() -> Result<Self> {
        let mut index = Self::default();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["test", "--no-run", "--quiet", "--message-format=json"]);
        command.args(["--lib", "--bins", "--tests"]);
        command.args(PACKAGES.iter().flat_map(|package| ["-p", package]));
        command.current_dir(workspace());
        let said = command.output().context("starting cargo")?;
        let error = String::from_utf8_lossy(&said.stderr);
        ensure!(said.status.success(), "the tests do not build:\n{error}");
        for line in String::from_utf8_lossy(&said.stdout).lines() {
            if let Some((target, program, package)) = binary(line) {
                index.add(&target, &program)?;
                index.binaries.insert(target, (program, package));
            }
        }
        Ok(index)
    }

    fn add(&mut self, target: &str, program: &Path) -> Result<()> {
        let all = list(program, &[])?;
        let ignored = list(program, &["--ignored"])?;
        for path in all.into_iter().filter(|path| !ignored.contains(path)) {
            let target = target.to_owned();
            self.tests.push(Test { target, path });
        }
        Ok(())
    }

    /// The tests that cover a row for a store.
    pub(crate) fn answering(&self, row: u32, store: Store, answer: &Answer) -> Vec<Test> {
        let number = format!("t{row:02}_");
        let fits = |test: &&Test| {
            let named = answer.tests.iter().any(|name| test.is_called(name));
            let own = test.name().starts_with(&number) && test.is_plain();
            test.covers(store) && (own || named)
        };
        self.tests.iter().filter(fits).cloned().collect()
    }

    /// The names in the answer that no test for this store has. Such a test was renamed, or is ignored, or was never there. The
    /// other tests of the row would pass without it.
    pub(crate) fn missing(&self, store: Store, answer: &Answer) -> Vec<&'static str> {
        let mut names = answer.tests.clone();
        names.retain(|name| {
            let mut tests = self.tests.iter();
            !tests.any(|test| test.covers(store) && test.is_called(name))
        });
        names
    }

    /// Runs these tests, each binary once. `true`: the test passed. A test without an entry did not finish.
    pub(crate) fn run(&self, chosen: &[Test]) -> Result<HashMap<Test, bool>> {
        let mut results = HashMap::new();
        for (target, (program, package)) in &self.binaries {
            let own: Vec<&Test> = chosen
                .iter()
                .filter(|test| test.target == *target)
                .collect();
            if own.is_empty() {
                continue;
            }
            println!("== {} tests of {target}", own.len());
            let mut command = Command::new(program);
            command
                .arg("--exact")
                .args(own.iter().map(|test| &test.path));
            command.args(["--test-threads", "3"]);
            command.current_dir(package).env("TIDELOCK_REQUIRE", "1");
            command.env("CARGO_MANIFEST_DIR", package);
            let said = command
                .output()
                .with_context(|| format!("starting {target}"))?;
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            for (path, passed) in said.lines().filter_map(verdict) {
                let target = target.clone();
                results.insert(Test { target, path }, passed);
            }
            if own.iter().any(|test| results.get(*test) != Some(&true)) {
                println!("{said}");
            }
        }
        Ok(results)
    }
}

/// A test binary in cargo's output: its name, its path, and the directory of its package.
fn binary(line: &str) -> Option<(String, PathBuf, PathBuf)> {
    let message: Value = serde_json::from_str(line).ok()?;
    let program = message.get("executable")?.as_str()?;
    let target = message.get("target")?;
    if target.get("kind")?.get(0)?.as_str()? != "test" {
        return None;
    }
    let name = target.get("name")?.as_str()?;
    let manifest = Path::new(message.get("manifest_path")?.as_str()?);
    // This target has no tests. It only lists what the other targets leave out.
    (name != "left_out").then(|| (name.to_owned(), program.into(), manifest.with_file_name("")))
}

fn list(program: &Path, more: &[&str]) -> Result<Vec<String>> {
    let mut command = Command::new(program);
    let said = command
        .args(["--list", "--format", "terse"])
        .args(more)
        .output()
        .with_context(|| program.display().to_string())?;
    // Otherwise none of its tests would run, and the rows would be covered by those of other binaries.
    ensure!(
        said.status.success(),
        "{} cannot list its tests: {}\n{}",
        program.display(),
        said.status,
        String::from_utf8_lossy(&said.stderr)
    );
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let tests = text.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(tests.map(str::to_owned).collect())
}

/// `test path ... ok`
fn verdict(line: &str) -> Option<(String, bool)> {
    let (path, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let path = path.split(" - ").next().unwrap_or(path);
    Some((path.to_owned(), result.starts_with("ok")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(target: &str, path: &str) -> Test {
        Test {
            target: target.to_owned(),
            path: path.to_owned(),
        }
    }

    #[test]
    fn a_name_without_a_test_for_the_store_is_missing() {
        let index = Index {
            tests: vec![
                test("redis", "promises::a_lost_reply_is_cleaned_up"),
                test("etcd", "faults::each_waits_for_the_other"),
                test("redis_plain", "without_scripts::one_holder_at_a_time"),
            ],
            ..Index::default()
        };
        let missing = |store, tests: &[&'static str]| {
            let tests = tests.to_vec();
            let answer = Answer {
                tests,
                ..Answer::default()
            };
            index.missing(store, &answer)
        };
        let (reply, turns) = ("a_lost_reply_is_cleaned_up", "each_waits_for_the_other");
        assert!(missing(Store::Redis, &[reply]).is_empty());
        assert_eq!(missing(Store::Redis, &[reply, turns]), [turns]);
        assert_eq!(missing(Store::Etcd, &[turns, "renamed"]), ["renamed"]);
        let other = "without_scripts::one_holder_at_a_time";
        assert!(missing(Store::Plain, &[other]).is_empty());
        assert_eq!(missing(Store::Plain, &["one_holder_at_a_time"]).len(), 1);
    }

    #[test]
    fn a_binary_that_cannot_list_its_tests_is_an_error() {
        assert!(list(Path::new("false"), &[]).is_err());
    }

    #[test]
    fn verdicts_are_read() {
        let ok = ("holder::t01_a".to_owned(), true);
        assert_eq!(verdict("test holder::t01_a ... ok"), Some(ok));
        let failed = ("holder::t01_a".to_owned(), false);
        assert_eq!(verdict("test holder::t01_a ... FAILED"), Some(failed));
        assert_eq!(verdict("test result: ok. 1 passed"), None);
    }

    #[test]
    fn a_test_belongs_to_the_store_it_is_about() {
        let store = |target, path| test(target, path).store();
        assert_eq!(store("sets", "majority::t38_x"), Some(Store::Redlock));
        assert_eq!(store("sets", "all::t53_x"), Some(Store::Redis));
        assert_eq!(store("it", "sqlite::faults::t58_x"), Some(Store::Sqlite));
        assert_eq!(store("it", "api::x"), None);
        let of_the_fleet = test("fleet", "queue::t43_x::redis_cluster");
        assert_eq!(of_the_fleet.store(), Some(Store::Cluster));
        assert_eq!(of_the_fleet.name(), "t43_x");
        let of_all = test("fleet", "barrier::t78_x::on_every_store");
        assert_eq!(of_all.name(), "t78_x");
        assert!(of_all.covers(Store::Etcd) && !of_all.covers(Store::Cluster));
        assert!(!test("redis_plain", "chaos_without_scripts::x").is_plain());
        assert_eq!(test("redis_faults", "holder::t01_x").name(), "t01_x");
    }
}
