use std::fmt;

/// A failure longer than this is cut when it is repeated; all of it stands further up in the output.
const MOST_LINES: usize = 40;

/// The failed tests of some test binaries, with what each of them printed.
///
/// We repeat them at the very end of a run. Otherwise somebody who sees only the end of a long log, as most CI pages show
/// it, learns that one of thousands of tests failed, and not which.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    /// Each test with its output: `---- NAME stdout ----`, then the lines.
    texts: Vec<Vec<String>>,
    /// Whether the lines that come now belong to the last of `texts`.
    inside: bool,
}

impl Failures {
    /// Collects the lines between `---- NAME stdout ----` and the list of names that follows the last of them.
    pub(crate) fn read(&mut self, line: &str) {
        if line.starts_with("---- ") && line.ends_with(" stdout ----") {
            self.texts.push(Vec::new());
            self.inside = true;
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.inside = false;
        }
        if self.inside
            && !is_frame(line)
            && let Some(text) = self.texts.last_mut()
        {
            text.push(line.to_owned());
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.texts.extend(other.texts.iter().cloned());
    }
}

/// Whether the line belongs to a frame of a backtrace: `  12: path::of::function`, or `at file:line` below it. Two of these
/// backtraces would fill the end of a log, and the messages of the tests would not be seen.
fn is_frame(line: &str) -> bool {
    let text = line.trim_start();
    let is_indented = text.len() < line.len();
    let (number, rest) = text.split_once(": ").unwrap_or_default();
    let has_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_indented && (text.starts_with("at ") || has_number && !rest.is_empty())
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for text in &self.texts {
            for line in text.iter().take(MOST_LINES) {
                writeln!(f, "{line}")?;
            }
            if let Some(more) = text.len().checked_sub(MOST_LINES + 1) {
                writeln!(f, "({} more lines further up)", more + 1)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(output: &str) -> Failures {
        let mut failures = Failures::default();
        output.lines().for_each(|line| failures.read(line));
        failures
    }

    #[test]
    fn a_failed_test_is_repeated_with_its_output() {
        let failures = read(
            "running 3 tests\n\
             test one ... ok\n\
             test two ... FAILED\n\
             \n\
             failures:\n\
             \n\
             ---- two stdout ----\n\
             thread 'two' panicked at src/lib.rs:1:1:\n\
             two holders\n\
             \n\
             failures:\n\
             \x20   two\n\
             \n\
             test result: FAILED. 2 passed; 1 failed; 0 ignored\n\
             running 1 test\n",
        );
        let shown =
            "---- two stdout ----\nthread 'two' panicked at src/lib.rs:1:1:\ntwo holders\n\n";
        assert_eq!(failures.to_string(), shown);
    }

    #[test]
    fn the_frames_of_a_backtrace_are_left_out() {
        let failures = read(
            "---- two stdout ----\n\
             Error: not within 20s\n\
             \n\
             Stack backtrace:\n\
             \x20  0: anyhow::error::<impl anyhow::Error>::msg\n\
             \x20            at /home/me/backtrace.rs:10:14\n\
             \x20 12: two::{{closure}}\n\
             12: a message\n\
             \x20 two: holders\n",
        );
        let shown = "---- two stdout ----\nError: not within 20s\n\nStack backtrace:\n\
                     12: a message\n  two: holders\n";
        assert_eq!(failures.to_string(), shown);
    }

    #[test]
    fn a_long_failure_is_cut() {
        let failures = read(&format!("---- two stdout ----\n{}", "a line\n".repeat(100)));
        let shown = failures.to_string();
        assert_eq!(shown.lines().count(), MOST_LINES + 1);
        assert!(shown.ends_with("(61 more lines further up)\n"), "{shown}");
    }
}
