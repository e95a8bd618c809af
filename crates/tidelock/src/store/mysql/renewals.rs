//! Renews leases, also while transactions of others keep the rows of some locks.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::{join, join_all};

use crate::error::{Error, Result};
use crate::store::mysql::Mysql;
use crate::store::mysql::connection::Statements;
use crate::store::mysql::errors::{RequestError, kept_row};
use crate::store::mysql::raw_connection::{TextRow, text};
use crate::store::mysql::sql;
use crate::store::{BootInstant, Liveness, Renewal, Renewed};

/// Between two looks at kept rows.
const PAUSE: Duration = Duration::from_millis(50);
/// The part of the shortest lease for which a batch looks at kept rows. The engine sends a renewal without a reply again after
/// a sixth.
const PATIENCE: u32 = 8;

/// The locks of a batch, and what is known of their renewals.
type BatchAnswers<'a> = Vec<(&'a Renewal, Option<Renewed>)>;

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
        Ok(self.renew_around_kept_rows(&all, deadline).await)
    }

    /// Renews the locks whose rows are free. The others do not wait for their rows, except one: many that wait would take up all
    /// connections, and locks with free rows would be lost. We look at them again until some time has passed.
    async fn renew_around_kept_rows(
        &self,
        batch: &[&Renewal],
        deadline: BootInstant,
    ) -> Vec<Renewed> {
        let begun = self.pool.now();
        let shortest = batch.iter().map(|one| one.lease).min().unwrap_or_default();
        // The last look, and the renewal after it, need the rest of the time.
        let patience = (shortest / PATIENCE).min(deadline.since(begun) / 2);
        let mut answers: BatchAnswers = batch.iter().map(|one| (*one, None)).collect();
        let mut kept = match self.renew_free(&mut answers, None, deadline).await {
            Ok(kept) => kept,
            Err(error) => return or_failed(answers, &error),
        };
        if kept.is_empty() {
            return or_failed(answers, &kept_row());
        }
        self.kept_rows.seen(self.pool.now());
        // A row that many clients want is never free when we look, but a request that waits has its turn.
        let waits = kept.swap_remove(self.kept_rows.turn_of(kept.len()));
        let in_line: Vec<&Renewal> = batch.get(waits).copied().into_iter().collect();
        let looks = self.look_again(&mut answers, kept, begun + patience, deadline);
        let (in_line, error) = join(self.renew_each(&in_line, deadline), looks).await;
        if let (Some((_, answer)), Some(renewed)) =
            (answers.get_mut(waits), in_line.into_iter().next())
        {
            *answer = Some(renewed);
        }
        or_failed(answers, &error)
    }

    /// Looks at kept rows until they are free or the time is over. Returns the error for those that are still kept.
    async fn look_again(
        &self,
        answers: &mut BatchAnswers<'_>,
        mut kept: Vec<usize>,
        until: BootInstant,
        deadline: BootInstant,
    ) -> Error {
        while !kept.is_empty() && self.pool.now() < until {
            self.pool.pause(PAUSE).await;
            kept = match self.renew_free(answers, Some(&kept), deadline).await {
                Ok(kept) => kept,
                Err(error) => return error,
            };
        }
        kept_row()
    }

    /// Renews those whose rows are free, of these places or of all. Returns the places of the others.
    async fn renew_free(
        &self,
        answers: &mut BatchAnswers<'_>,
        places: Option<&[usize]>,
        deadline: BootInstant,
    ) -> Result<Vec<usize>> {
        let is_asked = |at: &usize| places.is_none_or(|places| places.contains(at));
        let asked: Vec<&Renewal> = answers
            .iter()
            .enumerate()
            .filter(|(at, _)| is_asked(at))
            .map(|(_, (one, _))| *one)
            .collect();
        let names = self.kept_names(&asked, deadline).await?;
        let is_kept = |one: &&Renewal| names.contains(one.ticket.name.as_str());
        let free: Vec<&Renewal> = asked.into_iter().filter(|one| !is_kept(one)).collect();
        let mut renewed = self.renew_parts(&free, deadline).await.into_iter();
        let mut kept = Vec::new();
        for (at, (one, answer)) in answers.iter_mut().enumerate() {
            if !is_asked(&at) {
                continue;
            }
            if is_kept(one) {
                kept.push(at);
            } else {
                *answer = renewed.next();
            }
        }
        Ok(kept)
    }

    /// The locks whose rows somebody keeps now. A row that is missing is not kept.
    async fn kept_names(
        &self,
        asked: &[&Renewal],
        deadline: BootInstant,
    ) -> Result<HashSet<String>> {
        let free = self.names(sql::free_rows(asked).into(), deadline).await?;
        if asked
            .iter()
            .all(|one| free.contains(one.ticket.name.as_str()))
        {
            return Ok(HashSet::new());
        }
        // In a transaction, so that a proxy does not send it to a replica, which may be behind.
        let rows = Statements::Transaction(sql::rows(asked));
        let mut there = self.names(rows, deadline).await?;
        there.retain(|name| !free.contains(name));
        Ok(there)
    }

    async fn names(&self, query: Statements, deadline: BootInstant) -> Result<HashSet<String>> {
        let rows = self.ask_until(deadline, query, Liveness::default()).await;
        let rows = rows.map_err(RequestError::error)?;
        rows.iter().map(|row| text(row, 0)).collect()
    }

    /// Renews locks whose rows were free a moment ago. Sides have more rows, of which we do not know whether they are kept, so
    /// they hold up no other locks.
    async fn renew_parts(&self, free: &[&Renewal], deadline: BootInstant) -> Vec<Renewed> {
        let is_side = |one: &&&Renewal| one.ticket.kind.is_read_write();
        let (sides, others): (Vec<&Renewal>, Vec<&Renewal>) =
            free.iter().partition(|one| is_side(one));
        let mut others = self.renew_part(&others, deadline).await.into_iter();
        let mut sides = self.renew_part(&sides, deadline).await.into_iter();
        let answer = |one| {
            if is_side(&one) {
                sides.next()
            } else {
                others.next()
            }
        };
        free.iter().filter_map(answer).collect()
    }

    /// If one of the rows is kept now, each lock has its own request.
    async fn renew_part(&self, part: &[&Renewal], deadline: BootInstant) -> Vec<Renewed> {
        if part.is_empty() {
            return Vec::new();
        }
        match self.renew_together(part, deadline).await {
            Ok(renewed) => renewed,
            Err(failure) if failure.is_kept_waiting() && part.len() > 1 => {
                self.renew_each(part, deadline).await
            }
            Err(failure) => {
                let error = failure.error();
                let failed = || Renewed::Failed(error.retold());
                part.iter().map(|_| failed()).collect()
            }
        }
    }

    async fn renew_each(&self, part: &[&Renewal], deadline: BootInstant) -> Vec<Renewed> {
        let each = part.iter().map(async |one| {
            let alone = [*one];
            match self.renew_together(&alone, deadline).await {
                Ok(mut renewed) => renewed.pop().unwrap_or(Renewed::Gone),
                Err(failure) => Renewed::Failed(failure.error()),
            }
        });
        join_all(each).await
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
        read_owners(batch, &rows).map_err(RequestError::Classified)
    }
}

/// Whether each lock of the batch is kept. `rows`: the owners that hold their locks.
fn read_owners(batch: &[&Renewal], rows: &[TextRow]) -> Result<Vec<Renewed>> {
    let owners = rows.iter().map(|row| text(row, 0));
    let kept: HashSet<String> = owners.collect::<Result<_>>()?;
    let answer = |one: &&Renewal| {
        if kept.contains(one.ticket.owner.text()) {
            Renewed::Kept
        } else {
            Renewed::Gone
        }
    };
    Ok(batch.iter().map(answer).collect())
}

/// The answers; those that are missing are failures with this error.
fn or_failed(answers: BatchAnswers<'_>, error: &Error) -> Vec<Renewed> {
    let failed = || Renewed::Failed(error.retold());
    let answers = answers.into_iter();
    answers
        .map(|(_, answer)| answer.unwrap_or_else(failed))
        .collect()
}

#[cfg(test)]
mod tests;
