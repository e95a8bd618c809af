//! Which files and lines count as the library: those that can have mutants (`.cargo/mutants.toml`).

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Result, ensure};
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItemFn, ItemFn, ItemImpl, ItemMod, ItemUse};

use crate::sh::root;

/// The files that do not count, as patterns.
#[derive(Debug)]
pub(super) struct Counted(Vec<String>);

impl Counted {
    pub(super) fn read() -> Result<Self> {
        let text = fs::read_to_string(root().join(".cargo/mutants.toml"))?;
        let list = text
            .lines()
            .skip_while(|line| *line != "exclude_globs = [")
            .skip(1)
            .take_while(|line| *line != "]");
        let globs = list.map(|line| line.trim().trim_matches([',', '"']).to_owned());
        let globs: Vec<String> = globs.collect();
        ensure!(!globs.is_empty(), "no patterns in .cargo/mutants.toml");
        Ok(Self(globs))
    }

    /// Whether a file counts, named from the root of the workspace.
    pub(super) fn has(&self, file: &str) -> bool {
        !self.0.iter().any(|glob| matches(glob, file))
    }
}

/// The two forms of patterns that are in use: `**/` in front stands for any folder, `/**` at the end for all below.
fn matches(glob: &str, file: &str) -> bool {
    let (anywhere, rest) = match glob.strip_prefix("**/") {
        Some(rest) => (true, rest),
        None => (false, glob),
    };
    let (below, rest) = match rest.strip_suffix("/**") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let starts = |file: &str| match file.strip_prefix(rest) {
        Some(tail) if below => tail.starts_with('/'),
        Some(tail) => tail.is_empty(),
        None => false,
    };
    let folders = file.match_indices('/').map(|(at, _)| at + 1);
    starts(file) || anywhere && folders.into_iter().any(|at| starts(&file[at..]))
}

/// The lines of a source file that are only for its tests, or print for `{:?}`.
pub(super) fn left_out(source: &str) -> Result<BTreeSet<usize>> {
    let mut lines = Lines::default();
    lines.visit_file(&syn::parse_file(source)?);
    Ok(lines.0)
}

#[derive(Default)]
struct Lines(BTreeSet<usize>);

impl Lines {
    /// Whether an item is left out.
    fn take(&mut self, attributes: &[Attribute], span: Span) -> bool {
        let only_tests = attributes.iter().any(is_for_tests);
        if only_tests {
            self.add(span);
        }
        only_tests
    }

    fn add(&mut self, span: Span) {
        self.0.extend(span.start().line..=span.end().line);
    }
}

/// `#[cfg(test)]`, or `#[cfg(all(test, …))]`.
fn is_for_tests(attribute: &Attribute) -> bool {
    let Ok(list) = attribute.meta.require_list() else {
        return false;
    };
    let condition = list.tokens.to_string();
    list.path.is_ident("cfg") && (condition == "test" || condition.starts_with("all (test"))
}

impl<'a> Visit<'a> for Lines {
    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        if !self.take(&item.attrs, item.span()) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'a ItemFn) {
        if !self.take(&item.attrs, item.span()) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        self.take(&item.attrs, item.span());
    }

    fn visit_impl_item_fn(&mut self, item: &'a ImplItemFn) {
        if !self.take(&item.attrs, item.span()) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'a ItemImpl) {
        let of = item
            .trait_
            .as_ref()
            .and_then(|(_, of, _)| of.segments.last());
        if of.is_some_and(|of| of.ident == "Debug") {
            self.add(item.span());
        } else if !self.take(&item.attrs, item.span()) {
            visit::visit_item_impl(self, item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Counted, left_out};

    #[test]
    fn tests_and_tools_for_tests_are_no_part_of_the_library() {
        let counted = Counted::read().unwrap();
        for file in [
            "fuzz.rs",
            "store/etcd/fuzz.rs",
            "engine/fairness/tests/a.rs",
            "testing/promises/mutex.rs",
        ] {
            assert!(
                !counted.has(&format!("crates/tidelock/src/{file}")),
                "{file}"
            );
        }
        for file in [
            "lock.rs",
            "engine/lease/table.rs",
            "store/redis/pubsub/contests.rs",
        ] {
            assert!(
                counted.has(&format!("crates/tidelock/src/{file}")),
                "{file}"
            );
        }
    }

    #[test]
    fn lines_of_tests_and_debug_are_found() {
        let source = "fn a() {}\n\nimpl fmt::Debug for A {\n    fn fmt() {}\n}\n\nimpl A {\n    #[cfg(test)]\n    fn b() {\n    }\n}\n\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}\n";
        let lines: Vec<usize> = left_out(source).unwrap().into_iter().collect();
        assert_eq!(lines, [3, 4, 5, 8, 9, 10, 13, 14, 15, 16]);
    }
}
