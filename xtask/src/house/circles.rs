//! The largest set of files that import each other in a circle, as the library's architecture test finds it.

#[path = "../../../crates/tidelock/tests/it/architecture/imports.rs"]
mod imports;

use self::imports::Files;
use super::number;
use super::source::SourceFile;

/// The files and lines of the largest circle among these files.
pub(crate) fn largest_circle(files: &[&SourceFile]) -> String {
    // The tests of a file begin at its end.
    let code = |text: &str| {
        text.split("\n#[cfg(test)]\nmod tests")
            .next()
            .map(str::to_owned)
    };
    let code: Vec<(&str, String)> = files
        .iter()
        .map(|file| (&*file.name, code(&file.text).unwrap_or_default()))
        .collect();
    let known = Files::of(code.iter().map(|(name, code)| (*name, &**code)));
    let Some(circle) = known.circle() else {
        return "none".to_owned();
    };
    let module = |name: &str| {
        let path = name.trim_end_matches(".rs").trim_end_matches("/mod");
        path.replace('/', "::")
    };
    let members = files
        .iter()
        .filter(|file| circle.contains(&module(&file.name)));
    let lines = members.map(|file| file.text.lines().count()).sum();
    format!("{} files, {} lines", circle.len(), number(lines))
}
