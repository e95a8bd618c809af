//! Computes throughput, latency, fairness and overlaps from the stamps of many tasks on one name.

use load::Stamp;

use crate::figures::{micros, number, percentile};

/// The figures of one peer in one round on one name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Contention {
    /// Holds that began within the measured interval.
    pub(crate) holds: usize,
    pub(crate) per_second: f64,
    /// The time from the start of one release to the next acquisition, in microseconds.
    pub(crate) gap_p50: f64,
    pub(crate) gap_p99: f64,
    /// The same, where the next holder is in another process.
    pub(crate) over_p50: f64,
    pub(crate) over_p99: f64,
    /// The longest wait of any task, in milliseconds.
    pub(crate) longest_wait: f64,
    /// The median length of a hold, in microseconds. It exceeds the requested length because timers and schedulers add
    /// to it.
    pub(crate) hold: f64,
    /// The holds of the task with the fewest, divided by the holds of the task with the most.
    pub(crate) task_share: f64,
    /// The same for processes.
    pub(crate) process_share: f64,
    /// Acquisitions that returned before the previous holder began its release. A correct lock has none.
    pub(crate) overlaps: usize,
}

impl Contention {
    /// Evaluates the stamps of each process, which ran `tasks` tasks, within the interval from `start` to `stop`.
    pub(crate) fn of(processes: &[Vec<Stamp>], tasks: usize, start: u64, stop: u64) -> Self {
        let within = |stamp: &&Stamp| (start..stop).contains(&stamp.entered);
        let mut all: Vec<(usize, Stamp)> = Vec::new();
        for (process, stamps) in processes.iter().enumerate() {
            all.extend(stamps.iter().map(|stamp| (process, *stamp)));
        }
        all.sort_unstable_by_key(|(_, stamp)| stamp.entered);
        let (mut gaps, mut over, mut overlaps) = (Vec::new(), Vec::new(), 0);
        for pair in all.windows(2) {
            let ((from, last), (to, next)) = (pair[0], pair[1]);
            match next.entered.checked_sub(last.leaving) {
                Some(gap) if within(&&next) => {
                    gaps.push(gap);
                    over.extend((from != to).then_some(gap));
                }
                Some(_) => {}
                None => overlaps += 1,
            }
        }
        let stamps = || all.iter().map(|(_, stamp)| stamp);
        let held = stamps().map(|s| s.leaving - s.entered).collect();
        let longest = stamps().map(|s| s.entered - s.asked).max().unwrap_or(0);
        let holds = stamps().filter(within).count();
        let [gaps, over, held] = [gaps, over, held].map(sorted);
        let of_processes = processes
            .iter()
            .map(|stamps| stamps.iter().filter(within).count());
        let mut of_tasks = vec![0; processes.len() * tasks];
        for (process, stamps) in processes.iter().enumerate() {
            for stamp in stamps.iter().filter(within) {
                of_tasks[process * tasks + stamp.task] += 1;
            }
        }
        Self {
            holds,
            per_second: number(holds) * 1e9 / number(stop - start),
            gap_p50: at(&gaps, 0.5),
            gap_p99: at(&gaps, 0.99),
            over_p50: at(&over, 0.5),
            over_p99: at(&over, 0.99),
            longest_wait: micros(longest) / 1000.0,
            hold: at(&held, 0.5),
            task_share: share(of_tasks),
            process_share: share(of_processes),
            overlaps,
        }
    }
}

fn sorted(mut times: Vec<u64>) -> Vec<u64> {
    times.sort_unstable();
    times
}

/// A percentile in microseconds; `NaN` if there are no values.
fn at(sorted: &[u64], share: f64) -> f64 {
    if sorted.is_empty() {
        return f64::NAN;
    }
    micros(percentile(sorted, share))
}

/// The smallest count divided by the largest.
fn share(counts: impl IntoIterator<Item = usize>) -> f64 {
    let (low, high) = counts
        .into_iter()
        .fold((usize::MAX, 0), |(low, high), count| {
            (low.min(count), high.max(count))
        });
    if high == 0 {
        return f64::NAN;
    }
    number(low) / number(high)
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "no rounding in small whole numbers")]
mod tests {
    use super::*;

    fn stamp(task: usize, asked: u64, entered: u64, leaving: u64) -> Stamp {
        Stamp {
            task,
            asked: asked * 1000,
            entered: entered * 1000,
            leaving: leaving * 1000,
            left: leaving * 1000 + 1,
        }
    }

    #[test]
    fn two_processes_that_take_turns() {
        let one = vec![stamp(0, 0, 10, 20), stamp(0, 21, 50, 60)];
        let two = vec![stamp(0, 0, 25, 45), stamp(0, 46, 70, 80)];
        let seen = Contention::of(&[one, two], 1, 0, 1_000_000);
        assert_eq!(seen.holds, 4);
        assert_eq!(seen.per_second, 4000.0);
        assert_eq!(seen.gap_p50, 5.0);
        assert_eq!(seen.gap_p99, 10.0);
        // The holds alternate between the two processes.
        assert_eq!((seen.over_p50, seen.over_p99), (5.0, 10.0));
        assert_eq!(seen.longest_wait, 0.029);
        assert_eq!((seen.task_share, seen.process_share), (1.0, 1.0));
        assert_eq!(seen.overlaps, 0);
    }

    #[test]
    fn a_task_without_a_turn_has_no_share() {
        let one = vec![stamp(0, 0, 10, 20), stamp(0, 21, 30, 40)];
        // This task acquires after `stop`: its hold does not count, its wait does.
        let late = stamp(1, 0, 2000, 2001);
        let seen = Contention::of(&[[one, vec![late]].concat()], 2, 0, 1_000_000);
        assert_eq!((seen.holds, seen.task_share), (2, 0.0));
        assert!(seen.over_p50.is_nan(), "there is only one process");
        assert_eq!(seen.longest_wait, 2.0);
    }

    #[test]
    fn two_at_once_are_seen() {
        let one = vec![stamp(0, 0, 10, 30)];
        let two = vec![stamp(0, 0, 20, 40)];
        assert_eq!(Contention::of(&[one, two], 1, 0, 1_000_000).overlaps, 1);
    }
}
