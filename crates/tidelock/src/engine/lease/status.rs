//! The status of a hold: its lease as far as this process can prove it.
//!
//! The lease:
//!
//! 1. Proof. `valid_until` is the send time of the newest confirmed request plus the lease, less drift. No other client
//!    can have the lock before it. A bond, such as a session, can make it earlier.
//! 2. Renewal. The steward renews at a third of the lease and moves `valid_until` forward. The hold is unsure if the
//!    newest renewal failed, if half a lease has passed since the last proof, or if the bond is disconnected.
//! 3. Loss. The hold is lost when the clock reaches `valid_until`, the store says that it is gone, its bond is severed,
//!    its cap is reached, the grace period of a `close` is over, or the steward has ended.
//!
//! ```text
//!   HELD ─ disarm (release); hand-off of a status that has a listener ─► ENDED
//!   HELD ─ lose(reason) ─► LOST + reason: notifies the listeners, ends the leader term
//! ```
//!
//! Invariants:
//! 1. `state` leaves `HELD` once. The first reason wins, and a hold that was released is never reported lost.
//! 2. `valid_until`, `proved_at` and `failed_at` never decrease: replies may arrive out of order.
//! 3. No check relies on the steward alone: `check` reads the clock itself. After a freeze the holder may run first.

use crate::engine::runtime::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use std::num::NonZeroU64;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crate::engine::instruments::{HoldOutcome, Instruments};
use crate::engine::lease::granted::GrantedTicket;
use crate::engine::lease::leader_term::LeaderTerm;
use crate::engine::runtime::clock::Clock;
use crate::engine::runtime::event::Event;
use crate::error::{Error, ErrorKind};
use crate::state::HoldState;
use crate::store::{Bond, BootInstant, Renewal, Ticket};
use crate::types::{Drift, FencingToken, LostReason};

const HELD: u8 = 0;
const ENDED: u8 = 1;
const LOST: u8 = 2;

/// The ticket of a hold, and whether this process can prove that the lock is held. Shared by the hold, the lease table
/// and the loss signals.
#[derive(Debug)]
pub(crate) struct HoldStatus {
    granted: GrantedTicket,
    /// The fencing token of the holder, for the log. 0: none.
    token: AtomicU64,
    /// The end of the proved lease, in nanoseconds of the boot clock. Never decreases.
    valid_until: AtomicU64,
    /// When the newest request was sent that proved the lease.
    proved_at: AtomicU64,
    /// When the newest renewal was sent that brought no proof.
    failed_at: AtomicU64,
    /// The time after the last proof from which the state is unsure, in nanoseconds: half the size of a duration. `None`:
    /// the hold is not renewed.
    pace: Option<NonZeroU64>,
    /// When the present holder got the lock. 0: its end was counted.
    since: AtomicU64,
    /// `HELD`, `ENDED`, or `LOST` plus the number of the reason.
    state: AtomicU8,
    /// A client that closes has removed the hold from the lease table, and releases it. Written under the table's lock.
    taken_by_close: AtomicBool,
    /// Notifies the listeners. Created for the first one, because most holds end without a listener.
    event: OnceLock<Arc<Event>>,
    clock: Clock,
    /// What the hold depends on besides the lease.
    bond: Option<Box<(Bond, Drift)>>,
    /// The leader term. It ends when the hold is lost, so that no waiter stays behind a lost hold.
    term: Weak<LeaderTerm>,
}

impl HoldStatus {
    pub(crate) fn new(granted: GrantedTicket, valid_until: BootInstant, clock: Clock) -> Self {
        Self {
            granted,
            token: AtomicU64::new(0),
            valid_until: AtomicU64::new(valid_until.0),
            proved_at: AtomicU64::new(0),
            failed_at: AtomicU64::new(0),
            pace: None,
            since: AtomicU64::new(0),
            state: AtomicU8::new(HELD),
            taken_by_close: AtomicBool::new(false),
            event: OnceLock::new(),
            clock,
            bond: None,
            term: Weak::new(),
        }
    }

    /// Notes the token of the holder. A hand-off brings another one.
    pub(crate) fn set_token(&self, token: Option<FencingToken>) {
        let number = token.map_or(0, FencingToken::get);
        self.token.store(number, Ordering::SeqCst);
    }

    pub(crate) fn token(&self) -> Option<u64> {
        Some(self.token.load(Ordering::SeqCst)).filter(|token| *token != 0)
    }

    pub(crate) fn granted(&self) -> &GrantedTicket {
        &self.granted
    }

    /// Whether the lease is proved now. False for a grant whose reply took longer than the lease.
    pub(crate) fn is_proved(&self) -> bool {
        self.clock.now() < self.valid_until()
    }

    /// Marks the hold as renewed. Its state is unsure from half a lease after the last proof: the renewal that was due
    /// at a third has failed by then.
    pub(crate) fn renewed_since(mut self, sent: BootInstant, lease: Duration) -> Self {
        self.proved_at = AtomicU64::new(sent.0);
        let nanos = u64::try_from((lease / 2).as_nanos());
        self.pace = nanos.ok().and_then(NonZeroU64::new);
        self
    }

    /// Adds the leader term of a hold that leads a local queue.
    pub(crate) fn leading(mut self, term: Option<&Arc<LeaderTerm>>) -> Self {
        self.term = term.map(Arc::downgrade).unwrap_or_default();
        self
    }

    /// The status for the next holder of the same hold, with the same proof and no listeners.
    pub(crate) fn next(&self) -> Self {
        let copy = |at: &AtomicU64| AtomicU64::new(at.load(Ordering::SeqCst));
        let mut next = Self::new(self.granted.clone(), BootInstant(0), self.clock);
        next.valid_until = copy(&self.valid_until);
        next.proved_at = copy(&self.proved_at);
        next.failed_at = copy(&self.failed_at);
        next.since = copy(&self.since);
        next.term.clone_from(&self.term);
        next.pace = self.pace;
        match self.bond.as_deref() {
            Some((bond, drift)) => next.bound(Some(bond.clone()), *drift),
            None => next,
        }
    }

    /// Adds the bond, which can end the proof before the lease does.
    pub(crate) fn bound(mut self, bond: Option<Bond>, drift: Drift) -> Self {
        if let Some(bond) = &bond {
            bond.listen(&self.loss_event());
        }
        self.bond = bond.map(|bond| Box::new((bond, drift)));
        self
    }

    pub(crate) fn valid_until(&self) -> BootInstant {
        let lease = BootInstant(self.valid_until.load(Ordering::SeqCst));
        match self.bond.as_deref() {
            Some((bond, drift)) => lease.min(bond.until(drift)),
            None => lease,
        }
    }

    /// A renewal for that lease, or for the rest of what is proved. A store does not shorten a lease, but a member of a set that has
    /// forgotten the lock gets a new one. With a shorter lease than the others, it would free the lock before the proof ends.
    pub(crate) fn renewal(&self, lease: Duration, now: BootInstant, drift: &Drift) -> Renewal {
        let proved = BootInstant(self.valid_until.load(Ordering::SeqCst)).since(now);
        self.granted.renewal(lease.max(drift.lease_for(proved)))
    }

    /// Extends the proof. An older reply that arrives late changes nothing.
    pub(crate) fn prove(&self, until: BootInstant) {
        self.valid_until.fetch_max(until.0, Ordering::SeqCst);
    }

    /// Notified when [`signal`](Self::signal) may have changed.
    pub(crate) fn loss_event(&self) -> Arc<Event> {
        let event = Arc::clone(self.event.get_or_init(Arc::default));
        // Pairs with the fence of the notifying side: either the listener reads the new state, or that side finds the
        // listener. Without the fences both could miss each other.
        fence(Ordering::SeqCst);
        event
    }

    fn ring(&self) {
        fence(Ordering::SeqCst);
        if let Some(event) = self.event.get() {
            event.notify();
        }
    }

    /// A renewal sent at `sent` was confirmed.
    pub(crate) fn confirmed(&self, sent: BootInstant) {
        self.proved_at.fetch_max(sent.0, Ordering::SeqCst);
    }

    /// A renewal sent at `sent` brought no proof, or no reply.
    pub(crate) fn failed(&self, sent: BootInstant) {
        self.failed_at.fetch_max(sent.0, Ordering::SeqCst);
    }

    /// The state of the hold: held, unsure or lost.
    pub(crate) fn state(&self) -> HoldState {
        match self.check(self.clock) {
            Some(_) => HoldState::Lost,
            None if self.is_doubtful() => HoldState::Unsure,
            None => HoldState::Held,
        }
    }

    /// Whether the state is unsure. Reads the clock too, for the reason given at [`check`](Self::check).
    fn is_doubtful(&self) -> bool {
        let proved_at = self.proved_at.load(Ordering::SeqCst);
        let overdue = |pace: NonZeroU64| {
            self.clock.now() >= BootInstant(proved_at) + Duration::from_nanos(pace.get())
        };
        self.failed_at.load(Ordering::SeqCst) > proved_at
            || self.pace.is_some_and(overdue)
            || self
                .bond
                .as_deref()
                .is_some_and(|(bond, _)| !bond.is_connected())
    }

    /// Marks the hold as lost, notifies the listeners and ends the leader term. Does nothing if the hold was lost or
    /// released before: the first reason wins.
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
            log_loss(&self.granted.ticket, self.token(), reason);
            if let Some(term) = self.term.upgrade() {
                term.end();
            }
        }
    }

    /// Marks the clean end of a hold: its loss signals never fire. A hold that was lost before stays lost.
    pub(crate) fn end(&self) {
        // An error means that it was lost before.
        let _ = self
            .state
            .compare_exchange(HELD, ENDED, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// A client that closes has removed the hold from the lease table. Call it with that, under the table's lock.
    pub(crate) fn take_by_close(&self) {
        self.taken_by_close.store(true, Ordering::SeqCst);
    }

    /// Whether a client that closes releases the hold. It is final once the hold is out of the lease table.
    pub(crate) fn is_taken_by_close(&self) -> bool {
        self.taken_by_close.load(Ordering::SeqCst)
    }

    /// Counts a hold that begins now, by a grant.
    pub(crate) fn record_begin(&self, instruments: &Instruments, now: BootInstant) {
        self.since.store(now.0, Ordering::SeqCst);
        instruments.hold_began(self.granted.subject());
    }

    /// When the present holder got the lock. `None`: its hold has ended.
    pub(crate) fn since(&self) -> Option<BootInstant> {
        let since = self.since.load(Ordering::SeqCst);
        (since != 0).then_some(BootInstant(since))
    }

    /// Counts the end of the hold, once: both the steward and the holder may notice it. `otherwise`: how it ended
    /// unless it was lost.
    pub(crate) fn record_end(&self, instruments: &Instruments, otherwise: HoldOutcome) {
        let since = self.since.swap(0, Ordering::SeqCst);
        if since == 0 {
            return;
        }
        let outcome = match self.state.load(Ordering::SeqCst) {
            // The lock by which a barrier signals is freed by force: that is no loss.
            lost if lost >= LOST && !self.granted.ticket.name.is_of_barrier() => {
                HoldOutcome::Lost(LostReason::from_number(lost - LOST))
            }
            _ => otherwise,
        };
        let lasted = self.clock.now().since(BootInstant(since));
        instruments.hold_ended(self.granted.subject(), outcome, lasted);
    }

    /// Counts the end of one holder and the beginning of the next, which has got the hold by hand-off.
    pub(crate) fn record_hand_over(
        &self,
        instruments: &Instruments,
        outcome: HoldOutcome,
        now: BootInstant,
    ) {
        let since = self.since.swap(now.0, Ordering::SeqCst);
        let subject = self.granted.subject();
        if since != 0 {
            instruments.hold_ended(subject, outcome, now.since(BootInstant(since)));
        }
        instruments.hold_began(subject);
        instruments.handed_over(subject, None);
    }

    /// Whether a loss was recorded. Does not read the clock; see [`check`](Self::check).
    pub(crate) fn is_lost(&self) -> bool {
        self.state.load(Ordering::SeqCst) >= LOST
    }

    /// Why the lock is not held; `None` while it is held. Reads the clock, and records a lease that has expired: after
    /// a freeze of the process the holder may run before the steward does.
    pub(crate) fn check(&self, clock: Clock) -> Option<HoldEnd> {
        if self.state.load(Ordering::SeqCst) == HELD && clock.now() >= self.valid_until() {
            self.lose(LostReason::Expired);
        }
        match self.state.load(Ordering::SeqCst) {
            HELD => None,
            ENDED => Some(HoldEnd::Ended),
            lost => Some(HoldEnd::Lost(LostReason::from_number(lost - LOST))),
        }
    }

    /// The reason that fires the loss signal. `None`: the hold is not lost.
    pub(crate) fn signal(&self) -> Option<LostReason> {
        match self.check(self.clock) {
            Some(HoldEnd::Lost(reason)) => Some(reason),
            Some(HoldEnd::Ended) | None => None,
        }
    }

    /// The error for an operation that needs the lock held.
    pub(crate) fn refusal(&self) -> Option<Error> {
        match self.check(self.clock)? {
            HoldEnd::Lost(reason) => Some(Error::lost(reason)),
            HoldEnd::Ended => Some(Error::new(ErrorKind::NotHeld).because("it was released")),
        }
    }
}

/// Logs a loss. Each loss is logged once, by the place that finds it.
pub(crate) fn log_loss(ticket: &Ticket, token: Option<u64>, reason: LostReason) {
    if ticket.name.is_of_barrier() {
        // Members of a barrier free this lock by force, as a signal.
        tracing::debug!(lock = %ticket.name, owner = %ticket.owner, reason = reason.as_str(), "a barrier has sent a signal");
        return;
    }
    tracing::error!(lock = %ticket.name, owner = %ticket.owner, token, reason = reason.as_str(), "the lock was lost: {reason}");
}

/// Why a hold is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldEnd {
    Ended,
    Lost(LostReason),
}

#[cfg(test)]
mod tests;
