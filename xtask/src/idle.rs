//! How much of the processors is idle.

use std::time::Duration;

/// How long we look. Less would be no more than a few ticks of the kernel's counters.
const LOOK: Duration = Duration::from_secs(1);

/// How often we look. What ends soon, such as the last writes of a build, says nothing about the time after it.
const LOOKS: u32 = 20;

/// Whether at least this part of all processors is idle, in one of the seconds that this waits for. True where the system does
/// not tell.
pub(crate) fn is_idle(enough: f64) -> bool {
    (0..LOOKS).any(|_| part() >= enough)
}

/// The part that is idle in the next second.
fn part() -> f64 {
    let before = Ticks::now();
    std::thread::sleep(LOOK);
    before
        .zip(Ticks::now())
        .map_or(1.0, |(a, b)| a.idle_until(b))
}

/// The time of all processors since the start of the machine.
#[derive(Debug, Clone, Copy)]
struct Ticks {
    idle: u64,
    all: u64,
}

impl Ticks {
    fn now() -> Option<Self> {
        Self::read(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// Reads the first line: user, nice, system, idle, iowait, irq, softirq, steal. The fields behind them are part of the first two.
    fn read(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let fields = line.split_ascii_whitespace().take(8);
        let fields: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
        let idle = fields.get(3)? + fields.get(4)?;
        let all = fields.iter().sum();
        Some(Self { idle, all })
    }

    #[allow(clippy::cast_precision_loss, reason = "ticks of a second")]
    fn idle_until(self, later: Self) -> f64 {
        let all = later.all.saturating_sub(self.all);
        let idle = later.idle.saturating_sub(self.idle);
        if all == 0 {
            return 1.0;
        }
        idle as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_ticks_are_told_from_busy_ones() {
        let before = Ticks::read("cpu  100 0 50 800 50 0 0 0 7 7\ncpu0 1 2 3 4").unwrap();
        let after = Ticks::read("cpu  140 0 60 840 60 0 0 0 9 9\n").unwrap();
        let part = before.idle_until(after);
        assert!((part - 0.5).abs() < 1e-9, "{part}");
        assert!((before.idle_until(before) - 1.0).abs() < 1e-9);
        assert!(Ticks::read("intr 1 2 3").is_none());
    }
}
