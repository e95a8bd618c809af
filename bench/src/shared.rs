//! Computes throughput, waits and violations from the stamps of holds that several may have at once.

use load::{Stamp, reads};

use crate::figures::{micros, number, percentile};

/// The holds that may exist at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// At most this number.
    Permits(usize),
    /// Any number of readers, or one writer. `percent` of the holds of a task read.
    Sides { percent: usize },
}

/// The figures of one peer in one round.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SharedHolds {
    pub(crate) per_second: f64,
    /// The wait of an acquisition, in microseconds.
    pub(crate) wait_p50: f64,
    pub(crate) wait_p99: f64,
    /// The wait of writers alone; `NaN` if there are none.
    pub(crate) writers_p99: f64,
    /// Acquisitions that returned while others held what excludes them. A correct lock has none.
    pub(crate) violations: usize,
}

impl SharedHolds {
    /// Evaluates the stamps of each process within the interval from `start` to `stop`. The stamps of each task are in
    /// the order in which it took them.
    pub(crate) fn of(processes: &[Vec<Stamp>], rule: Rule, start: u64, stop: u64) -> Self {
        let all = holds(processes, rule);
        let within = || {
            let inside = |hold: &&Hold| (start..stop).contains(&hold.stamp.entered);
            all.iter().filter(inside)
        };
        let wait = |hold: &Hold| hold.stamp.entered - hold.stamp.asked;
        let mut waits: Vec<u64> = within().map(wait).collect();
        let writers = within().filter(|hold| hold.writes);
        let mut of_writers: Vec<u64> = writers.map(wait).collect();
        waits.sort_unstable();
        of_writers.sort_unstable();
        Self {
            per_second: number(waits.len()) * 1e9 / number(stop - start),
            wait_p50: at(&waits, 0.5),
            wait_p99: at(&waits, 0.99),
            writers_p99: at(&of_writers, 0.99),
            violations: violations(&all, rule),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Hold {
    stamp: Stamp,
    writes: bool,
}

fn holds(processes: &[Vec<Stamp>], rule: Rule) -> Vec<Hold> {
    let mut all = Vec::new();
    for stamps in processes {
        let mut counts: Vec<usize> = Vec::new();
        for stamp in stamps {
            if counts.len() <= stamp.task {
                counts.resize(stamp.task + 1, 0);
            }
            let nth = counts[stamp.task];
            counts[stamp.task] += 1;
            let writes = match rule {
                Rule::Permits(_) => false,
                Rule::Sides { percent } => !reads(stamp.task, nth, percent),
            };
            all.push(Hold {
                stamp: *stamp,
                writes,
            });
        }
    }
    all
}

/// Counts the acquisitions that the rule forbids, in the order of time. A hold that ends in the nanosecond in which
/// another one begins ends first. So we count each hold as at least one nanosecond long; otherwise an empty hold would end
/// before it begins.
fn violations(all: &[Hold], rule: Rule) -> usize {
    let mut events = Vec::with_capacity(all.len() * 2);
    for hold in all {
        events.push((hold.stamp.entered, true, hold.writes));
        let leaving = hold.stamp.leaving.max(hold.stamp.entered + 1);
        events.push((leaving, false, hold.writes));
    }
    events.sort_unstable();
    let (mut readers, mut writers, mut found) = (0_isize, 0_isize, 0);
    for (_, enters, writes) in events {
        let change = if enters { 1 } else { -1 };
        if enters {
            let forbidden = match rule {
                Rule::Permits(total) => readers >= total.cast_signed(),
                Rule::Sides { .. } => writers > 0 || (writes && readers > 0),
            };
            found += usize::from(forbidden);
        }
        if writes {
            writers += change;
        } else {
            readers += change;
        }
    }
    found
}

/// A percentile in microseconds; `NaN` if there are no values.
fn at(sorted: &[u64], share: f64) -> f64 {
    if sorted.is_empty() {
        return f64::NAN;
    }
    micros(percentile(sorted, share))
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "no rounding in small whole numbers")]
mod tests {
    use super::*;

    const SIDES: Rule = Rule::Sides { percent: 95 };

    fn stamp(task: usize, asked: u64, entered: u64, leaving: u64) -> Stamp {
        Stamp {
            task,
            asked: asked * 1000,
            entered: entered * 1000,
            leaving: leaving * 1000,
            left: leaving * 1000 + 1,
        }
    }

    fn seen(processes: &[Vec<Stamp>], rule: Rule) -> SharedHolds {
        SharedHolds::of(processes, rule, 0, 1_000_000)
    }

    #[test]
    fn as_many_as_there_are_permits_may_hold_at_once() {
        let one = vec![stamp(0, 0, 10, 40), stamp(1, 0, 12, 30)];
        let two = vec![stamp(0, 5, 30, 50)];
        let both = [one, two];
        let seen_two = seen(&both, Rule::Permits(2));
        assert_eq!(seen_two.violations, 0);
        assert_eq!(seen_two.per_second, 3000.0);
        assert_eq!((seen_two.wait_p50, seen_two.wait_p99), (12.0, 25.0));
        assert!(seen_two.writers_p99.is_nan());
        assert_eq!(seen(&both, Rule::Permits(1)).violations, 2);
    }

    #[test]
    fn readers_share_and_a_writer_does_not() {
        // Five reads of task 0, and its sixth hold writes.
        let holds = (0..6).map(|at| stamp(0, at * 10, at * 10 + 1, at * 10 + 9));
        let writer: Vec<Stamp> = holds.collect();
        let beside_reads = vec![stamp(0, 0, 2, 48)];
        let seen_well = seen(&[writer.clone(), beside_reads], SIDES);
        assert_eq!((seen_well.violations, seen_well.writers_p99), (0, 1.0));
        // It enters while the writer is inside.
        let reader_in = vec![stamp(0, 0, 55, 70)];
        assert_eq!(seen(&[writer.clone(), reader_in], SIDES).violations, 1);
        // The writer enters while it is inside.
        let reader_before = vec![stamp(0, 0, 45, 70)];
        assert_eq!(seen(&[writer, reader_before], SIDES).violations, 1);
    }

    #[test]
    fn two_writers_at_once_are_seen() {
        let rule = Rule::Sides { percent: 0 };
        let one = vec![stamp(0, 0, 10, 30)];
        assert_eq!(
            seen(&[one.clone(), vec![stamp(0, 0, 20, 40)]], rule).violations,
            1
        );
        assert_eq!(seen(&[one, vec![stamp(0, 0, 30, 40)]], rule).violations, 0);
    }
}
