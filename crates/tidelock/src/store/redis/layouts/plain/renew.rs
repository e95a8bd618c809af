//! Renewal of plain locks.

use futures_util::future::join_all;

use crate::error::{Error, Result};
use crate::store::redis::layouts::plain::table::{TableRun, TableRuns};
use crate::store::redis::layouts::plain::{PlainLockWords, without_lua, without_scripts};
use crate::store::redis::layouts::renew::{may_split, one_by_one, renewed};
use crate::store::redis::layouts::scripts;
use crate::store::redis::replicas::give_up_if_strict;
use crate::store::redis::wire::errors::unexpected;
use crate::store::redis::{Redis, keys, millis};
use crate::store::{BootInstant, Renewal, Renewed};

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
        let deadline = self.router.deadline();
        let timers = &self.shared.timers;
        let in_doubt = match self.renew_without_lua(batch, deadline).await {
            // A transaction is refused as a whole. So one forbidden name, or one key that somebody else keeps changing, would
            // cost the whole batch its leases.
            Err(error)
                if batch.len() > 1 && may_split_transaction(&error) && timers.now() < deadline =>
            {
                error.outcome_unknown()
            }
            answer => return answer,
        };
        let each = batch
            .chunks(1)
            .map(|one| self.renew_without_lua(one, deadline));
        one_by_one(join_all(each).await, in_doubt)
    }

    /// One transaction for all of them. Transactions run one at a time: with one for each lock the last lock of a large
    /// batch would be renewed after twice as many round trips as there are locks, perhaps after its lease has ended.
    async fn renew_without_lua(
        &self,
        batch: &[Renewal],
        deadline: BootInstant,
    ) -> Result<Vec<Renewed>> {
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

/// As [`may_split`], and also if the client itself gave up: a key may have changed during every try.
fn may_split_transaction(error: &Error) -> bool {
    match error.reply_scope() {
        Some(_) => may_split(error),
        None => !error.outcome_unknown(),
    }
}

fn tombstone_of(renewal: &Renewal) -> String {
    keys::tombstone(&renewal.ticket.name, renewal.ticket.owner.text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::wire::errors::{ServerError, unanswered, unsent};

    #[test]
    fn a_transaction_is_split_unless_its_reply_is_lost_or_the_server_refuses_all() {
        for (text, splits) in [
            ("ERR 'watch' command keys must be in same slot", true),
            ("NOPERM No permissions to access a key", true),
            (
                "READONLY You can't write against a read only replica.",
                false,
            ),
        ] {
            let error = ServerError::parse(text).error();
            assert_eq!(may_split_transaction(&error), splits, "{text}");
        }
        assert!(may_split_transaction(&unsent(
            "the key changed during every try"
        )));
        assert!(!may_split_transaction(&unanswered("no answer within 1s")));
    }
}
