//! etcd's error codes, as an [`ErrorKind`], and the failures of its transport.

use std::fmt;

use tonic::{Code, Status};

use crate::error::{Error, ErrorKind};
use crate::store::errors;
use crate::store::errors::ErrorReply;
use crate::store::errors::may_have_run;
pub(crate) use crate::store::errors::{unexpected, unsent};

pub(crate) type RequestError = errors::RequestError<EtcdError>;

/// An error that the server reported.
#[derive(Debug)]
pub(crate) struct EtcdError {
    code: Code,
    text: String,
}

impl RequestError {
    /// Whether the connection must not be used for further requests.
    pub(crate) fn ends_connection(&self) -> bool {
        match self {
            Self::Classified(_) => false,
            Self::Unsent(_) | Self::Broken(_) => true,
            // The member is isolated, shuts down, or has no vote yet. Another member may still work.
            Self::Server(error) => {
                matches!(error.code, Code::Unavailable | Code::Internal) || self.says(LEARNER)
            }
        }
    }

    /// The token has expired, or the permissions changed since the login. The request had no effect.
    pub(crate) fn wants_login(&self) -> bool {
        self.says("invalid auth token") || self.says("revision of auth store is old")
    }

    /// The server has refused the request because of one of its keys, or because of their number. One with fewer keys may
    /// succeed. Any other error would be that of each part too: a server with too many requests would only get more.
    pub(crate) fn may_concern_a_part(&self) -> bool {
        let is_forbidden =
            matches!(self, Self::Server(error) if error.code == Code::PermissionDenied);
        is_forbidden || self.says(TOO_MANY_OPERATIONS)
    }

    /// The lease does not exist, or no longer exists. The request had no effect.
    pub(crate) fn is_lease_gone(&self) -> bool {
        self.says(LEASE_GONE)
    }

    /// Authentication is off: the server accepts every client.
    pub(crate) fn is_open_house(&self) -> bool {
        self.says("authentication is not enabled")
    }

    fn says(&self, words: &str) -> bool {
        matches!(self, Self::Server(error) if error.text.contains(words))
    }
}

const LEASE_GONE: &str = "requested lease not found";
const TOO_MANY_OPERATIONS: &str = "too many operations in txn request";
const NO_USER: &str = "user name is empty";
/// A learner executes no request of a lock. etcd 3.4 says so with the code of an isolated member, later versions do not.
const LEARNER: &str = "not supported for learner";
/// etcd's grpc-proxy says so when the stream of a keep-alive has no more requests, before it has answered the first one.
const PROXY_ENDED_STREAM: &str = "context canceled";

impl ErrorReply for EtcdError {
    fn kind(&self) -> ErrorKind {
        let says = |words| self.text.contains(words);
        match self.code {
            // The server also says this of a request that it has applied, if the quota was used up just before.
            Code::ResourceExhausted if says("space exceeded") => ErrorKind::OutcomeUnknown,
            // Too many requests: the server looks before it accepts one.
            Code::ResourceExhausted => ErrorKind::Unavailable,
            Code::PermissionDenied | Code::Unauthenticated => ErrorKind::Refused,
            Code::Unimplemented => ErrorKind::Unsupported,
            _ if says("etcdserver: no leader") || says(LEASE_GONE) || says(LEARNER) => {
                ErrorKind::Unavailable
            }
            _ if says(NO_USER) || says("authentication failed") => ErrorKind::Refused,
            // Includes "request timed out": the server may still apply such a request.
            _ => ErrorKind::OutcomeUnknown,
        }
    }
}

impl fmt::Display for EtcdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, text } = self;
        match text.as_str() {
            "" => write!(f, "{code}"),
            _ if text.contains(NO_USER) => {
                write!(
                    f,
                    "{text}; the server wants a user: etcd://user:password@host"
                )
            }
            _ if text.contains(PROXY_ENDED_STREAM) => {
                write!(
                    f,
                    "{text}; locks do not work behind etcd's grpc-proxy: if the URL names one, name the members instead"
                )
            }
            _ => f.write_str(text),
        }
    }
}

impl From<Status> for RequestError {
    fn from(status: Status) -> Self {
        // An error from the server has no source; a connection failure has one.
        let Some(mut source) = std::error::Error::source(&status) else {
            let (code, text) = (status.code(), status.message().to_owned());
            return Self::Server(EtcdError { code, text });
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

/// The error of a request that may have changed the lock.
pub(crate) fn unclear(failure: RequestError) -> Error {
    may_have_run(failure.error())
}

/// The error of a request that cannot have changed a lock.
pub(crate) fn untouched(failure: RequestError) -> Error {
    failure.error().without_effect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_tell_which_requests_had_no_effect() {
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
                ErrorKind::OutcomeUnknown,
            ),
            (
                Code::ResourceExhausted,
                "etcdserver: too many requests",
                ErrorKind::Unavailable,
            ),
            (
                Code::FailedPrecondition,
                "etcdserver: rpc not supported for learner",
                ErrorKind::Unavailable,
            ),
            (Code::Unknown, "something new", ErrorKind::OutcomeUnknown),
        ] {
            let failure = RequestError::from(Status::new(code, text));
            assert_eq!(failure.error().kind(), kind, "{text}");
        }
    }

    #[test]
    fn the_stream_that_a_grpc_proxy_ends_is_explained() {
        for code in [Code::Unknown, Code::Cancelled] {
            let failure = RequestError::from(Status::new(code, "context canceled"));
            let error = failure.error();
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
            let text = error.to_string();
            assert!(text.contains("grpc-proxy"), "{text}");
        }
    }

    #[test]
    fn a_member_that_executes_nothing_is_left() {
        let learner = "etcdserver: rpc not supported for learner";
        for (code, text, ends) in [
            (Code::Unavailable, "etcdserver: no leader", true),
            (Code::Unavailable, learner, true), // etcd 3.4
            (Code::FailedPrecondition, learner, true),
            (
                Code::NotFound,
                "etcdserver: requested lease not found",
                false,
            ),
            (
                Code::ResourceExhausted,
                "etcdserver: too many requests",
                false,
            ),
        ] {
            let failure = RequestError::from(Status::new(code, text));
            assert_eq!(failure.ends_connection(), ends, "{text}");
        }
    }

    #[test]
    fn a_request_is_divided_only_if_its_keys_may_be_why_it_was_refused() {
        for (code, text, divides) in [
            (
                Code::PermissionDenied,
                "etcdserver: permission denied",
                true,
            ),
            (
                Code::InvalidArgument,
                "etcdserver: too many operations in txn request",
                true,
            ),
            (Code::Unavailable, "etcdserver: no leader", false),
            (
                Code::ResourceExhausted,
                "etcdserver: too many requests",
                false,
            ),
            (
                Code::InvalidArgument,
                "etcdserver: user name is empty",
                false,
            ),
            (
                Code::Unauthenticated,
                "etcdserver: invalid auth token",
                false,
            ),
        ] {
            let failure = RequestError::from(Status::new(code, text));
            assert_eq!(failure.may_concern_a_part(), divides, "{text}");
        }
        for failure in [cut(true), cut(false)] {
            assert!(!failure.may_concern_a_part(), "{failure}");
        }
    }

    /// The error of a connection that has ended.
    fn cut(unsent: bool) -> RequestError {
        let why = "closed".to_owned();
        RequestError::from(Status::from_error(Box::new(TransportFailure {
            unsent,
            why,
        })))
    }

    #[test]
    fn a_request_that_never_left_is_told_apart() {
        assert_eq!(cut(true).error().kind(), ErrorKind::Unavailable);
        assert_eq!(cut(false).error().kind(), ErrorKind::OutcomeUnknown);
    }

    #[test]
    fn errors_of_a_login_and_of_a_lease_are_recognized() {
        let says = |text: &str| RequestError::from(Status::new(Code::Unknown, text));
        assert!(says("etcdserver: invalid auth token").wants_login());
        assert!(says("etcdserver: revision of auth store is old").wants_login());
        assert!(says("etcdserver: requested lease not found").is_lease_gone());
        assert!(says("etcdserver: authentication is not enabled").is_open_house());
        let other = says("etcdserver: no leader");
        assert!(!other.wants_login() && !other.is_lease_gone() && !other.is_open_house());
        for failure in [cut(true), cut(false)] {
            assert!(failure.ends_connection(), "{failure}");
        }
        let classified = RequestError::Classified(unsent("no time left"));
        assert!(!classified.ends_connection());
    }

    #[test]
    fn an_error_tells_what_the_server_said_and_what_helps() {
        let told = |code, text: &str| RequestError::from(Status::new(code, text)).to_string();
        let text = told(Code::InvalidArgument, "etcdserver: user name is empty");
        assert!(text.contains("etcd://user:password@host"), "{text}");
        assert_eq!(told(Code::Unknown, "something new"), "something new");
        let text = told(Code::Unimplemented, "");
        assert_eq!(text, Code::Unimplemented.to_string());
        let missing = RequestError::from(Status::new(Code::Unimplemented, ""));
        assert_eq!(missing.error().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn an_error_is_told_with_what_may_have_changed() {
        let no_leader =
            || RequestError::from(Status::new(Code::Unavailable, "etcdserver: no leader"));
        assert_eq!(unclear(no_leader()).kind(), ErrorKind::OutcomeUnknown);
        assert_eq!(untouched(no_leader()).kind(), ErrorKind::Unavailable);
        assert_eq!(unclear(cut(false)).kind(), ErrorKind::OutcomeUnknown);
        assert_eq!(untouched(cut(false)).kind(), ErrorKind::Unavailable);
    }
}
