//! Maps errors of the server and the connection to an [`ErrorKind`]: the request certainly had no effect, or it may
//! have had one.

use crate::error::{Error, ErrorKind};

/// Why a text of statements got no answer.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The server refused a statement. `first`: it was the first one, so nothing of the text has happened.
    Refused {
        code: u16,
        text: String,
        first: bool,
    },
    /// The connection is unusable, and the outcome of the text is unknown.
    Broken(String),
}

impl RequestError {
    /// A deadlock with other transactions rolled the statement back, so it may be repeated at once.
    pub(crate) fn is_contended(&self) -> bool {
        matches!(
            self,
            Self::Refused {
                code: 1213,
                first: true,
                ..
            }
        )
    }

    /// Another transaction blocks a row that we need, so nothing has happened.
    pub(crate) fn is_kept_waiting(&self) -> bool {
        matches!(
            self,
            Self::Refused {
                code: 1205 | 1213,
                first: true,
                ..
            }
        )
    }

    /// One of our tables is missing, so nothing has happened.
    pub(crate) fn is_no_table(&self) -> bool {
        matches!(
            self,
            Self::Refused {
                code: 1146,
                first: true,
                ..
            }
        )
    }

    /// The user may not create tables.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(
            self,
            Self::Refused {
                code: 1044 | 1142 | 1227,
                ..
            }
        )
    }

    /// The connection can serve the next request.
    pub(crate) fn spares_connection(&self) -> bool {
        // If a later statement failed, a transaction may still be open.
        matches!(self, Self::Refused { code, first: true, .. } if !ENDS_SESSION.contains(code))
    }

    pub(crate) fn error(&self) -> Error {
        match self {
            Self::Broken(why) => unanswered(why),
            Self::Refused { code, text, first } => {
                let (kind, advice) = match first {
                    true => meaning(*code),
                    false => (ErrorKind::OutcomeUnknown, "a part of the work was done"),
                };
                Error::new(kind).because(format!("{advice} (server: {code} {text})"))
            }
        }
    }
}

/// Errors after which the session is over, or about to be.
const ENDS_SESSION: [u16; 6] = [1053, 1317, 1927, 4031, 1080, 1152];

fn meaning(code: u16) -> (ErrorKind, &'static str) {
    match code {
        1205 | 1213 | 3572 | 1020 => (
            ErrorKind::Unavailable,
            "another transaction keeps the lock's row; nothing was changed",
        ),
        1040 | 1203 | 1226 => (
            ErrorKind::Unavailable,
            "the server takes no more connections",
        ),
        1290 | 1792 | 1836 => (
            ErrorKind::Unavailable,
            "the server takes no changes; it may be a replica",
        ),
        1021 | 1037 | 1038 | 1041 | 1114 => (
            ErrorKind::Unavailable,
            "the server has no room left; nothing was acquired",
        ),
        1047 => (
            ErrorKind::Unavailable,
            "the node does not belong to its cluster just now",
        ),
        // The server sends this to a connection that was idle for too long, before it executes anything.
        4031 => (
            ErrorKind::Unavailable,
            "the server had ended the idle connection",
        ),
        1045 | 1130 | 1129 | 1251 | 1698 | 1820 | 1862 => (
            ErrorKind::Refused,
            "authentication: check user, password, from where the user may connect, and whether with TLS only (ssl-mode=VERIFY_IDENTITY)",
        ),
        1044 | 1142 | 1143 | 1227 => (
            ErrorKind::Refused,
            "the user may not use the tables; it needs SELECT, INSERT, UPDATE and DELETE",
        ),
        3159 => (
            ErrorKind::Refused,
            "the server requires TLS: write ssl-mode=VERIFY_IDENTITY",
        ),
        1049 => (ErrorKind::InvalidOptions, "there is no such database"),
        1054 | 1064 | 1136 | 1193 | 1231 | 1364 => (
            ErrorKind::Unsupported,
            "the server is too old, or the tables differ from those that tidelock creates",
        ),
        1146 => (ErrorKind::Refused, "tidelock's tables do not exist"),
        // Nothing else is counted up.
        1690 => (
            ErrorKind::WrongType,
            "the fencing token of this lock has no next token. The lock was not acquired; set the counter in the tables to the largest token in use",
        ),
        // Anything else may have come after a part of the work.
        _ => (ErrorKind::OutcomeUnknown, "unknown error"),
    }
}

/// The error of a request that was certainly not sent.
pub(crate) fn unsent(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable).because(why.to_string())
}

/// The error of a request that was sent and got no usable answer.
pub(crate) fn unanswered(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::OutcomeUnknown).because(why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: u16, first: bool) -> ErrorKind {
        let text = "x".to_owned();
        RequestError::Refused { code, text, first }.error().kind()
    }

    #[test]
    fn what_was_undone_surely_did_not_happen() {
        for code in [1205, 1213, 1290, 1040] {
            assert_eq!(kind(code, true), ErrorKind::Unavailable, "{code}");
            assert_eq!(kind(code, false), ErrorKind::OutcomeUnknown, "{code}");
        }
        assert_eq!(kind(1142, true), ErrorKind::Refused);
        assert_eq!(kind(1690, true), ErrorKind::WrongType);
        assert_eq!(kind(1927, true), ErrorKind::OutcomeUnknown);
        assert_eq!(kind(9999, true), ErrorKind::OutcomeUnknown);
        assert!(
            RequestError::Broken(String::new())
                .error()
                .outcome_unknown()
        );
    }
}
