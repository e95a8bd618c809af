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
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::error::ErrorKind;
    use crate::store::LockKind;
    use crate::store::errors::unanswered;
    use crate::store::mysql::tests::{mysql, renewal, row};

    /// Two locks without a queue.
    fn two() -> [Renewal; 2] {
        [LockKind::Fenced; 2].map(renewal)
    }

    /// Whether a renewal has failed because its connection was closed.
    fn is_lost(renewed: &Renewed) -> bool {
        matches!(renewed, Renewed::Failed(error) if error.to_string().contains("connection is closed"))
    }

    #[test]
    fn a_lock_is_kept_only_if_its_own_owner_is_in_the_answer() {
        let batch = [LockKind::Fenced, LockKind::Read, LockKind::Fair].map(renewal);
        let batch = batch.each_ref();
        let told = |rows: &[TextRow]| {
            let renewed = read_owners(&batch, rows).unwrap();
            renewed
                .iter()
                .map(|one| format!("{one:?}"))
                .collect::<Vec<_>>()
        };
        let [one, _, third] = batch.map(|renewal| row(renewal.ticket.owner.text()));
        assert_eq!(told(&[]), ["Gone", "Gone", "Gone"]);
        assert_eq!(told(std::slice::from_ref(&one)), ["Kept", "Gone", "Gone"]);
        assert_eq!(told(&[third, one]), ["Kept", "Gone", "Kept"]);
        let unreadable = read_owners(&batch, &[row("NULL")]).unwrap_err();
        assert!(unreadable.outcome_unknown());
    }

    #[test]
    fn a_renewal_without_an_answer_has_failed() {
        let batch = two();
        let answers = vec![(&batch[0], None), (&batch[1], Some(Renewed::Kept))];
        let renewed = or_failed(answers, &unanswered("the connection is closed"));
        assert!(is_lost(&renewed[0]) && matches!(renewed[1], Renewed::Kept));
    }

    /// A row that a transaction of somebody keeps can show up as a timeout.
    #[tokio::test]
    async fn a_batch_that_has_failed_is_followed_by_looks_at_kept_rows() {
        let (mysql, opened) = mysql();
        let batch = two();
        mysql.pool.break_next();
        let error = mysql.renew_batch(&batch).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        assert!(mysql.kept_rows.are_expected(mysql.pool.now()));
        mysql.pool.break_next();
        let renewed = mysql.renew_batch(&batch).await.unwrap();
        assert_eq!(renewed.len(), 2);
        assert!(renewed.iter().all(is_lost), "no lock is lost: {renewed:?}");
        assert_eq!(opened.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn a_single_lock_waits_for_its_row_and_says_nothing_of_those_of_others() {
        let (mysql, opened) = mysql();
        for kind in [LockKind::Fenced, LockKind::Read] {
            let single = [renewal(kind)];
            mysql.pool.break_next();
            let error = mysql.renew_batch(&single).await.unwrap_err();
            assert!(error.outcome_unknown(), "{error}");
            assert!(!mysql.kept_rows.are_expected(mysql.pool.now()));
        }
        mysql.kept_rows.seen(mysql.pool.now());
        mysql.pool.break_next();
        assert!(
            mysql
                .renew_batch(&[renewal(LockKind::Fenced)])
                .await
                .is_err()
        );
        assert_eq!(opened.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn sides_hold_up_no_other_locks_and_each_gets_its_own_answer() {
        let (mysql, opened) = mysql();
        let free = [LockKind::Read, LockKind::Fenced, LockKind::Write].map(renewal);
        // The locks without sides come first.
        mysql.pool.break_next();
        let deadline = mysql.pool.deadline();
        let renewed = mysql.renew_parts(&free.each_ref(), deadline).await;
        assert!(renewed.iter().all(|one| matches!(one, Renewed::Failed(_))));
        let lost: Vec<bool> = renewed.iter().map(is_lost).collect();
        assert_eq!(lost, [false, true, false]);
        assert_eq!(
            opened.load(Ordering::SeqCst),
            1,
            "one request for both sides"
        );
        assert!(mysql.renew_parts(&[], deadline).await.is_empty());
        assert_eq!(opened.load(Ordering::SeqCst), 1);
    }

    /// They would take up all connections.
    #[tokio::test]
    async fn locks_whose_connection_breaks_are_not_asked_for_one_by_one() {
        let (mysql, opened) = mysql();
        let (batch, deadline) = (two(), mysql.pool.deadline());
        mysql.pool.break_next();
        let renewed = mysql.renew_part(&batch.each_ref(), deadline).await;
        assert_eq!(renewed.iter().filter(|one| is_lost(one)).count(), 2);
        for _ in &batch {
            mysql.pool.break_next();
        }
        let renewed = mysql.renew_each(&batch.each_ref(), deadline).await;
        assert_eq!(renewed.iter().filter(|one| is_lost(one)).count(), 2);
        assert_eq!(opened.load(Ordering::SeqCst), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn kept_rows_are_looked_at_until_their_time_is_over() {
        let (mysql, _) = mysql();
        let one = renewal(LockKind::Fenced);
        let mut answers: BatchAnswers<'_> = vec![(&one, None)];
        let (begun, deadline) = (mysql.pool.now(), mysql.pool.deadline());
        mysql.pool.break_next();
        for (kept, until) in [(vec![], deadline), (vec![0], begun)] {
            let looks = mysql.look_again(&mut answers, kept, until, deadline);
            assert_eq!(looks.await.to_string(), kept_row().to_string());
            assert_eq!(mysql.pool.now(), begun);
        }
        let looks = mysql.look_again(&mut answers, vec![0], begun + PAUSE, deadline);
        let error = looks.await;
        assert!(error.outcome_unknown(), "{error}");
        assert!(mysql.pool.now().since(begun) >= PAUSE);
    }
}
