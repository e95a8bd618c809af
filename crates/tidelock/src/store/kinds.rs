//! Which stores have which kind of lock, for the error of a store that lacks one.

use crate::error::{Error, ErrorKind};
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
        LockKind::Fair | LockKind::FairFenced => {
            ("fair locks", &["memory:", "redis:", "zookeeper:", "etcd:"])
        }
        LockKind::Read | LockKind::Write => {
            ("read-write locks", &["memory:", "redis:", "zookeeper:"])
        }
    }
}

/// The error of a store that does not have this kind of lock.
pub(crate) fn unsupported(kind: LockKind) -> Error {
    let (what, stores) = stores_with(kind);
    Error::new(ErrorKind::Unsupported).because(format!(
        "this store has no {what}; these have: {}",
        stores.join(", ")
    ))
}
