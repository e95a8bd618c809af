//! Text for a terminal. Names of locks, owners and hosts come from the store, where any client may write. Raw control
//! characters in them could forge lines of output, change colours, or retitle the terminal.

use std::borrow::Cow;

/// The text on one line: control characters, and characters that reorder text, as escapes.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unsafe(c) {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// Control characters (C0, DEL, C1), line separators, and the marks that change the direction of the text around them.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_forges_neither_lines_nor_colours() {
        let shown = one_line("evil\nx: free\u{1b}[31mRED\u{9b}m\u{202e}");
        assert_eq!(shown, r"evil\nx: free\u{1b}[31mRED\u{9b}m\u{202e}");
    }

    #[test]
    fn ordinary_text_stays_as_it_is() {
        for text in ["stock:42", "Größe", "在庫", "a b/c{d}", "🔒"] {
            assert!(matches!(one_line(text), Cow::Borrowed(same) if same == text));
        }
    }
}
