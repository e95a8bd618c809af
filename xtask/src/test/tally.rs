use std::fmt;
use std::time::Duration;

use super::failures::Failures;

/// Counts passed and failed tests, and the time they took without the build.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    time: Duration,
    /// What tests have measured: the name of each figure, and its text. They print `figure: NAME = TEXT`.
    pub(crate) figures: Vec<(String, String)>,
    pub(crate) failures: Failures,
    /// What the part could not check here, as "advisories".
    unchecked: Vec<String>,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.time += other.time;
        self.figures.extend(other.figures.iter().cloned());
        self.failures.add(&other.failures);
        self.unchecked.extend(other.unchecked.iter().cloned());
    }

    /// Notes what could not be checked here, as without a network. It is no failure, but the end of the run tells it: nobody reads
    /// all that the parts print.
    pub(crate) fn not_checked(&mut self, what: &str) {
        self.unchecked.push(what.to_owned());
    }

    /// The verdict on a part without an error.
    pub(crate) fn ok(&self) -> String {
        let unchecked = self.unchecked.iter();
        let mut parts = vec!["ok".to_owned()];
        parts.extend(unchecked.map(|what| format!("{what} not checked")));
        parts.join(", ")
    }

    /// Counts the summary line of a test binary, and collects figures and failures; ignores any other line.
    pub(crate) fn read(&mut self, line: &str) {
        self.failures.read(line);
        // With `--nocapture` the line of a test begins with its name.
        if let Some((_, figure)) = line.split_once("figure: ")
            && let Some((name, text)) = figure.split_once(" = ")
        {
            self.figures.push((name.to_owned(), text.to_owned()));
        }
        // Colour codes may stand between the words that we look for.
        let Some((_, counts)) = line.split_once("test result: ") else {
            return;
        };
        let before = |word: &str| -> u64 {
            let number = counts
                .split_once(word)
                .and_then(|(head, _)| head.split_whitespace().next_back());
            number.and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        self.passed += before(" passed");
        self.failed += before(" failed");
        let seconds = counts
            .split_once("finished in ")
            .and_then(|(_, time)| time.strip_suffix('s')?.parse().ok());
        self.time += Duration::try_from_secs_f64(seconds.unwrap_or(0.0)).unwrap_or_default();
    }

    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }

    /// Whether any test has run.
    pub(crate) fn ran(&self) -> bool {
        self.passed + self.failed > 0
    }

    /// The text for a part that may have no tests.
    pub(crate) fn or_nothing(&self) -> String {
        let unchecked = self.unchecked.clone();
        let nothing = Self {
            unchecked,
            ..Self::default()
        };
        if *self == nothing {
            String::new()
        } else {
            self.to_string()
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            time,
            ..
        } = self;
        write!(
            f,
            "{passed} passed, {failed} failed in {:.1} s",
            time.as_secs_f64()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_checked_is_told() {
        let mut tally = Tally::default();
        assert_eq!(tally.ok(), "ok");
        tally.not_checked("advisories");
        tally.not_checked("licenses");
        assert_eq!(
            tally.ok(),
            "ok, advisories not checked, licenses not checked"
        );
        assert_eq!(tally.or_nothing(), "");
    }

    #[test]
    fn closing_lines_are_summed() {
        let mut tally = Tally::default();
        tally.read("test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s");
        tally.read("test result: \x1b[31mFAILED\x1b[0m. 7 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out");
        tally.read("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 70.25s");
        tally.read("test a_thing ... ok");
        tally.read("test a_thing ... figure: a restart, etcd = 7 ms");
        let figure = ("a restart, etcd".to_owned(), "7 ms".to_owned());
        assert_eq!(tally.figures, [figure]);
        assert_eq!(tally.to_string(), "13 passed, 2 failed in 70.3 s");
    }
}
