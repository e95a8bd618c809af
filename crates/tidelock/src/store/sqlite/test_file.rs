//! A file in memory, for tests of what its rows say.

use rusqlite::Connection;

use crate::store::sqlite::records::LockTransaction;
use crate::store::sqlite::rows::{ForeignRows, Now};
use crate::store::sqlite::schema;
use crate::store::{LockKind, Name, Ticket};
use crate::types::OwnerMint;

pub(crate) const SECOND: i64 = 1_000_000_000;

pub(crate) struct File {
    pub(crate) connection: Connection,
    seen: ForeignRows,
    mint: OwnerMint,
}

impl File {
    pub(crate) fn new() -> Self {
        let connection = Connection::open_in_memory().unwrap();
        schema::create(&connection).unwrap();
        let (seen, mint) = (ForeignRows::default(), OwnerMint::new());
        Self {
            connection,
            seen,
            mint,
        }
    }

    pub(crate) fn at(&self, seconds: i64) -> LockTransaction<'_> {
        self.at_clock(seconds, "here")
    }

    pub(crate) fn at_clock<'a>(&'a self, seconds: i64, domain: &'a str) -> LockTransaction<'a> {
        LockTransaction {
            connection: &self.connection,
            now: Now {
                stamp: seconds * SECOND,
                domain,
            },
            seen: &self.seen,
        }
    }

    /// From now on the transactions are those of another process, which has seen nothing yet.
    pub(crate) fn forget_what_was_seen(&mut self) {
        self.seen = ForeignRows::default();
    }

    /// A new ticket for the lock with the name `n`.
    pub(crate) fn ticket(&self, kind: LockKind) -> Ticket {
        Ticket {
            kind,
            name: Name::new("n").unwrap(),
            owner: if kind.is_upgradeable() {
                self.mint.fresh().upgradeable()
            } else {
                self.mint.fresh()
            },
        }
    }

    pub(crate) fn owner(&self) -> Option<String> {
        let row = self.at(0).row("n").unwrap();
        row.map(|row| row.owner)
    }

    pub(crate) fn newest(&self) -> i64 {
        self.at(0).counter().unwrap().unwrap()
    }
}
