//! Classifies server errors and connection failures: did the request certainly have no effect, or may it have one?

use std::fmt;

use tonic::{Code, Status};

use crate::error::{Error, ErrorKind};

/// A request error: there is no usable answer.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// There is no connection.
    NoWay(Error),
    /// The request was not sent.
    Unsent(String),
    /// The connection broke after the request was sent, or the answer is invalid.
    Broken(String),
    /// An error that the server reported: code and text.
    Server(Code, String),
}

impl RequestError {
    /// Whether the connection must not be used for further requests.
    pub(crate) fn ends_connection(&self) -> bool {
        match self {
            Self::NoWay(_) => false,
            Self::Unsent(_) | Self::Broken(_) => true,
            // The member is isolated or shuts down. Another member may still work.
            Self::Server(code, _) => matches!(code, Code::Unavailable | Code::Internal),
        }
    }

    /// The token has expired, or the permissions changed since the login. The request had no effect.
    pub(crate) fn wants_login(&self) -> bool {
        self.says("invalid auth token") || self.says("revision of auth store is old")
    }

    /// The lease does not exist, or no longer exists. The request had no effect.
    pub(crate) fn is_lease_gone(&self) -> bool {
        self.says("requested lease not found")
    }

    /// Authentication is off: the server accepts every client.
    pub(crate) fn is_open_house(&self) -> bool {
        self.says("authentication is not enabled")
    }

    /// The request certainly had no effect.
    pub(crate) fn is_certain(&self) -> bool {
        self.kind() != ErrorKind::OutcomeUnknown
    }

    fn says(&self, words: &str) -> bool {
        matches!(self, Self::Server(_, text) if text.contains(words))
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoWay(error) => error.kind(),
            // Too many requests, or no space left. The server checks both before it applies a request.
            Self::Unsent(_) | Self::Server(Code::ResourceExhausted, _) => ErrorKind::Unavailable,
            Self::Broken(_) => ErrorKind::OutcomeUnknown,
            Self::Server(Code::PermissionDenied | Code::Unauthenticated, _) => ErrorKind::Refused,
            Self::Server(Code::Unimplemented, _) => ErrorKind::Unsupported,
            _ if self.says("etcdserver: no leader") || self.is_lease_gone() => {
                ErrorKind::Unavailable
            }
            _ if self.says("user name is empty") || self.says("authentication failed") => {
                ErrorKind::Refused
            }
            // Includes "request timed out": the server may still apply such a request.
            Self::Server(..) => ErrorKind::OutcomeUnknown,
        }
    }

    pub(crate) fn error(self) -> Error {
        match self {
            Self::NoWay(error) => error,
            other => Error::new(other.kind()).because(other.to_string()),
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoWay(error) => fmt::Display::fmt(error, f),
            Self::Unsent(why) | Self::Broken(why) => f.write_str(why),
            Self::Server(_, text) if self.says("user name is empty") => {
                write!(
                    f,
                    "{text}; the server wants a user: etcd://user:password@host"
                )
            }
            Self::Server(code, text) if text.is_empty() => write!(f, "{code}"),
            Self::Server(_, text) => f.write_str(text),
        }
    }
}

impl From<Status> for RequestError {
    fn from(status: Status) -> Self {
        // An error from the server has no source; a connection failure has one.
        let Some(mut source) = std::error::Error::source(&status) else {
            return Self::Server(status.code(), status.message().to_owned());
        };
        loop {
            if let Some(cut) = source.downcast_ref::<TransportFailure>() {
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

/// A connection failure, as the transport reports it for one request.
#[derive(Debug)]
pub(crate) struct TransportFailure {
    pub(crate) unsent: bool,
    pub(crate) why: String,
}

impl fmt::Display for TransportFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for TransportFailure {}

/// The error for an answer that does not fit its request. It never counts as a success.
pub(crate) fn unexpected(what: &str) -> Error {
    Error::new(ErrorKind::OutcomeUnknown)
        .because(format!("unexpected reply from the server: {what}"))
}

/// The error for a request that certainly had no effect.
pub(crate) fn unsent(why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable).because(why.to_string())
}

/// Converts the error of a request that may have changed the lock: `Unavailable` becomes `OutcomeUnknown`.
pub(crate) fn unclear(failure: RequestError) -> Error {
    let error = failure.error();
    match error.kind() {
        ErrorKind::Unavailable => {
            Error::new(ErrorKind::OutcomeUnknown).because(error.detail().unwrap_or_default())
        }
        _ => error,
    }
}

/// Converts the error of a request that cannot have changed a lock: `OutcomeUnknown` becomes `Unavailable`.
pub(crate) fn untouched(failure: RequestError) -> Error {
    let error = failure.error();
    match error.kind() {
        ErrorKind::OutcomeUnknown => {
            Error::new(ErrorKind::Unavailable).because(error.detail().unwrap_or_default())
        }
        _ => error,
    }
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
            let failure = RequestError::from(Status::new(code, text));
            assert_eq!(failure.error().kind(), kind, "{text}");
        }
    }

    #[test]
    fn a_request_that_never_left_is_told_apart() {
        let why = "closed".to_owned();
        let cut = |unsent| {
            let why = why.clone();
            RequestError::from(Status::from_error(Box::new(TransportFailure {
                unsent,
                why,
            })))
        };
        assert_eq!(cut(true).error().kind(), ErrorKind::Unavailable);
        assert_eq!(cut(false).error().kind(), ErrorKind::OutcomeUnknown);
    }
}
