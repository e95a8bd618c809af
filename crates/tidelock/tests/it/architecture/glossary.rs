//! Every word that the code coins is in the glossary.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::rooms::defined;
use super::sources;

/// Words of English, Rust and the stores' own APIs, which need no entry.
const ORDINARY: &str = include_str!("ordinary_words.txt");

/// Words in lower case and without a plural `s`.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric())
        .map(|word| word.to_lowercase().trim_end_matches('s').to_owned())
        .filter(|word| !word.is_empty())
}

/// The words of a type's name: `LeaseTable` has `Lease` and `Table`.
fn parts(name: &str) -> String {
    let mut spaced = String::new();
    for c in name.chars() {
        if c.is_uppercase() {
            spaced.push(' ');
        }
        spaced.push(c);
    }
    spaced
}

#[test]
fn every_word_of_a_type_is_ordinary_or_in_the_glossary() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/glossary.md");
    let page = fs::read_to_string(page).unwrap();
    let terms = page.lines().filter(|line| line.starts_with('|'));
    // The third column explains, with any words.
    let terms = terms.flat_map(|row| row.split('|').skip(1).take(2));
    let known: BTreeSet<String> = terms.chain([ORDINARY]).flat_map(words).collect();
    let mut coined = Vec::new();
    for (file, code) in sources() {
        if file.starts_with("testing/") || file.contains("/tests") {
            continue;
        }
        for name in defined(&code) {
            let name_words = parts(name);
            let unknown = words(&name_words).filter(|word| !known.contains(word));
            coined.extend(unknown.map(|word| format!("{word} of {name} in {file}")));
        }
    }
    assert!(
        coined.is_empty(),
        "in neither docs/glossary.md nor ordinary_words.txt:\n{}",
        coined.join("\n")
    );
}
