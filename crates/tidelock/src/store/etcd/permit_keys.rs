//! The keys of a semaphore, and of one ticket for some of its permits.

use crate::store::etcd::api::{Op, TxnRequest};
use crate::store::etcd::calls::{all, get, oldest, ops};
use crate::store::etcd::keys::{Folder, Keys};
use crate::store::{LockKind, Name};

/// The keys of a semaphore, and of one ticket for some of its permits.
#[derive(Debug)]
pub(crate) struct PermitKeys {
    pub(crate) permits: u16,
    /// The ticket's key while it holds permits.
    pub(crate) held: String,
    /// The ticket's key while it waits. Also the channel on which it is woken.
    pub(crate) waiting: String,
    number: String,
    /// The queue of a lock of this name.
    pub(crate) queue: Folder,
    folder: Folder,
    holders: Folder,
}

impl PermitKeys {
    /// How many ranges [`looks`](Self::looks) has.
    pub(crate) const LOOKS: usize = 3;

    /// `id`: the id of the ticket's first lease.
    pub(crate) fn named(keys: &Keys, name: &Name, permits: u16, id: i64) -> Self {
        let folder = keys.permits(name);
        Self {
            permits,
            held: keys.own(name, LockKind::Permits(permits), id),
            waiting: keys.waits_for_permits(name, permits, id),
            number: keys.number(name),
            queue: keys.folder(name),
            holders: folder.holders(),
            folder,
        }
    }

    /// Those of a semaphore, without a ticket.
    pub(crate) fn of_semaphore(keys: &Keys, name: &Name) -> Self {
        Self::named(keys, name, 0, 0)
    }

    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    pub(crate) fn holders(&self) -> &Folder {
        &self.holders
    }

    pub(crate) fn number(&self) -> &str {
        &self.number
    }

    pub(crate) fn waiting(&self) -> &[u8] {
        self.waiting.as_bytes()
    }

    /// Reads all of the semaphore, and whether the name is a lock.
    pub(crate) fn looks(&self) -> [Op; Self::LOOKS] {
        [get(&self.number), oldest(&self.queue), all(&self.folder)].map(Op::Range)
    }

    /// A transaction that only reads.
    pub(crate) fn look(&self) -> TxnRequest {
        TxnRequest {
            success: ops(self.looks()),
            ..TxnRequest::default()
        }
    }
}
