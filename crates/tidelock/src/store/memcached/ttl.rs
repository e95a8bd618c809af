//! Converts leases to memcached's time to live: whole seconds of a clock that ticks once a second.

use std::time::Duration;

/// Upper bound of a relative time to live, in seconds: memcached reads a larger number as a date.
const MAX_TTL_SECONDS: u64 = 30 * 24 * 3600;

/// The time to live of an item that does not expire.
pub(crate) const NEVER: u64 = 0;

/// The time to live of an item that must last at least for `lease`, in seconds. One second more than the lease: the
/// next tick of the clock may be near, and then the first second ends at once.
pub(crate) fn seconds(lease: Duration) -> u64 {
    let whole = lease.as_secs() + u64::from(lease.subsec_nanos() > 0);
    whole.saturating_add(1)
}

/// As [`seconds`], but never so long that it would be read as a date, which is long past: the item would be gone at
/// once. For an item that may end early.
pub(crate) fn seconds_at_most_a_month(time: Duration) -> u64 {
    seconds(time).min(MAX_TTL_SECONDS)
}

/// Whether a time to live is too long to be relative, so that memcached needs a date instead.
pub(crate) fn needs_a_date(seconds: u64) -> bool {
    seconds > MAX_TTL_SECONDS
}

/// The least time that an item lasts with `left` seconds left: the next tick of the clock may be near.
pub(crate) fn sure(left: u64) -> Duration {
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
    fn details_are_never_dated() {
        for days in [1, 29, 30, 31, 4000] {
            let time = Duration::from_secs(days * 24 * 3600);
            assert!(!needs_a_date(seconds_at_most_a_month(time)), "{days}");
        }
    }

    #[test]
    fn a_month_is_the_most_that_is_counted() {
        assert!(!needs_a_date(seconds(Duration::from_secs(
            MAX_TTL_SECONDS - 1
        ))));
        assert!(needs_a_date(seconds(Duration::from_secs(MAX_TTL_SECONDS))));
    }
}
