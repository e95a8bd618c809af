//! The clock of the deadlines in the file, and its name. Two processes compare readings only if both use the same name.

use std::sync::{Arc, LazyLock};

use crate::store::Clock;
use crate::store::sqlite::rows::Now;

/// This process's clock.
#[derive(Debug, Clone)]
pub(crate) struct Timebase {
    clock: Clock,
    domain: Arc<str>,
}

/// The clock name of a process that cannot tell whether another process uses the same clock. No other process has this
/// name.
static OWN: LazyLock<Arc<str>> =
    LazyLock::new(|| format!("process:{}", uuid::Uuid::new_v4()).into());

/// The clock name of this boot and time namespace. If it is unknown, the name of this process's own clock.
static MACHINE: LazyLock<Arc<str>> = LazyLock::new(|| match machine() {
    Some(domain) => domain.into(),
    None => Arc::clone(&OWN),
});

impl Timebase {
    pub(crate) fn new(clock: Clock) -> Self {
        let domain = match clock {
            Clock::Boot => &MACHINE,
            Clock::Simulated => &OWN,
        };
        Self {
            clock,
            domain: Arc::clone(domain),
        }
    }

    pub(crate) fn now(&self) -> Now<'_> {
        Now {
            stamp: i64::try_from(self.clock.now().nanos()).unwrap_or(i64::MAX),
            domain: &self.domain,
        }
    }
}

/// Returns the boot id and the offset of the time namespace: `CLOCK_BOOTTIME` is the same for all processes that agree
/// on both.
#[cfg(target_os = "linux")]
fn machine() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    // The kernel shows the offsets that child processes get. They are ours only if children join the same namespace.
    let link = |which: &str| std::fs::read_link(format!("/proc/self/ns/{which}")).ok();
    if link("time") != link("time_for_children") {
        return None;
    }
    // A kernel without time namespaces has no such file.
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    Some(format!("{}+{}", boot.trim(), boottime_offset(&offsets)))
}

/// On other systems the clock starts with the process, and boots cannot be told apart. Deadlines of other processes are
/// then never trusted: a waiter takes the lock after it has seen the row unchanged for a whole lease.
#[cfg(not(target_os = "linux"))]
fn machine() -> Option<String> {
    None
}

/// Returns `SECONDS.NANOSECONDS` of the line `boottime`.
#[cfg(any(target_os = "linux", test, feature = "fuzzing"))]
pub(crate) fn boottime_offset(offsets: &str) -> String {
    offsets
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find_map(|words| match words[..] {
            ["boottime" | "7", seconds, nanos] => Some(format!("{seconds}.{nanos}")),
            _ => None,
        })
        .unwrap_or_else(|| "0.0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_the_time_namespace_is_part_of_the_clocks_name() {
        let usual = "monotonic           0         0\nboottime            0         0\n";
        let moved = "monotonic           0         0\nboottime      -86400         5\n";
        assert_eq!(boottime_offset(usual), "0.0");
        assert_eq!(boottime_offset(""), "0.0");
        assert_eq!(boottime_offset(moved), "-86400.5");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn all_processes_of_a_boot_share_one_clock() {
        let timebase = Timebase::new(Clock::Boot);
        assert!(!timebase.now().domain.starts_with("process:"));
        assert_eq!(
            timebase.now().domain,
            Timebase::new(Clock::Boot).now().domain
        );
        assert!(timebase.now().stamp > 0);
    }
}
