//! Lines that are longer than the terminal is wide.

use ratatui::text::Span;
use tidelock::Escaped;

/// The most characters of a line. Anybody who may write to the store may have written it.
const LONGEST: usize = 4000;

/// Stands before what a line goes on with.
const INDENT: &str = "  ";

/// The line as a terminal of this width may get it, over as many lines as it needs.
pub(super) fn wrapped(line: &str, width: u16) -> Vec<String> {
    let width = usize::from(width).max(1);
    let indent = if width > 2 * INDENT.len() { INDENT } else { "" };
    let (mut lines, mut last, mut used) = (Vec::new(), String::new(), 0);
    // Where the last word begins: in bytes and in columns.
    let (mut word, mut word_at) = (0, 0);
    let mut buffer = [0; 4];
    for char in Escaped(line).to_string().chars().take(LONGEST) {
        let wide = Span::raw(&*char.encode_utf8(&mut buffer)).width();
        if used + wide > width && used > 0 {
            // A long word is cut: its line would be almost empty.
            if word_at * 2 < width {
                (word, word_at) = (last.len(), used);
            }
            let rest = last.split_off(word);
            lines.push(std::mem::take(&mut last));
            last = format!("{indent}{rest}");
            used = indent.len() + used - word_at;
            (word, word_at) = (0, 0);
        }
        last.push(char);
        used += wide;
        if char == ' ' {
            (word, word_at) = (last.len(), used);
        }
    }
    lines.push(last);
    lines
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn a_line_goes_on_below() {
        assert_eq!(wrapped("", 5), [""]);
        assert_eq!(wrapped("abcde", 5), ["abcde"]);
        assert_eq!(wrapped("abcdefghi", 5), ["abcde", "  fgh", "  i"]);
        assert_eq!(wrapped("abc", 2), ["ab", "c"]);
        assert_eq!(
            wrapped("ab cde fgh", 8),
            ["ab cde ", "  fgh"],
            "whole words"
        );
        assert_eq!(
            wrapped("a bcdefghij", 8),
            ["a bcdefg", "  hij"],
            "a long word"
        );
        assert_eq!(wrapped("abc", 0), ["a", "b", "c"]);
        assert_eq!(wrapped("a漢字", 3), ["a漢", "字"], "wide characters");
        assert_eq!(wrapped("a\nb", 80), [r"a\nb"], "escaped");
    }
}
