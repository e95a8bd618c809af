//! A hold that passes to the next in line of this process, without a trip.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use crate::backend::Moment;
use crate::core::caller::Caller;
use crate::core::hold::Hold;
use crate::core::line::Heir;
use crate::core::seat::Call;

impl Hold {
    /// Makes it the hold of the next in line, if there is one and it may be. Else gives it back.
    pub(crate) fn pass_on(mut hold: Arc<Self>) -> Result<(), Arc<Self>> {
        match Arc::get_mut(&mut hold).and_then(Self::succeed) {
            Some(next) => {
                call(&next, hold);
                Ok(())
            }
            None => Err(hold),
        }
    }

    /// The same for a hold that is being dropped, which has ended then.
    pub(super) fn leave_to_next(&mut self) -> bool {
        let Some(next) = self.succeed() else {
            return false;
        };
        let hold = Self {
            base: Arc::clone(&self.base),
            ticket: self.ticket.clone(),
            token: self.token,
            generation: self.generation,
            is_written: AtomicBool::new(false),
            status: Arc::clone(&self.status),
            entry: self.entry,
            unclear: self.unclear,
            lease: self.lease,
            wish: self.wish,
            acknowledged: self.acknowledged,
            extension: AtomicU64::new(self.extension.load(Ordering::SeqCst)),
            disarmed: AtomicBool::new(false),
            tenure: self.tenure.take(),
        };
        *self.disarmed.get_mut() = true;
        call(&next, Arc::new(hold));
        true
    }

    /// Becomes the hold of the next in line, in the books too. Gives back who that is.
    fn succeed(&mut self) -> Option<Arc<Caller>> {
        let (now, Heir { caller, token }) = self.heir()?;
        let core = &self.base.core;
        let ends_at = caller.options.max_hold.map_or(Moment::FAR, |cap| now + cap);
        let table = &core.steward.table;
        if !table.hand_over(self.entry, &mut self.status, caller.place, ends_at) {
            // Lost just now: whoever leads next asks the store.
            if let Ok(waker) = caller.seat.call(Call::Again) {
                waker.into_iter().for_each(Waker::wake);
            }
            return None;
        }
        self.token = token;
        // After it is in the table: either this sees the close, or the close sees the hold.
        if core.closed.is_set() {
            self.status.announce_close();
        }
        Some(caller)
    }

    /// The next in line. None while the lease is not proved for a good while: there may be no time to hear of a loss.
    fn heir(&mut self) -> Option<(Moment, Heir)> {
        let tenure = self.tenure.as_ref()?;
        if *self.disarmed.get_mut()
            || *self.is_written.get_mut()
            || self.status.is_closing()
            || self.status.is_lost()
            || self.base.core.closed.is_set()
        {
            return None;
        }
        let now = self.base.core.timers.now();
        if self.status.valid_until().since(now) <= self.lease / 3 {
            return None;
        }
        Some((now, tenure.heir(now)?))
    }
}

fn call(next: &Caller, hold: Arc<Hold>) {
    match next.seat.call(Call::Hold(hold)) {
        Ok(waker) => waker.into_iter().for_each(Waker::wake),
        // It has left just now; dropped, the hold goes on to the one behind it.
        Err(call) => drop(call),
    }
}
