//! The largest set of files that import each other in a circle.

use std::collections::{BTreeMap, BTreeSet};

use super::number;
use super::source::SourceFile;

/// The files and lines of the largest circle among these files.
pub(crate) fn largest_circle(files: &[&SourceFile]) -> String {
    let homes: BTreeMap<String, usize> = files
        .iter()
        .enumerate()
        .map(|(n, file)| (module(&file.name), n))
        .collect();
    let reached: Vec<BTreeSet<usize>> = {
        let imports: Vec<BTreeSet<usize>> =
            files.iter().map(|file| imports(file, &homes)).collect();
        (0..files.len()).map(|n| reach(n, &imports)).collect()
    };
    let circles = (0..files.len()).map(|n| {
        let back = reached[n].iter().filter(|m| reached[**m].contains(&n));
        back.copied().collect::<Vec<usize>>()
    });
    let Some(circle) = circles.max_by_key(Vec::len).filter(|c| c.len() > 1) else {
        return "none".to_owned();
    };
    let lines = circle.iter().map(|n| files[*n].text.lines().count()).sum();
    format!("{} files, {} lines", circle.len(), number(lines))
}

/// The module path of a file: `store/mod.rs` is `store`.
fn module(name: &str) -> String {
    let path = name.trim_end_matches(".rs").replace('/', "::");
    path.strip_suffix("::mod").unwrap_or(&path).to_owned()
}

/// The files that are reached from file `n` by one import or more.
fn reach(n: usize, imports: &[BTreeSet<usize>]) -> BTreeSet<usize> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![n]);
    while let Some(at) = next.pop() {
        for other in &imports[at] {
            if seen.insert(*other) {
                next.push(*other);
            }
        }
    }
    seen
}

/// The files that a file names after `crate::` or `super::`.
fn imports(file: &SourceFile, homes: &BTreeMap<String, usize>) -> BTreeSet<usize> {
    let code: Vec<&str> = file
        .text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let module = module(&file.name);
    let above = module.rsplit_once("::").map_or("", |(above, _)| above);
    let (above, own) = (format!("{above}::"), homes.get(&module));
    paths(&code.join(" "), &above)
        .iter()
        .filter_map(|path| home(path, homes))
        .filter(|home| Some(home) != own)
        .collect()
}

/// The file of the longest module path that begins this path.
fn home(path: &str, homes: &BTreeMap<String, usize>) -> Option<usize> {
    let mut path = path;
    loop {
        if let Some(home) = homes.get(path) {
            return Some(*home);
        }
        path = path.rsplit_once("::")?.0;
    }
}

/// The paths after `crate::` and `super::`, with the braces of imports expanded. `above` is the module that `super`
/// stands for.
fn paths(code: &str, above: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (word, before) in [("crate::", ""), (" super::", above)] {
        for rest in code.split(word).skip(1) {
            expand(rest, before, &mut found);
        }
    }
    found
}

/// Adds the paths that a text begins with, and returns the rest of the text.
fn expand<'a>(text: &'a str, before: &str, found: &mut Vec<String>) -> &'a str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
    let (path, mut rest) = text.split_at(end.unwrap_or(text.len()));
    let path = format!("{before}{path}");
    if !rest.starts_with('{') {
        found.push(path);
        return rest;
    }
    while !rest.is_empty() && !rest.starts_with('}') {
        rest = expand(rest[1..].trim_start(), &path, found);
        // Skips `as NAME` and the space before a comma.
        rest = &rest[rest.find([',', '}']).unwrap_or(rest.len())..];
    }
    rest.get(1..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_are_expanded() {
        let code = "use crate::a::{b as x, c::{d, e}, F}; let _ = crate::g::h(); use super::i;";
        let found = paths(code, "j::");
        assert_eq!(
            found,
            ["a::b", "a::c::d", "a::c::e", "a::F", "g::h", "j::i"]
        );
    }
}
