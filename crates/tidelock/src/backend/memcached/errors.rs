//! From what a server or a connection says to an [`ErrorKind`]: did it surely not run, or may it have?

use std::fmt;

use super::wire::Reply;
use crate::error::{Error, ErrorKind};

/// A request that was surely not sent.
pub(super) fn unsent(why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable).because(why.to_string())
}

/// A request that was sent and brought no usable answer.
pub(super) fn unanswered(why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::OutcomeUnknown).because(why.to_string())
}

/// An answer that is none to what was asked: never a success.
pub(super) fn unexpected(reply: &Reply) -> Error {
    match reply {
        Reply::Complaint(text) => complaint(text),
        other => unanswered(format_args!(
            "the server's answer makes no sense: {other:?}"
        )),
    }
}

/// What the server says it could not do has not been done.
pub(super) fn complaint(text: &str) -> Error {
    let (kind, advice) = match text {
        text if text.contains("out of memory") => (
            ErrorKind::Unavailable,
            "the server's memory is full; nothing was acquired",
        ),
        text if text.starts_with("SERVER_ERROR") || text.starts_with("BUSY") => {
            (ErrorKind::Unavailable, "it may be able to soon")
        }
        // Said to whoever comes, instead of an answer.
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
        // It may have taken one command for another.
        _ => (ErrorKind::OutcomeUnknown, "the server did not understand"),
    };
    Error::new(kind).because(format!("{text}; {advice}"))
}
