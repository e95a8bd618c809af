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
