//! The shape of a doctor's check: the subject, the meaning of a good and of a bad result, and the remedy.
#![cfg_attr(
    not(feature = "redis"),
    allow(dead_code, reason = "each store uses a part of it")
)]

use crate::snapshot::{Finding, Severity};

/// A check with two results.
pub(crate) struct DoctorCheck {
    pub(crate) subject: &'static str,
    /// The meaning of the good result.
    pub(crate) good: &'static str,
    pub(crate) severity: Severity,
    /// The meaning of the bad result.
    pub(crate) bad: &'static str,
    /// The remedy for the bad result.
    pub(crate) advice: &'static str,
}

impl DoctorCheck {
    pub(crate) fn good(&self, found: impl Into<String>) -> Finding {
        Finding::new(Severity::Good, self.subject, found, self.good)
    }

    pub(crate) fn bad(&self, found: impl Into<String>) -> Finding {
        Finding::new(self.severity, self.subject, found, self.bad).advise(self.advice)
    }

    pub(crate) fn judge(&self, is_good: bool, found: impl Into<String>) -> Finding {
        if is_good {
            self.good(found)
        } else {
            self.bad(found)
        }
    }

    /// For a right: the bad result is that the server refused the command.
    pub(crate) fn allowed(&self, is_allowed: bool, found: &str) -> Finding {
        self.judge(is_allowed, if is_allowed { found } else { "refused" })
    }

    /// For several rights: the bad result is the list of the refused ones.
    pub(crate) fn none_refused(&self, refused: &[&str], found: &str) -> Finding {
        if refused.is_empty() {
            self.good(found)
        } else {
            self.bad(format!("refused: {}", refused.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bad_result_has_a_remedy() {
        let check = DoctorCheck {
            subject: "rights",
            good: "locks work",
            severity: Severity::Danger,
            bad: "locks fail",
            advice: "allow it",
        };
        let good = check.allowed(true, "a lock was taken");
        assert_eq!((&*good.found, good.advice), ("a lock was taken", None));
        let bad = check.none_refused(&["get", "set"], "all");
        assert_eq!(
            (bad.severity, &*bad.found),
            (Severity::Danger, "refused: get, set")
        );
        assert_eq!(
            (&*bad.meaning, bad.advice.as_deref()),
            ("locks fail", Some("allow it"))
        );
        assert_eq!(check.allowed(false, "").found, "refused");
    }
}
