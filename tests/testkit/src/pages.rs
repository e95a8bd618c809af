//! Texts of `docs/` that tests use. So what a page tells users to paste has been run.

use anyhow::{Context, Result};

use crate::workspace;

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
