//! Renewal of plain locks.

use futures_util::future::join_all;

use crate::error::Result;
use crate::store::redis::layouts::plain::{PlainLockWords, without_lua, without_scripts};
use crate::store::redis::layouts::scripts;
use crate::store::redis::replicas::give_up_if_strict;
use crate::store::redis::wire::errors::unexpected;
use crate::store::redis::wire::reply::Reply;
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
        let each = batch.iter().map(|renewal| async move {
            let renewed = self.renew_without_lua(renewal, deadline).await;
            renewed.unwrap_or_else(Renewed::Failed)
        });
        Ok(join_all(each).await)
    }

    async fn renew_without_lua(&self, renewal: &Renewal, deadline: BootInstant) -> Result<Renewed> {
        give_up_if_strict(renewal.wish, &without_scripts())?;
        let words = PlainLockWords {
            name: renewal.ticket.name.as_str(),
            owner: renewal.ticket.owner.text(),
            tombstone: &tombstone_of(renewal),
            counter: None,
            millis: &millis(renewal.lease).to_string(),
            ..PlainLockWords::default()
        };
        match self.run_table(&without_lua::RENEW, words, deadline).await? {
            Reply::Int(1) => Ok(Renewed::Kept),
            Reply::Int(0) => Ok(Renewed::Gone),
            other => Err(unexpected(&other)),
        }
    }
}

fn tombstone_of(renewal: &Renewal) -> String {
    keys::tombstone(&renewal.ticket.name, renewal.ticket.owner.text())
}
