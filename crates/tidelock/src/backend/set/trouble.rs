//! Several failures in one error.

use super::Shared;
use crate::error::{Error, ErrorKind};

/// What one member said, with which member it was.
pub(super) fn of_part(set: &Shared, part: usize, error: Error) -> Error {
    let detail = said(set, part, &error);
    Error::new(error.kind()).because(detail).caused_by(error)
}

/// What several members said, in one error of that kind.
pub(super) fn of_parts(set: &Shared, kind: ErrorKind, failed: Vec<(usize, Error)>) -> Error {
    let details: Vec<String> = failed
        .iter()
        .map(|(part, error)| said(set, *part, error))
        .collect();
    let whole = Error::new(kind).because(details.join("; "));
    match failed.into_iter().next() {
        Some((_, first)) => whole.caused_by(first),
        None => whole,
    }
}

fn said(set: &Shared, part: usize, error: &Error) -> String {
    let label = &set.members[part].label;
    match error.detail() {
        Some(detail) => format!("{label}: {detail}"),
        None => format!("{label}: {error}"),
    }
}

/// What kind of error several failures are together: one that no repetition can mend comes first.
pub(super) fn kind_of<'a>(failed: impl Iterator<Item = &'a Error>) -> ErrorKind {
    let mut kind = ErrorKind::Unavailable;
    for error in failed {
        if !error.is_retryable() {
            return error.kind();
        }
        if error.outcome_unknown() {
            kind = ErrorKind::OutcomeUnknown;
        }
    }
    kind
}
