//! Who believed to hold what, when, on one clock.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use tidelock::ReplicaAck;

/// One holder's belief that it holds a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Period {
    pub(crate) name: usize,
    /// After the grant had been heard of.
    pub(crate) begun: Duration,
    /// Before the release was asked for, or when the loss was told.
    pub(crate) ended: Duration,
}

/// What all holders believed.
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

    /// With `All` nobody holds what another believes to hold. With less, the first of the two is told within `bound`
    /// of the second's grant, unless it has ended by itself before.
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
