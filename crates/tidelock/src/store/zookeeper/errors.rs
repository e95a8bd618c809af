//! Maps the driver's errors to an [`ErrorKind`]: the request certainly had no effect, or it may have had one.

use zookeeper_client as zk;

use crate::error::{Error, ErrorKind};

/// The error of a failed read.
pub(crate) fn unread(error: zk::Error) -> Error {
    of(error, ErrorKind::Unavailable)
}

/// The error of a failed change. Its outcome may be unknown: the connection, or the session as this process sees it,
/// may have ended after the server accepted the request.
pub(crate) fn unwritten(error: zk::Error) -> Error {
    of(error, ErrorKind::OutcomeUnknown)
}

/// The error of a request without an answer in time.
pub(crate) fn late(kind: ErrorKind) -> Error {
    Error::new(kind).because("no answer from ZooKeeper within the response timeout")
}

fn of(error: zk::Error, unclear: ErrorKind) -> Error {
    let (kind, advice) = match &error {
        zk::Error::NoAuth | zk::Error::InvalidAcl => (
            ErrorKind::Refused,
            "the user may not do that here; it needs create, read and delete from the base path on",
        ),
        zk::Error::AuthFailed => (
            ErrorKind::Refused,
            "authentication: check user and password",
        ),
        zk::Error::NoChildrenForEphemerals => (
            ErrorKind::WrongType,
            "the path of this lock is another program's ephemeral node",
        ),
        zk::Error::BadArguments(_) => (ErrorKind::InvalidOptions, "ZooKeeper takes no such path"),
        zk::Error::QuotaExceeded => (ErrorKind::Unavailable, "the quota of the path is used up"),
        zk::Error::Throttled | zk::Error::NotReadOnly => {
            (ErrorKind::Unavailable, "the server takes no changes now")
        }
        zk::Error::NoHosts | zk::Error::Timeout => {
            (ErrorKind::Unavailable, "no server can be reached")
        }
        zk::Error::SessionExpired => (unclear, "the session has expired"),
        zk::Error::ConnectionLoss | zk::Error::Custom(_) => (unclear, "the connection was lost"),
        _ => (unclear, "ZooKeeper said something unexpected"),
    };
    Error::new(kind)
        .because(format!("{advice} ({error})"))
        .caused_by(error)
}
