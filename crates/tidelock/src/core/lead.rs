//! Who leads a line: a task that asks the store, then the tenure that comes of it.

use std::sync::Arc;

use crate::backend::{Grant, Moment, Name, Wake};
use crate::core::line::{Heir, Lines, Running};
use crate::core::seat::Terms;
use crate::error::Error;

/// The right, and the duty, to ask the store for all who wait. Dropped, the next in line has it.
pub(crate) struct Lead(Option<Leading>);

pub(super) struct Leading {
    pub(super) lines: Arc<Lines>,
    pub(super) name: Name,
    /// An old one has no say any more.
    pub(super) number: u64,
    pub(super) wake: Option<Wake>,
    /// Nobody can have come behind it yet.
    pub(super) alone: bool,
}

impl Lead {
    pub(super) fn of(leading: Leading) -> Self {
        Self(Some(leading))
    }

    /// Somebody else leads: only the wake is of use.
    pub(super) fn into_wake(mut self) -> Option<Wake> {
        self.0.take()?.wake
    }

    /// How many are to get the lock after it, as far as it can be known before the store is asked.
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

    /// Nobody can have come behind it yet.
    pub(crate) fn is_alone(&self) -> bool {
        self.0.as_ref().is_none_or(|leading| leading.alone)
    }

    /// The wake that was armed by the one before.
    pub(crate) fn take_wake(&mut self) -> Option<Wake> {
        self.0.as_mut()?.wake.take()
    }

    /// Tells those who wait why the store does not answer, or that it does again.
    pub(crate) fn trouble(&self, error: Option<&Error>) {
        if let Some(Leading { lines, name, .. }) = &self.0 {
            lines.trouble(name, error);
        }
    }

    /// The store has not answered for so long that nobody is to wait any longer.
    pub(crate) fn fail(&self, error: &Error) {
        if let Some(Leading { lines, name, .. }) = &self.0 {
            lines.dismiss(name, error);
        }
    }

    /// It holds the lock. The line keeps the wake.
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
            // Somebody else leads: it is a hold of its own.
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
            let unused = line.bequeath(wake);
            lines.call_next(inner, &name);
            drop(unused);
        }
    }
}

/// A hold that leads a line. Dropped when the store has been asked to release it.
#[derive(Debug)]
pub(crate) struct Tenure(Arc<Reign>);

/// Of which line, and which of its tenures. The status of the hold has it too, to say that it is lost.
#[derive(Debug)]
pub(crate) struct Reign {
    lines: Arc<Lines>,
    name: Name,
    number: u64,
}

impl Tenure {
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
    pub(super) fn over(&self) {
        self.lines.over(&self.name, self.number);
    }
}

impl Drop for Tenure {
    fn drop(&mut self) {
        self.0.over();
    }
}
