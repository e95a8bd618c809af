//! The entries of CHANGELOG.md.

use std::fs;

use anyhow::Result;

use crate::sh::{self, command, root};

const PAGE: &str = "CHANGELOG.md";

/// The entries that were written or changed since the last commit that changed this file.
pub(super) fn entries_since(file: &str) -> Result<Vec<String>> {
    let last = sh::quiet(command("git", &["log", "-1", "--format=%H", "--", file]))?;
    let last = match last.trim() {
        // It has not been committed yet.
        "" => "HEAD",
        commit => commit,
    };
    let old = sh::quiet(command("git", &["show", &format!("{last}:{PAGE}")]))?;
    let now = fs::read_to_string(root().join(PAGE))?;
    let olds = entries(&old);
    Ok(entries(&now)
        .into_iter()
        .filter(|it| !olds.contains(it))
        .collect())
}

/// The items of a page's lists, each with all of its lines.
fn entries(page: &str) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    let mut within = false;
    for line in page.lines() {
        if line.starts_with("- ") {
            entries.push(line.to_owned());
            within = true;
        } else if !line.starts_with("  ") {
            within = false;
        } else if let Some(entry) = entries.last_mut().filter(|_| within) {
            entry.push('\n');
            entry.push_str(line);
        }
    }
    entries
}

/// Whether an entry tells of something that programs of users lose.
pub(super) fn breaks(entry: &str) -> bool {
    ["- Changed:", "- Removed:"]
        .iter()
        .any(|it| entry.starts_with(it))
}

pub(super) fn has_word(entry: &str, word: &str) -> bool {
    let end = |at: char| !(at.is_alphanumeric() || at == '_');
    entry.split(end).any(|it| it == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_all_of_its_lines() {
        let page = "# Changelog\n\n## Unreleased\n\n- One\n  and more.\n- Two.\n\n## 0.1\n  no entry\n- Three.\n";
        assert_eq!(entries(page), ["- One\n  and more.", "- Two.", "- Three."]);
    }

    #[test]
    fn a_name_is_a_whole_word() {
        assert!(has_word("- `Client::awaited`: locks.", "awaited"));
        assert!(!has_word("- `Client::awaited_all`: locks.", "awaited"));
    }
}
