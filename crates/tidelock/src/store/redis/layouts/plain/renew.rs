//! Renewal of plain locks.

use crate::error::Result;
use crate::store::redis::layouts::plain::table::{TableRun, TableRuns};
use crate::store::redis::layouts::plain::{PlainLockWords, without_lua, without_scripts};
use crate::store::redis::layouts::renew::renewed;
use crate::store::redis::layouts::scripts;
use crate::store::redis::replicas::give_up_if_strict;
use crate::store::redis::wire::errors::unexpected;
use crate::store::redis::{Redis, keys, millis};
use crate::store::{Renewal, Renewed};

impl Redis {
    pub(crate) async fn renew_plain(&self, batch: &[Renewal]) -> Result<Vec<Renewed>> {
        self.renew_or_split(batch, |batch| self.renew_batch_plain(batch))
            .await
    }

    async fn renew_batch_plain(&self, batch: &[Renewal]) -> Result<Vec<Renewed>> {
        if self.may_script() {
            // No keys: with two keys of which one is missing, a node refuses the script while the slot migrates.
            let tombstones: Vec<String> = batch.iter().map(tombstone_of).collect();
            let tombstones: Vec<&str> = tombstones.iter().map(String::as_str).collect();
            let script = &scripts::PLAIN_RENEW;
            match self
                .renew_batch(script, batch, Vec::new(), &tombstones)
                .await
            {
                Err(error) if self.learn(&error) => {}
                answer => return answer,
            }
        }
        self.renew_without_lua(batch).await
    }

    /// One transaction for all of them. Transactions run one at a time: with one for each lock the last lock of a large
    /// batch would be renewed after twice as many round trips as there are locks, perhaps after its lease has ended.
    async fn renew_without_lua(&self, batch: &[Renewal]) -> Result<Vec<Renewed>> {
        let deadline = self.router.deadline();
        let mut runs = Vec::with_capacity(batch.len());
        for renewal in batch {
            give_up_if_strict(renewal.wish, &without_scripts())?;
            let words = PlainLockWords {
                name: renewal.ticket.name.as_str(),
                owner: renewal.ticket.owner.text(),
                tombstone: &tombstone_of(renewal),
                counter: None,
                millis: &millis(renewal.lease).to_string(),
                ..PlainLockWords::default()
            };
            runs.push(TableRun::new(&without_lua::RENEW, words));
        }
        let Some(first) = batch.first() else {
            return Ok(Vec::new());
        };
        let key = first.ticket.name.as_str();
        let reply = self.run_transaction(key, TableRuns(runs), deadline).await?;
        match reply.list() {
            Some(each) if each.len() == batch.len() => Ok(each.iter().map(renewed).collect()),
            _ => Err(unexpected(&reply)),
        }
    }
}

fn tombstone_of(renewal: &Renewal) -> String {
    keys::tombstone(&renewal.ticket.name, renewal.ticket.owner.text())
}
