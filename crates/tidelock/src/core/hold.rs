//! One acquisition: born armed, shared by its guards, released when the last one goes.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use crate::acknowledge::{Acknowledge, Acknowledged};
use crate::backend::{Kind, Moment, Ticket};
use crate::core::bond::Bond;
use crate::core::clock::Clock;
use crate::core::lead::{Reign, Tenure};
use crate::core::site::Base;
use crate::core::steward::Chore;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::{FencingToken, LostReason};
use crate::options::Drift;
use crate::state::HoldState;

/// What a grant turned into. It exists before anybody has seen it, and its `Drop` releases: in a channel, in a
/// cancelled future, in the user's variable, one path.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) base: Arc<Base>,
    pub(crate) ticket: Ticket,
    pub(crate) token: Option<FencingToken>,
    /// The token of the grant, by which the store knows it. The holder's own may be a later one that came with it.
    pub(crate) generation: Option<FencingToken>,
    /// Somebody outside may ask the store about this holder: it must not become another one's hold behind the store's back.
    pub(crate) is_written: AtomicBool,
    pub(crate) status: Arc<Status>,
    /// Its entry in the steward's table.
    pub(crate) entry: u64,
    /// An earlier request of this ticket may still arrive: the release must leave a tombstone.
    pub(crate) unclear: bool,
    pub(crate) lease: Duration,
    /// How many replicas must acknowledge a renewal.
    pub(crate) wish: Acknowledge,
    /// How many acknowledged the grant.
    pub(crate) acknowledged: Option<Acknowledged>,
    /// The longest extension that was asked for, in nanoseconds: it may have taken effect without an answer.
    pub(crate) extension: AtomicU64,
    pub(crate) disarmed: AtomicBool,
    /// Others of this process may be waiting for it to end.
    pub(crate) tenure: Option<Tenure>,
}

impl Hold {
    pub(crate) fn is_held(&self) -> bool {
        self.status.check(self.base.core.timers.clock()).is_none()
    }

    /// The hold, for its owner who asks again. Who holds a read-write lock for writing may read. Who reads and would write is
    /// refused: it waits for all readers, and so for itself.
    pub(super) fn shared_with(self: Arc<Self>, kind: Kind) -> Result<Arc<Self>> {
        if kind == Kind::Write && self.ticket.kind == Kind::Read {
            return Err(Error::new(ErrorKind::InvalidOptions).because(
                "this owner holds the lock for reading, and would wait for itself; release that first, or take it for writing from the start",
            ));
        }
        Ok(self)
    }

    /// When its lease has ended in the store at the latest, as far as we know.
    pub(crate) fn over_by(&self) -> Moment {
        let extension = Duration::from_nanos(self.extension.load(Ordering::SeqCst));
        let longest = self.lease.max(extension);
        (self.base.core.timers.now() + longest).max(self.status.valid_until())
    }

    /// For how long it has been held, or the time since the last renewal.
    pub(super) fn kept(&self) -> Duration {
        let (timers, drift) = (&self.base.core.timers, &self.base.core.settings.drift);
        let left = self.status.valid_until().since(timers.now());
        drift.proved(self.lease).saturating_sub(left)
    }

    /// An extension is about to be asked for.
    pub(crate) fn note_extension(&self, lease: Duration) {
        let nanos = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
        self.extension.fetch_max(nanos, Ordering::SeqCst);
    }

    /// The client was closed, and has asked the store to release this lock. Nothing is left to be sent; the steward may have ended.
    pub(crate) fn was_released_by_close(&self) -> bool {
        let gone = self.status.check(self.base.core.timers.clock());
        gone == Some(Gone::Lost(LostReason::Closed))
    }

    /// Takes the hold out of everybody's books. False: that had been done.
    pub(crate) fn disarm(&self) -> bool {
        if self.disarmed.swap(true, Ordering::SeqCst) {
            return false;
        }
        self.base.core.steward.table.remove(self.entry);
        self.status.end();
        true
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // It is out of the books, or another's by now: nothing is left to be done.
        if *self.disarmed.get_mut() || self.leave_to_next() {
            return;
        }
        let tenure = self.tenure.take();
        // Until the release is with the steward: a client that closes in between would not wait for it.
        let _mark = self.base.core.steward.mark();
        if self.disarm() && !self.was_released_by_close() {
            let until = self.over_by();
            self.base.core.steward.send(Chore::Release {
                site: Arc::clone(&self.base.site),
                ticket: self.ticket.clone(),
                unclear: self.unclear,
                repeated: false,
                until,
                answer: None,
                tenure,
                kept: self.kept(),
            });
        }
    }
}

const HELD: u8 = 0;
const ENDED: u8 = 1;
const LOST: u8 = 2;

/// Whether a hold is held, as far as this process can prove it. Shared by the hold, the steward and the loss signals.
#[derive(Debug)]
pub(crate) struct Status {
    /// Boot-clock nanoseconds up to which the lease is proved.
    valid_until: AtomicU64,
    /// When the newest request was sent that proved it, and the newest that failed to.
    proved_at: AtomicU64,
    failed_at: AtomicU64,
    /// How long after a proof the next one should have come. `None`: none is asked for.
    pace: Option<Duration>,
    /// `HELD`, `ENDED`, or `LOST` plus the number of the reason.
    state: AtomicU8,
    /// The client is closing: the holder is told, and keeps the lock for the grace.
    closing: AtomicBool,
    /// Made for the first that listens: most holds end before anybody does.
    bell: OnceLock<Arc<Notify>>,
    clock: Clock,
    /// What it depends on besides the lease.
    bond: Option<Box<(Bond, Drift)>>,
    /// Those who wait behind it in this process are not to wait for it once it is lost.
    reign: Option<Arc<Reign>>,
}

impl Status {
    pub(crate) fn new(valid_until: Moment, clock: Clock) -> Self {
        Self {
            valid_until: AtomicU64::new(valid_until.0),
            proved_at: AtomicU64::new(0),
            failed_at: AtomicU64::new(0),
            pace: None,
            state: AtomicU8::new(HELD),
            closing: AtomicBool::new(false),
            bell: OnceLock::new(),
            clock,
            bond: None,
            reign: None,
        }
    }

    /// The lease has not ended before it was known.
    pub(crate) fn is_proved(&self) -> bool {
        self.clock.now() < self.valid_until()
    }

    /// Is renewed. Half a lease after the last proof the renewal that was due at a third has been asked for in vain.
    pub(crate) fn renewed_since(mut self, sent: Moment, lease: Duration) -> Self {
        self.proved_at = AtomicU64::new(sent.0);
        self.pace = Some(lease / 2);
        self
    }

    /// Leads a line.
    pub(crate) fn leading(mut self, tenure: Option<&Tenure>) -> Self {
        self.reign = tenure.map(|tenure| Arc::clone(tenure.reign()));
        self
    }

    /// The status of the next who has the same hold.
    pub(super) fn next(&self) -> Self {
        let copy = |at: &AtomicU64| AtomicU64::new(at.load(Ordering::SeqCst));
        let mut next = Self::new(Moment(0), self.clock);
        next.valid_until = copy(&self.valid_until);
        next.proved_at = copy(&self.proved_at);
        next.failed_at = copy(&self.failed_at);
        next.reign.clone_from(&self.reign);
        next.pace = self.pace;
        match self.bond.as_deref() {
            Some((bond, drift)) => next.bound(Some(bond.clone()), *drift),
            None => next,
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// The same, but no longer than that.
    pub(crate) fn bound(mut self, bond: Option<Bond>, drift: Drift) -> Self {
        if let Some(bond) = &bond {
            bond.ring(&self.bell());
        }
        self.bond = bond.map(|bond| Box::new((bond, drift)));
        self
    }

    pub(crate) fn valid_until(&self) -> Moment {
        let lease = Moment(self.valid_until.load(Ordering::SeqCst));
        match self.bond.as_deref() {
            Some((bond, drift)) => lease.min(bond.until(drift)),
            None => lease,
        }
    }

    /// A renewal was proved. Never moves backwards: an answer may come late.
    pub(crate) fn prove(&self, until: Moment) {
        self.valid_until.fetch_max(until.0, Ordering::SeqCst);
    }

    /// Rung when there is a reason to look at the [`signal`](Self::signal). To be listened to before it is looked at.
    pub(crate) fn bell(&self) -> Arc<Notify> {
        let bell = Arc::clone(self.bell.get_or_init(Arc::default));
        // Either this sees what was written before the ring, or the ring sees the bell.
        fence(Ordering::SeqCst);
        bell
    }

    fn ring(&self) {
        fence(Ordering::SeqCst);
        if let Some(bell) = self.bell.get() {
            bell.notify_waiters();
        }
    }

    /// A renewal sent then was answered: it is held.
    pub(crate) fn heard(&self, sent: Moment) {
        self.proved_at.fetch_max(sent.0, Ordering::SeqCst);
    }

    /// A renewal sent then was not answered, or not with a proof.
    pub(crate) fn failed(&self, sent: Moment) {
        self.failed_at.fetch_max(sent.0, Ordering::SeqCst);
    }

    /// What the holder may rely on.
    pub(crate) fn state(&self) -> HoldState {
        match self.check(self.clock) {
            Some(_) => HoldState::Lost,
            None if self.is_doubtful() => HoldState::Unsure,
            None => HoldState::Held,
        }
    }

    /// By the clock as much as by what was heard, for the same reason as in [`check`](Self::check).
    fn is_doubtful(&self) -> bool {
        let proved_at = self.proved_at.load(Ordering::SeqCst);
        let overdue = |pace| self.clock.now() >= Moment(proved_at) + pace;
        self.failed_at.load(Ordering::SeqCst) > proved_at
            || self.pace.is_some_and(overdue)
            || self
                .bond
                .as_deref()
                .is_some_and(|(bond, _)| !bond.is_connected())
    }

    /// The first reason wins. Nothing is lost that was released before.
    pub(crate) fn lose(&self, mut reason: LostReason) {
        let bond = self.bond.as_deref().map(|(bond, _)| bond);
        if reason == LostReason::Expired && bond.is_some_and(Bond::is_severed) {
            reason = LostReason::Taken;
        }
        if self
            .state
            .compare_exchange(
                HELD,
                LOST + reason.number(),
                Ordering::SeqCst,
                Ordering::SeqCst,
            )
            .is_ok()
        {
            self.ring();
            if let Some(reign) = &self.reign {
                reign.over();
            }
        }
    }

    /// Tells the holder to go while the lock is still kept.
    pub(crate) fn announce_close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.ring();
    }

    /// Marks the clean end of a hold: its loss signals never fire. One that was lost before stays lost.
    pub(super) fn end(&self) {
        // An error means that it was lost before.
        let _ = self
            .state
            .compare_exchange(HELD, ENDED, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Somebody has said that it is lost, whatever the clock says.
    pub(crate) fn is_lost(&self) -> bool {
        self.state.load(Ordering::SeqCst) >= LOST
    }

    /// Why the lock is not held, by the clock as much as by what was heard: after a freeze nobody may have had time to say it.
    pub(crate) fn check(&self, clock: Clock) -> Option<Gone> {
        if self.state.load(Ordering::SeqCst) == HELD && clock.now() >= self.valid_until() {
            self.lose(LostReason::Expired);
        }
        match self.state.load(Ordering::SeqCst) {
            HELD => None,
            ENDED => Some(Gone::Ended),
            lost => Some(Gone::Lost(LostReason::from_number(lost - LOST))),
        }
    }

    /// What the loss signal says, if it says something: lost, or asked to go.
    pub(crate) fn signal(&self) -> Option<LostReason> {
        match self.check(self.clock) {
            Some(Gone::Lost(reason)) => Some(reason),
            Some(Gone::Ended) => None,
            None => self
                .closing
                .load(Ordering::SeqCst)
                .then_some(LostReason::Closed),
        }
    }

    /// The error for an operation that needs the lock held.
    pub(crate) fn refusal(&self) -> Option<Error> {
        match self.check(self.clock)? {
            Gone::Lost(reason) => Some(Error::lost(reason)),
            Gone::Ended => Some(Error::new(ErrorKind::NotHeld).because("it was released")),
        }
    }
}

/// Why a hold is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gone {
    Ended,
    Lost(LostReason),
}
