//! Classifies the errors of requests. The question that matters for a lock: did the request certainly not run, or may
//! it have run?
//!
//! | what happened | kind |
//! | --- | --- |
//! | it was not sent: no connection, no time left | `Unavailable` |
//! | it was sent, and no usable answer came | `OutcomeUnknown` |
//! | the server answered with an error | by the code: the table of the store |
#![allow(
    dead_code,
    reason = "a build has some of the stores, and each uses a part"
)]

use std::fmt;

use crate::error::{Error, ErrorKind};

/// An error reply of a server. Its text is that of the error.
pub(crate) trait ErrorReply: fmt::Display {
    /// The kind, by the code of the error.
    fn kind(&self) -> ErrorKind;
}

/// Why a request has no result.
#[derive(Debug)]
pub(crate) enum RequestError<S> {
    /// The error has its kind already. The request was not sent.
    Classified(Error),
    /// It was not sent: no connection, no time left, or the caller has left.
    Unsent(String),
    /// It was sent and got no usable answer, so it may have run. The connection is unusable.
    Broken(String),
    /// The server answered with an error.
    Server(S),
}

impl<S: ErrorReply> RequestError<S> {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Classified(error) => error.kind(),
            Self::Unsent(_) => ErrorKind::Unavailable,
            Self::Broken(_) => ErrorKind::OutcomeUnknown,
            Self::Server(reply) => reply.kind(),
        }
    }

    /// The request certainly had no effect.
    pub(crate) fn is_certain(&self) -> bool {
        self.kind() != ErrorKind::OutcomeUnknown
    }

    pub(crate) fn error(self) -> Error {
        match self {
            Self::Classified(error) => error,
            other => Error::new(other.kind()).because(other.to_string()),
        }
    }
}

impl<S: fmt::Display> fmt::Display for RequestError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Classified(error) => error.fmt(f),
            Self::Unsent(why) | Self::Broken(why) => f.write_str(why),
            Self::Server(reply) => reply.fmt(f),
        }
    }
}

/// The error of a request that certainly did not run.
pub(crate) fn unsent(why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable).because(why.to_string())
}

/// The error of a request that was sent and got no usable answer.
pub(crate) fn unanswered(why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::OutcomeUnknown).because(why.to_string())
}

/// The error for an answer that does not fit its request. It never counts as a success.
pub(crate) fn unexpected(answer: impl fmt::Display) -> Error {
    unanswered(format_args!("the server's answer makes no sense: {answer}"))
}

/// The error of a request after one that may have changed the lock: `Unavailable` becomes `OutcomeUnknown`.
pub(crate) fn may_have_run(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unavailable => unanswered(error.detail().unwrap_or_default()),
        _ => error,
    }
}

/// The error of one of several requests. `changed`: one before it has changed something.
pub(crate) fn after_a_change(changed: bool, error: Error) -> Error {
    if changed { may_have_run(error) } else { error }
}

/// SQL for the user to run, on one line and without its comments. An error is one line and escapes line breaks, so SQL
/// on several lines could not be pasted.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn one_line(sql: &str) -> String {
    let lines = sql
        .lines()
        .map(|line| line.split("-- ").next().unwrap_or_default());
    let words = lines.flat_map(str::split_whitespace);
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Code(ErrorKind);

    impl fmt::Display for Code {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("code")
        }
    }

    impl ErrorReply for Code {
        fn kind(&self) -> ErrorKind {
            self.0
        }
    }

    #[test]
    fn only_a_request_that_was_sent_may_have_run() {
        let why = "why".to_owned();
        let refused = || Error::new(ErrorKind::Refused).because("why");
        for (failure, kind, is_certain) in [
            (
                RequestError::Classified(refused()),
                ErrorKind::Refused,
                true,
            ),
            (
                RequestError::Unsent(why.clone()),
                ErrorKind::Unavailable,
                true,
            ),
            (RequestError::Broken(why), ErrorKind::OutcomeUnknown, false),
            (
                RequestError::Server(Code(ErrorKind::WrongType)),
                ErrorKind::WrongType,
                true,
            ),
            (
                RequestError::Server(Code(ErrorKind::OutcomeUnknown)),
                ErrorKind::OutcomeUnknown,
                false,
            ),
        ] {
            assert_eq!(failure.is_certain(), is_certain);
            let error = failure.error();
            assert_eq!(error.kind(), kind);
            let told = error.detail().unwrap_or_default();
            assert!(["why", "code"].contains(&told), "{told}");
        }
        assert_eq!(unsent("x").kind(), ErrorKind::Unavailable);
        assert!(unanswered("x").outcome_unknown() && unexpected("x").outcome_unknown());
        assert_eq!(
            unanswered("x").without_effect().kind(),
            ErrorKind::Unavailable
        );
        assert_eq!(may_have_run(unsent("x")).kind(), ErrorKind::OutcomeUnknown);
        for change in [Error::without_effect, may_have_run] {
            assert_eq!(change(refused()).kind(), ErrorKind::Refused);
        }
    }

    #[cfg(any(feature = "postgres", feature = "mysql"))]
    #[test]
    fn sql_for_the_user_can_be_pasted_as_one_line() {
        let sql = "CREATE TABLE till (  -- its rows\n    id int, -- a -- b\n\n    n int\n);\n";
        assert_eq!(one_line(sql), "CREATE TABLE till ( id int, n int );");
    }
}
