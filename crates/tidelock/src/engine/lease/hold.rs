//! A hold: one granted lock, and its lease as far as this process can prove it.
//!
//! A grant becomes a hold before any code of the caller sees it, and the drop of the hold releases the lock. So a call
//! that no task takes, a cancelled future and the last guard all release it by the same path.

use crate::engine::runtime::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tracing::Span;

use crate::acknowledge::Acknowledged;
use crate::engine::instruments::{HandOverStop, HoldOutcome};
use crate::engine::lease::granted::GrantedTicket;
use crate::engine::lease::guests::Guest;
use crate::engine::lease::leader_term::{self, LeaderTerm};
use crate::engine::lease::pending_release::PendingRelease;
use crate::engine::lease::status::HoldStatus;
use crate::engine::lease::steward::{StewardCommand, StewardHandle};
use crate::engine::lease::upgrade_slot::UpgradeSlot;
use crate::engine::store_handle::StoreHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{BootInstant, LockKind};
use crate::types::{FencingToken, LostReason};

/// The lock and the client that a hold belongs to. They lie above the hold, which knows them only by this trait.
pub(crate) trait HoldContext: fmt::Debug + Send + Sync {
    fn steward(&self) -> &StewardHandle;

    fn store(&self) -> &Arc<StoreHandle>;

    /// Takes the next waiter out of the local queue, for a hand-off.
    ///
    /// # Errors
    /// Why the waiter that is there may not have the hold. `None`: there is no waiter, or the term has ended.
    fn next_holder(
        &self,
        term: &LeaderTerm,
        now: BootInstant,
    ) -> Result<NextHolder, Option<HandOverStop>>;
}

/// The next holder of a hand-off, and its fencing token.
pub(crate) struct NextHolder {
    pub(crate) waiter: Arc<dyn Successor>,
    pub(crate) token: Option<FencingToken>,
}

/// A waiter that was taken out of its local queue and may get a hold.
pub(crate) trait Successor: Send + Sync {
    /// The source location of its acquire.
    fn location(&self) -> &'static Location<'static>;

    /// The cap on its whole hold.
    fn max_hold(&self) -> Option<Duration>;

    /// Ends the wait with this hold. If the waiter has left, the hold is dropped, and goes to the waiter behind it.
    fn give(&self, hold: Arc<Hold>);

    /// The hold was lost in the meantime: the waiter joins its queue again.
    fn join_again(&self);
}

/// A granted lock. Its drop releases the lock, unless the hold was disarmed or handed to the next waiter.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) context: Arc<dyn HoldContext>,
    pub(crate) token: Option<FencingToken>,
    /// The token of the grant, which the store knows. `token` may be a later one, reserved with it for a hand-off.
    pub(crate) generation: Option<FencingToken>,
    /// Others read in the store who this holder is: a sequencer of the hold was given out, or it leads an election. Then
    /// there is no hand-off, of which the store would know nothing: it would confirm a holder that has released.
    pub(crate) is_written: AtomicBool,
    pub(crate) status: Arc<HoldStatus>,
    /// The id of its entry in the lease table.
    pub(crate) entry: u64,
    /// The same hold at the clients of the other members, if it is one of a set. A release upgrades it before `disarm`
    /// removes the entry, so that those clients wait for the release too.
    pub(crate) guest: Weak<Guest>,
    /// How many replicas acknowledged the grant.
    pub(crate) acknowledged: Option<Acknowledged>,
    /// The longest extension that was requested, in nanoseconds. It may have taken effect although no reply came.
    pub(crate) extension: AtomicU64,
    /// The drop does nothing: the hold was released, or another hold has its contents.
    pub(crate) disarmed: AtomicBool,
    /// The leader term of this hold: waiters of this process may get it by hand-off.
    pub(crate) term: Option<Arc<LeaderTerm>>,
    /// The upgrade of this hold, if it is upgradeable.
    pub(crate) upgrade: Option<Box<UpgradeSlot>>,
    /// The time of the present holder. `None` unless a subscriber wants it.
    pub(crate) span: Option<Box<Span>>,
}

impl Hold {
    pub(crate) fn granted(&self) -> &GrantedTicket {
        self.status.granted()
    }

    pub(crate) fn is_held(&self) -> bool {
        self.status
            .check(self.context.steward().timers.clock())
            .is_none()
    }

    /// The hold for its owner that acquires again. An owner that holds a read-write lock for writing may also read, and
    /// so may one that reads upgradeably. An owner with a token may hold the lock without one.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOptions`] if the owner would wait for itself: it holds the lock for reading and asks for more,
    /// or holds it without a token and asks for one.
    pub(crate) fn shared_with(self: Arc<Self>, kind: LockKind) -> Result<Arc<Self>> {
        let held = self.granted().ticket.kind;
        let why = if held.is_read() && kind.is_upgradeable() {
            "this owner holds the read lock, so it could wait for itself; release the read lock first, or acquire the upgradeable read from the start"
        } else if held.is_read() && !kind.is_read() {
            "this owner holds the read lock, so it would wait for itself; release the read lock first, or acquire the write lock from the start"
        } else if held.is_upgradeable() && kind.is_write() {
            "this owner reads the lock upgradeably, so it would wait for itself; use `upgrade` with its guard"
        } else if !held.is_fenced() && kind.is_fenced() {
            // Also on a store that counts every grant: a program must not depend on the store.
            "this owner holds the lock without a fencing token, so it would wait for itself; release it first, or acquire it with `fenced()` from the start"
        } else {
            return Ok(self);
        };
        Err(Error::new(ErrorKind::InvalidOptions).because(why))
    }

    /// The latest instant at which the lease ends in the store. We take the longest extension into account, because it
    /// may have taken effect.
    pub(crate) fn over_by(&self) -> BootInstant {
        let longest = self.granted().lease.max(self.longest_extension());
        (self.context.steward().timers.now() + longest).max(self.status.valid_until())
    }

    /// The longest extension that was requested. Zero: none was.
    pub(crate) fn longest_extension(&self) -> Duration {
        Duration::from_nanos(self.extension.load(Ordering::SeqCst))
    }

    /// The time since the grant, or since the last renewal if there was one.
    pub(crate) fn kept(&self) -> Duration {
        let steward = self.context.steward();
        let left = self.status.valid_until().since(steward.timers.now());
        let whole = steward.drift.proved(self.granted().lease);
        whole.saturating_sub(left)
    }

    /// Records an extension. Call it before the request is sent: its reply may be lost.
    pub(crate) fn note_extension(&self, lease: Duration) {
        let nanos = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
        self.extension.fetch_max(nanos, Ordering::SeqCst);
    }

    /// From now on the hold is released in the store when it ends; this process does not hand it off.
    pub(crate) fn release_in_store(&self) {
        self.is_written.store(true, Ordering::SeqCst);
    }

    /// Whether a `close` releases the hold. Then we send nothing: the second release would find nothing, and the steward
    /// may have ended. Ask after [`disarm`](Self::disarm): until then a `close` may still take the hold.
    pub(crate) fn was_released_by_close(&self) -> bool {
        self.status.is_taken_by_close()
    }

    /// The release of this hold by the steward. The leader term ends after its first request. `reader`: the hold that this
    /// writer was downgraded to.
    pub(crate) fn pending_release(
        &self,
        term: Option<Arc<LeaderTerm>>,
        reader: Option<Arc<HoldStatus>>,
    ) -> PendingRelease {
        PendingRelease {
            store: Arc::clone(self.context.store()),
            granted: self.granted().clone(),
            repeated: false,
            until: self.over_by(),
            reader,
            term,
            kept: self.kept(),
            token: self.token,
            is_logged: self.status.is_lost(),
            answer: None,
            cleanup: None,
            guest: self.guest.upgrade(),
        }
    }

    /// Removes the hold from the lease table and ends its status; the drop does nothing from here on. If a `close` has
    /// removed it, it is lost. False: it was disarmed before. `outcome`: how it ends, unless it was lost before.
    pub(crate) fn disarm(&self, outcome: HoldOutcome) -> bool {
        if self.disarmed.swap(true, Ordering::SeqCst) {
            return false;
        }
        let steward = self.context.steward();
        steward.table.remove(self.entry);
        if self.status.is_taken_by_close() {
            // It may not have told the holder yet.
            self.status.lose(LostReason::Closed);
        } else {
            self.status.end();
        }
        self.status.record_end(&steward.instruments, outcome);
        true
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Disarmed: released already. Otherwise the next waiter may get it by hand-off.
        if *self.disarmed.get_mut() || self.leave_to_next() {
            return;
        }
        let term = self.term.take();
        // Registered until the release is with the steward. Otherwise a `close` after `disarm` would see neither the
        // hold nor the release, and would not wait for it.
        let steward = self.context.steward();
        let _in_flight = steward.in_flight();
        let _guest = self.guest.upgrade();
        if self.disarm(HoldOutcome::Dropped) && !self.was_released_by_close() {
            steward.send(StewardCommand::Release(self.pending_release(term, None)));
        } else {
            leader_term::end(term);
        }
    }
}
