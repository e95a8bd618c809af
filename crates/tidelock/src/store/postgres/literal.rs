//! Texts as SQL.

use std::fmt::Write as _;

/// A text as hexadecimal digits, in which the server can read nothing as SQL, whatever the settings of the session are.
pub(crate) fn literal(text: &str) -> String {
    let mut digits = String::with_capacity(text.len() * 2 + 40);
    digits.push_str("convert_from(decode('");
    for byte in text.bytes() {
        // Writing to a string does not fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits.push_str("', 'hex'), 'UTF8')");
    digits
}

/// As [`literal`], but a text that means the same in every session is only put in quotes. What a backslash means, and
/// which characters the other bytes are, depends on settings.
pub(crate) fn short_literal(text: &str) -> String {
    let is_plain = |byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'\\' | b'\'');
    if text.bytes().all(is_plain) {
        return format!("'{text}'");
    }
    literal(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_that_mean_the_same_in_every_session_are_quoted() {
        for plain in ["", "till", "{a}:b c", "0123-ab:7 \"~\"; --"] {
            assert_eq!(short_literal(plain), format!("'{plain}'"));
        }
        for other in ["it's", r"a\b", "\u{e4}", "\n", "\u{7f}"] {
            assert_eq!(short_literal(other), literal(other), "{other:?}");
        }
        assert_eq!(literal("a'"), "convert_from(decode('6127', 'hex'), 'UTF8')");
    }
}
