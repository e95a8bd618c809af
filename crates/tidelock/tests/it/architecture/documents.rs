//! The pages name tests that exist, all keys of the Redis store, and all rights that its scripts need.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::{files, source, sources};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The section of a page with this heading, up to the next heading.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("\n{heading}\n")).unwrap();
    rest.split("\n#").next().unwrap()
}

/// The words in backticks that look like names of tests.
fn tests_named(text: &str) -> BTreeSet<&str> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| word.matches('_').count() >= 2)
        .filter(|word| {
            word.chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        })
        .collect()
}

/// The code of the whole repository.
fn code() -> String {
    let mut found = Vec::new();
    files(&root().join("crates"), &mut found);
    files(&root().join("tests"), &mut found);
    found
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect()
}

#[test]
fn every_test_the_docs_name_exists() {
    let code = code();
    // A test, or a module with a test for each store.
    let ends = [("fn ", "("), ("mod ", " {")];
    let known: BTreeSet<&str> = ends
        .into_iter()
        .flat_map(|(begin, end)| {
            let lines = code.lines().filter_map(move |line| line.split_once(begin));
            lines.filter_map(move |(_, rest)| Some(rest.split_once(end)?.0))
        })
        .collect();
    let page = page("docs/guarantees.md");
    let named = tests_named(&page);
    assert!(named.len() > 30, "only {} names found", named.len());
    for name in named {
        assert!(
            known.contains(name),
            "docs/guarantees.md names {name}, which is no test"
        );
    }
}

/// Every page, by its path.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|e| e == "md") {
            found.push(path);
        }
    }
}

/// Names of other programs, which our code does not use.
const OF_OTHERS: [&str; 1] = ["pg_advisory_lock"];

/// Other pages also have names of settings, tables and metrics in backticks. The code has all of those. A test whose name is
/// nowhere in the code was renamed or removed.
#[test]
fn every_long_name_in_the_docs_is_in_the_code() {
    let code = code();
    let lines = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let words: BTreeSet<&str> = lines
        .flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        .filter(|word| word.contains('_'))
        .collect();
    let mut found = Vec::new();
    pages(&root().join("docs"), &mut found);
    let mut unknown = Vec::new();
    for path in found {
        let page = fs::read_to_string(&path).unwrap();
        let named = tests_named(&page).into_iter();
        // A name that begins with an underscore is the end of a metric's name.
        let is_known =
            |name: &&str| name.starts_with('_') || words.contains(name) || OF_OTHERS.contains(name);
        let missing = named.filter(|name| !is_known(name));
        unknown.extend(missing.map(|name| format!("{name} in {}", path.display())));
    }
    assert!(unknown.is_empty(), "in no code:\n{}", unknown.join("\n"));
}

/// The scripts of the Redis store, by the names of their files.
fn scripts() -> BTreeMap<String, String> {
    let folder = source().join("store/redis/layouts/lua");
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).unwrap())
        })
        .collect()
}

/// The names behind `tidelock:` at the beginning of the text literals of code.
fn own_prefixes(code: &str) -> impl Iterator<Item = &str> {
    let literals = code.split(['"', '\'']);
    let ours = literals.filter_map(|text| text.strip_prefix("tidelock:"));
    let words = ours.filter_map(|rest| {
        rest.split(|c: char| !c.is_ascii_lowercase() && c != '_')
            .next()
    });
    words.filter(|word| !word.is_empty())
}

/// An operator who deletes a key must find out what is lost with it.
#[test]
fn every_key_of_the_redis_store_is_described() {
    let code = sources().into_iter();
    let code = code.filter(|(file, _)| file.starts_with("store/redis/"));
    let texts: Vec<String> = code
        .map(|(_, code)| code)
        .chain(scripts().into_values())
        .collect();
    let prefixes: BTreeSet<&str> = texts.iter().flat_map(|text| own_prefixes(text)).collect();
    for known in ["token", "withdrawn", "marks", "latch", "rw_queue"] {
        assert!(prefixes.contains(known), "{known}: {prefixes:?}");
    }
    let page = page("docs/wire-protocol.md");
    let losses = section(&page, "### What is lost with a deleted key");
    for prefix in prefixes {
        let key = format!("`tidelock:{prefix}:");
        let row = losses
            .lines()
            .find(|line| line.starts_with('|') && line.contains(&key));
        assert!(
            row.is_some(),
            "docs/wire-protocol.md does not say what is lost with {key}…`"
        );
        assert!(
            page.matches(&key).count() > losses.matches(&key).count(),
            "docs/wire-protocol.md does not describe {key}…`"
        );
    }
}

/// The words with a `+` in a text, without their subcommands.
fn allowed(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| c.is_whitespace() || "`,;.".contains(c));
    words
        .filter_map(|word| word.strip_prefix('+')?.split(['|', '\\']).next())
        .collect()
}

/// The commands that a script calls. `must`: only those without which it fails.
fn called(script: &str, must: bool) -> BTreeSet<&str> {
    let calls = script.split("redis.").skip(1);
    let calls = calls.filter_map(|rest| {
        let surely = rest.strip_prefix("call('");
        surely.or_else(|| rest.strip_prefix("pcall('").filter(|_| !must))
    });
    calls.filter_map(|rest| rest.split('\'').next()).collect()
}

/// Commands that are sent to a cluster only, where other rights are needed too.
const OF_A_CLUSTER: [&str; 1] = ["spublish"];

/// A server checks the rights of each command within a script.
#[test]
fn the_least_rights_have_every_command_of_the_scripts() {
    let page = page("docs/guarantees.md");
    let line = page
        .lines()
        .find(|line| line.starts_with("ACL SETUSER locks on "))
        .unwrap();
    let allowed = allowed(line);
    assert!(allowed.len() > 40, "{allowed:?}");
    let scripts = scripts();
    assert!(scripts.len() > 40, "{scripts:?}");
    for (name, script) in &scripts {
        for command in called(script, false) {
            assert!(
                allowed.contains(command) || OF_A_CLUSTER.contains(&command),
                "docs/guarantees.md does not allow {command}, which {name} calls"
            );
        }
    }
}

/// The rows of the table of rights in `docs/stores/redis.md`, and the scripts of which a user with these rights may run
/// every part.
const KINDS: [(&[&str], &[&str]); 7] = [
    (&["locks"], &["acquire", "release", "renew"]),
    (&["locks", "fenced locks"], &["acquire_rest", "token"]),
    (
        &["locks", "fenced locks", "fair locks"],
        &[
            "ahead",
            "fair_acquire",
            "fair_beat",
            "fair_queue",
            "fair_release",
            "hand_over",
            "token",
        ],
    ),
    (
        &["locks", "fenced locks", "read-write locks"],
        &[
            "acquire_side",
            "release_side",
            "renew_side",
            "sides",
            "token",
        ],
    ),
    (
        &["locks", "semaphores"],
        &[
            "acquire_permits",
            "change_permits",
            "inspect_permits",
            "number",
            "permits",
            "release_permits",
            "renew_permits",
        ],
    ),
    (
        &["locks", "counting semaphores"],
        &["change_semaphore", "counts", "number", "semaphore_count"],
    ),
    (
        &["locks", "latches"],
        &["change_latch", "counts", "latch", "latch_count", "number"],
    ),
];

#[test]
fn each_kind_has_the_rights_without_which_its_scripts_fail() {
    let page = page("docs/stores/redis.md");
    let table = section(&page, "## Rights");
    let scripts = scripts();
    for (rows, files) in KINDS {
        let rights: BTreeSet<&str> = rows
            .iter()
            .flat_map(|row| {
                let begin = format!("| {row} |");
                let line = table.lines().find(|line| line.starts_with(&begin));
                allowed(line.unwrap_or_else(|| panic!("no row {row}")))
            })
            .collect();
        for file in files {
            for command in called(&scripts[&format!("{file}.lua")], true) {
                assert!(
                    rights.contains(command),
                    "docs/stores/redis.md does not give {rows:?} {command}, which {file}.lua calls"
                );
            }
        }
    }
}
