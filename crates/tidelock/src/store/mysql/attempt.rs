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
        read_unqueued(self.first_row(&rows).await?)
    }

    /// Looks whether another ticket holds the lock, which costs the server less than an attempt. `None`: the lock may be free, or
    /// the ticket may have it.
    async fn look(&self, ask: &AttemptRequest, deadline: BootInstant) -> Result<Option<Attempt>> {
        let rows = self.ask_until(deadline, sql::look(&ask.ticket), ask.liveness.clone());
        let rows = rows.await.map_err(|it| it.error().without_effect())?;
        read_look(&rows)
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

/// Reads the answer to an attempt at a lock without a queue.
fn read_unqueued(row: &TextRow) -> Result<Attempt> {
    let is_fenced = number(row, 4)? == 0;
    match Mysql::read_attempt(row)? {
        // The lock may be free: without this pause the next attempt would come at once.
        Attempt::Held(wait) if is_fenced => {
            let left = wait.recheck.unwrap_or_default();
            Ok(Attempt::held(None, left.max(FENCED)))
        }
        attempt => Ok(attempt),
    }
}

/// Reads the answer to a look.
fn read_look(rows: &[TextRow]) -> Result<Option<Attempt>> {
    match rows.first() {
        Some(row) if number(row, 0)? == 0 && number(row, 1)? > 0 => {
            Mysql::read_attempt(row).map(Some)
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::store::mysql::tests::server::ScriptedServer;
    use crate::store::mysql::tests::{attempt, mysql_at, row, ticket};
    use crate::store::tests::scripted::HANG_UP;
    use crate::store::{LockKind, Wait};

    /// The token of a grant, or how long the caller waits.
    fn told(attempt: Attempt) -> (Option<u64>, Option<Duration>) {
        match attempt {
            Attempt::Acquired(grant) => (grant.token.map(FencingToken::get), None),
            Attempt::Held(Wait { recheck, .. }) => (None, recheck),
        }
    }

    #[test]
    fn a_ticket_is_granted_only_what_it_holds_and_was_not_withdrawn_from() {
        let granted = Mysql::read_attempt(&row("1 3000 7 0")).unwrap();
        assert_eq!(told(granted), (Some(7), None));
        let held = Mysql::read_attempt(&row("0 3000 7 0")).unwrap();
        assert_eq!(told(held), (None, Some(Duration::from_millis(3))));
        for withdrawn in ["1 3000 7 1", "0 3000 7 1", "0 0 7 15"] {
            let error = Mysql::read_attempt(&row(withdrawn)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{withdrawn}");
        }
        for unreadable in ["1 3000 x 0", "0 x 7 0", "x 3000 7 0", "1 3000 7 x", "1"] {
            let error = Mysql::read_attempt(&row(unreadable)).unwrap_err();
            assert!(error.outcome_unknown(), "{unreadable}");
        }
    }

    /// Nobody tells a waiter of the end of a fence.
    #[test]
    fn a_lock_that_is_free_behind_a_fence_is_asked_for_again_after_a_pause() {
        for (answer, pause) in [
            ("0 0 7 0 0", FENCED),
            ("0 49999 7 0 0", FENCED),
            ("0 50001 7 0 0", Duration::from_micros(50_001)),
            ("0 0 7 0 1", Duration::ZERO),
            ("0 9 7 0 1", Duration::from_micros(9)),
        ] {
            let held = read_unqueued(&row(answer)).unwrap();
            assert_eq!(told(held), (None, Some(pause)), "{answer}");
        }
        let granted = read_unqueued(&row("1 9 7 0 0")).unwrap();
        assert_eq!(told(granted), (Some(7), None));
    }

    #[test]
    fn a_look_refuses_only_while_another_ticket_holds_the_lock() {
        for (answer, waits) in [
            ("0 3000 7 0 1", Some(3000)),
            ("0 1 7 0 1", Some(1)),
            ("0 0 7 0 1", None),
            ("1 3000 7 0 1", None),
            ("1 0 7 0 1", None),
        ] {
            let seen = read_look(&[row(answer)]).unwrap();
            let waits = waits.map(|waits| (None, Some(Duration::from_micros(waits))));
            assert_eq!(seen.map(told), waits, "{answer}");
        }
        assert!(read_look(&[]).unwrap().is_none(), "nobody has used it yet");
        let withdrawn = read_look(&[row("0 3000 7 1 1")]).unwrap_err();
        assert_eq!(withdrawn.kind(), ErrorKind::Cancelled);
    }

    /// How a look at a lock begins that another ticket may hold.
    const HOLDER: &str = "SELECT l.owner = ";

    /// A look costs the server less, and the lock is probably held by the same ticket as before.
    #[tokio::test]
    async fn only_a_caller_that_was_refused_looks_before_it_attempts() {
        for (was_refused, seen, looks, attempts) in [
            (false, "0 3000 7 0 1", 0, 1),
            (true, "0 3000 7 0 1", 1, 0),
            (true, "0 0 7 0 1", 1, 1),
            (true, "1 3000 7 0 1", 1, 1),
            (true, "EMPTY", 1, 1),
            // It was withdrawn, or the look has failed: then there is nothing to attempt.
            (true, "0 3000 7 1 1", 1, 0),
            (
                true,
                "ERR 1290 The server is running with --read-only",
                1,
                0,
            ),
        ] {
            let server = ScriptedServer::start().await;
            let mysql = mysql_at(&server);
            server.answers(HOLDER, &[seen]);
            server.answers("START TRANSACTION", &["OK; 1 9 7 0 1; OK"]);
            let ask = AttemptRequest {
                refused: was_refused,
                ..attempt(&ticket(LockKind::Fenced))
            };
            let attempted = mysql.attempt(&ask).await;
            let heard = [HOLDER, "START TRANSACTION"].map(|begins| server.heard(begins).len());
            assert_eq!(heard, [looks, attempts], "{seen}");
            let granted = attempted.is_ok_and(|it| matches!(it, Attempt::Acquired(_)));
            assert_eq!(granted, attempts == 1, "{seen}");
        }
    }

    /// It may have been granted.
    #[tokio::test]
    async fn an_attempt_whose_answer_breaks_off_may_have_taken_effect() {
        let server = ScriptedServer::start().await;
        let mysql = mysql_at(&server);
        for answer in [
            format!("OK; {HANG_UP}"),
            format!("OK; 1 9 7 0 1; {HANG_UP}"),
        ] {
            server.answers("START TRANSACTION", &[&answer]);
            let ask = attempt(&ticket(LockKind::Fenced));
            let error = mysql.attempt(&ask).await.unwrap_err();
            assert!(error.outcome_unknown(), "{error}");
        }
    }
}
