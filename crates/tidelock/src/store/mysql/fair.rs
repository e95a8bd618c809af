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
