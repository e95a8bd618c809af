//! Fair locks: attempts that take a place in the queue, and releases that hand over.

use crate::error::{Error, Result};
use crate::store::fair_waiters::FairPosition;
use crate::store::mysql::connection::Statements;
use crate::store::mysql::errors::RequestError;
use crate::store::mysql::queue_sql::{SEPARATOR, SIDES, TABLES, WAITERS, lacks_queue};
use crate::store::mysql::raw_connection::{TextRow, first, number, text};
use crate::store::mysql::{Mysql, fair_sql, released, schema, sql};
use crate::store::{Attempt, AttemptRequest, Liveness, Released, Ticket};

impl Mysql {
    /// An attempt at a fair lock or at a side of a read-write lock.
    pub(super) async fn attempt_queued(&self, ask: &AttemptRequest) -> Result<Attempt> {
        self.queued.sending(&ask.ticket)?;
        let attempt = if ask.ticket.kind.is_read_write() {
            self.attempt_side(ask).await
        } else {
            self.attempt_fair(ask).await
        };
        // An attempt without an answer stays counted, and so does one that is dropped: its request may still arrive.
        if !attempt.as_ref().is_err_and(Error::outcome_unknown) {
            self.queued.answered(&ask.ticket);
        }
        attempt
    }

    async fn attempt_fair(&self, ask: &AttemptRequest) -> Result<Attempt> {
        let ticket = &ask.ticket;
        let wake = self.waiters.arm(ask);
        let text = fair_sql::attempt(ticket, ask.lease, FairPosition::of(ask));
        let rows = self.ask_queue(text, &ask.liveness).await?;
        let row = self.first_row(&rows).await?;
        self.tell(row, 4)?;
        let attempt = Self::read_attempt(row)?;
        if matches!(attempt, Attempt::Held(_)) {
            self.waiters.was_refused(ask);
            // The looks of this process notice the end of the holder's lease.
            return Ok(Attempt::held(wake, self.lease));
        }
        self.waiters.leave(&ticket.name, &ticket.owner);
        Ok(attempt)
    }

    /// Sends one transaction. If a table is missing, creates it and sends the transaction again.
    pub(super) async fn ask_queue(
        &self,
        text: String,
        liveness: &Liveness,
    ) -> Result<Vec<TextRow>> {
        let text = Statements::Transaction(text);
        let deadline = self.pool.deadline();
        let answer = self.pool.ask_for(text.clone(), deadline, liveness.clone());
        let answer = match answer.await {
            Err(failure) if failure.is_no_table() || lacks_queue(&failure) => {
                schema::ready_again(&self.pool, deadline, &failure).await?;
                for (name, table) in [WAITERS, SIDES].into_iter().zip(TABLES) {
                    // The user may have the right to one of them.
                    if failure.is_no_table() || failure.lacks_table(name) {
                        let what = "the queues of fair and read-write locks";
                        schema::make_later(&self.pool, what, table).await?;
                    }
                }
                self.pool.ask(text, deadline).await
            }
            answer => answer,
        };
        answer.map_err(RequestError::error)
    }

    /// Wakes the waiters that the lock was handed over to, if they are of this client.
    pub(super) fn tell(&self, row: &TextRow, column: usize) -> Result<()> {
        let next = text(row, column)?;
        for owner in next.split(SEPARATOR).filter(|owner| !owner.is_empty()) {
            self.waiters.wake(owner);
        }
        Ok(())
    }

    pub(super) async fn release_fair(&self, ticket: &Ticket) -> Result<Released> {
        let text = Statements::Transaction(fair_sql::release_and_hand_over(ticket));
        match self.pool.ask(text, self.pool.deadline()).await {
            Ok(rows) => self.ended(&rows).map(released),
            // There is no queue, or nothing can be granted: then the lock becomes free all the same.
            Err(failure) if failure.undone().is_some() => {
                Ok(released(self.count(sql::release(ticket)).await?))
            }
            Err(failure) => Err(failure.error()),
        }
    }

    pub(super) async fn withdraw_fair(&self, ticket: &Ticket) -> Result<Released> {
        self.waiters.leave(&ticket.name, &ticket.owner);
        let may_arrive = self.queued.withdraw(ticket);
        let ended = self.end(|serves| fair_sql::withdraw(ticket, may_arrive, serves));
        match ended.await {
            Ok(rows) => {
                let freed = self.ended(&rows)?;
                self.need_counter(&rows, 2).await?;
                Ok(released(freed))
            }
            // Nobody waits, but an attempt that makes the table may still arrive.
            Err(failure) if lacks_queue(&failure) => self.withdraw(ticket).await,
            Err(failure) => Err(failure.error()),
        }
    }

    /// Ends what a ticket has. `text`: the statements, built with whether they also let in those that are next.
    pub(super) async fn end(
        &self,
        text: impl Fn(bool) -> String,
    ) -> Result<Vec<TextRow>, RequestError> {
        let deadline = self.pool.deadline();
        let text = |serves| Statements::Transaction(text(serves));
        match self.pool.ask(text(true), deadline).await {
            // Those that are next cannot be let in, perhaps because a table is missing that only a grant needs. What the ticket
            // has ends all the same; their looks find the lock free, and their attempts make the table. A mark needs the counter
            // and makes it: an attempt that makes the tables may arrive after a withdrawal, and has to find the mark.
            Err(failure) if failure.undone().is_some() => {
                self.ask_until(deadline, text(false), Liveness::default())
                    .await
            }
            answer => answer,
        }
    }

    /// The number of locks that a release or a withdrawal has freed.
    pub(super) fn ended(&self, rows: &[TextRow]) -> Result<u64> {
        let row = first(rows)?;
        self.tell(row, 1)?;
        number(row, 0)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::error::ErrorKind;
    use crate::store::mysql::tests::server::{
        ENDS, LOOK, SERVES, ScriptedServer, denied, later, no_table,
    };
    use crate::store::mysql::tests::{LIMIT, attempt, mysql_at, ticket};
    use crate::store::tests::scripted::{HANG_UP, in_time};
    use crate::store::{Backend, LockKind, Wait};

    /// Kinds of locks that have a queue.
    const QUEUED: [LockKind; 2] = [LockKind::Fair, LockKind::Write];

    #[tokio::test]
    async fn a_table_of_the_queue_that_is_missing_is_made_and_the_attempt_is_sent_again() {
        for (refusal, made, tries) in [
            (no_table(WAITERS), [1, 1], 2),
            (no_table(SIDES), [1, 1], 2),
            (denied(WAITERS), [1, 0], 2),
            (denied(SIDES), [0, 1], 2),
            (denied("tidelock_locks"), [0, 0], 1),
            ("ERR 1205 Lock wait timeout".to_owned(), [0, 0], 1),
        ] {
            for kind in QUEUED {
                let server = ScriptedServer::start().await;
                let mysql = mysql_at(&server);
                server.answers(SERVES, &[&later(&refusal), "1 9 7 0 "]);
                let granted = mysql.attempt_queued(&attempt(&ticket(kind))).await;
                assert_eq!(granted.is_ok(), tries == 2, "{refusal}");
                assert_eq!(server.heard(SERVES).len(), tries, "{refusal}");
                let begins = [WAITERS, SIDES].map(|it| format!("CREATE TABLE IF NOT EXISTS {it}"));
                let heard = begins.map(|begins| server.heard(&begins).len());
                assert_eq!(heard, made, "{refusal}");
            }
        }
    }

    /// Its withdrawal needs to leave no mark in the row of the lock.
    #[tokio::test]
    async fn a_user_who_may_not_make_the_queue_is_told_what_to_run_and_has_asked_for_nothing() {
        let server = ScriptedServer::start().await;
        let mysql = mysql_at(&server);
        server.answers(SERVES, &[&later(&no_table(WAITERS))]);
        server.answers("CREATE TABLE", &[&denied(WAITERS)]);
        let ticket = ticket(LockKind::Fair);
        let error = mysql.attempt_queued(&attempt(&ticket)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        let told = error.to_string();
        assert!(
            told.contains("CREATE TABLE IF NOT EXISTS tidelock_waiters"),
            "{told}"
        );
        assert!(told.contains("fair and read-write locks"), "{told}");
        assert!(!mysql.queued.withdraw(&ticket));
    }

    #[tokio::test]
    async fn a_lock_that_can_be_handed_to_nobody_is_released_all_the_same() {
        let (missing, kept) = (later(&no_table(WAITERS)), "OK; ERR 1205 Lock wait timeout");
        for (answer, released, again) in [
            ("1 ", Some(Released::Freed), 0),
            ("0 ", Some(Released::NotHeld), 0),
            (&missing, Some(Released::Freed), 1),
            (kept, Some(Released::Freed), 1),
            // It may have been released and handed over.
            (HANG_UP, None, 0),
        ] {
            let server = ScriptedServer::start().await;
            let mysql = mysql_at(&server);
            server.answers(SERVES, &[answer]);
            server.answers("UPDATE tidelock_locks", &["1"]);
            let ended = mysql.release_fair(&ticket(LockKind::Fair)).await;
            assert_eq!(ended.ok(), released, "{answer}");
            let heard = server.heard("UPDATE tidelock_locks").len();
            assert_eq!(heard, again, "{answer}");
        }
    }

    /// Withdraws a ticket of each kind. `first`: the answer to a text that also lets in those that are next. `then`: that to
    /// one that does not. Returns the outcomes, how many of the latter were sent, and how many withdrawals without a queue.
    async fn withdrawn(first: &str, then: &str) -> (Vec<Option<Released>>, usize, usize) {
        let server = ScriptedServer::start().await;
        let mysql = mysql_at(&server);
        server.answers(SERVES, &[first]);
        server.answers(ENDS, &[then]);
        server.answers("INSERT INTO tidelock_locks", &["1 1"]);
        let mut outcomes = Vec::new();
        for kind in QUEUED {
            outcomes.push(Backend::withdraw(&*mysql, &ticket(kind)).await.ok());
        }
        let others = server.heard("INSERT INTO tidelock_locks");
        (outcomes, server.heard(ENDS).len(), others.len())
    }

    #[tokio::test]
    async fn a_withdrawal_ends_what_the_ticket_has_even_if_nobody_can_be_let_in() {
        let (missing, refused) = (later(&no_table(SIDES)), later(&denied(WAITERS)));
        let foreign = later(&denied("tidelock_locks"));
        let (freed, not_held) = (Some(Released::Freed), Some(Released::NotHeld));
        for (first, then, outcome, ended, others) in [
            ("1  1", "OK", freed, 0, 0),
            ("0  1", "OK", not_held, 0, 0),
            (&missing, "1  1", freed, 2, 0),
            ("OK; ERR 1205 Lock wait timeout", "0  1", not_held, 2, 0),
            // Each is sent again, in case the tables are there by now.
            (&missing, &missing, freed, 4, 2),
            (&refused, &refused, freed, 2, 2),
            (&foreign, &foreign, None, 2, 0),
            (HANG_UP, "1  1", None, 0, 0),
            // No mark could be set.
            ("1  0", "OK", None, 0, 0),
        ] {
            let expected = (vec![outcome; 2], ended, others);
            assert_eq!(withdrawn(first, then).await, expected, "{first} {then}");
        }
    }

    /// The wake of an attempt that is refused, and for how long it waits at most.
    async fn refused(mysql: &Mysql, ask: &AttemptRequest) -> Wait {
        match mysql.attempt_queued(ask).await.unwrap() {
            Attempt::Held(wait) => wait,
            Attempt::Acquired(grant) => panic!("{grant:?}"),
        }
    }

    /// The answer to a look at a queue of these waiters, behind a holder.
    fn queue_of(waiters: &[&AttemptRequest]) -> String {
        let row = |ask: &&AttemptRequest| format!("9000000 w {}", ask.ticket.owner);
        waiters.iter().map(row).collect::<Vec<_>>().join("\n")
    }

    /// The grant was made for it by the transaction of another client, which tells nobody.
    #[tokio::test]
    async fn a_waiter_without_its_place_is_woken_by_a_look_until_it_has_the_lock_or_leaves() {
        for (kind, leaves) in QUEUED
            .into_iter()
            .flat_map(|kind| [(kind, false), (kind, true)])
        {
            let server = ScriptedServer::start().await;
            let mysql = mysql_at(&server);
            let (one, two) = (attempt(&ticket(kind)), attempt(&ticket(kind)));
            server.answers(LOOK, &[&queue_of(&[&one, &two])]);
            server.answers(SERVES, &["0 9 7 0 "]);
            let (first, second) = (refused(&mysql, &one).await, refused(&mysql, &two).await);
            assert_eq!([first.recheck, second.recheck], [Some(LIMIT); 2]);
            let (mut first, mut second) = (first.wake.unwrap(), second.wake.unwrap());
            if leaves {
                server.answers(SERVES, &["0  1"]);
                Backend::withdraw(&*mysql, &one.ticket).await.unwrap();
            } else {
                server.answers(SERVES, &["1 9 7 0 "]);
                mysql.attempt_queued(&one).await.unwrap();
            }
            // The next look may have begun before.
            let looks = server.heard(LOOK).len();
            server.hears(LOOK, looks + 2).await;
            server.answers(LOOK, &["OK"]);
            in_time(second.woken()).await;
            assert!(first.woken().now_or_never().is_none(), "{kind:?}");
        }
    }
}
