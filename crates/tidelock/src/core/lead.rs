//! The leader of a local queue: first a task that asks the store, then the leader term that its grant begins.
//!
//! The drop of either passes leadership to the next waiter, so no queue is left without a leader. Each has a number. If
//! the queue has a newer leader, an old number has no effect.

use std::sync::Arc;

use crate::backend::{Grant, Moment, Name, Wake};
use crate::core::line::{Heir, Lines, Running};
use crate::core::seat::Terms;
use crate::error::Error;

/// The leader role of a task: it asks the store for all waiters of the queue. Dropping it calls the next waiter to
/// lead.
pub(crate) struct Lead(Option<Leading>);

/// The contents of a leader role.
pub(super) struct Leading {
    pub(super) lines: Arc<Lines>,
    pub(super) name: Name,
    /// An old number has no effect on the queue.
    pub(super) number: u64,
    /// The wake of the former leader.
    pub(super) wake: Option<Wake>,
    /// This role is new and has not asked yet, so we assume that no waiter has joined.
    pub(super) alone: bool,
}

impl Lead {
    pub(super) fn of(leading: Leading) -> Self {
        Self(Some(leading))
    }

    /// Gives up the role without a call to the next waiter, and returns the wake.
    pub(super) fn into_wake(mut self) -> Option<Wake> {
        self.0.take()?.wake
    }

    /// How many fencing tokens to reserve for hand-offs. The first call for a new queue returns 0 without taking the
    /// lock: most locks have no waiter, and the queue was empty a moment ago.
    pub(crate) fn followers(&mut self) -> u32 {
        let Some(Leading {
            lines, name, alone, ..
        }) = &mut self.0
        else {
            return 0;
        };
        if std::mem::take(alone) {
            return 0;
        }
        lines.followers(name)
    }

    /// Whether no attempt was sent since the queue began, so that no waiter can know of an error.
    pub(crate) fn is_alone(&self) -> bool {
        self.0.as_ref().is_none_or(|leading| leading.alone)
    }

    /// Takes the wake of the former leader.
    pub(crate) fn take_wake(&mut self) -> Option<Wake> {
        self.0.as_mut()?.wake.take()
    }

    /// Gives the waiters the error that keeps the store from answering. `None`: the store answers again.
    pub(crate) fn trouble(&self, error: Option<&Error>) {
        if let Some(Leading { lines, name, .. }) = &self.0 {
            lines.trouble(name, error);
        }
    }

    /// Ends the waits of all waiters with this error: the store has not answered for too long.
    pub(crate) fn fail(&self, error: &Error) {
        if let Some(Leading { lines, name, .. }) = &self.0 {
            lines.dismiss(name, error);
        }
    }

    /// The store has granted the lock: begins a leader term. The queue keeps the wake for the next leader. `None`:
    /// another task leads by now, so the hold is not handed off.
    pub(crate) fn begin(
        mut self,
        terms: Terms,
        grant: &Grant,
        wake: Option<Wake>,
    ) -> Option<Tenure> {
        let Leading {
            lines,
            name,
            number: own,
            ..
        } = self.0.take()?;
        let now = lines.timers.now();
        let mut inner = lines.lock();
        inner.next += 1;
        let number = inner.next;
        let Some(line) = inner
            .lines
            .get_mut(&name)
            .filter(|line| line.is_led_by(own))
        else {
            // Another task has taken leadership.
            drop(inner);
            return None;
        };
        line.moves(now);
        let passes = terms.renewed;
        line.tenure = Some(Running {
            number,
            terms,
            since: now,
            left: if passes { lines.rules.times } else { 0 },
            until: now + lines.rules.within,
            tokens: grant.token.map(|token| (token.next(), grant.more)),
        });
        let unused = line.bequeath(wake);
        drop(inner);
        drop(unused);
        Some(Tenure(Arc::new(Reign {
            lines,
            name,
            number,
        })))
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if let Some(Leading {
            lines,
            name,
            number,
            wake,
            ..
        }) = self.0.take()
        {
            let mut inner = lines.lock();
            let led = inner
                .lines
                .get_mut(&name)
                .filter(|line| line.is_led_by(number));
            let Some(line) = led else {
                drop(inner);
                return;
            };
            // Kept in a variable until `call_next` has released the lock: its drop may wake a task.
            let unused = line.bequeath(wake);
            lines.call_next(inner, &name);
            drop(unused);
        }
    }
}

/// The leader term of a hold. Drop it after the store was asked to release the hold: the drop calls the next waiter to
/// lead.
#[derive(Debug)]
pub(crate) struct Tenure(Arc<Reign>);

/// Identifies a leader term: the queue and the number. The status of the hold has it too, to end the term on a loss.
#[derive(Debug)]
pub(crate) struct Reign {
    lines: Arc<Lines>,
    name: Name,
    number: u64,
}

impl Tenure {
    /// Takes the next waiter for a hand-off.
    pub(super) fn heir(&self, now: Moment) -> Option<Heir> {
        self.0.lines.heir(self, now)
    }

    pub(super) fn name(&self) -> &Name {
        &self.0.name
    }

    pub(super) fn number(&self) -> u64 {
        self.0.number
    }

    pub(super) fn reign(&self) -> &Arc<Reign> {
        &self.0
    }
}

impl Reign {
    /// Ends the term and calls the next waiter to lead. Does nothing if the term has ended before.
    pub(super) fn over(&self) {
        self.lines.over(&self.name, self.number);
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        self.0.over();
    }
}
