//! Which file names which: the paths of a file, resolved to the files that define what they name.

use std::collections::{BTreeMap, BTreeSet};

/// The files of the library by module path. The root is the empty path.
pub(super) struct Files(BTreeMap<String, Code>);

/// What the code of one file says about names.
struct Code {
    /// The modules that it declares.
    modules: BTreeSet<String>,
    /// Each name that it brings into its scope, and the whole path.
    imports: BTreeMap<String, String>,
    /// The names of `imports` that it hands on to other files.
    exports: BTreeSet<String>,
    /// The code without its imports.
    rest: String,
}

impl Files {
    /// These files, each with its path and its code. The fuzz entry points and the tests name everything, so they are
    /// left out.
    pub(super) fn of<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let is_shipped = |file: &str| {
            !file.starts_with("testing/") && !file.contains("/tests") && !file.ends_with("fuzz.rs")
        };
        let files = files.into_iter().filter(|(file, _)| is_shipped(file));
        let files = files.map(|(file, code)| {
            let module = file.trim_end_matches(".rs").trim_end_matches("/mod");
            let module = if module == "lib" { "" } else { module };
            let module = module.replace('/', "::");
            let code = Code::read(&module, code);
            (module, code)
        });
        Self(files.collect())
    }

    /// The files that each file names.
    fn imports(&self) -> BTreeMap<String, BTreeSet<String>> {
        let each = self.0.iter().map(|(module, code)| {
            let named = code.named(module);
            let files = named.iter().filter_map(|path| self.home(path));
            let others = files.filter(|file| file != module);
            (module.clone(), others.collect())
        });
        each.collect()
    }

    /// The largest set of files that import each other in a circle.
    pub(super) fn circle(&self) -> Option<BTreeSet<String>> {
        let imports = self.imports();
        let reached: BTreeMap<&str, BTreeSet<&str>> = imports
            .keys()
            .map(|file| (&**file, reached(file, &imports)))
            .collect();
        let circles = reached.iter().map(|(file, others)| {
            let circle = others.iter().filter(|other| reached[*other].contains(file));
            circle.map(|file| (*file).to_owned()).collect()
        });
        let largest: BTreeSet<String> = circles.max_by_key(BTreeSet::len)?;
        (!largest.is_empty()).then_some(largest)
    }

    /// The file that defines what a path names. A file that only hands the name on does not count.
    fn home(&self, path: &str) -> Option<String> {
        let mut path = path.to_owned();
        loop {
            let mut module = path.as_str();
            while !self.0.contains_key(module) {
                if module.is_empty() {
                    return None;
                }
                module = module.rsplit_once("::").map_or("", |(up, _)| up);
            }
            let within = path[module.len()..].trim_start_matches("::");
            // A path that ends at a module: what lies in it is named by longer paths.
            let (name, rest) = match within.split_once("::") {
                _ if within.is_empty() => return None,
                Some((name, rest)) => (name, Some(rest)),
                None => (within, None),
            };
            let code = &self.0[module];
            let whole = code.imports.get(name);
            let Some(whole) = whole.filter(|_| code.exports.contains(name)) else {
                return Some(module.to_owned());
            };
            path = rest.map_or_else(|| whole.clone(), |rest| format!("{whole}::{rest}"));
        }
    }
}

/// The files that can be reached from a file by imports.
fn reached<'a>(
    from: &'a str,
    imports: &'a BTreeMap<String, BTreeSet<String>>,
) -> BTreeSet<&'a str> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        for import in &imports[file] {
            if reached.insert(&**import) {
                next.push(import);
            }
        }
    }
    reached
}

impl Code {
    fn read(module: &str, code: &str) -> Self {
        // An import for the docs is no dependency.
        let code = code.replace("#[cfg(doc)]\nuse ", "// ");
        let code: String = code
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default())
            .fold(String::new(), |code, line| code + line + "\n");
        let mut read = Self {
            modules: code.lines().filter_map(declared).collect(),
            imports: BTreeMap::new(),
            exports: BTreeSet::new(),
            rest: String::new(),
        };
        read.rest = read.take_imports(module, &code);
        read
    }

    /// Records the `use` declarations, and returns the code without them.
    fn take_imports(&mut self, module: &str, code: &str) -> String {
        let mut rest = String::new();
        let mut lines = code.lines();
        while let Some(line) = lines.next() {
            let start = line.trim_start();
            let (is_export, tree) = match start.split_once("use ") {
                Some(("", tree)) => (false, tree),
                Some((before, tree)) if before.starts_with("pub") && !before.contains('{') => {
                    (true, tree)
                }
                _ => {
                    rest += line;
                    rest.push('\n');
                    continue;
                }
            };
            let mut tree = tree.to_owned();
            while !tree.contains(';') {
                tree += lines.next().unwrap_or(";");
            }
            // In a module within the file, `super` is the file itself.
            let nested = line.len() != start.len();
            for path in paths(tree.trim_end().trim_end_matches(';')) {
                let path = if nested {
                    path.replacen("super::", "self::", 1)
                } else {
                    path
                };
                let (path, name) = path.split_once(" as ").unwrap_or_else(|| {
                    let path = path.trim_end_matches("::self");
                    (path, path.rsplit("::").next().unwrap_or_default())
                });
                if let Some(whole) = self.whole(module, path) {
                    if is_export {
                        self.exports.insert(name.to_owned());
                    }
                    self.imports.insert(name.to_owned(), whole);
                }
            }
        }
        rest
    }

    /// The path from the root of the library. `None`: it leads out of the library.
    fn whole(&self, module: &str, path: &str) -> Option<String> {
        let (first, rest) = path.split_once("::").unwrap_or((path, ""));
        let join = |base: &str, rest: &str| {
            let parts = [base, rest].into_iter().filter(|part| !part.is_empty());
            parts.collect::<Vec<_>>().join("::")
        };
        match first {
            "crate" => Some(rest.to_owned()),
            "self" => Some(join(module, rest)),
            "super" => {
                let above = module.rsplit_once("::").map_or("", |(above, _)| above);
                match rest.strip_prefix("super::") {
                    Some(_) => self.whole(above, rest),
                    None => Some(join(above, rest)),
                }
            }
            name if self.modules.contains(name) => Some(join(module, path)),
            _ => None,
        }
    }

    /// The whole paths of all that the code names.
    fn named(&self, module: &str) -> BTreeSet<String> {
        let words = self
            .rest
            .split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
        let words: BTreeSet<&str> = words.map(|word| word.trim_matches(':')).collect();
        let imported = self.imports.iter().filter(|(name, _)| {
            // A name that the file only hands on is no dependency of the file.
            !self.exports.contains(*name)
                || words
                    .iter()
                    .any(|word| word.split("::").next() == Some(name))
        });
        let mut named: BTreeSet<String> = imported.map(|(_, whole)| whole.clone()).collect();
        for word in words {
            let (first, rest) = word.split_once("::").unwrap_or((word, ""));
            if let Some(whole) = self.imports.get(first).filter(|_| !rest.is_empty()) {
                named.insert(format!("{whole}::{rest}"));
            } else if !rest.is_empty()
                && let Some(whole) = self.whole(module, word)
            {
                named.insert(whole);
            }
        }
        named
    }
}

/// The module of `mod name;`.
fn declared(line: &str) -> Option<String> {
    let (before, name) = line.trim().strip_suffix(';')?.split_once("mod ")?;
    (before.is_empty() || before.starts_with("pub")).then(|| name.to_owned())
}

/// The paths of a tree such as `a::{b, c::{d, e}}`.
fn paths(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((before, inner)) = tree.split_once('{') else {
        return vec![tree.to_owned()];
    };
    let inner = &inner[..inner.rfind('}').unwrap_or(inner.len())];
    let (mut depth, mut parts, mut part) = (0, Vec::new(), String::new());
    for letter in inner.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(std::mem::take(&mut part));
                continue;
            }
            _ => {}
        }
        part.push(letter);
    }
    parts.push(part);
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts
        .flat_map(|part| paths(part))
        .map(|path| format!("{before}{path}"))
        .collect()
}

#[test]
fn a_circle_is_seen_however_it_is_written() {
    for (below, above) in [
        ("use crate::a::b::{B, C};", "use crate::a::A;"),
        ("use crate::a::{b::B, b::C};", "use super::A;"),
        ("use self::b::B;", "use crate::a;\nfn f(_: a::A) {}"),
        ("fn f(_: b::B) {}", "use crate::A;"),
        (
            "pub(crate) use self::b::{B, C};\nfn f(_: B) {}",
            "use crate::{\n    a::A,\n};",
        ),
    ] {
        let root = ("lib.rs", "mod a;\npub use a::A;\n");
        let below = format!("mod b;\n{below}\npub struct A;\n");
        let files = Files::of([root, ("a/mod.rs", &below), ("a/b.rs", above)]);
        let circle = files.circle();
        let circle = circle.unwrap_or_else(|| panic!("{below}{above} is a circle"));
        assert_eq!(circle.into_iter().collect::<Vec<_>>(), ["a", "a::b"]);
    }
}

/// A file that hands a name on does not depend on it: `use crate::a::B` names the file that defines `B`.
#[test]
fn a_name_that_is_handed_on_is_no_circle() {
    let files = Files::of([
        ("lib.rs", "mod a;\n"),
        (
            "a/mod.rs",
            "mod b;\nmod c;\npub(crate) use self::b::B;\npub(crate) use self::c::C;\n",
        ),
        ("a/b.rs", "use crate::a::C;\n"),
        ("a/c.rs", "pub struct C;\n"),
    ]);
    assert_eq!(files.circle(), None);
    assert!(files.imports()["a::b"].contains("a::c"));
}
