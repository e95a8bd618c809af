//! The explicit owner that can re-enter a lock.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::engine::lease::hold::Hold;
use crate::engine::local_queue::last_answer::LastAnswer;
use crate::engine::runtime::event::{Event, EventListener};
use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::store::{BootInstant, Caller, LockKind, Name, Timers};
use crate::types::ClientId;

/// An owner that can acquire a lock again while it holds it. Cheap to clone; all clones are the same owner.
///
/// Pass the same `Owner` along a chain of calls. A second acquisition of the same lock by this owner needs no request
/// while the first one is provably held.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use tidelock::{AcquireOptions, Client, Owner};
///
/// let client = Client::connect("memory:").await?;
/// let me = Owner::new();
/// let stock = client.lock("stock:42");
/// let outer = stock.acquire_with(AcquireOptions::new().owner(&me)).await?;
/// let inner = stock.acquire_with(AcquireOptions::new().owner(&me)).await?; // at once: the same owner
/// drop(outer); // still held by `inner`
/// inner.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct Owner(Arc<Mutex<OwnerSlots>>);

/// The key includes the client, because another client may use another store, in which this hold does not exist. It
/// includes the set, because a lock of a set and a single lock of the same name are different locks.
type OwnerSlots = HashMap<(ClientId, Option<Arc<str>>, LockKind, Name), Arc<OwnerSlot>>;

impl Owner {
    /// A new owner. It may acquire locks of any client.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{AcquireOptions, Owner};
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let me = Owner::new();
    /// let job = client.lock("job");
    /// let outer = job.acquire_with(AcquireOptions::new().owner(&me)).await?;
    /// assert!(job.try_acquire().await?.is_none()); // another owner
    /// assert!(job.try_acquire_with(AcquireOptions::new().owner(&me)).await?.is_some());
    /// # Ok(()) }
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the slot of this owner for one name. The slot lives while it is in use.
    pub(crate) fn slot(
        &self,
        client: &ClientId,
        set: Option<&Arc<str>>,
        kind: LockKind,
        name: &Name,
    ) -> Arc<OwnerSlot> {
        // Both sides of a read-write lock share one slot, and so do locks with one holder, with tokens or not and
        // fair or not. Otherwise an owner of one could wait for itself on the other.
        let kind = match kind {
            side if side.is_read_write() => LockKind::Write,
            one if one.is_exclusive() => LockKind::Mutex,
            other => other,
        };
        let mut slots = self.0.lock();
        // We remove unused slots without guards. Otherwise one slot would remain for every name that was ever locked.
        slots.retain(|_, slot| Arc::strong_count(slot) > 1 || slot.has_guards());
        Arc::clone(
            slots
                .entry((client.clone(), set.cloned(), kind, name.clone()))
                .or_default(),
        )
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").finish_non_exhaustive()
    }
}

/// An acquisition that takes its turn among those of its owner. It lies above the owner, which knows it only by this trait.
pub(crate) trait TurnHolder: Caller {
    /// What the store said to its attempts.
    fn last_answer(&self) -> LastAnswer;

    /// Takes over what the acquisition before it was told.
    fn set_last_answer(&self, last: LastAnswer);

    /// Whether it enters beside a hold that it keeps: a downgrade, or an upgrade.
    fn is_beside(&self) -> bool;
}

/// One name of one [`Owner`]. Its acquisitions take turns, so that the second one re-enters the hold of the first.
///
/// Those that enter beside a hold take turns among themselves only. If they waited for the turn of the others, the one that
/// has it could wait in the store for just the hold that they keep. The others wait for them, and re-enter what they get.
///
/// The one that has the turn may be a future that is kept and not polled. So those that wait ask it, and each poll of it
/// answers. One that has not answered for a while is passed over: the next one takes the turn, and then the two exclude
/// each other as those of different owners do. A long wait alone is no sign: the one that waits in the store re-enters
/// nothing, and if others waited beside it, one of them would wait for its own owner.
#[derive(Debug, Default)]
pub(crate) struct OwnerSlot {
    turns: TurnQueue,
    /// The turns of those that enter beside a hold.
    beside: TurnQueue,
    /// Notified at the end of each turn, and when those that have one are asked.
    changed: Event,
    /// What the acquisition that had a turn last was told.
    before: Mutex<LastAnswer>,
    hold: Mutex<Weak<Hold>>,
    /// The writer that an upgradeable reader has become, or the plain reader that a writer has become. It lies beside
    /// `hold`, and when it ends the owner re-enters its upgradeable reader again, if it has one. Otherwise an owner that
    /// asks to read after its writer has ended would wait for itself.
    newer: Mutex<Weak<Hold>>,
}

/// Acquisitions that take turns, in order of arrival. The first one has the turn.
#[derive(Debug, Default)]
struct TurnQueue(Mutex<VecDeque<TurnEntry>>);

#[derive(Debug)]
struct TurnEntry {
    /// Weak: a slot must not keep a client.
    holder: Weak<dyn TurnHolder>,
    /// False: it waits, or has not been polled since it became the first one.
    has_begun: bool,
    /// Since when it has not answered whether it is polled. `None`: nobody has asked since its last answer.
    asked: Option<BootInstant>,
}

impl TurnEntry {
    fn new<H: TurnHolder + 'static>(holder: &Arc<H>, has_begun: bool) -> Self {
        Self {
            holder: Arc::downgrade(holder) as _,
            has_begun,
            asked: None,
        }
    }

    fn is_of(&self, holder: &dyn TurnHolder) -> bool {
        std::ptr::addr_eq(self.holder.as_ptr(), std::ptr::from_ref(holder))
    }
}

impl TurnQueue {
    fn entries(&self) -> MutexGuard<'_, VecDeque<TurnEntry>> {
        self.0.lock()
    }

    fn is_taken(&self) -> bool {
        !self.entries().is_empty()
    }

    /// The acquisition that has begun its turn.
    fn holder(&self) -> Option<Arc<dyn TurnHolder>> {
        let entries = self.entries();
        let first = entries.front().filter(|first| first.has_begun);
        first?.holder.upgrade()
    }

    fn join<H: TurnHolder + 'static>(&self, holder: &Arc<H>) {
        self.entries().push_back(TurnEntry::new(holder, false));
    }

    /// Begins the turn of an acquisition, unless another one has it or waits for it.
    fn begin_if_free<H: TurnHolder + 'static>(&self, holder: &Arc<H>) -> bool {
        let mut entries = self.entries();
        let is_free = entries.is_empty();
        if is_free {
            entries.push_back(TurnEntry::new(holder, true));
        }
        is_free
    }

    /// Begins the turn of an acquisition that has waited for it.
    fn begin(&self, holder: &dyn TurnHolder) {
        let mut entries = self.entries();
        if let Some(own) = entries.iter_mut().find(|entry| entry.is_of(holder)) {
            own.has_begun = true;
        }
    }

    fn is_first(&self, holder: &dyn TurnHolder) -> bool {
        let entries = self.entries();
        entries.front().is_some_and(|first| first.is_of(holder))
    }

    /// The acquisition is polled: this answers those that have asked. False: it has been passed over.
    fn answer(&self, holder: &dyn TurnHolder) -> bool {
        let mut entries = self.entries();
        match entries.iter_mut().find(|entry| entry.is_of(holder)) {
            Some(own) => {
                own.asked = None;
                true
            }
            None => false,
        }
    }

    /// Asks the first acquisition whether it is polled. True: notify it. False: it has been asked, and has not been polled
    /// since.
    fn ask(&self, by: &dyn TurnHolder, now: BootInstant) -> bool {
        let mut entries = self.entries();
        let first = entries.front_mut().filter(|first| !first.is_of(by));
        let Some(first) = first.filter(|first| first.asked.is_none()) else {
            return false;
        };
        first.asked = Some(now);
        true
    }

    /// Removes the first acquisition if it has not answered for that long. Returns whether it has.
    fn pass_over(&self, by: &dyn TurnHolder, timers: &Timers, patience: Duration) -> bool {
        let mut entries = self.entries();
        let first = entries.front().filter(|first| !first.is_of(by));
        let asked = first.and_then(|first| first.asked);
        let is_late = asked.is_some_and(|asked| timers.now() >= asked + patience);
        if is_late {
            entries.pop_front();
        }
        is_late
    }

    /// Removes an acquisition. If its turn had begun, and it was not passed over, it leaves what it was told.
    fn leave(&self, holder: &dyn TurnHolder, before: &Mutex<LastAnswer>) {
        let mut entries = self.entries();
        let Some(at) = entries.iter().position(|entry| entry.is_of(holder)) else {
            return;
        };
        if entries.remove(at).is_some_and(|own| own.has_begun) {
            // We store it before the next acquisition can begin its turn, which takes it over.
            *before.lock() = holder.last_answer();
        }
    }
}

/// The turn of one acquisition, or its place among those that wait for it. The drop of a turn leaves what this one was
/// told to the next one.
pub(crate) struct OwnerTurn<'a> {
    slot: &'a OwnerSlot,
    holder: &'a dyn TurnHolder,
    /// False: another acquisition has the turn, and its owner has got a hold beside it, which this one may re-enter.
    is_own: bool,
}

impl OwnerTurn<'_> {
    /// False: this one may only re-enter a hold.
    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    fn queue(&self) -> &TurnQueue {
        self.slot.queue(self.holder.is_beside())
    }

    /// Runs the acquisition that has the turn. Each poll answers those that have asked whether it is polled.
    pub(crate) async fn run<F: Future>(&self, acquisition: F) -> F::Output {
        let mut acquisition = std::pin::pin!(acquisition);
        let mut asked = EventListener::new(&self.slot.changed);
        std::future::poll_fn(|cx| {
            // It listens on: the next one that asks wakes it.
            let _ = asked.poll_until_some(cx, || {
                self.queue().answer(self.holder);
                None::<()>
            });
            acquisition.as_mut().poll(cx)
        })
        .await
    }

    /// Keeps what the acquisition has got. False: give the hold back. An upgrade of this owner has begun since, and would wait
    /// for this plain reader, and so for its own owner. Or the owner has got another hold since, which would be forgotten:
    /// one of the two acquisitions was passed over for the other.
    pub(crate) fn put(&self, hold: &Arc<Hold>) -> bool {
        let slot = self.slot;
        if self.holder.is_beside() {
            *slot.newer.lock() = Arc::downgrade(hold);
            return true;
        }
        if slot.current().is_some() {
            return false;
        }
        *slot.hold.lock() = Arc::downgrade(hold);
        // We look after the hold is in its place, and an upgrade looks there after its turn has begun. In another order
        // both could miss each other.
        !(hold.granted().ticket.kind.is_read() && slot.beside.is_taken())
    }
}

impl Drop for OwnerTurn<'_> {
    fn drop(&mut self) {
        if self.is_own {
            self.queue().leave(self.holder, &self.slot.before);
            self.slot.changed.notify();
        }
    }
}

impl OwnerSlot {
    fn queue(&self, is_beside: bool) -> &TurnQueue {
        if is_beside { &self.beside } else { &self.turns }
    }

    /// The queues whose first acquisition this one waits for.
    fn ahead_of<'a>(
        &'a self,
        waiter: &dyn TurnHolder,
    ) -> impl Iterator<Item = &'a TurnQueue> + use<'a> {
        let turns = (!waiter.is_beside()).then_some(&self.turns);
        turns.into_iter().chain([&self.beside])
    }

    /// Takes the turn if it is free and nobody waits for it. `patience`: an acquisition that has it and has not answered for
    /// that long is passed over.
    pub(crate) fn try_turn<'a, H: TurnHolder + 'static>(
        &'a self,
        holder: &'a Arc<H>,
        timers: &Timers,
        patience: Duration,
    ) -> Option<OwnerTurn<'a>> {
        let is_beside = holder.is_beside();
        self.pass_over(&**holder, timers, patience);
        if !is_beside && self.beside.is_taken() {
            return None;
        }
        let is_own = self.queue(is_beside).begin_if_free(holder);
        (is_own || self.passes(is_beside)).then(|| self.turn_of(holder, is_own))
    }

    /// Waits for the turn. What the acquisition before this one was told counts until the store answers this one.
    /// Otherwise a wait that ends right then would say that the store is silent. `patience`: as for
    /// [`try_turn`](Self::try_turn).
    pub(crate) async fn next_turn<'a, H: TurnHolder + 'static>(
        &'a self,
        holder: &'a Arc<H>,
        timers: &Timers,
        patience: Duration,
    ) -> OwnerTurn<'a> {
        let queue = self.queue(holder.is_beside());
        queue.join(holder);
        let turn = self.turn_of(holder, true);
        let is_own = loop {
            let asked = timers.now();
            self.ask(&**holder, asked);
            let due = self.changed.until_some(|| {
                if !queue.answer(&**holder) {
                    queue.join(holder); // it was passed over
                }
                self.is_due(&**holder)
            });
            if let Some(is_own) = timers.limit(patience, due).await {
                break is_own;
            }
            // After a freeze of the process, in which nothing was polled, those ahead have as much time again.
            if timers.now().since(asked) < patience + patience / 2 {
                self.pass_over(&**holder, timers, patience);
            }
        };
        holder.set_last_answer(self.last_answer());
        if is_own {
            queue.begin(&**holder);
            return turn;
        }
        self.turn_of(holder, false)
    }

    /// Asks the acquisitions ahead of this one whether they are polled.
    pub(crate) fn ask(&self, by: &dyn TurnHolder, now: BootInstant) {
        let mut is_any_asked = false;
        for queue in self.ahead_of(by) {
            is_any_asked |= queue.ask(by, now);
        }
        if is_any_asked {
            self.changed.notify();
        }
    }

    /// Passes over the acquisitions ahead that have not answered for that long.
    fn pass_over(&self, by: &dyn TurnHolder, timers: &Timers, patience: Duration) {
        let mut is_any_late = false;
        for queue in self.ahead_of(by) {
            is_any_late |= queue.pass_over(by, timers, patience);
        }
        if is_any_late {
            self.changed.notify();
        }
    }

    /// Whether the wait for the turn is over. `Some(false)`: the acquisition may re-enter a hold without it.
    fn is_due(&self, holder: &dyn TurnHolder) -> Option<bool> {
        let is_beside = holder.is_beside();
        if self.passes(is_beside) {
            return Some(false);
        }
        let is_first = self.queue(is_beside).is_first(holder);
        (is_first && (is_beside || !self.beside.is_taken())).then_some(true)
    }

    /// Whether an acquisition need not wait for the one that has the turn: its owner has a hold by now that it re-enters. The
    /// one that has the turn may wait for just this hold.
    fn passes(&self, is_beside: bool) -> bool {
        !is_beside && !self.beside.is_taken() && self.current().is_some()
    }

    fn turn_of<'a, H: TurnHolder + 'static>(
        &'a self,
        holder: &'a Arc<H>,
        is_own: bool,
    ) -> OwnerTurn<'a> {
        OwnerTurn {
            slot: self,
            holder: &**holder,
            is_own,
        }
    }

    /// What the store said to the acquisitions that have a turn. If none has one: to the one before.
    pub(crate) fn last_answer(&self) -> LastAnswer {
        let holders = [&self.turns, &self.beside].map(TurnQueue::holder);
        let answers = holders.iter().flatten().map(|holder| holder.last_answer());
        answers
            .reduce(LastAnswer::or)
            .unwrap_or_else(|| *self.before.lock())
    }

    /// Whether the callers of all acquisitions that this one waits for have left. Their last requests are still in flight
    /// then.
    pub(crate) fn is_turn_abandoned(&self, waiter: &dyn TurnHolder) -> bool {
        let ahead = self.ahead_of(waiter).filter_map(TurnQueue::holder);
        let mut ahead = ahead.peekable();
        ahead.peek().is_some() && ahead.all(|holder| holder.has_left())
    }

    /// Returns the hold of this owner, if it is still provably held.
    pub(crate) fn current(&self) -> Option<Arc<Hold>> {
        self.newer().or_else(|| held(&self.hold))
    }

    /// Returns what an upgrade or a downgrade has given this owner, if it is still provably held.
    fn newer(&self) -> Option<Arc<Hold>> {
        held(&self.newer)
    }

    /// True if a guard of the hold exists. We only count references and never upgrade: a guard that is released at this
    /// moment must see that it is the last one.
    fn has_guards(&self) -> bool {
        let has_guards = |hold: &Mutex<Weak<Hold>>| hold.lock().strong_count() > 0;
        has_guards(&self.hold) || has_guards(&self.newer)
    }
}

fn held(hold: &Mutex<Weak<Hold>>) -> Option<Arc<Hold>> {
    let hold = hold.lock().upgrade()?;
    hold.is_held().then_some(hold)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AcquireOptions, Client};

    #[tokio::test]
    async fn an_owner_forgets_the_names_that_it_does_not_hold() {
        let client = Client::connect("memory:").await.unwrap();
        let me = Owner::new();
        let acquired = |name: &str| {
            let options = AcquireOptions::new().owner(&me);
            client.lock(name).acquire_with(options)
        };
        let held = acquired("held").await.unwrap();
        for name in ["a", "b", "c", "d"] {
            acquired(name).await.unwrap().release().await.unwrap();
        }
        // That of the last call may be in use until the next one.
        assert!((1..=2).contains(&me.0.lock().len()));
        held.release().await.unwrap();
    }
}
