//! Texts of `docs/` that tests use, so what a page tells users to paste has been run; and pages that runs write.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};

use crate::workspace;

/// The heading of what people have added to a page that a run writes.
const BY_HAND: &str = "\n## Added by hand\n";

/// Writes a page, and keeps what people have added at its end, below `## Added by hand`. There they say why a run was red, and
/// the next run would delete it.
///
/// # Errors
/// The page cannot be read or written.
pub fn write(page: &Path, text: &str) -> Result<()> {
    let named = || page.display().to_string();
    let before = match std::fs::read_to_string(page) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        read => read.with_context(named)?,
    };
    let added = before.find(BY_HAND).map_or("", |at| &before[at..]);
    std::fs::write(page, format!("{text}{added}")).with_context(named)
}

/// The lines of a block of code on a page, without the fences. `page`: its path below `docs/`. `words`: a text on the page
/// before the block.
///
/// # Errors
/// The page cannot be read, or has no such block.
pub fn block(page: &str, words: &str) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(workspace().join("docs").join(page))
        .with_context(|| page.to_owned())?;
    let block = || {
        let (_, rest) = text.split_once(words)?;
        let (_, rest) = rest.split_once("\n```")?;
        let (_, rest) = rest.split_once('\n')?;
        let (block, _) = rest.split_once("\n```")?;
        Some(block.lines().map(str::to_owned).collect())
    };
    block().with_context(|| format!("docs/{page} has no block of code after: {words}"))
}

/// The statements of a block of SQL that are for everybody, or those whose comment says that they are `for` something.
///
/// # Errors
/// The same as [`block`].
pub fn statements(page: &str, words: &str, only_for: Option<&str>) -> Result<Vec<String>> {
    let lines = block(page, words)?;
    let statements = lines.iter().filter_map(|line| {
        let (statement, comment) = match line.split_once("; -- for ") {
            Some((statement, comment)) => (statement, Some(comment)),
            None => (line.trim_end_matches(';'), None),
        };
        let fits = match (comment, only_for) {
            (Some(comment), Some(it)) => comment.contains(it),
            (None, None) => true,
            _ => false,
        };
        fits.then(|| statement.to_owned())
    });
    let statements: Vec<String> = statements.collect();
    let what = only_for.unwrap_or("every lock");
    (!statements.is_empty())
        .then_some(statements)
        .with_context(|| format!("docs/{page} has no statement for {what}"))
}

#[cfg(test)]
mod tests {
    use anyhow::Result;

    use super::write;

    #[test]
    fn what_was_added_by_hand_outlives_each_run() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let page = folder.path().join("page.md");
        write(&page, "first\n")?;
        assert_eq!(std::fs::read_to_string(&page)?, "first\n");
        let added = "\n## Added by hand\n\nWhy it was red.\n\n## More\n";
        std::fs::write(&page, format!("first\n{added}"))?;
        for text in ["second\n", "third\n"] {
            write(&page, text)?;
            assert_eq!(std::fs::read_to_string(&page)?, format!("{text}{added}"));
        }
        Ok(())
    }
}
