//! `sqlite:PATH`: a lock file that the processes of one machine share.
//!
//! A lock is a row with a lease ([`rows`]). Transactions that exclude each other change it ([`records`]). Deadlines are
//! readings of the machine's boot clock ([`timebase`]), so holders and waiters use the same clock, and a lease ends on
//! time. Each side of the store (front and back) has its own connection on its own thread ([`worker`]), so a renewal
//! waits for other writers only while SQLite's own lock is held. [`watch`] wakes waiters.
//!
//! A process that is frozen (`SIGSTOP`) in the middle of a write blocks all other processes until it continues or is
//! killed. Their requests fail with `Unavailable`, and their leases end, as with any store that does not answer.

mod address;
mod alarm;
mod busy;
mod byte_locks;
mod connection;
mod counter;
mod creation;
mod decision;
mod doctor;
mod entry;
mod errors;
mod file_system;
mod files;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod holder_bytes;
mod inspect;
mod marks;
mod operate;
mod permit_records;
mod permit_rows;
mod permits;
mod queue;
mod queue_place;
mod queue_rows;
mod queued;
mod records;
mod rows;
mod schema;
mod side_records;
mod side_rows;
mod sights;
#[cfg(test)]
mod test_file;
mod timebase;
mod wake;
mod worker;
mod write_turn;

use std::sync::Arc;
use std::time::Duration;

use self::decision::Decision;
use self::files::DatabasePaths;
use self::records::LockTransaction;
use self::rows::ForeignRows;
use self::timebase::Timebase;
use self::worker::{Idle, Worker};
use crate::engine::runtime::sync::Mutex;
use crate::error::Result;
use crate::store::fair_waiters::FairWaiters;
use crate::store::sqlite::connection::{Database, Durable, SharedConnectionState};
use crate::store::sqlite::errors::TransactionStage;
use crate::store::sqlite::holder_bytes::HolderBytes;
use crate::store::sqlite::queued::SqliteQueue;
use crate::store::sqlite::wake::{FileWatch, Listening};
use crate::store::{
    Attempt, AttemptReply, AttemptRequest, Awaited, Backend, BoxFuture, Capabilities, Clock, Env,
    Extensions, LockKind, Name, Released, Renewal, Renewed, Store, Ticket, WakeChannels, certain,
    ready,
};

/// Bounds of the interval at which an idle connection checks that its files still exist. The interval is a tenth of the
/// lease.
const MIN_IDLE: Duration = Duration::from_millis(100);
const MOST_IDLE: Duration = Duration::from_secs(3);

/// The capabilities of this store.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    kinds: &[
        LockKind::Mutex,
        LockKind::Fenced,
        LockKind::Fair,
        LockKind::FairFenced,
        LockKind::Read,
        LockKind::Write,
        LockKind::ReadFenced,
        LockKind::WriteFenced,
        LockKind::UpgradeableRead,
        LockKind::UpgradeableReadFenced,
        LockKind::Permits(1),
    ],
    wakes: true,
    queues: false,
    shared: false,
    durable: true,
    delays: false,
    sequencers: false,
    raises_tokens: true,
    marks: true,
    counts: false,
};

/// Opens `sqlite:PATH`. Creates the file if it does not exist, but never a folder.
pub(crate) async fn open(rest: &str, env: &Env) -> Result<Store> {
    let path = address::resolve(&address::path_of(rest)?)?;
    file_system::check(&path)?;
    let clock = env.timers.clock();
    let paths = Arc::new(DatabasePaths::of(path));
    // In simulated time, all users of the file are in this process and wake each other directly.
    let alone = clock == Clock::Simulated;
    let setting = SharedConnectionState {
        paths: Arc::clone(&paths),
        timebase: Timebase::new(clock),
        seen: Arc::new(ForeignRows::default()),
        shown: (!alone).then(|| Arc::new(HolderBytes::beside(&paths.lock))),
        alarm: Arc::default(),
        create: env.create,
    };
    let worker = |thread: &str, database, idle| {
        let (timers, limit) = (env.timers.clone(), env.response_timeout);
        Worker::start(thread, database, timers, limit, idle).map(Arc::new)
    };
    let often = (env.lease / 10).clamp(MIN_IDLE, MOST_IDLE);
    let idle = Idle {
        // A client that only inspects has no back connection, so the front connection makes the check.
        every: (!env.create).then_some(often),
        watch: None,
    };
    let front = worker("tidelock-file", Database::new(setting.clone()), idle)?;
    let opened = open_now(&front).await?;
    // We look up the watch after the file exists, because the file's identity is the key.
    let watch = FileWatch::of(&paths);
    let idle = Idle {
        every: env.create.then_some(often),
        watch: Some(Arc::clone(&watch)),
    };
    let back = worker("tidelock-keep", Database::new(setting), idle)?;
    if opened && env.create {
        open_now(&back).await?;
    }
    let table = SqliteQueue {
        worker: Arc::clone(&back),
    };
    let turns = WakeChannels::new(env.timers.clone(), |_| {});
    let waiters = FairWaiters::new(table, turns, &env.timers, &env.background);
    let signals = watch.signals(env.timers.clone());
    let listening = Mutex::new(Some(watch.listen(signals.clone())));
    let face = |worker, listening| {
        Arc::new(Sqlite {
            worker,
            waiters: Arc::clone(&waiters),
            lease: env.lease,
            signals: signals.clone(),
            watch: Arc::clone(&watch),
            listening,
            clock,
            paths: Arc::clone(&paths),
        })
    };
    let front = face(front, listening);
    Ok(Store::new(front, face(back, Mutex::default())))
}

/// Checks the URL, without a look at the file system.
pub(crate) fn target(rest: &str) -> Result<()> {
    address::path_of(rest).map(drop)
}

/// Opens a connection before the first request needs it. A file that later gets a second hard link cannot be opened any
/// more, and renewals then need a connection that is already open. Returns false if other processes keep the file busy.
async fn open_now(worker: &Worker) -> Result<bool> {
    match worker.call(|database| database.connected().map(drop)).await {
        Ok(()) => Ok(true),
        // Many processes may open the file at the same moment. We do not fail here; an acquisition waits for them
        // within its own timeout.
        Err(error) if errors::is_busy(&error) || error.outcome_unknown() => {
            tracing::debug!(%error, "cannot open the lock file yet; retrying");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// One side of the store, front or back, with its own worker thread.
#[derive(Debug)]
struct Sqlite {
    worker: Arc<Worker>,
    waiters: Arc<FairWaiters<SqliteQueue>>,
    lease: Duration,
    signals: WakeChannels,
    watch: Arc<FileWatch>,
    listening: Mutex<Option<Listening>>,
    clock: Clock,
    #[allow(dead_code, reason = "shown by Debug")]
    paths: Arc<DatabasePaths>,
}

impl Sqlite {
    async fn write<T: Send + 'static>(
        &self,
        durable: Durable,
        change: impl Fn(&LockTransaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.worker
            .call(move |database| database.write(durable, change))
            .await
    }

    async fn read<T: Send + 'static>(
        &self,
        look: impl Fn(&LockTransaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.worker.call(move |database| database.read(look)).await
    }

    async fn ask(&self, ask: &AttemptRequest) -> Result<Attempt> {
        let name = ask.ticket.name.as_str();
        // We arm the wake and join the queue before the attempt. Otherwise a release between the two would wake nobody.
        let wake = ask.wants_wake().then(|| self.signals.arm(name));
        if wake.is_some() {
            self.watch.begin(name, self.clock);
        }
        let (ticket, lease, spare) = (ask.ticket.clone(), ask.lease, ask.spare);
        let unheard = ask.ticket.clone();
        let decision = self
            .worker
            .call_or_undo(
                &ask.liveness,
                move |database| attempt(database, &ticket, lease, spare),
                move |database, decision| queued::give_back(database, &unheard, &decision),
            )
            .await?;
        if matches!(decision, Decision::Granted(..)) {
            self.watch.was_served(name);
        }
        decision.answer(|left| Attempt::held(wake, self.watch.recheck(name, left)))
    }

    /// An attempt that keeps its place in the queue of the file.
    async fn ask_queued(&self, ask: &AttemptRequest) -> Result<Attempt> {
        let wake = self.waiters.arm(ask);
        let unheard = ask.ticket.clone();
        let asked = ask.without_caller();
        let attempt = move |database: &mut Database| queued::attempt(database, &asked);
        let decision = self
            .worker
            .call_or_undo(&ask.liveness, attempt, move |database, decision| {
                queued::give_back(database, &unheard, &decision);
            })
            .await?;
        match decision {
            Decision::Held(_) => self.waiters.was_refused(ask),
            _ => self.waiters.leave(&ask.ticket.name, &ask.ticket.owner),
        }
        // The looks of this process notice the end of the holder's lease.
        decision.answer(|_| Attempt::held(wake, self.lease))
    }

    /// Wakes those that a release has let in, or the waiters without a place if the lock is free. We wake those of this
    /// process directly, so they do not wait for the kernel queue.
    fn wake(&self, name: &Name, next: &[String], freed: bool) {
        for one in next {
            self.waiters.wake(one);
        }
        if next.is_empty() && freed {
            self.watch.wake(name.as_str());
        }
    }

    /// Releases or withdraws a ticket, and wakes the waiters of the lock.
    async fn end(
        &self,
        ticket: &Ticket,
        change: impl Fn(&LockTransaction<'_>) -> rusqlite::Result<Released> + Send + 'static,
    ) -> Result<Released> {
        let (watch, ended) = (Arc::clone(&self.watch), ticket.clone());
        let (released, next, others) = self
            .worker
            .call(move |database| {
                let name = ended.name.as_str();
                let freed = queued::free(database, name, change);
                // We count the other waiters before `hide` wakes one of them. Otherwise the count would miss that
                // waiter.
                let shows = database.setting.shown.is_some();
                let others = if shows { watch.others(name) } else { 0 };
                // Also after an error: if the lease ends before a release succeeds, nothing else would hide the lock.
                database.hide(&ended);
                let (released, next) = freed?;
                Ok((released, next, others))
            })
            .await?;
        self.wake(&ticket.name, &next, released == Released::Freed);
        Ok(match (released, others) {
            (Released::Freed, 1..) => Released::Awaited(Awaited {
                others,
                ..Awaited::default()
            }),
            _ => released,
        })
    }
}

/// Reads before it writes, so an attempt on a held lock does not need the write lock.
fn attempt(
    database: &mut Database,
    ticket: &Ticket,
    lease: Duration,
    spare: u32,
) -> Result<Decision> {
    let (name, owner) = (ticket.name.as_str(), ticket.owner.to_string());
    let decision = match database.read(|view| view.held_by_other(name, &owner))? {
        Some(left) => Decision::Held(left),
        None => database.grow(Durable::Yes, |view| view.attempt(ticket, lease, spare))?,
    };
    match decision {
        Decision::Granted(..) => database.show(ticket),
        Decision::Held(_) => sights::remember(database, Some(name)),
        _ => {}
    }
    Ok(decision)
}

/// The answer for one lock of a batch. `kept`: whether the ticket still has it.
///
/// Another program may have changed a row of one lock so that it cannot be read. That costs the others nothing. The lock
/// itself is not lost at once: nobody gets it while its row is so, and somebody may mend the row before its lease ends.
/// What was written for it before the error only lengthens its lease.
fn renewed(kept: rusqlite::Result<bool>) -> rusqlite::Result<Renewed> {
    match kept {
        Ok(true) => Ok(Renewed::Kept),
        Ok(false) => Ok(Renewed::Gone),
        Err(error) if errors::is_unreadable(&error) => {
            let error = errors::explain(error, TransactionStage::Before);
            Ok(Renewed::Failed(error))
        }
        Err(error) => Err(error),
    }
}

impl Backend for Sqlite {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            token_counter: Some(self),
            marks: Some(self),
            permit_counter: Some(self),
            ..Extensions::NONE
        }
    }

    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, AttemptReply> {
        if ask.ticket.kind.is_queued() || ask.ticket.kind.is_permits() {
            certain(self.ask_queued(ask))
        } else {
            certain(self.ask(ask))
        }
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        let batch = batch.to_vec();
        Box::pin(self.write(Durable::No, move |view| {
            let each = batch.iter().map(|one| renewed(view.renew(one)));
            each.collect()
        }))
    }

    fn lane(&self, _name: &Name) -> u64 {
        0
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        let mine = ticket.clone();
        Box::pin(self.end(ticket, move |view| view.release(&mine)))
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        // A waiter that leaves must not be woken by a look that misses its place.
        self.waiters.leave(&ticket.name, &ticket.owner);
        let mine = ticket.clone();
        Box::pin(self.end(ticket, move |view| view.withdraw(&mine)))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.listening.lock().take();
        self.waiters.close();
        self.worker.close();
        ready(())
    }
}

#[cfg(test)]
mod tests;
