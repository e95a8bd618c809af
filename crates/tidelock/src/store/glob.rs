//! Shell patterns for names.

/// Returns whether a name matches a pattern. `*` matches any run of characters, `?` any one character.
///
/// The time is bounded by the product of the lengths.
pub fn matches_glob(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&c) if c == '?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            // A mismatch: let the last `*` take one character more. Earlier stars need no second try.
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::matches_glob;

    #[test]
    fn globs_match_as_in_a_shell() {
        for (pattern, name, fits) in [
            ("*", "", true),
            ("a*", "abc", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*b*d", "abcbd", true),
            ("shop:*", "stock", false),
            ("", "x", false),
        ] {
            assert_eq!(matches_glob(pattern, name), fits, "{pattern} {name}");
        }
    }
}
