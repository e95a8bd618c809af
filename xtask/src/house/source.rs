//! Reads the source files, and what each line is. Relies on the layout that rustfmt gives them.

use std::fs;
use std::path::Path;

use anyhow::Result;

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Blank,
    Doc,
    Comment,
    Code,
}

fn kind(line: &str) -> Kind {
    let line = line.trim_start();
    if line.is_empty() {
        Kind::Blank
    } else if line.starts_with("///") || line.starts_with("//!") {
        Kind::Doc
    } else if line.starts_with("//") {
        Kind::Comment
    } else {
        Kind::Code
    }
}

/// One source file, without its `mod tests`.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// The path within the source folder.
    pub(crate) name: String,
    pub(crate) text: String,
    /// The file is part of the conformance suite.
    pub(crate) is_suite: bool,
    /// The types that the file defines.
    pub(crate) types: Vec<String>,
    /// Its functions, each with its number of lines.
    pub(crate) functions: Vec<(String, usize)>,
    /// The lines inside functions, and the comments among them.
    pub(crate) lines_inside: usize,
    pub(crate) comments_inside: usize,
    /// The hidden lines of its doctests.
    pub(crate) hidden: usize,
}

impl SourceFile {
    pub(crate) fn count(&self, wanted: Kind) -> usize {
        let kinds = self.text.lines().map(kind);
        kinds.filter(|kind| *kind == wanted).count()
    }

    fn new(name: String, text: &str) -> Self {
        let text = text.split("\n#[cfg(test)]\nmod tests {").next();
        let text = text.unwrap_or_default().to_owned();
        let lines: Vec<&str> = text.lines().collect();
        let (mut functions, mut lines_inside, mut comments_inside) = (Vec::new(), 0, 0);
        let mut inside_until = 0;
        for (at, line) in lines.iter().enumerate() {
            let Some(function) = begun(line) else {
                continue;
            };
            let Some(length) = length(&lines[at..]) else {
                continue;
            };
            functions.push((function.to_owned(), length));
            // The lines of a function within a function are counted once.
            if at >= inside_until {
                inside_until = at + length;
                lines_inside += length;
                let kinds = lines[at..inside_until].iter().map(|line| kind(line));
                comments_inside += kinds.filter(|kind| *kind == Kind::Comment).count();
            }
        }
        Self {
            is_suite: name.starts_with("testing/"),
            types: lines
                .iter()
                .filter_map(|line| defined(line))
                .map(str::to_owned)
                .collect(),
            hidden: hidden(&lines),
            functions,
            lines_inside,
            comments_inside,
            name,
            text,
        }
    }
}

/// The part of a line behind its `pub`, if it has one.
fn without_visibility(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("pub") else {
        return line;
    };
    let rest = match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(')').map_or(rest, |(_, rest)| rest),
        None => rest,
    };
    rest.trim_start()
}

fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()
        .unwrap_or_default()
}

/// The type that a line defines, unless it is an associated type.
fn defined(line: &str) -> Option<&str> {
    let line = without_visibility(line);
    ["struct ", "enum ", "trait ", "type "]
        .iter()
        .find_map(|keyword| line.strip_prefix(keyword))
        .map(word)
}

/// The function that a line begins.
fn begun(line: &str) -> Option<&str> {
    let mut rest = without_visibility(line.trim_start());
    for keyword in ["const ", "async "] {
        rest = rest.strip_prefix(keyword).unwrap_or(rest);
    }
    rest.strip_prefix("fn ").map(word)
}

/// The lines of the function that begins in the first line. `None`: it is in one line, or has no body.
fn length(lines: &[&str]) -> Option<usize> {
    let first = lines.first()?;
    let body = lines.iter().position(|line| line.ends_with('{'))?;
    let declared = lines.iter().position(|line| line.ends_with(';'));
    if first.ends_with("{}") || declared.is_some_and(|end| end < body) {
        return None;
    }
    let indent = first.len() - first.trim_start().len();
    let end = format!("{}}}", " ".repeat(indent));
    lines.iter().position(|line| *line == end).map(|at| at + 1)
}

fn hidden(lines: &[&str]) -> usize {
    let (mut fenced, mut count) = (false, 0);
    for line in lines {
        let line = line.trim_start();
        let Some(doc) = line.strip_prefix("///").or(line.strip_prefix("//!")) else {
            fenced = false;
            continue;
        };
        let doc = doc.trim();
        if doc.starts_with("```") {
            fenced = !fenced;
        } else if fenced && (doc == "#" || doc.starts_with("# ")) {
            count += 1;
        }
    }
    count
}

/// Every source file below a folder, by name.
pub(crate) fn read(folder: &Path) -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    collect(folder, folder, &mut files)?;
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<SourceFile>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root)?.display().to_string();
            if name.contains("/tests") {
                continue;
            }
            files.push(SourceFile::new(name, &fs::read_to_string(&path)?));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_counted() {
        let text = "/// ```\n/// # hidden\n/// #[seen]\n/// ```\npub(crate) struct A;\n\nimpl A {\n    \
                    const fn f(\n        a: u8,\n    ) {\n        // why\n    }\n}\n";
        let file = SourceFile::new("a.rs".to_owned(), text);
        assert_eq!(file.types, ["A"]);
        assert_eq!(file.functions, [("f".to_owned(), 5)]);
        assert_eq!((file.lines_inside, file.comments_inside), (5, 1));
        assert_eq!(file.hidden, 1);
        assert_eq!(file.count(Kind::Doc), 4);
    }
}
