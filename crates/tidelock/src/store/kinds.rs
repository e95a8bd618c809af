//! Which stores have which kind of lock, for the error of a store that lacks one.

use crate::error::{Error, ErrorKind};
use crate::store::CountKind;
use crate::types::LockKind;

/// What a kind of lock offers, and the URLs of the stores that have it. A store that is not part of this build is in
/// the list too: the user can add its cargo feature.
fn stores_with(kind: LockKind) -> (&'static str, &'static [&'static str]) {
    match kind {
        LockKind::Mutex => ("locks", &[]),
        LockKind::Fenced => (
            "fencing tokens",
            &[
                "memory:",
                "sqlite:",
                "redis:",
                "redis:…?locks=plain",
                "postgres:",
                "mysql:",
                "zookeeper:",
                "etcd:",
            ],
        ),
        LockKind::Fair | LockKind::FairFenced => (
            "fair locks",
            &[
                "memory:",
                "sqlite:",
                "redis:",
                "postgres:",
                "mysql:",
                "zookeeper:",
                "etcd:",
            ],
        ),
        LockKind::Read | LockKind::Write | LockKind::ReadFenced | LockKind::WriteFenced => (
            "read-write locks",
            &[
                "memory:",
                "sqlite:",
                "redis:",
                "postgres:",
                "mysql:",
                "zookeeper:",
                "etcd:",
            ],
        ),
        LockKind::UpgradeableRead | LockKind::UpgradeableReadFenced => (
            "upgradeable readers",
            &["memory:", "sqlite:", "postgres:", "mysql:"],
        ),
        LockKind::Spin | LockKind::SpinFenced => ("spin locks", &["memory:", "redis:"]),
        LockKind::Permits(_) => (
            "semaphores",
            &[
                "memory:",
                "sqlite:",
                "redis:",
                "postgres:",
                "zookeeper:",
                "etcd:",
            ],
        ),
    }
}

/// The error of a store that does not have this kind of lock.
pub(crate) fn unsupported(kind: LockKind) -> Error {
    let (what, stores) = stores_with(kind);
    lacking(what, stores)
}

/// The error of a store that has neither latches nor counting semaphores.
pub(crate) fn no_counts(kind: CountKind) -> Error {
    let what = match kind {
        CountKind::Latch => "latches",
        CountKind::Semaphore => "counting semaphores",
    };
    lacking(what, &["memory:", "redis:"])
}

/// The error of a store that has no barriers: it keeps no marks, or has no read-write locks.
pub(crate) fn no_barriers() -> Error {
    let (_, stores) = stores_with(LockKind::Read);
    lacking("barriers", stores)
}

fn lacking(what: &str, stores: &[&str]) -> Error {
    Error::new(ErrorKind::Unsupported).because(format!(
        "this store has no {what}; these have: {}",
        stores.join(", ")
    ))
}

/// The error for a lock under the name of a semaphore.
pub(crate) fn is_semaphore() -> Error {
    Error::new(ErrorKind::WrongType)
        .because("the name is a semaphore. It was not changed; use `semaphore`, or another name")
}

/// The error for a semaphore or a latch under the name of a lock.
pub(crate) fn is_lock() -> Error {
    Error::new(ErrorKind::WrongType)
        .because("the name is a lock. It was not changed; use `lock`, or another name")
}
