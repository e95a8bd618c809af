//! The explicit owner that can re-enter a lock.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use crate::engine::lease::hold::Hold;
use crate::engine::local_queue::last_answer::LastAnswer;
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
}

/// One name of one [`Owner`]. Its acquisitions take turns, so that the second one re-enters the hold of the first.
#[derive(Debug, Default)]
pub(crate) struct OwnerSlot {
    turn: tokio::sync::Mutex<()>,
    turn_state: Mutex<TurnState>,
    hold: Mutex<Weak<Hold>>,
    /// The writer that an upgradeable reader has become, or the plain reader that a writer has become. It lies beside
    /// `hold`, and when it ends the owner re-enters its upgradeable reader again, if it has one. Otherwise an owner that
    /// asks to read after its writer has ended would wait for itself.
    newer: Mutex<Weak<Hold>>,
}

/// The acquisition that has the turn, and what the one before it was told.
#[derive(Debug, Default)]
struct TurnState {
    /// Weak: a slot must not keep a client. `None`: no acquisition has the turn.
    holder: Option<Weak<dyn TurnHolder>>,
    before: LastAnswer,
}

/// The turn of one acquisition. Its drop leaves what this one was told to the next one.
pub(crate) struct OwnerTurn<'a> {
    slot: &'a OwnerSlot,
    holder: &'a dyn TurnHolder,
    /// The drop of a struct runs before the drops of its fields, so the next one finds what this one has left.
    _turn: tokio::sync::MutexGuard<'a, ()>,
}

impl Drop for OwnerTurn<'_> {
    fn drop(&mut self) {
        let before = self.holder.last_answer();
        let holder = None;
        *self.slot.turn_state.lock() = TurnState { holder, before };
    }
}

impl OwnerSlot {
    /// Takes the turn if it is free and nobody waits for it.
    pub(crate) fn try_turn<'a, H: TurnHolder + 'static>(
        &'a self,
        holder: &'a Arc<H>,
    ) -> Option<OwnerTurn<'a>> {
        let turn = self.turn.try_lock().ok()?;
        Some(self.begin_turn(turn, holder))
    }

    /// Waits for the turn. What the acquisition before this one was told counts until the store answers this one.
    /// Otherwise a wait that ends right then would say that the store is silent.
    pub(crate) async fn next_turn<'a, H: TurnHolder + 'static>(
        &'a self,
        holder: &'a Arc<H>,
    ) -> OwnerTurn<'a> {
        let turn = self.turn.lock().await;
        holder.set_last_answer(self.last_answer());
        self.begin_turn(turn, holder)
    }

    fn begin_turn<'a, H: TurnHolder + 'static>(
        &'a self,
        turn: tokio::sync::MutexGuard<'a, ()>,
        holder: &'a Arc<H>,
    ) -> OwnerTurn<'a> {
        self.turn_state.lock().holder = Some(Arc::downgrade(holder) as _);
        OwnerTurn {
            slot: self,
            holder: &**holder,
            _turn: turn,
        }
    }

    fn turn_holder(&self) -> Option<Arc<dyn TurnHolder>> {
        self.turn_state.lock().holder.as_ref()?.upgrade()
    }

    /// What the store said to the acquisition that has the turn. If none has it: to the one before.
    pub(crate) fn last_answer(&self) -> LastAnswer {
        match self.turn_holder() {
            Some(holder) => holder.last_answer(),
            None => self.turn_state.lock().before,
        }
    }

    /// Whether the caller of the acquisition that has the turn has left. Its last request is still in flight then.
    pub(crate) fn is_turn_abandoned(&self) -> bool {
        self.turn_holder().is_some_and(|holder| holder.has_left())
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

    pub(crate) fn put(&self, hold: &Arc<Hold>) {
        *self.hold.lock() = Arc::downgrade(hold);
    }

    pub(crate) fn put_newer(&self, hold: &Arc<Hold>) {
        *self.newer.lock() = Arc::downgrade(hold);
    }
}

fn held(hold: &Mutex<Weak<Hold>>) -> Option<Arc<Hold>> {
    let hold = hold.lock().upgrade()?;
    hold.is_held().then_some(hold)
}
