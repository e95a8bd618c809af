//! How long the calls of all processes took that have got a lock, from the buckets that each of them tells.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::{Value, json};
use tidelock::Process;
use tokio::time::Instant;

/// How long the base of a difference is used before a newer one replaces it. Two bases are kept, so that a difference is
/// over this time at least, and twice this time at most.
const BASE_KEPT: Duration = Duration::from_secs(30);

/// The bound of a bucket. `true`: its calls took longer.
type Bound = (Duration, bool);

/// How many calls are in each bucket of a process, or of all.
type Buckets = BTreeMap<Bound, u64>;

/// The buckets of each client.
type Told = HashMap<String, Buckets>;

/// The time within which a part of the calls got their lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quantile {
    /// The upper bound of a bucket.
    pub(crate) bound: Duration,
    /// It is longer than the bound.
    pub(crate) is_longer: bool,
}

/// The percentiles of the waits. `None`: no process reports its waits, or no call has got a lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AcquireTimes {
    pub(crate) p50: Option<Quantile>,
    pub(crate) p99: Option<Quantile>,
}

/// Remembers what was told before, so that only the last minute is shown.
#[derive(Debug, Default)]
pub(super) struct LastMinute {
    /// The difference is taken from it. `None`: all is shown since the processes connected.
    base: Option<Told>,
    /// Becomes the base.
    next: Option<(Told, Instant)>,
}

impl LastMinute {
    /// What has been acquired since the base; in the first look, all that has been.
    pub(super) fn note(&mut self, processes: &[Process], now: Instant) -> AcquireTimes {
        let living = processes.iter().filter(|process| !process.is_gone());
        let told = living.map(|process| (process.client.clone(), buckets_of(process)));
        self.note_told(told.collect(), now)
    }

    fn note_told(&mut self, told: Told, now: Instant) -> AcquireTimes {
        let mut sum = Buckets::new();
        for (client, buckets) in &told {
            let before = self.base.as_ref().and_then(|base| base.get(client));
            for (bound, calls) in buckets {
                let before = before.and_then(|before| before.get(bound)).copied();
                // Anybody may have written these numbers.
                let calls = calls.saturating_sub(before.unwrap_or(0));
                let sum = sum.entry(*bound).or_default();
                *sum = sum.saturating_add(calls);
            }
        }
        let is_due = |(_, since): &(Told, Instant)| now.duration_since(*since) >= BASE_KEPT;
        match self.next.take() {
            None => (self.base, self.next) = (Some(told.clone()), Some((told, now))),
            Some(next) if is_due(&next) => {
                (self.base, self.next) = (Some(next.0), Some((told, now)));
            }
            next => self.next = next,
        }
        AcquireTimes {
            p50: quantile(&sum, 50),
            p99: quantile(&sum, 99),
        }
    }
}

fn buckets_of(process: &Process) -> Buckets {
    let mut buckets = Buckets::new();
    for bucket in &process.acquire_times {
        let calls = buckets.entry((bucket.bound, bucket.is_longer)).or_default();
        *calls = calls.saturating_add(bucket.calls);
    }
    buckets
}

/// The bucket that contains this percentile.
fn quantile(buckets: &Buckets, percent: u128) -> Option<Quantile> {
    let count: u128 = buckets.values().copied().map(u128::from).sum();
    let wanted = (count * percent).div_ceil(100);
    let mut below = 0;
    let mut buckets = buckets.iter().filter(|(_, calls)| **calls > 0);
    let found = buckets.find(|(_, calls)| {
        below += u128::from(**calls);
        below >= wanted
    });
    found.map(|((bound, is_longer), _)| Quantile {
        bound: *bound,
        is_longer: *is_longer,
    })
}

impl AcquireTimes {
    pub(super) fn as_json(self) -> Value {
        json!({ "p50": self.p50.map(Quantile::as_json), "p99": self.p99.map(Quantile::as_json) })
    }

    /// Reads what [`as_json`](Self::as_json) has written. Earlier versions have written nothing.
    pub(super) fn of_json(times: &Value) -> Self {
        Self {
            p50: Quantile::of_json(&times["p50"]),
            p99: Quantile::of_json(&times["p99"]),
        }
    }
}

impl Quantile {
    fn as_json(self) -> Value {
        json!({ "ms": self.bound.as_secs_f64() * 1000.0, "is_lower_bound": self.is_longer })
    }

    fn of_json(quantile: &Value) -> Option<Self> {
        let seconds = quantile["ms"].as_f64()? / 1000.0;
        Some(Self {
            bound: Duration::try_from_secs_f64(seconds).ok()?,
            is_longer: quantile["is_lower_bound"].as_bool()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds, whether the calls took longer, and how many calls.
    type Bucket = (u64, bool, u64);

    fn told(clients: &[(&str, &[Bucket])]) -> Told {
        let of_client = |buckets: &[Bucket]| {
            let buckets = buckets.iter();
            buckets
                .map(|(millis, is_longer, calls)| {
                    ((Duration::from_millis(*millis), *is_longer), *calls)
                })
                .collect()
        };
        let clients = clients.iter();
        clients
            .map(|(client, buckets)| ((*client).to_owned(), of_client(buckets)))
            .collect()
    }

    fn at(millis: u64, is_longer: bool) -> Quantile {
        Quantile {
            bound: Duration::from_millis(millis),
            is_longer,
        }
    }

    #[test]
    fn a_percentile_is_that_of_all_processes_together() {
        let mut times = LastMinute::default();
        let (a, b) = (
            [(1, false, 60)],
            [(1, false, 30), (50, false, 9), (100, false, 1)],
        );
        let seen = times.note_told(told(&[("a", &a), ("b", &b)]), Instant::now());
        assert_eq!(
            (seen.p50, seen.p99),
            (Some(at(1, false)), Some(at(50, false)))
        );
        let mut times = LastMinute::default();
        let seen = times.note_told(told(&[("b", &b)]), Instant::now());
        assert_eq!(
            (seen.p50, seen.p99),
            (Some(at(1, false)), Some(at(100, false)))
        );
    }

    #[test]
    fn without_a_figure_there_is_no_percentile() {
        let mut times = LastMinute::default();
        let seen = times.note_told(told(&[("a", &[]), ("b", &[(1, false, 0)])]), Instant::now());
        assert_eq!(seen, AcquireTimes::default());
    }

    #[test]
    fn calls_that_took_longer_than_every_bound_are_a_lower_bound() {
        let mut times = LastMinute::default();
        let calls = [(1, false, 2), (300, true, u64::MAX), (300, false, u64::MAX)];
        let seen = times.note_told(told(&[("a", &calls), ("b", &calls)]), Instant::now());
        assert_eq!(
            (seen.p50, seen.p99),
            (Some(at(300, false)), Some(at(300, true)))
        );
        let json = serde_json::from_str(&seen.as_json().to_string()).unwrap();
        assert_eq!(AcquireTimes::of_json(&json), seen);
    }

    #[test]
    fn later_looks_show_the_last_minute_only() {
        let (mut times, begun) = (LastMinute::default(), Instant::now());
        let mut look = |seconds, slow: u64, fast: u64| {
            let calls = [(1, false, fast), (900, false, slow)];
            times.note_told(told(&[("a", &calls)]), begun + Duration::from_secs(seconds))
        };
        assert_eq!(
            look(0, 100, 0).p50,
            Some(at(900, false)),
            "since it connected"
        );
        assert_eq!(look(2, 100, 0).p50, None, "nothing was acquired since");
        assert_eq!(look(29, 100, 4).p99, Some(at(1, false)));
        assert_eq!(look(30, 110, 4).p99, Some(at(900, false)));
        assert_eq!(look(59, 110, 4).p99, Some(at(900, false)));
        assert_eq!(look(60, 110, 4).p99, Some(at(900, false)));
        assert_eq!(
            look(61, 110, 4).p99,
            None,
            "it is longer ago than half a minute"
        );
        // A process that connects later counts as a whole.
        let calls = told(&[("b", &[(5, false, 1)])]);
        let seen = times.note_told(calls, begun + Duration::from_secs(62));
        assert_eq!(seen.p50, Some(at(5, false)));
    }
}
