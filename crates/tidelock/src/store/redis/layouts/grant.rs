//! What follows the reply to an attempt, in both layouts.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::store::redis::Redis;
use crate::store::redis::layouts::tokens;
use crate::store::redis::replicas::PendingAck;
use crate::store::{Acknowledged, Attempt, AttemptRequest, BootInstant, Grant, Name};

/// At most this many locks without a time to live are logged. It bounds the memory for their names.
const MOST_WARNINGS: usize = 1000;

impl Redis {
    /// The grant of an attempt, unless too few replicas have acknowledged it. `last` and `more` are its tokens.
    pub(crate) async fn granted(
        &self,
        ask: &AttemptRequest,
        (last, more): (i64, u32),
        pending: Option<PendingAck>,
        deadline: BootInstant,
        counter: fn(&Name) -> String,
        in_doubt: &mut bool,
    ) -> Result<Attempt> {
        let counter = || counter(&ask.ticket.name);
        let token = tokens::first(ask.ticket.kind, last, more, counter)?;
        let acknowledged = match pending {
            // Boxed because few grants need it.
            Some(pending) => Box::pin(self.acknowledged(ask, pending, deadline, in_doubt)).await?,
            None => None,
        };
        Ok(Attempt::Acquired(Grant {
            token,
            more,
            acknowledged,
            ..Grant::default()
        }))
    }

    /// Waits for the replicas after a grant. If too few acknowledge, releases the grant and returns an error:
    /// [`ErrorKind::Unavailable`] if the release succeeded, otherwise [`ErrorKind::OutcomeUnknown`], and sets
    /// `in_doubt`.
    async fn acknowledged(
        &self,
        ask: &AttemptRequest,
        pending: PendingAck,
        deadline: BootInstant,
        in_doubt: &mut bool,
    ) -> Result<Option<Acknowledged>> {
        let policy = &self.shared.ack_policy;
        let report = policy.report(pending).await;
        let short = match policy.judge_grant(&report) {
            Err(short) => short,
            enough => return enough,
        };
        // Without a tombstone, because the same ticket may try again.
        let undo = self.end(&ask.ticket, false);
        match self.shared.timers.until(deadline, undo).await {
            // Whatever the answer says of others: this ticket does not hold the lock any more.
            Some(Ok(_)) => Err(short),
            undone => {
                let why = match undone {
                    Some(Err(error)) => error.to_string(),
                    _ => "no answer in time".to_owned(),
                };
                // The release, still in flight on one connection, could arrive after the same ticket was granted again
                // on another. It would end that grant, and the holder would not notice.
                *in_doubt = true;
                Err(Error::new(ErrorKind::OutcomeUnknown).because(format!(
                    "{}; and it could not be given back: {why}",
                    short.detail().unwrap_or_default()
                )))
            }
        }
    }

    /// How long a waiter sleeps at most. `left`: the milliseconds until the lease ends; negative: it has no end.
    pub(crate) fn recheck(&self, name: &Name, left: i64) -> Duration {
        let cap = self.shared.lease;
        let Ok(left) = u64::try_from(left) else {
            self.warn_of_no_limit(name);
            return cap;
        };
        // One millisecond more, so that the lease is over by then.
        Duration::from_millis(left.saturating_add(1)).min(cap)
    }

    fn warn_of_no_limit(&self, name: &Name) {
        let mut warned = self.shared.warned.lock();
        if warned.len() < MOST_WARNINGS && warned.insert(name.clone()) {
            tracing::warn!(lock = %name, "its key has no time to live: if its holder has died, only a forced release frees it");
        }
    }
}
