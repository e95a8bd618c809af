//! Combines the errors of several members into one.

use crate::error::{Error, ErrorKind};
use crate::store::NotYet;
use crate::store::set::shared::Shared;

/// The error of one member, with the member's label.
pub(crate) fn of_part(set: &Shared, part: usize, error: Error) -> Error {
    let detail = said(set, part, &error);
    let whole = Error::new(error.kind()).because(detail);
    match NotYet::of(&error) {
        // The acquire loop looks for it in the direct cause only. Otherwise it would take a healthy member for one that does
        // not answer, and end the wait after a lease.
        Some(within) => whole.caused_by(NotYet { within }),
        None => whole.caused_by(error),
    }
}

/// One error of the given kind, with the details of several members.
pub(crate) fn of_parts(set: &Shared, kind: ErrorKind, failed: Vec<(usize, Error)>) -> Error {
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

/// The kind of the combined error. An error that no retry can fix comes first.
pub(crate) fn kind_of<'a>(failed: impl Iterator<Item = &'a Error>) -> ErrorKind {
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

/// The kind of the combined error of a change. `done` members have confirmed theirs, so the others cannot say that nothing
/// was changed.
pub(crate) fn kind_of_change<'a>(
    done: usize,
    failed: impl Iterator<Item = &'a Error>,
) -> ErrorKind {
    match kind_of(failed) {
        ErrorKind::Unavailable if done > 0 => ErrorKind::OutcomeUnknown,
        kind => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_some_members_have_made_is_never_called_undone() {
        use ErrorKind::{OutcomeUnknown, Refused, Unavailable};
        for (done, failed, kind) in [
            (0, Unavailable, Unavailable),
            (2, Unavailable, OutcomeUnknown),
            (0, OutcomeUnknown, OutcomeUnknown),
            (2, Refused, Refused),
        ] {
            let error = Error::new(failed);
            assert_eq!(kind_of_change(done, [&error].into_iter()), kind, "{done}");
        }
    }

    #[test]
    fn an_error_that_no_retry_can_fix_comes_first() {
        use ErrorKind::{OutcomeUnknown, Refused, Unavailable};
        for (kinds, kind) in [
            (&[][..], Unavailable),
            (&[Unavailable, Unavailable], Unavailable),
            (&[Unavailable, OutcomeUnknown, Unavailable], OutcomeUnknown),
            (&[OutcomeUnknown, Refused, Unavailable], Refused),
        ] {
            let errors: Vec<Error> = kinds.iter().map(|kind| Error::new(*kind)).collect();
            assert_eq!(kind_of(errors.iter()), kind, "{kinds:?}");
        }
    }
}
