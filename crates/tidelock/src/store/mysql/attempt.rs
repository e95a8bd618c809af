//! An attempt to take a lock that has no queue.

use std::time::Duration;

use crate::error::Result;
use crate::store::mysql::connection::Statements;
use crate::store::mysql::errors::{RequestError, withdrawn};
use crate::store::mysql::raw_connection::{TextRow, number};
use crate::store::mysql::{Mysql, sql};
use crate::store::{Attempt, AttemptRequest, BootInstant};
use crate::types::FencingToken;

/// The pause before the next attempt while a fence keeps out grants. Nobody is told of its end.
pub(super) const FENCED: Duration = Duration::from_millis(50);

impl Mysql {
    pub(super) async fn attempt(&self, ask: &AttemptRequest) -> Result<Attempt> {
        // One deadline for both requests. Otherwise an attempt could take twice the response timeout, and its grant would come
        // too late for its lease.
        let deadline = self.pool.deadline();
        if ask.refused
            && let Some(held) = self.look(ask, deadline).await?
        {
            return Ok(held);
        }
        let text = Statements::Transaction(sql::attempt(&ask.ticket, ask.lease));
        let rows = self.ask_until(deadline, text, ask.liveness.clone());
        let rows = rows.await.map_err(RequestError::error)?;
        let row = self.first_row(&rows).await?;
        let is_fenced = number(row, 4)? == 0;
        match Self::read_attempt(row)? {
            // The lock may be free: without this pause the next attempt would come at once.
            Attempt::Held(wait) if is_fenced => {
                let left = wait.recheck.unwrap_or_default();
                Ok(Attempt::held(None, left.max(FENCED)))
            }
            attempt => Ok(attempt),
        }
    }

    /// Looks whether another ticket holds the lock, which costs the server less than an attempt. `None`: the lock may be free, or
    /// the ticket may have it.
    async fn look(&self, ask: &AttemptRequest, deadline: BootInstant) -> Result<Option<Attempt>> {
        let rows = self.ask_until(deadline, sql::look(&ask.ticket), ask.liveness.clone());
        let rows = rows.await.map_err(|it| it.error().without_effect())?;
        match rows.first() {
            Some(row) if number(row, 0)? == 0 && number(row, 1)? > 0 => {
                Self::read_attempt(row).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Reads the answer to an attempt.
    pub(super) fn read_attempt(row: &TextRow) -> Result<Attempt> {
        if number(row, 3)? != 0 {
            return Err(withdrawn());
        }
        if number(row, 0)? == 0 {
            let left = Duration::from_micros(number(row, 1)?);
            return Ok(Attempt::held(None, left));
        }
        Ok(Attempt::granted(FencingToken::new(number(row, 2)?)))
    }
}
