//! Which modules may use which, and the size limits of files and functions.

mod blocking_api;
mod documents;
mod exhaustive;
mod functions;
mod glossary;
mod imports;
mod log_fields;
mod monitoring;
mod reference;
mod rooms;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Longer files are split. Doc comments do not count: they are written for the readers of the docs, and a limit on them
/// would only make authors leave out text and examples.
const MOST_LINES: usize = 400;

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Every source file, by its path within `src`, with its text up to its tests.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    files(&source(), &mut found);
    found
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(source()).unwrap().display().to_string();
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap();
            (name, code.to_owned())
        })
        .collect()
}

/// The modules that a file names after `crate::`.
fn used(code: &str) -> BTreeSet<String> {
    code.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split("crate::").skip(1))
        .map(|rest| {
            rest.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':')
                .next()
                .unwrap()
                .trim_end_matches(':')
                .to_owned()
        })
        .collect()
}

/// The task of a connection needs a runtime, and so does work that must not block one. These files may name the module
/// with the runtime, and nothing else of the engine.
const MAY_USE_A_RUNTIME: [&str; 1] = ["store/redis/wire/live_connection.rs"];

/// A store may use only the store contract, the plain types, and what the engine's runtime offers to all.
fn store_may_use(path: &str, store: &str) -> bool {
    let first = path.split("::").next().unwrap();
    let own = format!("store::{store}");
    match first {
        "error" | "fence" | "name" | "redis" | "snapshot" | "types" => true,
        "engine" => [
            "backoff",
            "clock",
            "event",
            "in_flight",
            "sync",
            "wakers",
            "wakes",
        ]
        .iter()
        .any(|file| path.starts_with(&format!("engine::runtime::{file}"))),
        "store" => {
            let second = path.split("::").nth(1).unwrap_or("");
            path.starts_with(&own) || !store_names().contains(second)
        }
        // Plain types may be named without a module.
        name => name.chars().next().is_none_or(char::is_uppercase),
    }
}

fn store_names() -> BTreeSet<&'static str> {
    [
        "etcd",
        "memcached",
        "memory",
        "mysql",
        "postgres",
        "redis",
        "sqlite",
        "zookeeper",
    ]
    .into()
}

#[test]
fn a_store_uses_the_contract_only() {
    for (file, code) in sources() {
        let Some(rest) = file.strip_prefix("store/") else {
            continue;
        };
        let store = rest.trim_end_matches(".rs").split('/').next().unwrap();
        if !store_names().contains(store) {
            continue;
        }
        for path in used(&code) {
            if path.starts_with("engine::runtime::background")
                && MAY_USE_A_RUNTIME.contains(&&*file)
            {
                continue;
            }
            assert!(
                store_may_use(&path, store),
                "{file} must not use crate::{path}"
            );
        }
    }
}

/// A set of stores knows only the common contract, and no particular store.
#[test]
fn a_set_knows_no_store() {
    for (file, code) in sources() {
        if file.starts_with("store/set/") && !file.contains("/tests") {
            for path in used(&code) {
                let fits = store_may_use(&path, "set");
                assert!(fits, "{file} must not use crate::{path}");
            }
        }
    }
}

#[test]
fn the_machinery_knows_no_store() {
    for (file, code) in sources() {
        if file.starts_with("engine/") {
            for path in used(&code) {
                let wrong = [
                    "store::memcached",
                    "store::etcd",
                    "store::memory",
                    "store::mysql",
                    "store::postgres",
                    "store::redis",
                    "store::sqlite",
                    "store::registry",
                    "store::set",
                    "store::zookeeper",
                ]
                .iter()
                .any(|store| path.starts_with(store));
                assert!(!wrong, "{file} must not use crate::{path}");
                assert!(
                    !["client", "lock", "blocking", "testing"].contains(&&*path),
                    "{file} must not use the public face: crate::{path}"
                );
            }
        }
    }
}

#[test]
fn only_the_client_and_the_tests_open_stores() {
    for (file, code) in sources() {
        if code.contains("registry::connect") {
            assert!(
                file == "builder.rs" || file == "builder/lazy.rs" || file.starts_with("testing/"),
                "{file} opens a store"
            );
        }
    }
}

#[test]
fn only_one_file_spawns_and_sleeps() {
    for (file, code) in sources() {
        let is_test = file.starts_with("testing/") || file.contains("/tests");
        if file == "engine/runtime/background.rs" || is_test {
            continue;
        }
        for line in code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
        {
            for call in [
                "tokio::spawn(",
                "tokio::time::sleep",
                "tokio::time::timeout",
            ] {
                assert!(
                    !line.contains(call),
                    "{file}: {call} belongs in engine/runtime/background.rs"
                );
            }
        }
    }
}

/// The tests of schedules see only what comes from `runtime/sync.rs`. The counters of the instruments decide nothing.
#[test]
fn the_engine_takes_its_locks_and_atomics_from_one_file() {
    for (file, code) in sources() {
        let is_engine = file.starts_with("engine/") && !file.contains("/tests");
        let counts = file.starts_with("engine/instruments/") || file == "engine/runtime/timers.rs";
        if !is_engine || counts || file == "engine/runtime/sync.rs" {
            continue;
        }
        let code = code.split("#[cfg(test)]").next().unwrap();
        for name in ["std::sync::atomic", "std::sync::Mutex", "std::sync::RwLock"] {
            assert!(
                !code.contains(name),
                "{file}: take {name} from engine/runtime/sync.rs"
            );
        }
    }
}

#[test]
fn no_file_is_too_long() {
    for (file, _) in sources() {
        let lines = fs::read_to_string(source().join(&file))
            .unwrap()
            .lines()
            .map(str::trim_start)
            .filter(|line| !line.starts_with("///") && !line.starts_with("//!"))
            .count();
        assert!(lines <= MOST_LINES, "{file} has {lines} lines");
    }
}

/// The name that the line declares, if it is a public item that users call or name.
fn declared(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ")?;
    ["const fn ", "async fn ", "fn ", "struct ", "enum "]
        .iter()
        .find_map(|word| rest.strip_prefix(word))
        .map(|name| name.split(|c: char| !c.is_alphanumeric() && c != '_'))?
        .next()
}

/// The public items of a file whose docs have no compiled example, each with its line.
fn without_example(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut docs, mut hidden) = (String::new(), false);
    for (at, line) in code.lines().map(str::trim).enumerate() {
        if let Some(text) = line.strip_prefix("///") {
            docs.push_str(text.trim());
            docs.push('\n');
            continue;
        }
        // Attributes come between the docs and their item.
        if line.starts_with("#[") {
            hidden |= line == "#[doc(hidden)]";
            continue;
        }
        if let Some(name) = declared(line) {
            let example = docs.split_once("# Examples\n").map(|(_, rest)| rest);
            if !hidden
                && !example.is_some_and(|text| {
                    text.starts_with("```\n") || text.starts_with("```no_run\n")
                })
            {
                found.push(format!("{}: {name}", at + 1));
            }
        }
        (docs, hidden) = (String::new(), false);
    }
    found
}

/// The public API: `src` itself, the blocking verbs and `redis`. `fuzz.rs` is hidden from the docs.
#[test]
fn every_public_item_has_an_example() {
    let missing: Vec<String> = sources()
        .iter()
        // The functions in the macro of `unstable.rs` have their docs where they are.
        .filter(|(file, _)| file != "fuzz.rs" && file != "unstable.rs")
        .filter(|(file, _)| {
            !file.contains('/') || ["blocking/", "redis/"].iter().any(|f| file.starts_with(f))
        })
        .flat_map(|(file, code)| {
            let found = without_example(code);
            found.into_iter().map(move |item| format!("{file}:{item}"))
        })
        .collect();
    assert!(
        missing.is_empty(),
        "no `# Examples` that compiles at\n{}",
        missing.join("\n")
    );
}

#[test]
fn every_store_has_a_conformance_module_and_a_row_in_the_docs() {
    let registry = fs::read_to_string(source().join("store/registry.rs")).unwrap();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let servers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/real_servers");
    let mut modules = Vec::new();
    for folder in [tests, servers] {
        let mut found = Vec::new();
        files(&folder, &mut found);
        modules.extend(found.iter().map(|file| fs::read_to_string(file).unwrap()));
    }
    let readme = fs::read_to_string(source().join("../../../README.md")).unwrap();
    let table = readme.contains("| Store").then_some(&readme);
    for store in store_names() {
        if !registry.contains(&format!("{store}::")) {
            continue;
        }
        let tested = modules
            .iter()
            .any(|text| text.contains("conformance!(") && text.contains(store));
        // For stores that need a server, the module with their tests is in tests/real_servers.
        assert!(
            tested || store == "redis",
            "{store} has no conformance module"
        );
        if let Some(readme) = table {
            assert!(
                readme.contains(&format!("{store}:")),
                "{store} has no row in README"
            );
        }
    }
}

#[test]
fn the_page_for_authors_of_stores_counts_the_rules() {
    let contract = fs::read_to_string(source().join("store/contract.rs")).unwrap();
    let is_rule = |line: &&str| {
        let number = line.strip_prefix("/// ").and_then(|it| it.split_once(". "));
        number.is_some_and(|(number, _)| number.parse::<usize>().is_ok())
    };
    let rules = contract.lines().filter(is_rule).count();
    let page = source().join("../../../docs/write-your-own-store.md");
    let page = fs::read_to_string(page).unwrap();
    let told = format!("contract, in {rules} numbered rules");
    assert!(page.contains(&told), "docs/write-your-own-store.md: {told}");
}
