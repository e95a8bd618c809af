//! Command lines that a message suggests, as a shell takes them.

use tidelock::Escaped;

/// The line of a command with these words. `None`: a word has characters that a terminal would not show as they are.
pub(crate) fn line_of<W: AsRef<str>>(words: &[W]) -> Option<String> {
    let words: Vec<String> = words.iter().map(|word| quoted(word.as_ref())).collect();
    let line = words.join(" ");
    (Escaped(&line).to_string() == line).then_some(line)
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
