//! Maps server errors and connection failures to an [`ErrorKind`]: did the request certainly have no effect, or may it
//! have one?

use std::fmt;

use crate::error::{Error, ErrorKind};
use crate::store::memcached::wire::Reply;

/// The error for a request that certainly had no effect.
pub(crate) fn unsent(why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable).because(why.to_string())
}

/// The error for a request that was sent and got no usable answer.
pub(crate) fn unanswered(why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::OutcomeUnknown).because(why.to_string())
}

/// The error for an answer that does not fit its request. It never counts as a success.
pub(crate) fn unexpected(reply: &Reply) -> Error {
    match reply {
        Reply::Server(text) => server_error(text),
        other => unanswered(format_args!("unexpected reply from the server: {other:?}")),
    }
}

/// Classifies a server error. If the server says that it could not execute a command, the command had no effect.
pub(crate) fn server_error(text: &str) -> Error {
    let (kind, advice) = match text {
        text if text.contains("out of memory") => (
            ErrorKind::Unavailable,
            "the server's memory is full; nothing was acquired",
        ),
        text if text.starts_with("SERVER_ERROR") || text.starts_with("BUSY") => {
            (ErrorKind::Unavailable, "it may be able to soon")
        }
        // A server that is full sends this to each new connection, instead of an answer.
        text if text.contains("Too many open connections") => (
            ErrorKind::Unavailable,
            "the server has as many clients as it takes (its option -c)",
        ),
        text if text.contains("unauthenticated") || text.contains("authentication") => {
            (ErrorKind::Refused, "check user and password")
        }
        "ERROR" => (
            ErrorKind::Unsupported,
            "the server does not know a command that locks need; use memcached 1.6 or later",
        ),
        // The server may have read another command than the one we sent.
        _ => (ErrorKind::OutcomeUnknown, "the server did not understand"),
    };
    Error::new(kind).because(format!("{text}; {advice}"))
}
