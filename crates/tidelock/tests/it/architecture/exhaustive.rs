//! Which public types may grow, and what is public for authors of stores only.

use super::sources;

/// The public types with public fields or variants that will not grow, with the reason. All others are
/// `#[non_exhaustive]`: a new field or variant breaks nobody.
const EXHAUSTIVE: [(&str, &str); 4] = [
    (
        "Once",
        "the job ran, had run, runs, or failed: a `match` must treat each",
    ),
    (
        "Begun",
        "the slot is the caller's, somebody else's, or nobody's any more: a `match` must treat each",
    ),
    ("Escaped", "users make it, from one value of any type"),
    (
        "HoldState",
        "a hold is proved, not proved lately, or lost: a `match` must treat each",
    ),
];

/// The contract of a store, which has no promise of stability, and what is not reachable.
const NOT_PUBLIC: [&str; 5] = ["engine/", "store/", "store.rs", "testing/", "fuzz.rs"];

/// The public enums, and the public structs with a public field, each with its attributes.
fn open_types(code: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let mut is_marked = false;
    let lines: Vec<&str> = code.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        if line.starts_with("#[") || line.starts_with("///") {
            is_marked |= *line == "#[non_exhaustive]";
            continue;
        }
        let (is_enum, rest) = match (
            line.strip_prefix("pub enum "),
            line.strip_prefix("pub struct "),
        ) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => {
                is_marked = false;
                continue;
            }
        };
        let body = lines[at + 1..].iter().take_while(|line| **line != "}");
        let shows = body
            .clone()
            .any(|line| line.starts_with("    pub ") && !line.starts_with("    pub("));
        if is_enum || (line.ends_with('{') && shows) || rest.contains("(pub ") {
            let name = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap();
            found.push((name.to_owned(), is_marked));
        }
        is_marked = false;
    }
    found
}

#[test]
fn every_public_type_with_fields_or_variants_may_grow_or_says_why_not() {
    let mut unused: Vec<&str> = EXHAUSTIVE.iter().map(|(name, _)| *name).collect();
    let mut count = 0;
    for (file, code) in sources() {
        if NOT_PUBLIC.iter().any(|room| file.starts_with(room)) || file == "types/lock_kind.rs" {
            continue;
        }
        for (name, is_marked) in open_types(&code) {
            count += 1;
            let at = unused.iter().position(|known| *known == name);
            match at {
                Some(at) => {
                    unused.remove(at);
                    assert!(
                        !is_marked,
                        "{file}: {name} is marked; remove it from the list"
                    );
                }
                None => assert!(
                    is_marked,
                    "{file}: {name} has public fields or variants: mark it #[non_exhaustive], or add it to EXHAUSTIVE"
                ),
            }
        }
    }
    assert!(unused.is_empty(), "not found: {unused:?}");
    assert!(count > 15, "only {count} types found");
}

/// What only a store makes. Without `unstable-backend` users cannot call them, so their signatures may change.
const FOR_STORES: [(&str, &[&str]); 3] = [
    ("error.rs", &["new", "on_lock", "because", "caused_by"]),
    (
        "snapshot.rs",
        &["new", "new", "new", "run_by", "new", "advise", "free"],
    ),
    ("fence.rs", &["new"]),
];

#[test]
fn what_only_a_store_makes_is_public_for_authors_of_stores_only() {
    for (file, code) in sources() {
        let Some((_, names)) = FOR_STORES.iter().find(|(known, _)| *known == file) else {
            assert!(!code.contains("for_stores! {"), "{file} is not in the list");
            continue;
        };
        let hidden = code.split("    for_stores! {\n").skip(1).map(|block| {
            let line = block
                .lines()
                .find_map(|line| line.trim_start().strip_prefix("fn "));
            line.and_then(|line| line.split('(').next())
                .unwrap_or_default()
        });
        assert_eq!(hidden.collect::<Vec<_>>(), *names, "{file}");
        assert!(
            !code.contains("    pub fn new("),
            "{file} has a constructor for everybody"
        );
    }
}
