//! Read-write locks: attempts that take a place in the queue, releases that let in those that are next, and renewals.

use crate::error::{Error, Result};
use crate::snapshot::{Holder, Snapshot};
use crate::store::fair_waiters::FairPosition;
use crate::store::mysql::attempt::FENCED;
use crate::store::mysql::connection::Statements;
use crate::store::mysql::errors::RequestError;
use crate::store::mysql::queue_sql::lacks_queue;
use crate::store::mysql::raw_connection::{TextRow, count, number, text};
use crate::store::mysql::{Mysql, inspect, released, side_sql};
use crate::store::side_order::{Follows, STANDS_FOR_SIDES, mode_of};
use crate::store::{Attempt, AttemptRequest, BootInstant, Name, Released, Renewal, Ticket};
use crate::types::LostReason;

impl Mysql {
    pub(super) async fn attempt_side(&self, ask: &AttemptRequest) -> Result<Attempt> {
        let ticket = &ask.ticket;
        let wake = self.waiters.arm(ask);
        let follows = Follows::of(ask);
        let text = side_sql::attempt(ticket, ask.lease, FairPosition::of(ask), follows);
        let rows = self.ask_queue(text, &ask.liveness).await?;
        let row = self.first_row(&rows).await?;
        self.tell(row, 4)?;
        let attempt = read_side(row, follows)?;
        if matches!(attempt, Attempt::Held(_)) {
            if matches!(follows, Follows::Writer(_)) {
                return Ok(Attempt::held(None, FENCED));
            }
            self.waiters.was_refused(ask);
            // The looks of this process notice the end of the holder's lease.
            return Ok(Attempt::held(wake, self.lease));
        }
        self.waiters.leave(&ticket.name, &ticket.owner);
        Ok(attempt)
    }

    pub(super) async fn release_side(&self, ticket: &Ticket) -> Result<Released> {
        let ended = self.end(|serves| side_sql::end(ticket, false, serves));
        match ended.await {
            Ok(rows) => self.ended(&rows).map(released),
            // Nobody holds a side without the table of the sides.
            Err(failure) if failure.is_no_table() => Ok(Released::NotHeld),
            Err(failure) => Err(failure.error()),
        }
    }

    pub(super) async fn withdraw_side(&self, ticket: &Ticket) -> Result<Released> {
        self.waiters.leave(&ticket.name, &ticket.owner);
        let may_arrive = self.queued.withdraw(ticket);
        let ended = self.end(|serves| side_sql::end(ticket, may_arrive, serves));
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

    /// Renews the sides in a batch. Returns the owners of those that were kept.
    pub(super) async fn renew_sides(
        &self,
        batch: &[&Renewal],
        deadline: BootInstant,
    ) -> Result<Vec<TextRow>, RequestError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let text = Statements::Transaction(side_sql::renew(batch));
        match self.pool.ask(text, deadline).await {
            Err(failure) if failure.is_no_table() => Ok(Vec::new()),
            rows => rows,
        }
    }

    /// Shows the holders of sides instead of the row that stands for them, and the waiters for sides.
    pub(super) async fn show_sides(&self, name: &Name, snapshot: &mut Snapshot) -> Result<()> {
        let deadline = self.pool.deadline();
        let waiting = match self.pool.ask(side_sql::waiters(name), deadline).await {
            // There are no sides, or this user may not look at them.
            Err(failure) if failure.is_no_table() || lacks_queue(&failure) => return Ok(()),
            rows => rows.map_err(RequestError::error)?,
        };
        if show_waiting(snapshot, count(&waiting)?) {
            let rows = self.ask(side_sql::holders(name)).await?;
            snapshot.holders = rows.iter().map(read_holder).collect::<Result<_>>()?;
        }
        Ok(())
    }
}

/// Reads the answer to an attempt at a side. An attempt that follows a hold is lost without that hold.
fn read_side(row: &TextRow, follows: Follows<'_>) -> Result<Attempt> {
    let attempt = Mysql::read_attempt(row)?;
    let is_lost = match follows {
        // Also if the ticket was granted: its reader may have been lost since, and others may have had the lock in between.
        Follows::Upgradeable(_) => number(row, 6)? == 0,
        // A fence keeps out a reader too, but that one may come again.
        Follows::Writer(_) => matches!(attempt, Attempt::Held(_)) && number(row, 5)? != 0,
        Follows::Nobody => false,
    };
    if is_lost {
        return Err(Error::lost(LostReason::Taken));
    }
    Ok(attempt)
}

/// Shows how many wait. Returns whether the holder is a row that stands for the holders of sides.
fn show_waiting(snapshot: &mut Snapshot, waiting: u64) -> bool {
    let stands_for_sides = snapshot
        .owners()
        .any(|owner| owner.ends_with(STANDS_FOR_SIDES));
    snapshot.waiters = (stands_for_sides || waiting > 0).then_some(waiting);
    stands_for_sides
}

/// Reads the holder of a side.
fn read_holder(row: &TextRow) -> Result<Holder> {
    let owner = text(row, 0)?;
    let mode = mode_of(number(row, 1)? != 0, &owner);
    let mut holder = Holder::new(owner, 1);
    holder.mode = mode;
    holder.client = inspect::details(row, 2)?;
    Ok(holder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Mode;
    use crate::store::LockKind;
    use crate::store::mysql::queue_sql::SIDES;
    use crate::store::mysql::tests::server::{
        ENDS, SERVES, ScriptedServer, denied, later, no_table,
    };
    use crate::store::mysql::tests::{LIMIT, attempt, mysql_at, renewal, row, ticket};
    use crate::store::tests::scripted::HANG_UP;

    /// How an attempt has ended: `granted`, `held`, or the reason of a loss.
    fn told(answer: &str, follows: Follows<'_>) -> String {
        match read_side(&row(answer), follows) {
            Ok(Attempt::Acquired(_)) => "granted".to_owned(),
            Ok(Attempt::Held(_)) => "held".to_owned(),
            Err(error) => format!("{:?}", error.lost_reason()),
        }
    }

    /// Others may have had the lock in between.
    #[test]
    fn an_upgrade_or_a_downgrade_without_its_hold_is_lost() {
        let owner = ticket(LockKind::Write).owner;
        let taken = format!("{:?}", Some(LostReason::Taken));
        let (granted, held, taken) = ("granted", "held", taken.as_str());
        // Whether it holds the lock, the rest, the token, whether it was withdrawn, the next ones, whether no fence keeps out a
        // grant, and whether the reader of an upgrade holds the lock.
        for (follows, answer, expected) in [
            (Follows::Nobody, "1 9 7 0 - 1 0", granted),
            (Follows::Nobody, "0 9 7 0 - 1 0", held),
            (Follows::Nobody, "0 9 7 0 - 0 0", held),
            (Follows::Upgradeable(&owner), "1 9 7 0 - 1 1", granted),
            (Follows::Upgradeable(&owner), "0 9 7 0 - 1 1", held),
            (Follows::Upgradeable(&owner), "1 9 7 0 - 1 0", taken),
            (Follows::Upgradeable(&owner), "0 9 7 0 - 1 0", taken),
            (Follows::Writer(&owner), "1 9 7 0 - 1 NULL", granted),
            (Follows::Writer(&owner), "1 9 7 0 - 0 NULL", granted),
            (Follows::Writer(&owner), "0 9 7 0 - 1 NULL", taken),
            (Follows::Writer(&owner), "0 9 7 0 - 0 NULL", held),
        ] {
            assert_eq!(told(answer, follows), expected, "{follows:?} {answer}");
        }
    }

    #[test]
    fn a_snapshot_of_sides_counts_their_waiters_also_if_nobody_waits() {
        for (owner, waiting, waiters, has_sides) in [
            ("c:1:sides", 0, Some(0), true),
            ("c:1:sides", 2, Some(2), true),
            ("c:1", 2, Some(2), false),
            ("c:1", 0, None, false),
        ] {
            let mut seen = Snapshot::free("stock");
            seen.holders.push(Holder::new(owner, 1));
            assert_eq!(show_waiting(&mut seen, waiting), has_sides, "{owner}");
            assert_eq!(seen.waiters, waiters, "{owner}");
        }
    }

    #[test]
    fn each_holder_of_a_side_is_shown_with_its_mode_and_its_process() {
        for (answer, mode) in [
            ("c:1 1 c web-1 42 shop 1000 0", Mode::Read),
            ("c:1 0 c web-1 42 shop 1000 0", Mode::Write),
            (
                "c:1:upgradeable 0 c web-1 42 shop 1000 0",
                Mode::UpgradeableRead,
            ),
        ] {
            let holder = read_holder(&row(answer)).unwrap();
            assert_eq!((holder.mode, holder.holds), (mode, 1), "{answer}");
            assert!(answer.starts_with(&holder.owner));
            assert_eq!(holder.client.unwrap().host, "web-1");
        }
        assert!(read_holder(&row("c:1 1 NULL")).unwrap().client.is_none());
    }

    #[tokio::test]
    async fn nobody_holds_a_side_without_the_table_of_the_sides() {
        let (missing, refused) = (later(&no_table(SIDES)), later(&denied(SIDES)));
        let kept = "OK; ERR 1205 Lock wait timeout";
        for (first, then, released, ended) in [
            ("1 ", "OK", Some(Released::Freed), 0),
            ("0 ", "OK", Some(Released::NotHeld), 0),
            (kept, "1 ", Some(Released::Freed), 1),
            // It is sent again, in case the table is there by now.
            (&missing, &missing, Some(Released::NotHeld), 2),
            (&refused, &refused, None, 1),
            // It may have been released.
            (HANG_UP, "1 ", None, 0),
        ] {
            let server = ScriptedServer::start().await;
            let mysql = mysql_at(&server);
            server.answers(SERVES, &[first]);
            server.answers(ENDS, &[then]);
            let outcome = mysql.release_side(&ticket(LockKind::Read)).await;
            assert_eq!(outcome.ok(), released, "{first} {then}");
            assert_eq!(server.heard(ENDS).len(), ended, "{first} {then}");
        }
    }

    #[tokio::test]
    async fn sides_are_lost_without_their_table_and_without_an_answer_they_are_not() {
        let one = renewal(LockKind::Read);
        let owner = one.ticket.owner.text();
        for (answer, kept) in [
            (format!("OK; {owner}; OK"), Some(1)),
            (later(&no_table(SIDES)), Some(0)),
            (later(&denied(SIDES)), None),
            (HANG_UP.to_owned(), None),
        ] {
            let server = ScriptedServer::start().await;
            let mysql = mysql_at(&server);
            let deadline = mysql.pool.deadline();
            server.answers("START TRANSACTION", &[&answer]);
            let rows = mysql.renew_sides(&[&one], deadline).await;
            assert_eq!(rows.ok().map(|rows| rows.len()), kept, "{answer}");
            assert!(mysql.renew_sides(&[], deadline).await.unwrap().is_empty());
            assert_eq!(server.heard("START TRANSACTION").len(), 1, "{answer}");
        }
    }

    /// Nobody wakes it: the end of a fence is told to nobody.
    #[tokio::test]
    async fn a_downgrade_that_a_fence_keeps_out_is_asked_for_again_soon() {
        let server = ScriptedServer::start().await;
        let mysql = mysql_at(&server);
        let reader = attempt(&ticket(LockKind::Read));
        let downgrade = AttemptRequest {
            downgrade_of: Some(ticket(LockKind::Write).owner),
            ..reader.clone()
        };
        for (ask, answer, recheck, has_wake) in [
            (&downgrade, "0 9 7 0  0 NULL", FENCED, false),
            (&reader, "0 9 7 0  0 NULL", LIMIT, true),
        ] {
            server.answers(SERVES, &[answer]);
            match mysql.attempt_side(ask).await.unwrap() {
                Attempt::Held(wait) => {
                    assert_eq!(wait.recheck, Some(recheck));
                    assert_eq!(wait.wake.is_some(), has_wake);
                }
                Attempt::Acquired(grant) => panic!("{grant:?}"),
            }
        }
    }
}
