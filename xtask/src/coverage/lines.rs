//! Reads what was counted: lines in the lcov format.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, ensure};

use super::counted::{Counted, left_out};
use crate::rooms::SOURCES;
use crate::sh::root;

/// A file of the library.
#[derive(Debug)]
pub(super) struct File {
    /// Named from [`SOURCES`].
    pub(super) name: String,
    /// Its lines with code, and whether a test has reached each.
    pub(super) lines: BTreeMap<usize, bool>,
}

/// The files of the library that count.
pub(super) fn files(lcov: &str, counted: &Counted) -> Result<Vec<File>> {
    let mut files = Vec::new();
    for (path, mut lines) in records(lcov)? {
        let file = path.split_once(SOURCES).map(|(_, name)| name);
        let Some(name) = file.filter(|name| counted.has(&format!("{SOURCES}{name}"))) else {
            continue;
        };
        let source =
            fs::read_to_string(root().join(SOURCES).join(name)).with_context(|| path.to_owned())?;
        let left_out = left_out(&source).with_context(|| path.to_owned())?;
        lines.retain(|line, _| !left_out.contains(line));
        files.push(File {
            name: name.to_owned(),
            lines,
        });
    }
    ensure!(!files.is_empty(), "no file of the library was counted");
    Ok(files)
}

type Lines = BTreeMap<usize, bool>;

/// The paths and the lines. A file that is named twice is one: the library is built with and without its unit tests.
fn records(lcov: &str) -> Result<BTreeMap<&str, Lines>> {
    let mut records: BTreeMap<&str, Lines> = BTreeMap::new();
    let mut file = "";
    for line in lcov.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            file = path;
        } else if let Some(count) = line.strip_prefix("DA:") {
            let mut columns = count.split(',');
            let number = columns.next().context("a line without its number")?;
            let reached = columns.next().context("a line without its count")? != "0";
            let lines = records.entry(file).or_default();
            *lines.entry(number.parse()?).or_default() |= reached;
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::records;

    #[test]
    fn a_line_is_reached_if_one_build_has_reached_it() {
        let lcov = "SF:/a.rs\nFN:1,f\nDA:1,0\nDA:2,7\nend_of_record\nSF:/a.rs\nDA:1,3\nDA:2,0\nDA:4,0\nend_of_record\n";
        let records = records(lcov).unwrap();
        let lines: Vec<_> = records["/a.rs"].clone().into_iter().collect();
        assert_eq!(lines, [(1, true), (2, true), (4, false)]);
    }
}
