//! The reference pages have what the code has: variables, options and errors.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use tidelock::{Error, ErrorKind};

use super::{files, source};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// A file of the library.
fn code(file: &str) -> String {
    fs::read_to_string(source().join(file)).unwrap()
}

/// The text of a page below a heading, up to the next heading of any level.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, below) = page.split_once(&format!("\n{heading}\n")).unwrap();
    below.split("\n#").next().unwrap()
}

/// The cells of the rows whose first cell begins with a name in backticks.
fn rows(section: &str) -> Vec<Vec<&str>> {
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.split('|').map(str::trim).collect())
        .collect()
}

/// The names in backticks in the first cells.
fn first_names(section: &str) -> BTreeSet<String> {
    rows(section)
        .iter()
        .flat_map(|cells| cells[1].split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect()
}

/// The words of a text that are names of our variables.
fn variables(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_ascii_uppercase() && c != '_')
        .filter(|word| word.starts_with("TIDELOCK_") && !word.ends_with('_'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_variable_is_on_its_page() {
    let mut found = Vec::new();
    files(&root().join("crates/tidelock/src"), &mut found);
    files(&root().join("crates/tidelock-cli/src"), &mut found);
    let mut used = BTreeSet::new();
    for path in found {
        // The variables of our own tests concern no user.
        let inside = path.strip_prefix(root()).unwrap().display().to_string();
        if !inside.contains("/testing/") && !inside.contains("/tests") {
            used.extend(variables(&fs::read_to_string(&path).unwrap()));
        }
    }
    let page = page("environment.md");
    let listed: BTreeSet<String> = rows(&page)
        .iter()
        .flat_map(|cells| variables(cells[1]))
        .collect();
    assert!(listed.len() > 15, "{listed:?}");
    assert_eq!(listed, used);
}

/// The public methods in the `impl` blocks of a type.
fn methods(code: &str, of: &str) -> BTreeSet<String> {
    let head = format!("impl {of} {{");
    let mut found = BTreeSet::new();
    let mut is_inside = false;
    for line in code.lines() {
        if line == head {
            is_inside = true;
        } else if line == "}" {
            is_inside = false;
        }
        let line = line.trim();
        let method = line
            .strip_prefix("pub fn ")
            .or_else(|| line.strip_prefix("pub async fn "));
        if is_inside && let Some(method) = method {
            let name = method.split(['(', '<']).next().unwrap();
            found.insert(name.to_owned());
        }
    }
    found
}

#[test]
fn every_option_is_on_its_page() {
    let page = page("options.md");
    let builder = [
        "builder.rs",
        "builder/lazy.rs",
        "builder/observing.rs",
        "builder/several.rs",
        "builder/start.rs",
        "blocking.rs",
    ];
    let mut of_client = first_names(section(&page, "## The client"));
    of_client.extend(first_names(section(&page, "### Connecting")));
    for (files, name, listed) in [
        (&builder[..], "ClientBuilder", of_client),
        (
            &["options.rs"],
            "AcquireOptions",
            first_names(section(&page, "## One acquisition")),
        ),
        (
            &["redlock.rs"],
            "RedLockBuilder",
            first_names(section(&page, "## A majority of servers")),
        ),
    ] {
        let mut options = BTreeSet::new();
        for file in files {
            options.extend(methods(&code(file), name));
        }
        // They begin and end the settings.
        options.remove("new");
        options.remove("build");
        assert!(options.len() > 2, "{name}: {options:?}");
        assert_eq!(listed, options, "{name}");
    }
}

#[test]
fn the_defaults_on_the_page_are_those_of_the_builder() {
    let (code, page) = (code("builder.rs"), page("options.md"));
    for (default, row) in [
        ("lease: Duration::from_secs(30),", "| `lease` | 30 s |"),
        (
            "response_timeout: Duration::from_secs(3),",
            "| `response_timeout` | 3 s |",
        ),
        ("create: true,", "| `create` | yes |"),
        (
            "acknowledge_within: Duration::from_secs(1),",
            "| `acknowledge_within` | 1 s |",
        ),
        (
            "connect_within: Duration::ZERO,",
            "| `connect_within` | none: one attempt |",
        ),
        (
            "publish_process_info: true,",
            "| `publish_process_info` | yes |",
        ),
        (
            "slow_acquire: Duration::from_secs(1),",
            "| `slow_acquire` | 1 s |",
        ),
    ] {
        assert!(code.contains(default), "another default than {default}");
        assert!(page.contains(row), "not on the page: {row}");
    }
}

/// The variants of an enum without fields.
fn variants(code: &str, of: &str) -> BTreeSet<String> {
    let (_, body) = code.split_once(&format!("pub enum {of} {{\n")).unwrap();
    let (body, _) = body.split_once("\n}\n").unwrap();
    body.lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("///"))
        .map(|line| line.trim_end_matches(',').to_owned())
        .collect()
}

#[test]
fn every_kind_of_error_is_on_its_page() {
    let page = page("errors.md");
    let kinds = section(&page, "## The kinds");
    assert_eq!(first_names(kinds), variants(&code("error.rs"), "ErrorKind"));
    let rows: BTreeMap<&str, &str> = rows(kinds)
        .iter()
        .map(|cells| (cells[1], cells[4]))
        .collect();
    for kind in [
        ErrorKind::TimedOut,
        ErrorKind::Cancelled,
        ErrorKind::Lost,
        ErrorKind::NotHeld,
        ErrorKind::WrongType,
        ErrorKind::Refused,
        ErrorKind::Unavailable,
        ErrorKind::OutcomeUnknown,
        ErrorKind::Closed,
        ErrorKind::Unsupported,
        ErrorKind::InvalidName,
        ErrorKind::InvalidOptions,
        ErrorKind::Runtime,
    ] {
        let row = format!("`{kind:?}`");
        let retry = if Error::new(kind).is_retryable() {
            "yes"
        } else {
            "no"
        };
        assert_eq!(rows[row.as_str()], retry, "{kind:?}");
    }
}

#[test]
fn every_reason_of_a_loss_is_on_its_page() {
    let page = page("errors.md");
    let listed = first_names(section(&page, "## Why a lock was lost"));
    assert_eq!(
        listed,
        variants(&code("types/lost_reason.rs"), "LostReason")
    );
}
