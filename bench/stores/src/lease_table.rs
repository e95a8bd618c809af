//! A table of leases on MySQL by hand: the statements of `ShedLock` on the database's clock.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use load::{Contender, Side};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts};

use crate::idle::Idle;

/// The pause between two attempts. `ShedLock` itself does not wait: it skips the work.
const PAUSE: Duration = Duration::from_millis(100);
const LEASE_US: u64 = 30_000_000;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS shedlock (name VARCHAR(64) NOT NULL, \
    lock_until TIMESTAMP(3) NOT NULL, locked_at TIMESTAMP(3) NOT NULL, locked_by VARCHAR(255) NOT NULL, \
    PRIMARY KEY (name))";

const INSERT: &str = "INSERT IGNORE INTO shedlock (name, lock_until, locked_at, locked_by) \
    VALUES (?, TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(3)), UTC_TIMESTAMP(3), ?)";

const UPDATE: &str = "UPDATE shedlock SET lock_until = TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(3)), \
    locked_at = UTC_TIMESTAMP(3), locked_by = ? WHERE name = ? AND lock_until <= UTC_TIMESTAMP(3)";

const UNLOCK: &str =
    "UPDATE shedlock SET lock_until = UTC_TIMESTAMP(3) WHERE name = ? AND locked_by = ?";

/// The connections of a process.
pub(crate) struct LeaseTable {
    opts: Opts,
    idle: Idle<Conn>,
}

impl LeaseTable {
    pub(crate) async fn new(url: &str) -> Result<Self> {
        let opts = Opts::from_url(url)?;
        let mut first = Conn::new(opts.clone()).await?;
        first.query_drop(TABLE).await?;
        let idle = Idle::new();
        idle.put(first);
        Ok(Self { opts, idle })
    }
}

/// One task, with an owner of its own.
pub(crate) struct TableTask {
    opts: Opts,
    name: String,
    owner: String,
    idle: Idle<Conn>,
    connection: Option<Conn>,
    /// Whether the row is known to exist. `ShedLock` remembers that too, and then sends no `INSERT`.
    is_there: bool,
}

impl Side for LeaseTable {
    type Contender = TableTask;

    fn contender(&self, name: &str) -> Result<TableTask> {
        Ok(TableTask {
            opts: self.opts.clone(),
            name: name.to_owned(),
            owner: std::process::id().to_string(),
            idle: self.idle.clone(),
            connection: self.idle.take(),
            is_there: false,
        })
    }
}

impl TableTask {
    async fn try_acquire(&mut self) -> Result<bool> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(Conn::new(self.opts.clone()).await?),
        };
        if !self.is_there {
            let row = (&self.name, LEASE_US, &self.owner);
            connection.exec_drop(INSERT, row).await?;
            self.is_there = true;
            if connection.affected_rows() == 1 {
                return Ok(true);
            }
        }
        let row = (LEASE_US, &self.owner, &self.name);
        connection.exec_drop(UPDATE, row).await?;
        Ok(connection.affected_rows() == 1)
    }
}

impl Contender for TableTask {
    type Held = ();

    fn number(&mut self, task: usize) {
        self.owner = format!("{} {task}", std::process::id());
    }

    async fn acquire(&mut self) -> Result<()> {
        while !self.try_acquire().await? {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    async fn release(&mut self, (): ()) -> Result<()> {
        let connection = self.connection.as_mut().context("nothing is held")?;
        let row = (&self.name, &self.owner);
        connection.exec_drop(UNLOCK, row).await?;
        // The row changes unless its lease ends in this very millisecond.
        ensure!(connection.affected_rows() == 1, "it was lost");
        Ok(())
    }
}

impl Drop for TableTask {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.idle.put(connection);
        }
    }
}
