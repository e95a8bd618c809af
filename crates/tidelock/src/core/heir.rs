//! A hold that passes to the next in line of this process, without a trip.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use crate::backend::Moment;
use crate::core::hold::Hold;
use crate::core::line::Heir;
use crate::core::seat::Call;

impl Hold {
    /// Makes it the hold of the next in line, if there is one and it may be. This one has ended then.
    pub(crate) fn pass_on(&mut self) -> bool {
        let Some((now, Heir { seat, token })) = self.heir() else {
            return false;
        };
        let core = &self.base.core;
        let status = Arc::new(self.status.next());
        let ends_at = seat.max_hold.map_or(Moment::FAR, |cap| now + cap);
        let table = &core.steward.table;
        if !table.hand_over(self.entry, &status, seat.place, ends_at) {
            // Lost just now: whoever leads next asks the store.
            if let Ok(waker) = seat.call(Call::Again) {
                waker.into_iter().for_each(Waker::wake);
            }
            return false;
        }
        self.disarmed.store(true, Ordering::SeqCst);
        self.status.end();
        // After it is in the table: either this sees the close, or the close sees the hold.
        if core.closed.is_set() {
            status.announce_close();
        }
        let next = Arc::new(Self {
            base: Arc::clone(&self.base),
            ticket: self.ticket.clone(),
            token,
            generation: self.generation,
            is_written: AtomicBool::new(false),
            status,
            entry: self.entry,
            unclear: self.unclear,
            lease: self.lease,
            wish: self.wish,
            acknowledged: self.acknowledged,
            extension: AtomicU64::new(self.extension.load(Ordering::SeqCst)),
            disarmed: AtomicBool::new(false),
            tenure: self.tenure.take(),
        });
        match seat.call(Call::Hold(next)) {
            Ok(waker) => waker.into_iter().for_each(Waker::wake),
            // It has left just now; dropped, the hold goes on to the one behind it.
            Err(call) => drop(call),
        }
        true
    }

    /// The next in line. None while the lease is not proved for a good while: there may be no time to hear of a loss.
    fn heir(&self) -> Option<(Moment, Heir)> {
        let tenure = self.tenure.as_ref()?;
        if self.disarmed.load(Ordering::SeqCst)
            || self.is_written.load(Ordering::SeqCst)
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
