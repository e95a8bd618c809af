//! Hand-off: a hold passes to the next waiter of this process, without a round trip to the store.
//!
//! The order of the steps: take the next waiter from the local queue, pass the entry in the lease table to it, give the
//! waiter the hold. If the waiter has left by then, the hold is dropped, and goes to the next
//! waiter or to the store.

use crate::engine::runtime::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use crate::engine::instruments::HoldOutcome;
use crate::engine::lease::hold::{Hold, NextHolder, Successor};
use crate::store::BootInstant;

impl Hold {
    /// Hands the hold to the next waiter. Returns it if no waiter may have it.
    pub(crate) fn pass_on(mut hold: Arc<Self>) -> Result<(), Arc<Self>> {
        match Arc::get_mut(&mut hold).and_then(|hold| hold.assign_next(HoldOutcome::Released)) {
            Some(next) => {
                next.give(hold);
                Ok(())
            }
            None => Err(hold),
        }
    }

    /// As `pass_on`, for a hold that is being dropped: its contents move to a new hold, and the old one is disarmed.
    /// False: no waiter may have it.
    pub(crate) fn leave_to_next(&mut self) -> bool {
        let Some(next) = self.assign_next(HoldOutcome::Dropped) else {
            return false;
        };
        let hold = Self {
            guest: self.guest.clone(),
            context: Arc::clone(&self.context),
            token: self.token,
            generation: self.generation,
            is_written: AtomicBool::new(false),
            status: Arc::clone(&self.status),
            entry: self.entry,
            acknowledged: self.acknowledged,
            extension: AtomicU64::new(self.extension.load(Ordering::SeqCst)),
            disarmed: AtomicBool::new(false),
            term: self.term.take(),
            upgrade: self.upgrade.take(),
            span: None,
        };
        *self.disarmed.get_mut() = true;
        next.give(Arc::new(hold));
        true
    }

    /// Makes this the hold of the next waiter, in the lease table too. Returns that waiter. `outcome`: how the hold of
    /// the present holder ends.
    fn assign_next(&mut self, outcome: HoldOutcome) -> Option<Arc<dyn Successor>> {
        let (now, NextHolder { waiter, token }) = self.next_holder()?;
        let steward = self.context.steward();
        let ends_at = waiter.max_hold().map_or(BootInstant::FAR, |cap| now + cap);
        let table = &steward.table;
        if !table.hand_over(self.entry, &mut self.status, waiter.location(), ends_at) {
            // The hold was lost in the meantime. The waiter is out of the queue already, so it must join it again; the
            // next leader asks the store.
            waiter.join_again();
            return None;
        }
        self.token = token;
        self.status.set_token(token);
        self.span = None;
        self.status
            .record_hand_over(&steward.instruments, outcome, now);
        Some(waiter)
    }

    /// Takes the next waiter from the local queue. `None` if no more than a third of the lease is proved: the new
    /// holder might not have the time to hear of a loss. Nor if the lease was extended beyond what was asked for: the store
    /// keeps the longer one, so if this process died, the lock would stay held for longer than the new holder has asked for.
    fn next_holder(&mut self) -> Option<(BootInstant, NextHolder)> {
        let term = self.term.as_ref()?;
        if *self.disarmed.get_mut()
            || *self.is_written.get_mut()
            || self.longest_extension() > self.granted().lease
            || self.status.is_lost()
            || self.context.steward().closed.is_set()
        {
            return None;
        }
        let now = self.context.steward().timers.now();
        if self.status.valid_until().since(now) <= self.granted().lease / 3 {
            return None;
        }
        match self.context.next_holder(term, now) {
            Ok(next) => Some((now, next)),
            Err(stopped) => {
                if stopped.is_some() {
                    let subject = self.granted().subject();
                    let instruments = &self.context.steward().instruments;
                    instruments.handed_over(subject, stopped);
                }
                None
            }
        }
    }
}
