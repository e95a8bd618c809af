//! ZooKeeper's error codes, as an [`ErrorKind`].

use std::time::Duration;

use zookeeper_client as zk;

use crate::error::{Error, ErrorKind, Result};
use crate::store::NotYet;

/// The error of a failed read.
pub(crate) fn unread(error: zk::Error) -> Error {
    of(error, ErrorKind::Unavailable)
}

/// The answer of a read. `None`: the node does not exist.
pub(crate) fn unless_missing<T>(answer: std::result::Result<T, zk::Error>) -> Result<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(zk::Error::NoNode) => Ok(None),
        Err(error) => Err(unread(error)),
    }
}

/// Whether the user may not read the node. It may read others.
pub(crate) fn is_forbidden(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    let source = source.and_then(|source| source.downcast_ref::<zk::Error>());
    source == Some(&zk::Error::NoAuth)
}

/// The error of a failed change. Its outcome may be unknown: the connection, or the session as this process sees it,
/// may have ended after the server accepted the request.
pub(crate) fn unwritten(error: zk::Error) -> Error {
    of(error, ErrorKind::OutcomeUnknown)
}

/// The server has used up the numbers of a name's nodes. Waiters wait meanwhile: it counts from zero again when it has removed the
/// path. It looks once a minute whether the path is empty.
pub(crate) fn numbers_used_up() -> Error {
    let within = Duration::from_secs(120);
    Error::new(ErrorKind::Unavailable)
        .because(
            "ZooKeeper has numbered 2147483647 nodes of this name, and cannot say any more who came first. It counts from zero \
             again when it has removed the path of the name: once a minute it looks whether the path is empty",
        )
        .caused_by(NotYet { within })
}

/// The error of a session that could not be opened.
pub(crate) fn unopened(servers: &str, error: zk::Error) -> Error {
    let error = unread(error);
    let why = format!(
        "zookeeper://{servers}: {}",
        error.detail().unwrap_or_default()
    );
    error.because(why)
}

/// The error of a session for which no server was found.
pub(crate) fn unreachable(servers: &str, reasons: &str, error: zk::Error) -> Error {
    let why = format!("zookeeper://{servers}: {reasons}");
    Error::new(ErrorKind::Unavailable)
        .because(why)
        .caused_by(error)
}

pub(crate) fn is_unreachable(error: &zk::Error) -> bool {
    matches!(error, zk::Error::NoHosts | zk::Error::Timeout)
}

/// The error without a session in time.
pub(crate) fn no_session(servers: &str) -> Error {
    Error::new(ErrorKind::Unavailable).because(format!(
        "zookeeper://{servers}: no session within the response timeout; do the servers run, and has the ensemble a majority?"
    ))
}

/// The error of a request without an answer in time.
pub(crate) fn late(kind: ErrorKind) -> Error {
    Error::new(kind).because("no answer from ZooKeeper within the response timeout")
}

#[rustfmt::skip] // a table, with one row a line
fn of(error: zk::Error, unclear: ErrorKind) -> Error {
    use ErrorKind::{InvalidOptions, Refused, Unavailable, WrongType};

    let (kind, advice) = match &error {
        zk::Error::NoAuth | zk::Error::InvalidAcl => (Refused,
            "the user may not do that here; it needs create, read and delete from the base path on"),
        zk::Error::AuthFailed => (Refused, "authentication: check user and password"),
        zk::Error::NoChildrenForEphemerals => (WrongType, "the path of this lock is another program's ephemeral node"),
        zk::Error::BadArguments(_) => (InvalidOptions, "ZooKeeper takes no such path"),
        zk::Error::QuotaExceeded => (Unavailable, "the quota of the path is used up"),
        zk::Error::Throttled | zk::Error::NotReadOnly => (Unavailable, "the server takes no changes now"),
        zk::Error::NoHosts | zk::Error::Timeout => (Unavailable, "no server can be reached"),
        zk::Error::SessionExpired => (unclear, "the session has expired"),
        zk::Error::ConnectionLoss | zk::Error::Custom(_) => (unclear, "the connection was lost"),
        _ => (unclear, "ZooKeeper said something unexpected"),
    };
    Error::new(kind)
        .because(format!("{advice} ({error})"))
        .caused_by(error)
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn an_error_leaves_a_change_open_unless_the_server_has_refused_it() {
        use ErrorKind::{InvalidOptions, OutcomeUnknown, Refused, Unavailable, WrongType};

        for (error, kind, advice) in [
            (zk::Error::NoAuth, Refused, "may not do that"),
            (zk::Error::InvalidAcl, Refused, "may not do that"),
            (zk::Error::AuthFailed, Refused, "user and password"),
            (
                zk::Error::NoChildrenForEphemerals,
                WrongType,
                "another program",
            ),
            (
                zk::Error::BadArguments(&"control"),
                InvalidOptions,
                "no such path",
            ),
            (zk::Error::QuotaExceeded, Unavailable, "quota"),
            (zk::Error::Throttled, Unavailable, "no changes now"),
            (zk::Error::NotReadOnly, Unavailable, "no changes now"),
            (zk::Error::NoHosts, Unavailable, "no server"),
            (zk::Error::Timeout, Unavailable, "no server"),
            (zk::Error::SessionExpired, OutcomeUnknown, "has expired"),
            (zk::Error::ConnectionLoss, OutcomeUnknown, "was lost"),
            (zk::Error::NodeExists, OutcomeUnknown, "unexpected"),
        ] {
            let change = unwritten(error.clone());
            assert_eq!(change.kind(), kind, "{change}");
            let text = change.to_string();
            assert!(text.contains(advice), "{text}");
            assert!(text.contains(&error.to_string()), "{text}");
            let read = unread(error);
            assert_eq!(read.kind(), change.without_effect().kind(), "{read}");
            assert!(read.source().is_some());
        }
    }

    #[test]
    fn only_a_missing_right_hides_a_node() {
        assert!(is_forbidden(&unread(zk::Error::NoAuth)));
        let refused = Error::new(ErrorKind::Refused);
        for other in [unread(zk::Error::InvalidAcl), refused] {
            assert!(!is_forbidden(&other), "{other}");
        }
    }

    #[test]
    fn a_node_that_is_missing_is_no_error() {
        assert_eq!(unless_missing(Ok(3)).unwrap(), Some(3));
        assert_eq!(unless_missing::<()>(Err(zk::Error::NoNode)).unwrap(), None);
        let error = unless_missing::<()>(Err(zk::Error::NoAuth)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
    }

    #[test]
    fn an_error_of_a_connect_names_the_servers() {
        let opened = unopened("a:1,b:2", zk::Error::AuthFailed);
        assert_eq!(opened.kind(), ErrorKind::Refused);
        let text = opened.to_string();
        assert!(text.contains("zookeeper://a:1,b:2: ") && text.contains("password"));
        let away = unreachable("a:1", "it is asleep", zk::Error::NoHosts);
        assert_eq!(away.kind(), ErrorKind::Unavailable);
        assert!(away.to_string().contains("zookeeper://a:1: it is asleep"));
        assert!(away.source().is_some());
        assert!(no_session("a:1").to_string().contains("zookeeper://a:1: "));
        for (error, away) in [
            (zk::Error::NoHosts, true),
            (zk::Error::Timeout, true),
            (zk::Error::AuthFailed, false),
        ] {
            assert_eq!(is_unreachable(&error), away, "{error}");
        }
    }

    #[test]
    fn waiters_wait_until_the_numbers_start_over() {
        let error = numbers_used_up();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(NotYet::of(&error), Some(Duration::from_secs(120)));
    }
}
