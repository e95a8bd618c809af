//! Percent-encoding (`%41`): decoded in URLs and names, encoded in the words of a stored line.

use std::fmt::Write as _;

/// Decodes a text. `None`: a percent sign without two hexadecimal digits, or the result is not UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let [high, low, after @ ..] = after else {
            return None;
        };
        bytes.push(digit(*high)? << 4 | digit(*low)?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

/// We avoid `from_str_radix`: it accepts a sign, so `%+1` would decode like `%01`.
fn digit(letter: u8) -> Option<u8> {
    let value = char::from(letter).to_digit(16)?;
    u8::try_from(value).ok()
}

/// Appends a value without spaces and control characters, so that a line of words stays one line of words.
pub(crate) fn encode_word(line: &mut String, value: &str) {
    for letter in value.chars() {
        if letter.is_whitespace() || letter.is_control() || letter == '%' {
            let mut bytes = [0; 4];
            for byte in letter.encode_utf8(&mut bytes).bytes() {
                let _ = write!(line, "%{byte:02x}"); // a String takes everything
            }
        } else {
            line.push(letter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_digits_stand_for_a_byte() {
        assert_eq!(decode("a%2Fb%c3%BC%").as_deref(), None);
        assert_eq!(decode("a%2Fb%c3%BC").as_deref(), Some("a/bü"));
        for bad in ["%", "%4", "%zz", "%+1", "%-1", "% 1", "%ff", "%4ü"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    /// A space would end the word, and a line break the line.
    #[test]
    fn a_value_is_one_word_and_is_read_as_it_was_written() {
        for (value, word) in [
            ("till-7=é,+", "till-7=é,+"),
            ("a b", "a%20b"),
            ("50%", "50%25"),
            ("a\nb\u{7}", "a%0ab%07"),
            ("a\u{a0}b", "a%c2%a0b"),
        ] {
            let mut line = "key=".to_owned();
            encode_word(&mut line, value);
            assert_eq!(line, format!("key={word}"));
            assert_eq!(decode(word).as_deref(), Some(value));
        }
    }
}
