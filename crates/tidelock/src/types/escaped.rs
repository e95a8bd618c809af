//! Text for a terminal or a log. Any client of a store can write names, owners, hosts and messages there. Raw control
//! characters in them could forge lines of output, change colours, or retitle the terminal.

use std::fmt::{self, Write};

/// Displays a text on one line that is safe for a terminal: control characters, and characters that change the
/// direction of the text, appear as Rust escapes such as `\n` and `\u{1b}`. All other text stays as it is.
///
/// [`Snapshot`](crate::Snapshot) and [`Finding`](crate::Finding) have the texts as they are in the store, where any
/// client may have written them. Print their fields with this type. Their own `Display`, that of
/// [`Error`](crate::Error), and the library's log already escape.
///
/// # Examples
/// ```
/// use tidelock::Escaped;
///
/// assert_eq!(Escaped("evil\nx: free").to_string(), r"evil\nx: free");
/// assert_eq!(Escaped("在庫 42").to_string(), "在庫 42");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Escaped<T>(pub T);

impl<T: fmt::Display> fmt::Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(EscapeWriter(f), "{}", self.0)
    }
}

/// Escapes all text on its way to another writer.
struct EscapeWriter<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for EscapeWriter<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| is_unsafe(*c)) {
            self.0.write_str(&rest[..at])?;
            write!(self.0, "{}", c.escape_default())?;
            rest = &rest[at + c.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

/// Control characters (C0, DEL, C1), line separators, and the marks that change the direction of the text around them.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061C}' | '\u{2028}' | '\u{2029}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_forges_neither_lines_nor_colours() {
        let shown = Escaped("evil\nx: free\u{1b}[31mRED\u{9b}m\u{202e}").to_string();
        assert_eq!(shown, r"evil\nx: free\u{1b}[31mRED\u{9b}m\u{202e}");
    }

    #[test]
    fn ordinary_text_stays_as_it_is() {
        for text in ["", "stock:42", "Größe", "在庫", "a b/c{d}", r"a\nb", "🔒"] {
            assert_eq!(Escaped(text).to_string(), text);
        }
    }
}
