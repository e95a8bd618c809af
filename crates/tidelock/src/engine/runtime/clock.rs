//! The clock that measures leases. It keeps counting while the machine is suspended, and no operator can set it.

use std::time::Duration;

/// An instant of a [`Clock`], in nanoseconds since the origin of that clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(pub(crate) u64);

impl BootInstant {
    /// Later than every instant that comes. As a time to act it means never.
    pub const FAR: Self = Self(u64::MAX);

    /// Nanoseconds since the clock's origin.
    pub fn nanos(self) -> u64 {
        self.0
    }

    /// The instant `nanos` nanoseconds after the clock's origin.
    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The time from `earlier` to this instant. Zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for BootInstant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

/// The source of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// `CLOCK_BOOTTIME` on Linux. Elsewhere the monotonic clock of the standard library, which may stop while the
    /// machine is suspended. No clock of a virtual machine counts while its host has stopped it.
    Boot,
    /// tokio's clock, which tests can pause.
    Simulated,
}

impl Clock {
    /// The current instant.
    pub fn now(self) -> BootInstant {
        match self {
            Self::Boot => boot_now(),
            Self::Simulated => simulated_now(),
        }
    }
}

/// What a clock shows that counts from its first use: 36 years. An earlier instant exists then too: the start of a lease that
/// ends now, or the clock of another runtime that is behind.
#[cfg(any(not(target_os = "linux"), miri, not(schedules = "shuttle")))]
const AT_ORIGIN: BootInstant = BootInstant(1 << 60);

#[cfg(schedules = "shuttle")]
fn simulated_now() -> BootInstant {
    BootInstant(crate::engine::runtime::scheduled::now())
}

/// All simulated clocks of a process count from one origin. Otherwise two clients of one store that connect at
/// different instants would disagree about the end of a lease, and the store would grant a lock that is held.
#[cfg(not(schedules = "shuttle"))]
fn simulated_now() -> BootInstant {
    use std::sync::OnceLock;

    use tokio::time::Instant;
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let now = Instant::now();
    let origin = *ORIGIN.get_or_init(|| now);
    let behind = BootInstant(0) + origin.saturating_duration_since(now);
    BootInstant(
        (AT_ORIGIN + now.saturating_duration_since(origin))
            .0
            .saturating_sub(behind.0),
    )
}

#[cfg(all(target_os = "linux", not(miri)))]
fn boot_now() -> BootInstant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // `unsigned_abs` changes nothing: seconds since boot and nanoseconds below 1e9 are never negative.
    BootInstant(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}

/// Also under Miri, which has no `CLOCK_BOOTTIME`.
#[cfg(any(not(target_os = "linux"), miri))]
fn boot_now() -> BootInstant {
    use std::sync::LazyLock;
    use std::time::Instant;
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    AT_ORIGIN + ORIGIN.elapsed()
}
