//! Converts leases to memcached's time to live: whole seconds of a clock that ticks once a second.
//!
//! The clock shows the whole seconds of a monotonic clock, as they were at the last tick. A timer makes the next tick one
//! second after the last one and a little late, so the ticks drift through the second. When they have passed its end, the
//! clock goes on by two at once. So what it shows lies up to two seconds behind the time, and an item may last for two
//! seconds less than its time to live. How late one tick is comes on top; the allowance for drift covers it.

use std::time::Duration;

/// Upper bound of a relative time to live, in seconds: memcached reads a larger number as a date.
const MAX_TTL_SECONDS: u64 = 30 * 24 * 3600;

/// The time to live of an item that does not expire.
pub(crate) const NEVER: u64 = 0;

/// How much less than its time to live an item may last, in seconds.
const CLOCK_BEHIND: u64 = 2;

/// How much longer than a lease of whole seconds an item may last, in seconds. It ends with a tick of the clock.
pub(crate) const MAX_EXCESS: u64 = CLOCK_BEHIND + 1;

/// The time to live of an item that must last at least for `lease`, in seconds.
pub(crate) fn seconds(lease: Duration) -> u64 {
    let whole = lease.as_secs() + u64::from(lease.subsec_nanos() > 0);
    whole.saturating_add(CLOCK_BEHIND)
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

/// The least time that an item lasts with `left` seconds left.
pub(crate) fn sure(left: u64) -> Duration {
    Duration::from_secs(left.saturating_sub(CLOCK_BEHIND))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    /// How long an item lasts, in microseconds. Each tick of the server's clock comes a second and `late` after the one
    /// before. The last tick was `phase` after the whole second 0, and the item is stored `after` that tick.
    fn lasts(ttl: u64, late: u64, phase: u64, after: u64) -> u64 {
        let period = SECOND + late;
        // It ends at the first tick that shows the second `ttl`, or one behind it.
        let ticks = (ttl * SECOND - phase).div_ceil(period);
        ticks * period - after
    }

    #[test]
    fn an_item_never_ends_before_its_lease() {
        for (millis, whole) in [(1, 3), (1000, 3), (1001, 4), (30_000, 32)] {
            let lease = Duration::from_millis(millis);
            assert_eq!(seconds(lease), whole);
            assert!(sure(seconds(lease)) >= lease);
        }
    }

    #[test]
    fn an_item_outlasts_its_lease_at_each_phase_of_the_clock() {
        let phases = (0..SECOND).step_by(499).chain([SECOND - 1]);
        for (phase, late) in
            phases.flat_map(|phase| [0, 1, 100, 1000, 7000].map(|late| (phase, late)))
        {
            for after in [0, SECOND / 2, SECOND - 1, SECOND + late - 1] {
                for millis in [1, 1000, 1001, 30_000, 100_000] {
                    let lease = Duration::from_millis(millis);
                    let ttl = seconds(lease);
                    let life = Duration::from_micros(lasts(ttl, late, phase, after));
                    assert!(
                        life >= lease,
                        "{life:?} of {lease:?}: {phase} {late} {after}"
                    );
                    assert!(
                        life >= sure(ttl),
                        "{life:?} of {ttl}: {phase} {late} {after}"
                    );
                    let whole = Duration::from_secs(millis.div_ceil(1000));
                    let most = Duration::from_secs(MAX_EXCESS) + Duration::from_micros(late);
                    assert!(
                        life <= whole + most,
                        "{life:?} of {lease:?}: {phase} {late} {after}"
                    );
                }
            }
        }
    }

    #[test]
    fn details_are_never_dated() {
        for days in [1, 29, 30, 31, 4000] {
            let time = Duration::from_secs(days * 24 * 3600);
            assert!(!needs_a_date(seconds_at_most_a_month(time)), "{days}");
        }
        let endless = seconds_at_most_a_month(Duration::from_secs(u64::MAX));
        assert_eq!(
            endless, 2_592_000,
            "the most that memcached counts in seconds"
        );
    }

    #[test]
    fn a_month_is_the_most_that_is_counted() {
        let longest = MAX_TTL_SECONDS - CLOCK_BEHIND;
        assert!(!needs_a_date(seconds(Duration::from_secs(longest))));
        assert!(needs_a_date(seconds(Duration::from_secs(longest + 1))));
    }
}
