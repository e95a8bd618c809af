//! `sqlite:PATH`: a lock file that the processes of one machine share.
//!
//! A lock is a row with a lease ([`rows`]), changed in transactions that exclude each other ([`records`]). Deadlines are
//! stamps of the machine's boot clock ([`timebase`]), so holders and waiters go by one clock, and no lease outlives its time
//! by more than what it takes to look. Each face of the store has a connection on a thread of its own ([`worker`]), so that
//! a renewal waits for other writers no longer than SQLite's own lock is held; waiters are woken by [`watch`].
//!
//! A process that is stopped (`SIGSTOP`) exactly while it writes keeps all others out until it goes on or is killed:
//! their requests fail with `Unavailable`, and their leases end as they do on any store that does not answer.

mod desk;
mod examine;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz;
mod place;
mod records;
mod rows;
mod schema;
mod timebase;
mod trouble;
mod volume;
mod watch;
mod worker;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use self::desk::{Desk, Durable};
use self::records::{Decision, View};
use self::rows::Seen;
use self::timebase::Timebase;
use self::watch::{Listening, Watch};
use self::worker::Worker;
use super::glob::matches_glob;
use crate::backend::{
    Ask, Attempt, Backend, BoxFuture, Capabilities, ClientId, Clock, Env, Grant, Name, Page,
    Released, Renewal, Renewed, Signals, Store, Ticket, Wait,
};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::FencingToken;
use crate::snapshot::{ClientInfo, Finding, Holder, Snapshot};

/// How many rows one page of a list looks at.
const PAGE: i64 = 1000;

/// What this store can do.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    wakes: true,
    tokens: true,
    queues: false,
    shared: false,
    durable: true,
    delays: false,
    sequencers: false,
    read_write: false,
};

/// Opens `sqlite:PATH`, and makes the file if there is none.
pub(crate) async fn open(rest: &str, env: &Env) -> Result<Store> {
    let path = place::prepare(&place::path_of(rest)?)?;
    volume::check(&path)?;
    let base = Timebase::new(env.timers.clock());
    let seen = Arc::new(Seen::default());
    let watch = Watch::of(&path);
    let signals = Signals::new(env.timers.clone(), |_| {});
    let face = |thread: &str, listening| -> Result<Arc<Sqlite>> {
        let desk = Desk::new(path.clone(), base.clone(), Arc::clone(&seen));
        let worker = Worker::start(thread, desk, env.timers.clone(), env.response_timeout)?;
        Ok(Arc::new(Sqlite {
            worker,
            signals: signals.clone(),
            watch: Arc::clone(&watch),
            listening: Mutex::new(listening),
            clock: env.timers.clock(),
            path: path.clone(),
        }))
    };
    let front = face("tidelock-file", Some(watch.listen(signals.clone())))?;
    let back = face("tidelock-keep", None)?;
    front.worker.call(|desk| desk.connected().map(drop)).await?;
    Ok(Store { front, back })
}

/// One face of the store.
#[derive(Debug)]
struct Sqlite {
    worker: Worker,
    signals: Signals,
    watch: Arc<Watch>,
    listening: Mutex<Option<Listening>>,
    clock: Clock,
    #[allow(dead_code, reason = "shown by Debug")]
    path: PathBuf,
}

impl Sqlite {
    async fn write<T: Send + 'static>(
        &self,
        durable: Durable,
        change: impl Fn(&View<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.worker
            .call(move |desk| desk.write(durable, change))
            .await
    }

    async fn read<T: Send + 'static>(
        &self,
        look: impl Fn(&View<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.worker.call(move |desk| desk.read(look)).await
    }

    async fn ask(&self, ask: &Ask) -> Result<Attempt> {
        let name = ask.ticket.name.as_str();
        let wake = (!ask.armed && !ask.patience.is_zero()).then(|| self.signals.arm(name));
        if wake.is_some() {
            self.watch.begin(self.clock);
        }
        let (ticket, lease, spare) = (ask.ticket.clone(), ask.lease, ask.spare);
        let unheard = ask.ticket.clone();
        let decision = self
            .worker
            .call_or_undo(
                move |desk| attempt(desk, &ticket, lease, spare),
                move |desk, decision| give_back(desk, &unheard, &decision),
            )
            .await?;
        match decision {
            Decision::Granted(token, more) => Ok(Attempt::Acquired(Grant {
                token: token.map(fencing),
                more,
                ..Grant::default()
            })),
            Decision::Held(left) => Ok(Attempt::Held(Wait {
                wake,
                recheck: Some(left),
            })),
            Decision::Withdrawn => {
                Err(Error::new(ErrorKind::Cancelled).because("the attempt had been withdrawn"))
            }
            Decision::NoToken(value) => Err(Error::new(ErrorKind::WrongType).because(format!(
                "the counter of the fencing tokens in the lock file holds {value}, after which there is no token; nothing was acquired; set it to a whole number from the largest token that was given out to {}",
                i64::MAX - 1
            ))),
        }
    }

    /// After a release: waiters of this process need not wait for the watch.
    fn freed(&self, name: &Name, released: Released) -> Released {
        if released == Released::Freed {
            self.watch.wake(name.as_str());
        }
        released
    }
}

/// Looks before it writes: a lock that is held costs no turn at writing.
fn attempt(desk: &mut Desk, ticket: &Ticket, lease: Duration, spare: u32) -> Result<Decision> {
    let owner = ticket.owner.to_string();
    if let Some(left) = desk.read(|view| view.held_by_other(ticket.name.as_str(), &owner))? {
        return Ok(Decision::Held(left));
    }
    desk.grow(|view| view.attempt(ticket, lease, spare))
}

/// Nobody is there any more to hear of a grant: it would stand until the lease ends.
fn give_back(desk: &mut Desk, ticket: &Ticket, decision: &Decision) {
    if matches!(decision, Decision::Granted(..))
        && let Err(error) = desk.write(Durable::No, |view| view.release(ticket))
    {
        tracing::warn!(lock = %ticket.name, %error, "a lock whose caller has gone stays until its lease ends");
    }
}

fn fencing(token: i64) -> FencingToken {
    FencingToken::new(token.unsigned_abs())
}

fn snapshot(view: &View<'_>, name: &str) -> rusqlite::Result<Snapshot> {
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

fn page(view: &View<'_>, pattern: &str, cursor: u64) -> rusqlite::Result<Page> {
    let skip = i64::try_from(cursor).unwrap_or(i64::MAX);
    let all = view.names(PAGE, skip)?;
    let full = i64::try_from(all.len()).is_ok_and(|len| len == PAGE);
    let mut names = Vec::new();
    for name in all.into_iter().filter(|name| matches_glob(pattern, name)) {
        let row = view.row(&name)?;
        if row.is_some_and(|row| !row.left(&name, view.now, view.seen).is_zero()) {
            names.push(name);
        }
    }
    let next = full.then_some(cursor.saturating_add(PAGE.unsigned_abs()));
    Ok(Page { names, next })
}

impl Backend for Sqlite {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn attempt<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(self.ask(ask))
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
        Box::pin(async move {
            let released = self.write(Durable::No, move |view| view.release(&mine));
            Ok(self.freed(&ticket.name, released.await?))
        })
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        let mine = ticket.clone();
        let base = Timebase::new(self.clock);
        Box::pin(async move {
            let released = self.write(Durable::No, move |view| view.withdraw(&mine, &base));
            Ok(self.freed(&ticket.name, released.await?))
        })
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

    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        let name = name.clone();
        Box::pin(self.read(move |view| snapshot(view, name.as_str())))
    }

    fn list<'a>(&'a self, pattern: &'a str, cursor: u64) -> BoxFuture<'a, Result<Page>> {
        let pattern = pattern.to_owned();
        Box::pin(self.read(move |view| page(view, &pattern, cursor)))
    }

    fn announce<'a>(
        &'a self,
        client: &'a ClientId,
        info: &'a ClientInfo,
        keep: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        let (client, info, base) = (client.clone(), info.clone(), Timebase::new(self.clock));
        Box::pin(self.write(Durable::No, move |view| {
            view.announce(&client, &info, keep, &base)
        }))
    }

    fn retract<'a>(&'a self, client: &'a ClientId) -> BoxFuture<'a, Result<()>> {
        let client = client.clone();
        Box::pin(self.write(Durable::No, move |view| view.retract(&client)))
    }

    fn examine(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(self.worker.call(|desk| {
            let path = desk.path.clone();
            Ok(examine::examine(&path, desk.connected()?))
        }))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.listening
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        self.worker.close();
        Box::pin(std::future::ready(()))
    }
}
