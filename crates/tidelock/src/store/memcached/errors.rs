//! Memcached's error texts, as an [`ErrorKind`].

use crate::error::{Error, ErrorKind};
use crate::store::errors;
pub(crate) use crate::store::errors::{unanswered, unsent};
use crate::store::memcached::wire::Reply;

/// The error for an answer that does not fit its request. It never counts as a success.
pub(crate) fn unexpected(reply: &Reply) -> Error {
    match reply {
        Reply::Server(text) => server_error(text),
        other => errors::unexpected(format_args!("{other:?}")),
    }
}

/// Classifies a server error. If the server says that it could not execute a command, the command had no effect.
#[rustfmt::skip] // a table, with one row a line
pub(crate) fn server_error(text: &str) -> Error {
    use ErrorKind::{OutcomeUnknown, Refused, Unavailable, Unsupported};

    let (kind, advice) = match text {
        text if text.contains("out of memory") => (Unavailable, "the server's memory is full; nothing was acquired"),
        text if text.starts_with("SERVER_ERROR") || text.starts_with("BUSY") => (Unavailable, "it may be able to soon"),
        // A server that is full sends this to each new connection, instead of an answer.
        text if text.contains("Too many open connections") => (Unavailable, "the server has as many clients as it takes (its option -c)"),
        text if text.contains("unauthenticated") || text.contains("authentication") => (Refused, "check user and password"),
        "ERROR" => (Unsupported, "the server does not know a command that locks need; use memcached 1.6.13 or later"),
        // The server may have read another command than the one we sent.
        _ => (OutcomeUnknown, "the server did not understand"),
    };
    Error::new(kind).because(format!("{text}; {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_did_not_run_the_command_leaves_no_doubt() {
        use ErrorKind::{OutcomeUnknown, Refused, Unavailable, Unsupported};

        for (text, kind, advice) in [
            (
                "SERVER_ERROR out of memory storing object",
                Unavailable,
                "memory is full",
            ),
            ("SERVER_ERROR busy", Unavailable, "soon"),
            (
                "BUSY currently processing crawler request",
                Unavailable,
                "soon",
            ),
            (
                "ERROR Too many open connections",
                Unavailable,
                "as many clients",
            ),
            ("CLIENT_ERROR unauthenticated", Refused, "user and password"),
            (
                "CLIENT_ERROR authentication failure",
                Refused,
                "user and password",
            ),
            ("ERROR", Unsupported, "1.6.13"),
            // The server may have read another command.
            (
                "CLIENT_ERROR bad data chunk",
                OutcomeUnknown,
                "did not understand",
            ),
            ("ERROR something", OutcomeUnknown, "did not understand"),
        ] {
            let error = unexpected(&Reply::Server(text.to_owned()));
            assert_eq!(error.kind(), kind, "{text}");
            let told = error.detail().unwrap_or_default();
            assert!(told.starts_with(text) && told.contains(advice), "{told}");
        }
    }

    #[test]
    fn a_reply_that_does_not_fit_is_no_success() {
        let error = unexpected(&Reply::Done(Some(7)));
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
        assert!(error.to_string().contains("Done(Some(7))"), "{error}");
    }
}
