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
mod doctor;
mod entry;
mod errors;
mod file_system;
mod files;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod holder_bytes;
mod queue;
mod queue_place;
mod records;
mod rows;
mod schema;
mod timebase;
mod wake;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use self::files::DatabasePaths;
use self::records::{Decision, LockTransaction};
use self::rows::ForeignRows;
use self::timebase::Timebase;
use self::worker::{Idle, Worker};
use crate::engine::runtime::sync::Mutex;
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{ClientInfo, Finding, Holder, Snapshot};
use crate::store::glob::matches_glob;
use crate::store::sqlite::connection::{Database, Durable, SharedConnectionState};
use crate::store::sqlite::holder_bytes::HolderBytes;
use crate::store::sqlite::wake::{FileWatch, Listening};
use crate::store::{
    Attempt, AttemptReply, AttemptRequest, Awaited, Backend, BoxFuture, CLIENT_INFO_TTL,
    Capabilities, ClientId, Clock, Env, Extensions, Grant, LockKind, Name, Operate, Page, Released,
    Renewal, Renewed, Store, Ticket, TokenCounter, WakeChannels, certain, ready,
};
use crate::types::FencingToken;

/// Bounds the rows that one page of a list reads.
const PAGE_SIZE: i64 = 1000;
/// Bounds of the interval at which an idle connection checks that its files still exist. The interval is a tenth of the
/// lease.
const MIN_IDLE: Duration = Duration::from_millis(100);
const MOST_IDLE: Duration = Duration::from_secs(3);

/// The capabilities of this store.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    kinds: &[LockKind::Mutex, LockKind::Fenced],
    wakes: true,
    queues: false,
    shared: false,
    durable: true,
    delays: false,
    sequencers: false,
    raises_tokens: true,
};

/// Opens `sqlite:PATH`. Creates the file if it does not exist, but never a folder.
pub(crate) async fn open(rest: &str, env: &Env) -> Result<Store> {
    let path = address::resolve(&address::path_of(rest)?)?;
    file_system::check(&path)?;
    let clock = env.timers.clock();
    let paths = Arc::new(DatabasePaths::of(path));
    // In simulated time, all users of the file are in this process and wake each other directly.
    let alone = matches!(clock, Clock::Simulated(_));
    let setting = SharedConnectionState {
        paths: Arc::clone(&paths),
        timebase: Timebase::new(clock),
        seen: Arc::new(ForeignRows::default()),
        shown: (!alone).then(|| Arc::new(HolderBytes::beside(&paths.lock))),
        alarm: Arc::default(),
        create: env.create,
    };
    let worker = |thread: &str, database, idle| {
        Worker::start(
            thread,
            database,
            env.timers.clone(),
            env.response_timeout,
            idle,
        )
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
    let signals = watch.signals(env.timers.clone());
    let listening = Mutex::new(Some(watch.listen(signals.clone())));
    let face = |worker, listening| {
        Arc::new(Sqlite {
            worker,
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
    worker: Worker,
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
                move |database| attempt(database, &ticket, lease, spare),
                move |database, decision| give_back(database, &unheard, &decision),
            )
            .await?;
        match decision {
            Decision::Granted(token, more) => {
                self.watch.was_served(name);
                Ok(Attempt::Acquired(Grant {
                    token: token.map(fencing),
                    more,
                    ..Grant::default()
                }))
            }
            Decision::Held(left) => Ok(Attempt::held(wake, self.watch.recheck(name, left))),
            Decision::Withdrawn => {
                Err(Error::new(ErrorKind::Cancelled).because("the attempt was withdrawn before"))
            }
            Decision::NoToken(value) => Err(counter::no_token(&value)),
        }
    }

    /// Releases or withdraws a ticket, and wakes the waiters of the lock.
    async fn end(
        &self,
        name: &Name,
        change: impl Fn(&LockTransaction<'_>) -> rusqlite::Result<Released> + Send + 'static,
    ) -> Result<Released> {
        let (watch, which) = (Arc::clone(&self.watch), name.clone());
        let (released, others) = self
            .worker
            .call(move |database| {
                let released = database.write(Durable::No, change)?;
                // We count the other waiters before `hide` wakes one of them. Otherwise the count would miss that
                // waiter.
                let shows = database.setting.shown.is_some();
                let others = if shows {
                    watch.others(which.as_str())
                } else {
                    0
                };
                database.hide(which.as_str());
                Ok((released, others))
            })
            .await?;
        if released == Released::Freed {
            // We wake the waiters of this process directly, so they do not wait for the kernel queue.
            self.watch.wake(name.as_str());
        }
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
    let owner = ticket.owner.to_string();
    if let Some(left) = database.read(|view| view.held_by_other(ticket.name.as_str(), &owner))? {
        return Ok(Decision::Held(left));
    }
    let decision = database.grow(|view| view.attempt(ticket, lease, spare))?;
    if matches!(decision, Decision::Granted(..)) {
        database.show(ticket.name.as_str());
    }
    Ok(decision)
}

/// Releases a grant whose caller stopped waiting. Otherwise the lock would stay held until the lease ends.
fn give_back(database: &mut Database, ticket: &Ticket, decision: &Decision) {
    if !matches!(decision, Decision::Granted(..)) {
        return;
    }
    if let Err(error) = database.write(Durable::No, |view| view.release(ticket)) {
        tracing::warn!(lock = %ticket.name, %error, "cannot release a lock whose caller has left; it stays held until its lease ends");
    }
    database.hide(ticket.name.as_str());
}

fn fencing(token: i64) -> FencingToken {
    FencingToken::new(token.unsigned_abs())
}

fn snapshot(view: &LockTransaction<'_>, name: &str) -> rusqlite::Result<Snapshot> {
    let mut snapshot = Snapshot::free(name);
    snapshot.token = view.newest_token(name)?.map(fencing);
    let Some(row) = view.row(name)? else {
        return Ok(snapshot);
    };
    let left = row.left(name, view.now, view.seen);
    if !left.is_zero() {
        snapshot.expires_in = Some(left);
        let client = row.owner.split(':').next().unwrap_or_default();
        let mut holder = Holder::new(row.owner.as_str(), 1);
        holder.client = view.client(client)?;
        snapshot.holders.push(holder);
    }
    Ok(snapshot)
}

fn page(view: &LockTransaction<'_>, pattern: &str, after: Option<&str>) -> rusqlite::Result<Page> {
    let all = view.names(PAGE_SIZE, after.unwrap_or_default())?;
    let full = i64::try_from(all.len()).is_ok_and(|len| len == PAGE_SIZE);
    let next = all.last().filter(|_| full).cloned();
    let mut names = Vec::new();
    for name in all.into_iter().filter(|name| matches_glob(pattern, name)) {
        let row = view.row(&name)?;
        if row.is_some_and(|row| !row.left(&name, view.now, view.seen).is_zero()) {
            names.push(name);
        }
    }
    Ok(Page { names, next })
}

impl Backend for Sqlite {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions {
            token_counter: Some(self),
            ..Extensions::NONE
        }
    }

    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, AttemptReply> {
        certain(self.ask(ask))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        let batch = batch.to_vec();
        Box::pin(self.write(Durable::No, move |view| {
            let answer = |kept| if kept { Renewed::Kept } else { Renewed::Gone };
            batch
                .iter()
                .map(|one| view.renew(one).map(answer))
                .collect()
        }))
    }

    fn lane(&self, _name: &Name) -> u64 {
        0
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        let mine = ticket.clone();
        Box::pin(self.end(&ticket.name, move |view| view.release(&mine)))
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        let mine = ticket.clone();
        let timebase = Timebase::new(self.clock);
        Box::pin(self.end(&ticket.name, move |view| view.withdraw(&mine, &timebase)))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.listening.lock().take();
        self.worker.close();
        ready(())
    }
}

impl TokenCounter for Sqlite {
    fn raise<'a>(&'a self, _name: &'a Name, newest: u64) -> BoxFuture<'a, Result<u64>> {
        Box::pin(counter::raise(&self.worker, newest))
    }
}

impl Operate for Sqlite {
    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        let name = name.clone();
        Box::pin(self.read(move |view| snapshot(view, name.as_str())))
    }

    fn list<'a>(&'a self, pattern: &'a str, after: Option<&'a str>) -> BoxFuture<'a, Result<Page>> {
        let (pattern, after) = (pattern.to_owned(), after.map(str::to_owned));
        Box::pin(self.read(move |view| page(view, &pattern, after.as_deref())))
    }

    fn force_release<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<bool>> {
        let which = name.clone();
        Box::pin(async move {
            let held = self
                .write(Durable::No, move |view| view.force_release(&which))
                .await?;
            if held {
                self.watch.wake(name.as_str());
            }
            Ok(held)
        })
    }

    fn announce<'a>(
        &'a self,
        client: &'a ClientId,
        info: Option<&'a ClientInfo>,
    ) -> BoxFuture<'a, Result<()>> {
        let (client, info) = (client.clone(), info.cloned());
        let timebase = Timebase::new(self.clock);
        Box::pin(self.write(Durable::No, move |view| match &info {
            Some(info) => view.announce(&client, info, CLIENT_INFO_TTL, &timebase),
            None => view.retract(&client),
        }))
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(self.worker.call(|database| {
            let paths = Arc::clone(&database.setting.paths);
            Ok(doctor::examine(&paths, database.connected()?))
        }))
    }
}
