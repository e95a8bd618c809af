//! System calls that only Linux has: the boot clock (it includes the time asleep), its timer, and death signals between
//! processes.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Bounds one wait where there is no timer on the boot clock; then we read the clock again.
const SLICE_NS: u64 = 20_000_000;

/// Nanoseconds since boot; on Linux this includes the time asleep.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(CLOCK);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Waits for file descriptors and for an instant of the boot clock at the same time.
#[derive(Debug)]
pub(crate) struct Alarm(Option<OwnedFd>);

impl Alarm {
    pub(crate) fn new() -> Self {
        Self(timer())
    }

    /// Waits until one of the descriptors is readable or the instant has come. Returns which descriptors are readable.
    pub(crate) fn wait<const N: usize>(
        &self,
        fds: [&OwnedFd; N],
        at: Option<u64>,
    ) -> io::Result<[bool; N]> {
        let armed = at.is_some_and(|at| self.arm(at));
        let mut polled: Vec<_> = fds
            .iter()
            .map(|fd| PollFd::new(*fd, PollFlags::IN))
            .collect();
        if let Some(timer) = self.0.as_ref().filter(|_| armed) {
            polled.push(PollFd::new(timer, PollFlags::IN));
        }
        let slice = at.filter(|_| !armed).map(|at| {
            let left = at.saturating_sub(now()).min(SLICE_NS);
            Timespec {
                tv_sec: 0,
                tv_nsec: left.try_into().unwrap_or(0),
            }
        });
        match poll(&mut polled, slice.as_ref()) {
            // The process was stopped and continued.
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(std::array::from_fn(|i| !polled[i].revents().is_empty()))
    }

    #[cfg(target_os = "linux")]
    fn arm(&self, at: u64) -> bool {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, timerfd_settime};
        let Some(timer) = &self.0 else { return false };
        let spec = rustix::time::Timespec {
            tv_sec: i64::try_from(at / 1_000_000_000).unwrap_or(i64::MAX),
            // A time of zero would disarm the timer.
            tv_nsec: i64::try_from(at % 1_000_000_000).unwrap_or(0).max(1),
        };
        let once = Itimerspec {
            it_interval: rustix::time::Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: spec,
        };
        // Setting the timer again also clears an earlier expiry; otherwise the next poll would return at once.
        timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once).is_ok()
    }

    #[cfg(not(target_os = "linux"))]
    fn arm(&self, _: u64) -> bool {
        false
    }
}

#[cfg(target_os = "linux")]
fn timer() -> Option<OwnedFd> {
    use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
    timerfd_create(
        TimerfdClockId::Boottime,
        TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
    )
    .ok()
}

#[cfg(not(target_os = "linux"))]
fn timer() -> Option<OwnedFd> {
    None
}

/// Sleeps until an instant of the boot clock. Reads the clock at least once a second, because the runtime's timers stop
/// while the machine sleeps.
pub(crate) async fn sleep_until(at: u64) {
    loop {
        let left = at.saturating_sub(now());
        if left == 0 {
            return;
        }
        let slice = std::time::Duration::from_nanos(left).min(std::time::Duration::from_secs(1));
        tokio::time::sleep(slice).await;
    }
}

/// Has the kernel kill this process when the thread that started it ends. Linux only.
pub(crate) fn die_with_parent() {
    #[cfg(target_os = "linux")]
    // Cannot fail for a valid signal.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}

/// Makes this process the parent of orphans below it, so that it can reap the remaining processes of a group.
pub(crate) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    // Without it a dead process may stay in its group a little longer; nothing else depends on it.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Renames this process in process lists: `killall` and `pkill` select by this name.
pub(crate) fn be_called(name: &std::ffi::CStr) {
    #[cfg(target_os = "linux")]
    // Without it the process keeps the name of the program file.
    let _ = rustix::thread::set_name(name);
    #[cfg(not(target_os = "linux"))]
    let _ = name;
}

/// A descriptor that becomes readable when a process exits. `None`: it has exited already, or the kernel has no pidfd.
pub(crate) fn end_of(process: rustix::process::Pid) -> Option<OwnedFd> {
    #[cfg(target_os = "linux")]
    return rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty()).ok();
    #[cfg(not(target_os = "linux"))]
    {
        let _ = process;
        None
    }
}

/// Whether this process started with a signal ignored, as under `nohup` or in the background of a script.
pub(crate) fn ignored_at_start(signal: i32) -> bool {
    #[cfg(target_os = "linux")]
    {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status
            .lines()
            .find_map(|line| line.strip_prefix("SigIgn:"))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| (mask >> (signal - 1)) & 1 == 1)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = signal;
        false
    }
}
