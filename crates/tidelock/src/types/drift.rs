//! The allowance for clock drift.

use std::time::Duration;

/// The part of a lease that the client does not trust, because the store's clock may run faster than ours.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Drift {
    pub(crate) share: f64,
    pub(crate) fixed: Duration,
}

impl Drift {
    /// How long a lease is proved, counted from before the request was sent.
    pub(crate) fn proved(&self, lease: Duration) -> Duration {
        lease
            .saturating_sub(lease.mul_f64(self.share))
            .saturating_sub(self.fixed)
    }
}

impl Default for Drift {
    fn default() -> Self {
        Self {
            share: 0.01,
            fixed: Duration::from_millis(2),
        }
    }
}
