//! What a refusal or a failure means: what surely did not happen, and what may have.

use std::fmt;

use tonic::{Code, Status};

use crate::error::{Error, ErrorKind};

/// Why there is no answer that can be used.
#[derive(Debug)]
pub(super) enum Trouble {
    /// There is no connection.
    NoWay(Error),
    /// It was not sent.
    Unsent(String),
    /// The connection broke, or what came makes no sense.
    Broken(String),
    /// The server's own words.
    Complaint(Code, String),
}

impl Trouble {
    /// No usable answer: nothing else will be asked on this connection.
    pub(super) fn ends_connection(&self) -> bool {
        match self {
            Self::NoWay(_) => false,
            Self::Unsent(_) | Self::Broken(_) => true,
            // A member that is cut off from the others, or ends. Another one may be better off.
            Self::Complaint(code, _) => matches!(code, Code::Unavailable | Code::Internal),
        }
    }

    /// The token is too old, or the rights were changed meanwhile. Nothing was done.
    pub(super) fn wants_login(&self) -> bool {
        self.says("invalid auth token") || self.says("revision of auth store is old")
    }

    /// There is no such lease, or no more. Nothing was done.
    pub(super) fn is_lease_gone(&self) -> bool {
        self.says("requested lease not found")
    }

    /// The server lets everybody in.
    pub(super) fn is_open_house(&self) -> bool {
        self.says("authentication is not enabled")
    }

    /// Nothing was done.
    pub(super) fn is_certain(&self) -> bool {
        self.kind() != ErrorKind::OutcomeUnknown
    }

    fn says(&self, words: &str) -> bool {
        matches!(self, Self::Complaint(_, text) if text.contains(words))
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoWay(error) => error.kind(),
            // Too many requests, or no space left: looked at before anything is done.
            Self::Unsent(_) | Self::Complaint(Code::ResourceExhausted, _) => ErrorKind::Unavailable,
            Self::Broken(_) => ErrorKind::OutcomeUnknown,
            Self::Complaint(Code::PermissionDenied | Code::Unauthenticated, _) => {
                ErrorKind::Refused
            }
            Self::Complaint(Code::Unimplemented, _) => ErrorKind::Unsupported,
            _ if self.says("etcdserver: no leader") || self.is_lease_gone() => {
                ErrorKind::Unavailable
            }
            _ if self.says("user name is empty") || self.says("authentication failed") => {
                ErrorKind::Refused
            }
            // Also "request timed out", which the server says of what may still come to pass.
            Self::Complaint(..) => ErrorKind::OutcomeUnknown,
        }
    }

    pub(super) fn error(self) -> Error {
        match self {
            Self::NoWay(error) => error,
            other => Error::new(other.kind()).because(other.to_string()),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoWay(error) => fmt::Display::fmt(error, f),
            Self::Unsent(why) | Self::Broken(why) => f.write_str(why),
            Self::Complaint(_, text) if self.says("user name is empty") => {
                write!(
                    f,
                    "{text}; the server wants a user: etcd://user:password@host"
                )
            }
            Self::Complaint(code, text) if text.is_empty() => write!(f, "{code}"),
            Self::Complaint(_, text) => f.write_str(text),
        }
    }
}

impl From<Status> for Trouble {
    fn from(status: Status) -> Self {
        // What the server said has no source; what broke on the way has.
        let Some(mut source) = std::error::Error::source(&status) else {
            return Self::Complaint(status.code(), status.message().to_owned());
        };
        loop {
            if let Some(cut) = source.downcast_ref::<Cut>() {
                return if cut.unsent {
                    Self::Unsent(cut.why.clone())
                } else {
                    Self::Broken(cut.why.clone())
                };
            }
            match source.source() {
                Some(deeper) => source = deeper,
                None => return Self::Broken(format!("the connection broke: {source}")),
            }
        }
    }
}

/// What the transport says about a request.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) unsent: bool,
    pub(super) why: String,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Cut {}

/// An answer of a shape that was not asked for: never a success.
pub(super) fn unexpected(what: &str) -> Error {
    Error::new(ErrorKind::OutcomeUnknown)
        .because(format!("the server's answer makes no sense: {what}"))
}

pub(super) fn unsent(why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable).because(why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_tell_what_surely_did_not_happen() {
        for (code, text, kind) in [
            (
                Code::PermissionDenied,
                "etcdserver: permission denied",
                ErrorKind::Refused,
            ),
            (
                Code::InvalidArgument,
                "etcdserver: user name is empty",
                ErrorKind::Refused,
            ),
            (
                Code::Unavailable,
                "etcdserver: no leader",
                ErrorKind::Unavailable,
            ),
            (
                Code::Unavailable,
                "etcdserver: request timed out",
                ErrorKind::OutcomeUnknown,
            ),
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                ErrorKind::Unavailable,
            ),
            (Code::Unknown, "something new", ErrorKind::OutcomeUnknown),
        ] {
            let trouble = Trouble::from(Status::new(code, text));
            assert_eq!(trouble.error().kind(), kind, "{text}");
        }
    }

    #[test]
    fn a_request_that_never_left_is_told_apart() {
        let why = "closed".to_owned();
        let cut = |unsent| {
            let why = why.clone();
            Trouble::from(Status::from_error(Box::new(Cut { unsent, why })))
        };
        assert_eq!(cut(true).error().kind(), ErrorKind::Unavailable);
        assert_eq!(cut(false).error().kind(), ErrorKind::OutcomeUnknown);
    }
}
