//! Leases as memcached counts them: in whole seconds of a clock that ticks once a second.

use std::time::Duration;

/// What is more is taken for a date.
const LONGEST: u64 = 30 * 24 * 3600;

/// Seconds after which an item ends that is to last so long at least. One more than the lease: the clock may be about to
/// tick, and then the first of them is over at once.
pub(super) fn seconds(lease: Duration) -> u64 {
    let whole = lease.as_secs() + u64::from(lease.subsec_nanos() > 0);
    whole.saturating_add(1)
}

/// Too long for memcached's way to count: it is to be told a date.
pub(super) fn needs_a_date(seconds: u64) -> bool {
    seconds > LONGEST
}

/// What an item that ends after so many of the server's seconds is sure to last: a tick may be near.
pub(super) fn sure(left: u64) -> Duration {
    Duration::from_secs(left.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_never_ends_before_its_lease() {
        for (millis, whole) in [(1, 2), (1000, 2), (1001, 3), (30_000, 31)] {
            let lease = Duration::from_millis(millis);
            assert_eq!(seconds(lease), whole);
            assert!(sure(seconds(lease)) >= lease);
        }
    }

    #[test]
    fn a_month_is_the_most_that_is_counted() {
        assert!(!needs_a_date(seconds(Duration::from_secs(LONGEST - 1))));
        assert!(needs_a_date(seconds(Duration::from_secs(LONGEST))));
    }
}
