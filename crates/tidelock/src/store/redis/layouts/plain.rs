//! The plain lock: one string key, written with `SET name owner NX PX ms`, as redis-py, redsync, node-redlock, rslock
//! and bsm/redislock do. It shares connections, renewals and acknowledgement with the Redisson lock; this module has
//! the differences.

mod acquire;
mod release;
mod renew;
mod table;
mod without_lua;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{Error, ErrorKind, Result};
use crate::store::BootInstant;
use crate::store::redis::Redis;
use crate::store::redis::layouts::plain::table::{Table, TableRun};
use crate::store::redis::topology::job::{ScriptJob, ServerJob};
use crate::store::redis::topology::transaction::{Transaction, TransactionJob};
use crate::store::redis::wire::reply::Reply;

pub(crate) use crate::store::redis::layouts::plain::table::{PlainLockWords, shown};
pub(crate) use crate::store::redis::layouts::plain::without_lua::{INSPECT, RAISE_TOKEN};

impl Redis {
    /// `false` only after the server has refused a script.
    pub(crate) fn may_script(&self) -> bool {
        !self.shared.unscripted.load(Ordering::SeqCst)
    }

    /// Returns `true` if the error says that the user is not allowed to run scripts. The script has certainly not run
    /// then.
    fn learn(&self, error: &Error) -> bool {
        let forbidden = without_lua::forbids_scripts(error);
        if forbidden && !self.shared.unscripted.swap(true, Ordering::SeqCst) {
            tracing::debug!(
                "the user may not run scripts; plain locks use WATCH, MULTI and EXEC instead"
            );
        }
        forbidden
    }

    /// Runs a script. `None`: the user is not allowed to run scripts, so it has certainly not run.
    async fn run_script<J: ServerJob>(&self, job: &J) -> Option<Result<J::Output>> {
        if !self.may_script() {
            return None;
        }
        match self.router.run(job).await {
            Err(error) if self.learn(&error) => None,
            answer => Some(answer),
        }
    }

    /// Runs a table as a transaction.
    async fn run_table(
        &self,
        table: &'static Table,
        words: PlainLockWords<'_>,
        deadline: BootInstant,
    ) -> Result<Reply> {
        let run = TableRun::new(table, words);
        self.run_transaction(words.name, run, deadline).await
    }

    /// Runs a transaction at the server of this key.
    async fn run_transaction(
        &self,
        key: &str,
        transaction: impl Transaction,
        deadline: BootInstant,
    ) -> Result<Reply> {
        let job = TransactionJob {
            key,
            transaction: Arc::new(transaction),
            deadline,
            background: &self.shared.background,
        };
        // Boxed because few requests need it.
        Box::pin(self.router.run(&job)).await
    }

    /// Runs the script, or its table if the user is not allowed to run scripts.
    pub(crate) async fn run_either(
        &self,
        script: ScriptJob<'_>,
        table: &'static Table,
        words: PlainLockWords<'_>,
    ) -> Result<Reply> {
        match self.run_script(&script).await {
            Some(answer) => answer,
            None => self.run_table(table, words, script.deadline).await,
        }
    }
}

fn without_scripts() -> Error {
    Error::new(ErrorKind::Refused)
        .because("replicas acknowledge only scripts, and the user may not run scripts")
}

#[cfg(test)]
mod tests;
