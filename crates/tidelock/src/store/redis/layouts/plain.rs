//! The plain lock: one string key, written with `SET name owner NX PX ms`, as redis-py, redsync, node-redlock, rslock
//! and bsm/redislock do. It shares connections, renewals and acknowledgement with the Redisson lock; this module has
//! the differences.

mod acquire;
mod release;
mod renew;
mod table;
mod without_lua;

use std::sync::atomic::Ordering;

use crate::error::{Error, ErrorKind, Result};
use crate::store::BootInstant;
use crate::store::redis::Redis;
use crate::store::redis::layouts::Layout;
use crate::store::redis::layouts::plain::table::{Table, TableRun};
use crate::store::redis::topology::job::{ScriptJob, ServerJob};
use crate::store::redis::topology::transaction::TransactionJob;
use crate::store::redis::wire::reply::Reply;

pub(crate) use crate::store::redis::layouts::plain::table::PlainLockWords;
pub(crate) use crate::store::redis::layouts::plain::without_lua::INSPECT;

/// Takes `locks=plain` from the options of the URL. Returns the layout, and the URL without that option.
pub(crate) fn layout(url: &str) -> Result<(Layout, String)> {
    let (before, rest) = url.split_once('?').unwrap_or((url, ""));
    let (query, fragment) = match rest.split_once('#') {
        Some((query, fragment)) => (query, format!("#{fragment}")),
        None => (rest, String::new()),
    };
    let (ours, others): (Vec<&str>, Vec<&str>) = query
        .split('&')
        .filter(|option| !option.is_empty())
        .partition(|option| option.starts_with("locks="));
    let layout = match ours[..] {
        [] | ["locks=redisson"] => Layout::Redisson,
        ["locks=plain"] => Layout::Plain,
        _ => {
            return Err(Error::new(ErrorKind::InvalidOptions)
                .because("the store's URL cannot be used: locks is redisson or plain"));
        }
    };
    let query = if others.is_empty() {
        String::new()
    } else {
        format!("?{}", others.join("&"))
    };
    Ok((layout, format!("{before}{query}{fragment}")))
}

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
                "scripts are forbidden: plain locks are taken by WATCH, MULTI and EXEC"
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
        let job = TransactionJob {
            key: words.name,
            transaction: TableRun { table, words },
            deadline,
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
        .because("the user may not run scripts, and replicas are asked about scripts only")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_says_how_locks_are_written() {
        for (given, layout_of, url) in [
            ("redis://h/1", Layout::Redisson, "redis://h/1"),
            ("redis://h/1?locks=plain", Layout::Plain, "redis://h/1"),
            (
                "redis+unix:///s?db=1&locks=plain&user=a",
                Layout::Plain,
                "redis+unix:///s?db=1&user=a",
            ),
            ("redis://h?locks=redisson", Layout::Redisson, "redis://h"),
            ("redis://h?locks=plain#x", Layout::Plain, "redis://h#x"),
        ] {
            assert_eq!(layout(given).unwrap(), (layout_of, url.to_owned()));
        }
        for bad in ["redis://h?locks=x", "redis://h?locks=plain&locks=redisson"] {
            assert!(layout(bad).is_err(), "{bad}");
        }
    }
}
