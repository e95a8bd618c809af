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

    /// The shortest lease that is proved for so long.
    pub(crate) fn lease_for(&self, proof: Duration) -> Duration {
        (proof + self.fixed).div_f64(1.0 - self.share)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_for_a_proof_is_proved_for_so_long() {
        let rounding = Duration::from_nanos(2);
        for share in [0.0, 0.01, 0.3, 0.49] {
            for fixed in [0, 2, 5000].map(Duration::from_millis) {
                let drift = Drift { share, fixed };
                for proof in [1, 900, 30_000, 86_400_000].map(Duration::from_millis) {
                    let proved = drift.proved(drift.lease_for(proof));
                    assert!(proved.abs_diff(proof) <= rounding, "{drift:?}, {proof:?}");
                }
            }
        }
    }
}
