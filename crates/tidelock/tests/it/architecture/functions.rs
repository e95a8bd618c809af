//! The size limit of a function.

use std::fs;

use super::{source, sources};

/// Longer functions are split.
const MOST_LINES: usize = 60;

/// The name of the function that a line of formatted code begins.
fn begun(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    if let Some(public) = rest.strip_prefix("pub") {
        rest = match public.strip_prefix('(') {
            Some(scope) => scope.split_once(')')?.1,
            None => public,
        };
        rest = rest.trim_start();
    }
    for word in ["const ", "async "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let name = rest.strip_prefix("fn ")?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()
}

/// The functions of formatted code, each with its number of lines.
fn functions(code: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = code.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = begun(line) else { continue };
        if line.ends_with("{}") {
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        let end = format!("{}}}", " ".repeat(indent));
        // A declaration in a trait has no body.
        let declared = lines[at..].iter().position(|line| line.ends_with(';'));
        let body = lines[at..].iter().position(|line| line.ends_with('{'));
        if body < declared || declared.is_none() {
            let length = lines[at..].iter().position(|line| *line == end);
            found.extend(length.map(|length| (name, length + 1)));
        }
    }
    found
}

#[test]
fn no_function_is_too_long() {
    for (file, _) in sources() {
        let code = fs::read_to_string(source().join(&file)).unwrap();
        for (name, lines) in functions(&code) {
            assert!(lines <= MOST_LINES, "{file}: {name} has {lines} lines");
        }
    }
}

#[test]
fn the_lines_of_functions_are_counted() {
    let code = "trait T {\n    fn declared(\n        self,\n    );\n}\npub(crate) const fn empty() {}\n\
                pub fn long(\n    a: u8,\n) -> u8 {\n    a\n}\n";
    assert_eq!(functions(code), [("long", 5)]);
}
