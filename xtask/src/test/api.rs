//! The public API of the library, item by item. What changes there must be told in CHANGELOG.md: an item that is new by its
//! name, an item that is gone or has another form as a change, because it breaks programs of users.

mod changelog;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::packages::WRITE;
use super::{Tally, feature_names};
use crate::sh::{self, cargo, root};

/// The list that is kept, from the root of the repository.
const KEPT: &str = "xtask/api/tidelock.txt";
/// Promised to nobody.
const OF_NOBODY: [&str; 3] = ["fuzzing", "testing", "unstable-backend"];
/// The form of rustdoc's output that the crate `public-api` reads, and the version of Rust that writes it.
const FORMAT: u64 = 57;
const WRITTEN_BY: &str = "1.95";
/// Of the traits that a type has without being asked, those that a program of a user notices.
const MARKERS: [&str; 2] = ["impl core::marker::Send for", "impl core::marker::Sync for"];

/// Fails if the API differs from the list that is kept, and CHANGELOG.md does not say so.
pub(super) fn api(_: &mut Tally) -> Result<()> {
    let json = described()?;
    let format = format_version(&fs::read_to_string(&json)?);
    ensure!(
        format == Some(FORMAT),
        "rustdoc writes the format {format:?}: that of Rust {WRITTEN_BY} is needed, or another version of the crate public-api"
    );
    let found = listed(&json)?;
    let path = root().join(KEPT);
    let writes = std::env::var_os(WRITE).is_some();
    if writes && !path.exists() {
        return Ok(fs::write(&path, found)?);
    }
    let kept = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let (gone, new) = differences(&kept, &found);
    if !gone.is_empty() || !new.is_empty() {
        let entries = changelog::entries_since(KEPT)?;
        let untold = untold(&gone, &new, &entries);
        ensure!(
            untold.is_empty(),
            "the public API has changed, and no new entry of CHANGELOG.md says so (an entry names a new item, or its type; one \
             that begins with `Changed:` or `Removed:` names an item that is gone):\n{}",
            untold.join("\n")
        );
        println!("changes of the public API since {KEPT} was written, all in CHANGELOG.md:");
        println!("{}", marked(&gone, &new).join("\n"));
    }
    if writes {
        fs::write(&path, found)?;
    }
    Ok(())
}

fn marked(gone: &[&str], new: &[&str]) -> Vec<String> {
    let gone = gone.iter().map(|line| format!("- {line}"));
    gone.chain(new.iter().map(|line| format!("+ {line}")))
        .collect()
}

/// The changes that no entry tells.
fn untold(gone: &[&str], new: &[&str], entries: &[String]) -> Vec<String> {
    let told = |line: &str, entries: &[&String]| {
        let names = names(line);
        entries
            .iter()
            .any(|entry| names.iter().any(|name| changelog::has_word(entry, name)))
    };
    let all: Vec<&String> = entries.iter().collect();
    let breaking = entries.iter().filter(|entry| changelog::breaks(entry));
    let breaking: Vec<&String> = breaking.collect();
    let gone: Vec<&str> = gone
        .iter()
        .copied()
        .filter(|it| !told(it, &breaking))
        .collect();
    let new: Vec<&str> = new.iter().copied().filter(|it| !told(it, &all)).collect();
    marked(&gone, &new)
}

/// The names by which an entry may tell of a line: that of the item, and that of the type it belongs to.
fn names(line: &str) -> Vec<&str> {
    // The trait of an implementation stands before its type.
    let of_type = line.split_once(" for ").map_or(line, |(_, rest)| rest);
    let Some((_, path)) = of_type.split_once("tidelock::") else {
        return Vec::new();
    };
    let end = |at: char| !(at.is_alphanumeric() || at == '_' || at == ':');
    let path = path.split(end).next().unwrap_or(path).trim_end_matches(':');
    let mut parts = path.split("::").collect::<Vec<_>>();
    let item = parts.pop();
    // A module is not enough: it has many items.
    let owner = parts.pop().filter(|it| it.starts_with(char::is_uppercase));
    item.into_iter().chain(owner).collect()
}

/// What programs of users would miss, and what they do not know yet.
fn differences<'a>(kept: &'a str, found: &'a str) -> (Vec<&'a str>, Vec<&'a str>) {
    let only = |one: &'a str, other: &'a str| {
        let others: BTreeSet<&str> = other.lines().collect();
        let lines = one.lines().filter(|line| !others.contains(line));
        lines.collect()
    };
    (only(kept, found), only(found, kept))
}

/// Has rustdoc describe the library with every feature that is promised, as JSON. Returns the file.
fn described() -> Result<PathBuf> {
    let manifest = fs::read_to_string(root().join("crates/tidelock/Cargo.toml"))?;
    let features: Vec<&str> = feature_names(&manifest)
        .into_iter()
        .filter(|name| !OF_NOBODY.contains(name))
        .collect();
    // Only rustdoc itself may use what is unstable: build scripts that may would compile all crates once more.
    let rustdoc = root().join("target/tools/rustdoc-unstable");
    fs::create_dir_all(root().join("target/tools"))?;
    let script = "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n";
    fs::write(&rustdoc, script)?;
    fs::set_permissions(&rustdoc, fs::Permissions::from_mode(0o755))?;
    let mut describe = cargo(&["rustdoc", "-p", "tidelock", "--lib", "--quiet"]);
    describe
        .args(["--no-default-features", "--features", &features.join(",")])
        .args(["--", "-Z", "unstable-options", "--output-format", "json"])
        .env("RUSTDOC", &rustdoc);
    sh::run(describe)?;
    Ok(root().join("target/doc/tidelock.json"))
}

fn format_version(json: &str) -> Option<u64> {
    let all: serde_json::Value = serde_json::from_str(json).ok()?;
    all.get("format_version")?.as_u64()
}

/// A line for each item.
fn listed(json: &Path) -> Result<String> {
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .build()?;
    let lines = api.items().map(ToString::to_string);
    let lines: BTreeSet<String> = lines.filter(|line| is_promised(line)).collect();
    Ok(lines
        .into_iter()
        .flat_map(|line| [line, "\n".to_owned()])
        .collect())
}

/// Whether a line is not one of the traits that the compiler gives to every type.
fn is_promised(line: &str) -> bool {
    let automatic = ["core::marker::", "core::panic::unwind_safe::"];
    let is_automatic = line.starts_with("impl") && automatic.iter().any(|it| line.contains(it));
    !is_automatic
        || MARKERS.iter().any(|it| line.contains(it))
        || line.contains("core::marker::Copy for")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_can_no_longer_be_sent_is_a_change() {
        assert!(is_promised("impl core::marker::Send for tidelock::Guard"));
        assert!(is_promised("impl core::marker::Copy for tidelock::Drift"));
        assert!(!is_promised("impl core::marker::Unpin for tidelock::Guard"));
        assert!(is_promised("pub fn tidelock::Guard::name(&self) -> &str"));
    }

    #[test]
    fn what_is_gone_and_what_is_new_are_told_apart() {
        let told = differences("pub fn a()\npub fn b()\n", "pub fn b()\npub fn c()\n");
        assert_eq!(told, (vec!["pub fn a()"], vec!["pub fn c()"]));
    }

    #[test]
    fn an_item_is_named_by_itself_or_by_its_type() {
        let method = "pub fn tidelock::blocking::Client::awaited(&self) -> tidelock::Result<()>";
        assert_eq!(names(method), ["awaited", "Client"]);
        assert_eq!(names("pub fn tidelock::once::hourly()"), ["hourly"]);
        let implemented = "impl core::convert::From<tidelock::A> for tidelock::Guard<'_>";
        assert_eq!(names(implemented), ["Guard"]);
        assert_eq!(names("pub mod tidelock"), [] as [&str; 0]);
    }

    #[test]
    fn a_change_that_no_entry_tells_is_reported() {
        let new = ["pub fn tidelock::Latch::open(&self)"];
        let gone = ["pub fn tidelock::Latch::close(&self)"];
        let told = [
            "- `Latch::open`.".to_owned(),
            "- Removed: `close`.".to_owned(),
        ];
        assert!(untold(&gone, &new, &told).is_empty());
        assert_eq!(
            untold(&gone, &new, &told[..1]),
            ["- pub fn tidelock::Latch::close(&self)"]
        );
        assert_eq!(
            untold(&[], &new, &told[1..]),
            ["+ pub fn tidelock::Latch::open(&self)"]
        );
    }

    #[test]
    fn the_format_is_read() {
        assert_eq!(format_version("{\"format_version\": 57}"), Some(57));
        assert_eq!(format_version("{}"), None);
    }
}
