//! Fair locks, read-write locks and semaphores of this store: its part of [`fair_waiters`](crate::store::fair_waiters).

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::store::fair_waiters::{FairPosition, QueueLook, QueueTable};
use crate::store::side_order::Follows;
use crate::store::sqlite::connection::{Database, Durable, is_out_of_room};
use crate::store::sqlite::decision::Decision;
use crate::store::sqlite::errors::unless_unreadable;
use crate::store::sqlite::inspect;
use crate::store::sqlite::records::LockTransaction;
use crate::store::sqlite::sights;
use crate::store::sqlite::worker::Worker;
use crate::store::{AttemptRequest, LockKind, Name, Ticket};

/// The queue table, on the connection of the steward.
pub(crate) struct SqliteQueue {
    pub(crate) worker: Arc<Worker>,
}

impl QueueTable for SqliteQueue {
    async fn look(&self, name: &Name, client: &str, beat: bool) -> Result<QueueLook> {
        let (name, client) = (name.clone(), client.to_owned());
        let job = move |database: &mut Database| {
            let (name, client) = (name.as_str(), client.as_str());
            if beat {
                database.write(Durable::No, |view| view.show_alive(name, client))?;
            }
            let (look, due) = database.read(|view| view.look_at_queue(name, client))?;
            if !due {
                return Ok(look);
            }
            database.grow(Durable::No, |view| view.serve(name).map(drop))?;
            let again = database.read(|view| view.look_at_queue(name, client))?;
            Ok(again.0)
        };
        self.worker.call(job).await
    }
}

/// An attempt for a fair lock, for a side of a read-write lock or for permits.
pub(crate) fn attempt(database: &mut Database, ask: &AttemptRequest) -> Result<Decision> {
    let decision = decide(database, ask)?;
    if matches!(decision, Decision::Held(_) | Decision::IsLock) {
        sights::remember(database, Some(ask.ticket.name.as_str()));
    }
    Ok(decision)
}

/// It reads before it writes: the attempt of a waiter that has its place does not need the write lock.
fn decide(database: &mut Database, ask: &AttemptRequest) -> Result<Decision> {
    let AttemptRequest { ticket, lease, .. } = ask;
    let (lease, position, follows) = (*lease, FairPosition::of(ask), Follows::of(ask));
    let kept_out = match follows {
        Follows::Nobody => database.read(|view| view.kept_out(ticket, position))?,
        // What it follows may have been lost.
        Follows::Writer(_) | Follows::Upgradeable(_) => None,
    };
    match kept_out {
        Some((left, true)) => return Ok(Decision::Held(left)),
        Some((_, false)) => {
            // A place need not be on the disk: after a power failure no process waits any more.
            let wait = |view: &LockTransaction<'_>| view.wait_for_turn(ticket, lease, position);
            if let Some(left) = database.grow(Durable::No, wait)? {
                return Ok(Decision::Held(left));
            }
        }
        None => {}
    }
    database.grow(Durable::Yes, |view| match ticket.kind {
        LockKind::Permits(permits) => view.attempt_permits(ticket, permits, lease, position),
        kind if kind.is_read_write() => view.attempt_side(ticket, lease, position, follows),
        _ => view.attempt_fair(ticket, lease, position),
    })
}

impl LockTransaction<'_> {
    /// The rest of the lease of the holders that keep this ticket out, and whether the ticket has the place in the queue
    /// that it wants. `None` if it may enter.
    fn kept_out(
        &self,
        ticket: &Ticket,
        position: FairPosition,
    ) -> rusqlite::Result<Option<(Duration, bool)>> {
        if let LockKind::Permits(permits) = ticket.kind {
            return self.permits_are_kept_out(ticket, permits, position);
        }
        if ticket.kind.is_read_write() {
            return self.side_is_kept_out(ticket, position);
        }
        let (name, owner) = (ticket.name.as_str(), ticket.owner.text());
        let placed = position == FairPosition::None || self.has_place(owner)?;
        Ok(self.held_by_other(name, owner)?.map(|left| (left, placed)))
    }

    /// Puts the ticket into the queue, and returns the rest of the lease, if a holder keeps it out. Otherwise changes
    /// nothing.
    fn wait_for_turn(
        &self,
        ticket: &Ticket,
        lease: Duration,
        position: FairPosition,
    ) -> rusqlite::Result<Option<Duration>> {
        match ticket.kind {
            LockKind::Permits(permits) => self.wait_for_permits(ticket, permits, lease, position),
            kind if kind.is_read_write() => self.wait_behind_holders(ticket, lease, position),
            _ => self.wait_behind_holder(ticket, lease, position),
        }
    }
}

/// Frees a lock by `change`, and lets in the waiters that are next in the same transaction: those of fair and read-write
/// locks, and those for permits.
/// Returns the owners of those grants.
pub(crate) fn free<T>(
    database: &mut Database,
    name: &str,
    change: impl Fn(&LockTransaction<'_>) -> rusqlite::Result<T>,
) -> Result<(T, Vec<String>)> {
    let paths = Arc::clone(&database.setting.paths);
    database.write(Durable::No, move |view| {
        let freed = change(view)?;
        // On a full disk nothing is granted. Otherwise the release could fail together with the grant.
        let grants = view.has_waiters(name)? && !is_out_of_room(view, &paths)?;
        let next = if grants {
            // If a row of the queue cannot be read, nobody enters. That must not undo the release. All rows are read
            // before the first grant.
            unless_unreadable(view.serve(name))?.unwrap_or_default()
        } else {
            Vec::new()
        };
        Ok((freed, next))
    })
}

/// As [`free`], regardless of the holder, or if the lock is held as in `seen`. Returns whether it was held.
pub(crate) fn force(
    database: &mut Database,
    name: &Name,
    seen: Option<&Snapshot>,
) -> Result<(bool, Vec<String>)> {
    free(database, name.as_str(), |view| {
        inspect::force(view, name, seen)
    })
}

/// Releases a grant whose caller stopped waiting. Otherwise the lock would stay held until the lease ends.
pub(crate) fn give_back(database: &mut Database, ticket: &Ticket, decision: &Decision) {
    if !matches!(decision, Decision::Granted(..)) {
        return;
    }
    let name = ticket.name.as_str();
    if let Err(error) = free(database, name, |view| view.release(ticket)) {
        tracing::warn!(lock = %ticket.name, %error, "cannot release a lock whose caller has left; it stays held until its lease ends");
    }
    database.hide(ticket);
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::store::sqlite::busy::be_patient_for;
    use crate::store::sqlite::connection::SharedConnectionState;
    use crate::store::sqlite::files::DatabasePaths;
    use crate::store::{PermitChange, Released, ReplicaAck};
    use crate::types::OwnerMint;

    const LEASE: Duration = Duration::from_secs(30);

    /// A kind of each table.
    const KINDS: [LockKind; 3] = [LockKind::Fair, LockKind::Write, LockKind::Permits(1)];

    /// An attempt of a new ticket whose caller waits for so long.
    fn ask(kind: LockKind, patience: Duration) -> AttemptRequest {
        let (name, owner) = (Name::new("n").unwrap(), OwnerMint::new().fresh());
        let ticket = Ticket { kind, name, owner };
        AttemptRequest {
            patience,
            ..AttemptRequest::once(ticket, LEASE, ReplicaAck::Off)
        }
    }

    fn is_granted(database: &mut Database, ask: &AttemptRequest) -> bool {
        match attempt(database, ask).unwrap() {
            Decision::Granted(..) => true,
            Decision::Held(_) => false,
            other => panic!("{other:?}"),
        }
    }

    /// A new file, in which this ticket has all that one of its kind can want.
    fn held(kind: LockKind) -> (TempDir, Database, Ticket) {
        let folder = tempfile::tempdir().unwrap();
        let paths = Arc::new(DatabasePaths::of(folder.path().join("locks.db")));
        let mut database = Database::new(SharedConnectionState::of_one(paths, true));
        if kind.is_permits() {
            let one = PermitChange::Set(1);
            let set = database.write(Durable::No, |view| view.change_permits("n", one));
            set.unwrap();
        }
        let holder = ask(kind, Duration::ZERO);
        assert!(is_granted(&mut database, &holder), "{kind:?}");
        (folder, database, holder.ticket)
    }

    /// The request of a caller that has left may come late.
    #[test]
    fn a_ticket_that_was_withdrawn_takes_no_place() {
        for kind in KINDS {
            let (_folder, mut database, _holder) = held(kind);
            let late = ask(kind, LEASE);
            let withdrawn = database.write(Durable::No, |view| view.withdraw(&late.ticket));
            assert_eq!(withdrawn.unwrap(), Released::NotHeld);
            let decision = attempt(&mut database, &late).unwrap();
            assert!(
                matches!(decision, Decision::Withdrawn),
                "{kind:?}: {decision:?}"
            );
            let waits = database.read(|view| view.has_waiters("n"));
            assert!(!waits.unwrap(), "{kind:?}");
        }
    }

    #[test]
    fn a_release_grants_what_it_frees_to_the_next_waiter() {
        for kind in KINDS {
            let (_folder, mut database, holder) = held(kind);
            let waiter = ask(kind, LEASE);
            assert!(!is_granted(&mut database, &waiter));
            let freed = free(&mut database, "n", |view| view.release(&holder)).unwrap();
            let next = vec![waiter.ticket.owner.to_string()];
            assert_eq!(freed, (Released::Freed, next), "{kind:?}");
        }
    }

    /// Otherwise waiters could not even ask while another program writes.
    #[test]
    fn an_attempt_that_changes_nothing_waits_for_no_writer() {
        for kind in KINDS {
            let (_folder, mut database, _holder) = held(kind);
            let (waiter, tries) = (ask(kind, LEASE), ask(kind, Duration::ZERO));
            assert!(!is_granted(&mut database, &waiter));
            let writer = rusqlite::Connection::open(&database.setting.paths.main).unwrap();
            writer.execute_batch("BEGIN IMMEDIATE").unwrap();
            be_patient_for(Duration::ZERO);
            assert!(!is_granted(&mut database, &waiter), "{kind:?}");
            assert!(!is_granted(&mut database, &tries), "{kind:?}");
            let placed = attempt(&mut database, &ask(kind, LEASE));
            assert!(placed.is_err(), "{kind:?}: its place must be written");
        }
    }

    #[test]
    fn a_grant_that_nobody_waits_for_is_given_back_and_nothing_else() {
        for kind in KINDS {
            let (_folder, mut database, holder) = held(kind);
            give_back(&mut database, &holder, &Decision::Held(LEASE));
            let next = ask(kind, Duration::ZERO);
            assert!(!is_granted(&mut database, &next), "{kind:?}");
            give_back(&mut database, &holder, &Decision::Granted(None, 0));
            assert!(is_granted(&mut database, &next), "{kind:?}");
        }
    }

    #[test]
    fn a_waiter_that_cannot_be_read_undoes_no_release() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Arc::new(DatabasePaths::of(folder.path().join("locks.db")));
        let mut database = Database::new(SharedConnectionState::of_one(paths, true));
        let mint = OwnerMint::new();
        let ticket = || Ticket {
            kind: LockKind::Fair,
            name: Name::new("n").unwrap(),
            owner: mint.fresh(),
        };
        let (held, waiter) = (ticket(), ticket());
        let lease = Duration::from_secs(30);
        for one in [&held, &waiter] {
            let attempt =
                |view: &LockTransaction<'_>| view.attempt_fair(one, lease, FairPosition::Last);
            database.write(Durable::No, attempt).unwrap();
        }
        let set = "UPDATE waiters SET ends = datetime('now')";
        let changed = database.write(Durable::No, |view| view.connection.execute(set, []));
        assert_eq!(changed.unwrap(), 1);
        let freed = free(&mut database, "n", |view| view.release(&held)).unwrap();
        assert_eq!(freed, (Released::Freed, Vec::new()));
        let row = database.read(|view| view.row("n"));
        assert_eq!(row.unwrap(), None);
    }
}
