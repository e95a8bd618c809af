//! A number that callers wait for and that nobody holds: the base of latches and counting semaphores.

mod change_in_doubt;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{Either, select};

use self::change_in_doubt::ChangeInDoubt;
use crate::closing::Closing;
use crate::engine::ClientInner;
use crate::engine::lease::steward::StewardCommand;
use crate::engine::runtime::in_flight::{InFlight, InFlightCounter};
use crate::engine::runtime::retry;
use crate::engine::runtime::sync::Mutex;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::Lock;
use crate::store::{
    BootInstant, CountChange, CountChanged, CountKind, Counts, LockKind, Name, OwnerId,
    SemaphoreChange, Wait, Wake,
};

/// The most answers that one change tells the store to forget. The others expire.
const MAX_SETTLED: usize = 64;

/// The subscription failed, or took too long. The next request shows whether the store can be reached.
const UNARMED: Wait = Wait {
    wake: None,
    recheck: Some(Duration::from_secs(1)),
    ahead: None,
};

/// What a caller waits for.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    /// A latch that is open.
    Open,
    /// So many permits, which it takes.
    Permits(u32),
}

/// A count, as one client uses it. Clones share what the store may forget.
#[derive(Clone)]
pub(crate) struct Count {
    /// For its name, client and store.
    lock: Lock,
    kind: CountKind,
    /// The changes whose only request was answered. The next change tells the store to forget their answers; otherwise a
    /// semaphore in steady use would fill the store with answers that nobody asks for.
    settled: Arc<Mutex<Vec<OwnerId>>>,
}

impl Count {
    pub(crate) fn new(core: &Arc<ClientInner>, kind: CountKind, name: &str) -> Self {
        Self {
            lock: Lock::new(core, LockKind::Mutex, name),
            kind,
            settled: Arc::default(),
        }
    }

    pub(crate) fn lock(&self) -> &Lock {
        &self.lock
    }

    pub(crate) fn name(&self) -> &str {
        self.lock.name()
    }

    /// Reads the number.
    pub(crate) async fn read(&self) -> Result<i64> {
        let name = self.lock.checked_name()?;
        let read = async {
            let core = &self.lock.context.core;
            core.refuse_if_closed()?;
            let read = self.read_once(self.counts()?, &name);
            core.steward.answered(read).await
        };
        read.await.map_err(|error| error.on_lock(&name))
    }

    /// Sends one change, and repeats it with the same id while the store cannot be reached or its reply is lost.
    pub(crate) async fn change(&self, change: CountChange) -> Result<CountChanged> {
        let name = self.lock.checked_name()?;
        let core = &self.lock.context.core;
        let (id, in_doubt) = (core.mint.fresh(), ChangeInDoubt::default());
        let changed = async {
            core.refuse_if_closed()?;
            core.refuse_after_fork()?;
            let patience = core.settings.lease;
            self.send(&name, change, &id, &in_doubt, patience).await
        };
        changed.await.map_err(|error| {
            // An earlier try may have taken effect, whatever became of the last one.
            let error = if in_doubt.is_open() && !error.outcome_unknown() {
                Error::new(ErrorKind::OutcomeUnknown).because(error.to_string())
            } else {
                error
            };
            error.on_lock(&name)
        })
    }

    /// Takes permits if there are enough. Never waits for more.
    pub(crate) async fn try_take(&self, permits: u32) -> Result<bool> {
        let name = self.lock.checked_name()?;
        let mut taking = Taking::new(self, &name);
        let patience = self.lock.context.core.settings.response_timeout;
        // A close ends the call at once. Otherwise the drop would come when the steward ends, too late to undo anything.
        let taken = self.unless_closed(taking.ask(permits, patience)).await;
        let taken = taken.map_err(|error| error.on_lock(&name))?;
        Ok(taken.changed)
    }

    /// Waits until the goal is reached, for at most `limit`.
    pub(crate) async fn wait(&self, goal: Goal, limit: Option<Duration>) -> Result<()> {
        let name = self.lock.checked_name()?;
        let waited = self.wait_for(&name, goal, limit).await;
        waited.map_err(|error| error.on_lock(&name))
    }

    async fn wait_for(&self, name: &Name, goal: Goal, limit: Option<Duration>) -> Result<()> {
        let core = &self.lock.context.core;
        let end = limit.map(|limit| core.timers.now() + limit);
        let mut taking = Taking::new(self, name);
        let mut wait: Option<Wait> = None;
        loop {
            core.refuse_if_closed()?;
            let counts = self.counts()?;
            // This request also serves a message that has arrived by now.
            if let Some(wake) = wait.as_mut().and_then(|wait| wait.wake.as_mut()) {
                wake.use_up();
            }
            let asked = self.ask(counts, goal, &mut taking, self.patience(end));
            let Some(still) = self.unless_closed(asked).await? else {
                return Ok(());
            };
            if let Some(wake) = wait.as_mut().and_then(|wait| wait.wake.as_mut()) {
                wake.answered();
            }
            if end.is_some_and(|end| core.timers.now() >= end) {
                return Err(Error::new(ErrorKind::TimedOut).because(still));
            }
            if let Some(armed) = &mut wait {
                self.sleep(armed, end).await;
                if armed.wake.is_none() {
                    wait = None; // perhaps a subscription works by now
                }
            } else {
                // We ask again after this; otherwise we would miss a message that came before we listened.
                wait = Some(self.arm(counts, name, end).await);
            }
        }
    }

    /// Listens for messages from here on. It gives up at `end` and when the client closes; a subscription may take seconds.
    async fn arm(&self, counts: &dyn Counts, name: &Name, end: Option<BootInstant>) -> Wait {
        let core = &self.lock.context.core;
        let armed = select(
            counts.arm(name, self.kind),
            Closing::new(&core.steward.closed),
        );
        let armed = match end {
            Some(end) => core.timers.until(end, armed).await,
            None => Some(armed.await),
        };
        let mut wait = match armed {
            Some(Either::Left((Ok(wait), _))) => wait,
            _ => UNARMED,
        };
        // Each waiter asks again for itself after a lost message. If only the first one did, it could be a future that is kept
        // and not polled. And a waiter for permits could go on being refused while there are permits enough for another.
        wait.wake = wait.wake.map(Wake::rechecks_alone);
        wait
    }

    /// One request of a waiter. `None`: the goal is reached. Otherwise how far it is.
    async fn ask(
        &self,
        counts: &dyn Counts,
        goal: Goal,
        taking: &mut Taking<'_>,
        patience: Duration,
    ) -> Result<Option<String>> {
        Ok(match goal {
            Goal::Open => {
                let name = taking.name;
                let again = || self.read_once(counts, name);
                let core = &self.lock.context.core;
                let count = core.through_outage(patience, again).await?;
                (count > 0).then(|| format!("the latch is not open; its count is {count}"))
            }
            Goal::Permits(permits) => {
                let CountChanged { changed, count } = taking.ask(permits, patience).await?;
                let short = || format!("{permits} permits were asked for; {count} are available");
                (!changed).then(short)
            }
        })
    }

    /// Sleeps until a message comes, the store must be asked again, the time is over or the client closes.
    async fn sleep(&self, wait: &mut Wait, end: Option<BootInstant>) {
        let core = &self.lock.context.core;
        let recheck = wait.recheck.unwrap_or(core.settings.lease / 3);
        let woken = async {
            match &mut wait.wake {
                Some(wake) => {
                    wake.look_after(recheck);
                    wake.woken().await;
                }
                None => core.timers.after(recheck).await,
            }
        };
        let woken = pin!(woken);
        let first = select(woken, Closing::new(&core.steward.closed));
        match end {
            Some(end) => drop(core.timers.until(end, first).await),
            None => drop(first.await),
        }
    }

    /// Sends a change through an outage that is shorter than `patience`. Leaves `in_doubt` open if a try may have taken effect
    /// although it has no answer.
    async fn send(
        &self,
        name: &Name,
        change: CountChange,
        id: &OwnerId,
        in_doubt: &ChangeInDoubt,
        patience: Duration,
    ) -> Result<CountChanged> {
        let (core, store) = (&self.lock.context.core, &self.lock.context.store);
        let counts = self.counts()?;
        let settled = std::mem::take(&mut *self.settled.lock());
        let ask = || async {
            let now = core.timers.now();
            let known_until = in_doubt.known_until(&core.settings);
            if known_until.is_some_and(|until| now >= until) {
                return Ok(None);
            }
            let asked = counts.change(name, change, id, &settled);
            let changed = in_doubt.settles(now, asked).await;
            store.heard(name, &changed);
            changed.map(Some)
        };
        let Some(changed) = core.through_outage(patience, ask).await? else {
            return Err(Error::new(ErrorKind::OutcomeUnknown).because(
                "this process did not run for so long that the store may have forgotten whether it has made the change",
            ));
        };
        // Only then no copy of the request can come later.
        if changed.changed && !in_doubt.is_open() {
            let mut settled = self.settled.lock();
            if settled.len() < MAX_SETTLED {
                settled.push(id.clone());
            }
        }
        Ok(changed)
    }

    async fn read_once(&self, counts: &dyn Counts, name: &Name) -> Result<i64> {
        let count = counts.count(name, self.kind).await;
        self.lock.context.store.heard(name, &count);
        count.map_err(Error::without_effect)
    }

    /// How long an outage may last: a lease, or the rest of the caller's time.
    fn patience(&self, end: Option<BootInstant>) -> Duration {
        let core = &self.lock.context.core;
        let lease = core.settings.lease;
        end.map_or(lease, |end| end.since(core.timers.now()).min(lease))
    }

    async fn unless_closed<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let closing = Closing::new(&self.lock.context.core.steward.closed);
        select(pin!(request), closing).map(answered_or_closed).await
    }

    fn counts(&self) -> Result<&dyn Counts> {
        self.lock.context.store.counts(self.kind)
    }
}

/// The answer, unless the client closed first.
fn answered_or_closed<T, A, B>(first: Either<(Result<T>, B), ((), A)>) -> Result<T> {
    match first {
        Either::Left((answer, _)) => answer,
        Either::Right(_) => Err(Error::new(ErrorKind::Closed)),
    }
}

/// Permits that a caller is about to take. If a request of it may take effect although the caller does not know, its drop
/// gives back in the background what the request took, and stops one that is late.
struct Taking<'a> {
    count: &'a Count,
    name: &'a Name,
    id: OwnerId,
    /// Closed when the caller has the permits.
    in_doubt: ChangeInDoubt,
    /// Set while a request is under way or in doubt. It is dropped after the undo was sent, so that a `close` waits for that.
    in_flight: Option<InFlight<&'a InFlightCounter>>,
}

impl<'a> Taking<'a> {
    fn new(count: &'a Count, name: &'a Name) -> Self {
        Self {
            count,
            name,
            id: count.lock.context.core.mint.fresh(),
            in_doubt: ChangeInDoubt::default(),
            in_flight: None,
        }
    }

    /// Takes the permits if there are enough.
    async fn ask(&mut self, permits: u32, patience: Duration) -> Result<CountChanged> {
        let (count, change) = (self.count, SemaphoreChange::Take(permits));
        let core = &count.lock.context.core;
        // We register before we check for `close`. Otherwise a `close` between the two could end the steward while this request
        // is on its way, and nobody would undo it.
        self.in_flight = Some(core.steward.in_flight());
        core.refuse_if_closed()?;
        core.refuse_after_fork()?;
        let (change, id, in_doubt) = (CountChange::Semaphore(change), &self.id, &self.in_doubt);
        let asked = count.send(self.name, change, id, in_doubt, patience);
        match asked.await {
            Ok(taken) => {
                if taken.changed {
                    self.in_doubt.close();
                }
                if !self.in_doubt.is_open() {
                    self.in_flight = None;
                }
                Ok(taken)
            }
            // What it may have taken is given back, so for the caller it has not taken effect.
            Err(error) => Err(error.without_effect()),
        }
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        let context = &self.count.lock.context;
        let (store, core) = (Arc::clone(&context.store), &context.core);
        let Some(known_until) = self.in_doubt.known_until(&core.settings) else {
            return;
        };
        let (name, id) = (self.name.clone(), self.id.clone());
        let timers = core.steward.timers.clone();
        // As long as for a lock: the request may lie in the buffers of a frozen server.
        let limit = (core.settings.lease * 2).max(Duration::from_secs(60));
        let longest = core.settings.response_timeout;
        core.steward.send(StewardCommand::Adopt(Box::pin(async move {
            let undo = CountChange::Semaphore(SemaphoreChange::Undo);
            let again = || async {
                let is_known = timers.now() < known_until;
                let counts = store.back().extensions().need_counts()?;
                let undone = counts.change(&name, undo, &id, &[]).await?;
                Ok(is_known || undone.count > 0)
            };
            match retry::within(limit, longest, &timers, again).await {
                Ok(true) => {}
                Ok(false) => {
                    tracing::warn!(semaphore = %name, "an acquisition was cancelled so late that the store may have forgotten it; its permits may be missing from the semaphore until an operator adds them");
                }
                Err(error) => {
                    tracing::warn!(semaphore = %name, %error, "an acquisition was cancelled, and the store does not answer; its permits may be missing from the semaphore until an operator adds them");
                }
            }
        })));
    }
}

impl fmt::Debug for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Count")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
