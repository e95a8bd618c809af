//! Renews leases, also while transactions of others keep the rows of some locks.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::join_all;

use crate::error::{Error, Result};
use crate::store::mysql::Mysql;
use crate::store::mysql::errors::{RequestError, kept};
use crate::store::mysql::raw_connection::{TextRow, text};
use crate::store::mysql::sql;
use crate::store::{BootInstant, Liveness, Renewal, Renewed};

/// Between two looks at kept rows.
const PAUSE: Duration = Duration::from_millis(50);
/// The part of the shortest lease for which a batch looks at kept rows. The engine sends a renewal without a reply again after
/// a sixth.
const PATIENCE: u32 = 8;

impl Mysql {
    /// Renews the batch in one statement. One row that somebody keeps would hold up all of it, in every round. So for a while
    /// after that we pass over kept rows.
    pub(super) async fn renew_batch(&self, batch: &[Renewal]) -> Result<Vec<Renewed>> {
        let deadline = self.pool.deadline();
        let all: Vec<&Renewal> = batch.iter().collect();
        // A single lock waits for its row: one that only looks may miss the moments at which the row is free.
        if all.len() == 1 || !self.kept_rows.are_expected(self.pool.now()) {
            let failure = match self.renew_together(&all, deadline).await {
                Err(failure) if all.len() > 1 => failure,
                answer => return answer.map_err(RequestError::error),
            };
            // After any failure: a kept row can also show up as a timeout.
            self.kept_rows.seen(self.pool.now());
            if !failure.is_kept_waiting() {
                return Err(failure.error());
            }
        }
        Ok(self.renew_around_kept_rows(all, deadline).await)
    }

    /// Renews the locks whose rows are free, and looks at the others again until some time has passed. They never wait for a row:
    /// many kept rows would take up all connections, and locks with free rows would be lost.
    async fn renew_around_kept_rows(
        &self,
        batch: Vec<&Renewal>,
        deadline: BootInstant,
    ) -> Vec<Renewed> {
        let shortest = batch.iter().map(|one| one.lease).min();
        let until = self.pool.now() + shortest.unwrap_or_default() / PATIENCE;
        let until = until.min(deadline);
        let mut answers: Vec<Option<Renewed>> = batch.iter().map(|_| None).collect();
        loop {
            let left = answers
                .iter()
                .zip(0..)
                .filter(|(answer, _)| answer.is_none());
            let left: Vec<usize> = left.map(|(_, at)| at).collect();
            let asked: Vec<&Renewal> = left
                .iter()
                .filter_map(|at| batch.get(*at).copied())
                .collect();
            let is_late = self.pool.now() >= until;
            let kept_names = match self.kept_names(&asked, deadline).await {
                Ok(names) => names,
                Err(error) => return or_failed(answers, &error),
            };
            let is_kept = |one: &Renewal| kept_names.contains(one.ticket.name.as_str());
            let free = left.iter().zip(&asked).filter(|(_, one)| !is_kept(one));
            let (places, free): (Vec<usize>, Vec<&Renewal>) = free.unzip();
            let renewed = self.renew_free(&free, deadline).await;
            for (at, renewed) in places.into_iter().zip(renewed) {
                if let Some(answer) = answers.get_mut(at) {
                    *answer = Some(renewed);
                }
            }
            if is_late || kept_names.is_empty() {
                return or_failed(answers, &kept());
            }
            self.pool.pause(PAUSE).await;
        }
    }

    /// The locks whose rows somebody keeps now. A row that is missing is not kept.
    async fn kept_names(
        &self,
        asked: &[&Renewal],
        deadline: BootInstant,
    ) -> Result<HashSet<String>> {
        let free = self.names(sql::free_rows(asked), deadline).await?;
        if asked
            .iter()
            .all(|one| free.contains(one.ticket.name.as_str()))
        {
            return Ok(HashSet::new());
        }
        let mut there = self.names(sql::rows(asked), deadline).await?;
        there.retain(|name| !free.contains(name));
        Ok(there)
    }

    async fn names(&self, query: String, deadline: BootInstant) -> Result<HashSet<String>> {
        let rows = self.ask_until(deadline, query, Liveness::default()).await;
        let rows = rows.map_err(RequestError::error)?;
        rows.iter().map(|row| text(row, 0)).collect()
    }

    /// Renews locks whose rows were free a moment ago. If one of them, or the row of a side, is kept now, each lock has its own
    /// request.
    async fn renew_free(&self, free: &[&Renewal], deadline: BootInstant) -> Vec<Renewed> {
        match self.renew_together(free, deadline).await {
            Ok(renewed) => renewed,
            Err(failure) if failure.is_kept_waiting() && free.len() > 1 => {
                let each = free.iter().map(async |one| {
                    let alone = [*one];
                    match self.renew_together(&alone, deadline).await {
                        Ok(mut renewed) => renewed.pop().unwrap_or(Renewed::Gone),
                        Err(failure) => Renewed::Failed(failure.error()),
                    }
                });
                join_all(each).await
            }
            Err(failure) => {
                let error = failure.error();
                let failed = || Renewed::Failed(error.retold());
                free.iter().map(|_| failed()).collect()
            }
        }
    }

    async fn renew_together(
        &self,
        batch: &[&Renewal],
        deadline: BootInstant,
    ) -> Result<Vec<Renewed>, RequestError> {
        let (sides, others): (Vec<&Renewal>, Vec<&Renewal>) = batch
            .iter()
            .partition(|one| one.ticket.kind.is_read_write());
        let mut rows: Vec<TextRow> = self.renew_sides(&sides, deadline).await?;
        if !others.is_empty() {
            let text = sql::renew(&others);
            rows.extend(self.ask_until(deadline, text, Liveness::default()).await?);
        }
        let owners = rows.iter().map(|row| text(row, 0));
        let kept: HashSet<String> = owners
            .collect::<Result<_>>()
            .map_err(RequestError::Classified)?;
        let answer = |one: &&Renewal| {
            if kept.contains(one.ticket.owner.text()) {
                Renewed::Kept
            } else {
                Renewed::Gone
            }
        };
        Ok(batch.iter().map(answer).collect())
    }
}

/// The answers; those that are missing are failures with this error.
fn or_failed(answers: Vec<Option<Renewed>>, error: &Error) -> Vec<Renewed> {
    let failed = || Renewed::Failed(error.retold());
    let answers = answers.into_iter();
    answers
        .map(|answer| answer.unwrap_or_else(failed))
        .collect()
}
