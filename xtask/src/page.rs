//! Rewrites a part of a page, and keeps the rest.

use std::fs;

use anyhow::{Context, Result};

use crate::sh::{command, quiet, root};

/// Replaces the text below a heading of the second level, up to the next such heading.
pub(crate) fn rewrite(page: &str, heading: &str, text: &str) -> Result<()> {
    let path = root().join(page);
    let before = fs::read_to_string(&path)?;
    let after = replaced(&before, heading, text)
        .with_context(|| format!("{page} has no part {heading}"))?;
    Ok(fs::write(path, after)?)
}

fn replaced(before: &str, heading: &str, text: &str) -> Option<String> {
    let heading = format!("\n## {heading}\n");
    let (head, old) = before.split_once(&heading)?;
    let tail = old.find("\n## ").map_or("", |at| &old[at..]);
    Some(format!("{head}{heading}\n{}\n{tail}", text.trim()))
}

/// The date of a result.
pub(crate) fn today() -> Result<String> {
    let date = quiet(command("date", &["-u", "+%Y-%m-%d"]))?;
    Ok(date.trim().to_owned())
}

/// A share in tenths of a percent, rounded down. A dash if it is one of nothing.
pub(crate) fn percent(part: usize, of: usize) -> String {
    let share = (part * 1000).checked_div(of);
    share.map_or("–".to_owned(), |it| format!("{}.{} %", it / 10, it % 10))
}

#[cfg(test)]
mod tests {
    use super::{percent, replaced};

    const PAGE: &str = "# Page\n\n## First\n\nold\n\n### Below\n\nold\n\n## Second\n\nrest\n";

    #[test]
    fn only_the_part_changes() {
        let after = replaced(PAGE, "First", "new\n").unwrap();
        assert_eq!(after, "# Page\n\n## First\n\nnew\n\n## Second\n\nrest\n");
        let after = replaced(PAGE, "Second", "new").unwrap();
        assert!(after.ends_with("old\n\n## Second\n\nnew\n"), "{after}");
        assert_eq!(replaced(&after, "Second", "rest").as_deref(), Some(PAGE));
        assert_eq!(replaced(PAGE, "Third", "new"), None);
    }

    #[test]
    fn a_share_is_rounded_down() {
        assert_eq!(percent(1999, 2000), "99.9 %");
        assert_eq!(percent(0, 0), "–");
    }
}
