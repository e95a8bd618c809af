//! Records each period in which a client believed to hold a lock, on one clock.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use tidelock::ReplicaAck;

/// One holder's belief that it holds a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Period {
    pub(crate) name: usize,
    /// Taken after the client received the grant.
    pub(crate) begun: Duration,
    /// Taken before the client sent the release, or when it was told of the loss.
    pub(crate) ended: Duration,
}

/// The beliefs of all holders.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Vec<Period>>);

impl Ledger {
    pub(crate) fn note(&self, period: Period) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(period);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// With `All` no two periods of one lock may overlap. With a weaker policy the first of two must end within `bound`
    /// of the second's grant, by a release or by the report of its loss.
    pub(crate) fn check(&self, policy: ReplicaAck, bound: Duration) -> Result<()> {
        let mut periods = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        periods.sort_by_key(|period| (period.name, period.begun));
        for pair in periods.windows(2) {
            let [first, second] = pair else { continue };
            if first.name != second.name || first.ended <= second.begun {
                continue;
            }
            ensure!(
                policy != ReplicaAck::All,
                "two holders at once: {first:?}, {second:?}"
            );
            ensure!(
                first.ended <= second.begun + bound,
                "it neither ended nor was told in time: {first:?}, {second:?}"
            );
        }
        Ok(())
    }
}
