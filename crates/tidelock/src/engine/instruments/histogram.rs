//! A histogram of durations that many threads record into.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::stats::Durations;

/// The upper bounds of the buckets: from half a millisecond, which a round trip on a fast network takes, to the longest
/// wait that somebody would still call a wait.
pub(crate) const BOUNDS: &[Duration] = &[
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2_500),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(300),
];

/// A histogram with the buckets of [`BOUNDS`], and one for what is longer.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    /// In nanoseconds. Wraps after 584 years of waiting.
    sum: AtomicU64,
}

impl Histogram {
    pub(crate) fn record(&self, duration: Duration) {
        let bucket = BOUNDS.partition_point(|bound| *bound < duration);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.sum.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(crate) fn durations(&self) -> Durations {
        let buckets = self.buckets.iter();
        Durations {
            bounds: BOUNDS,
            buckets: buckets.map(|it| it.load(Ordering::Relaxed)).collect(),
            sum: Duration::from_nanos(self.sum.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_goes_to_the_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::default();
        for duration in [
            Duration::ZERO,
            BOUNDS[0],
            BOUNDS[0] + Duration::from_nanos(1),
            Duration::from_secs(3600),
        ] {
            histogram.record(duration);
        }
        let durations = histogram.durations();
        assert_eq!(durations.buckets[..2], [2, 1]);
        assert_eq!(durations.buckets.last(), Some(&1));
        assert_eq!(durations.count(), 4);
        assert!(durations.sum > Duration::from_secs(3600));
    }
}
