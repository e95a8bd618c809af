//! The explicit owner that can re-enter a lock.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use crate::engine::lease::hold::Hold;
use crate::engine::local_queue::last_answer::LastAnswer;
use crate::engine::runtime::event::Event;
use crate::engine::runtime::sync::Mutex;
use crate::store::{Caller, LockKind, Name};
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
#[derive(Debug, Default)]
pub(crate) struct OwnerSlot {
    turns: TurnQueue,
    /// The turns of those that enter beside a hold.
    beside: TurnQueue,
    /// Notified at the end of each turn of `beside`.
    left: Event,
    /// What the acquisition that had a turn last was told.
    before: Mutex<LastAnswer>,
    hold: Mutex<Weak<Hold>>,
    /// The writer that an upgradeable reader has become, or the plain reader that a writer has become. It lies beside
    /// `hold`, and when it ends the owner re-enters its upgradeable reader again, if it has one. Otherwise an owner that
    /// asks to read after its writer has ended would wait for itself.
    newer: Mutex<Weak<Hold>>,
}

/// Acquisitions that take turns.
#[derive(Debug, Default)]
struct TurnQueue {
    turn: tokio::sync::Mutex<()>,
    /// Weak: a slot must not keep a client. `None`: no acquisition has the turn.
    holder: Mutex<Option<Weak<dyn TurnHolder>>>,
}

impl TurnQueue {
    fn is_taken(&self) -> bool {
        self.holder.lock().is_some()
    }

    fn holder(&self) -> Option<Arc<dyn TurnHolder>> {
        self.holder.lock().as_ref()?.upgrade()
    }
}

/// The turn of one acquisition. Its drop leaves what this one was told to the next one.
pub(crate) struct OwnerTurn<'a> {
    slot: &'a OwnerSlot,
    holder: &'a dyn TurnHolder,
    /// The drop of a struct runs before the drops of its fields, so the next one finds what this one has left. `None`:
    /// another acquisition has the turn, and its owner has got a hold beside it, which this one may re-enter.
    turn: Option<tokio::sync::MutexGuard<'a, ()>>,
}

impl OwnerTurn<'_> {
    /// False: this one may only re-enter a hold.
    pub(crate) fn is_own(&self) -> bool {
        self.turn.is_some()
    }
}

impl Drop for OwnerTurn<'_> {
    fn drop(&mut self) {
        if self.turn.is_none() {
            return;
        }
        let is_beside = self.holder.is_beside();
        *self.slot.before.lock() = self.holder.last_answer();
        *self.slot.queue(is_beside).holder.lock() = None;
        if is_beside {
            self.slot.left.notify();
        }
    }
}

impl OwnerSlot {
    fn queue(&self, is_beside: bool) -> &TurnQueue {
        if is_beside { &self.beside } else { &self.turns }
    }

    /// Takes the turn if it is free and nobody waits for it.
    pub(crate) fn try_turn<'a, H: TurnHolder + 'static>(
        &'a self,
        holder: &'a Arc<H>,
    ) -> Option<OwnerTurn<'a>> {
        let is_beside = holder.is_beside();
        if !is_beside && self.beside.is_taken() {
            return None;
        }
        let turn = self.queue(is_beside).turn.try_lock().ok();
        if turn.is_none() && !self.passes(is_beside) {
            return None;
        }
        Some(self.begin_turn(turn, holder))
    }

    /// Waits for the turn. What the acquisition before this one was told counts until the store answers this one.
    /// Otherwise a wait that ends right then would say that the store is silent.
    pub(crate) async fn next_turn<'a, H: TurnHolder + 'static>(
        &'a self,
        holder: &'a Arc<H>,
    ) -> OwnerTurn<'a> {
        let is_beside = holder.is_beside();
        let turn = async {
            let turn = self.queue(is_beside).turn.lock().await;
            self.left
                .until(|| is_beside || !self.beside.is_taken())
                .await;
            turn
        };
        let turn = tokio::select! {
            biased;
            () = self.left.until(|| self.passes(is_beside)) => None,
            turn = turn => Some(turn),
        };
        holder.set_last_answer(self.last_answer());
        self.begin_turn(turn, holder)
    }

    /// Whether an acquisition need not wait for the one that has the turn: its owner has a hold by now that it re-enters. The
    /// one that has the turn may wait for just this hold.
    fn passes(&self, is_beside: bool) -> bool {
        !is_beside && !self.beside.is_taken() && self.current().is_some()
    }

    fn begin_turn<'a, H: TurnHolder + 'static>(
        &'a self,
        turn: Option<tokio::sync::MutexGuard<'a, ()>>,
        holder: &'a Arc<H>,
    ) -> OwnerTurn<'a> {
        if turn.is_some() {
            let queue = self.queue(holder.is_beside());
            *queue.holder.lock() = Some(Arc::downgrade(holder) as _);
        }
        OwnerTurn {
            slot: self,
            holder: &**holder,
            turn,
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
        let turns = (!waiter.is_beside()).then_some(&self.turns);
        let ahead = turns.into_iter().chain([&self.beside]);
        let mut ahead = ahead.filter_map(TurnQueue::holder).peekable();
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

    /// Keeps what the acquisition has got. False if an upgrade of this owner has begun since, and would wait for this plain
    /// reader, and so for its own owner: give the hold back.
    pub(crate) fn put(&self, hold: &Arc<Hold>, holder: &dyn TurnHolder) -> bool {
        if holder.is_beside() {
            *self.newer.lock() = Arc::downgrade(hold);
            return true;
        }
        *self.hold.lock() = Arc::downgrade(hold);
        // We look after the hold is in its place, and an upgrade looks there after its turn has begun. In another order
        // both could miss each other.
        !(hold.granted().ticket.kind.is_read() && self.beside.is_taken())
    }
}

fn held(hold: &Mutex<Weak<Hold>>) -> Option<Arc<Hold>> {
    let hold = hold.lock().upgrade()?;
    hold.is_held().then_some(hold)
}
