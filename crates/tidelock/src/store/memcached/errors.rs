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
