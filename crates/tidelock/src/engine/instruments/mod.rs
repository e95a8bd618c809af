//! The instruments of a client: what it counts, for [`Stats`] and for the `metrics` facade.
//!
//! Every event is recorded exactly once, at the place where it becomes certain. A record is a few atomic additions; it
//! takes no lock, allocates nothing and sends nothing.

#[cfg(feature = "metrics")]
mod exported;
mod histogram;
mod labels;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::engine::instruments::histogram::Histogram;
pub(crate) use crate::engine::instruments::labels::{
    AcquireEnd, CleanupCause, CleanupEnd, HandOverStop, HoldOutcome, StoreRequest, WakeCause,
};
use crate::engine::runtime::clock::BootInstant;
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::stats::Stats;
use crate::types::{LockKind, LostReason};

#[cfg(feature = "metrics")]
use crate::engine::instruments::exported::Exported;

/// What a client's metrics have as labels besides our own enums.
#[derive(Debug, Clone)]
pub(crate) struct LabelSettings {
    /// The kind of store.
    pub(crate) store: &'static str,
    /// Globs of names, each with its group.
    #[cfg(feature = "metrics")]
    pub(crate) groups: Vec<(String, String)>,
}

impl Default for LabelSettings {
    fn default() -> Self {
        Self {
            store: "other",
            #[cfg(feature = "metrics")]
            groups: Vec::new(),
        }
    }
}

/// The kind of store that a URL names, as OpenTelemetry names database systems.
pub(crate) fn store_of(url: &str) -> &'static str {
    let scheme = url.split(':').next().unwrap_or_default();
    match scheme.split('+').next().unwrap_or_default() {
        "redis" | "rediss" => "redis",
        "postgres" | "postgresql" => "postgresql",
        "mysql" => "mysql",
        "mariadb" => "mariadb",
        "etcd" | "etcds" => "etcd",
        "sqlite" => "sqlite",
        "memory" => "memory",
        "zookeeper" => "zookeeper",
        "memcached" => "memcached",
        _ => "other",
    }
}

/// A number that is only counted up. It orders nothing, so `Relaxed` is enough.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Counter {
    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The instruments of one client.
#[derive(Debug, Default)]
pub(crate) struct Instruments {
    acquires: [Counter; AcquireEnd::ALL.len()],
    wait: Histogram,
    /// How many waits began and ended. Their difference is the number of waiters.
    waits: [Counter; 2],
    hold: Histogram,
    /// How many holds began and ended.
    holds: [Counter; 2],
    lost: [Counter; LostReason::ALL.len()],
    lease_margin: Histogram,
    wakes: [Counter; WakeCause::ALL.len()],
    useful_wakes: Counter,
    stops: [Counter; HandOverStop::ALL.len()],
    cleanups: [Counter; CleanupEnd::ALL.len()],
    failed_requests: Counter,
    store_latency: Histogram,
    /// Until when no further slow acquire is logged, in nanoseconds of the boot clock.
    quiet_until: AtomicU64,
    #[cfg(feature = "metrics")]
    exported: Exported,
}

impl Instruments {
    /// Instruments that report to the `metrics` facade too, with those labels.
    pub(crate) fn new(labels: &LabelSettings) -> Self {
        #[cfg(not(feature = "metrics"))]
        let _ = labels;
        Self {
            #[cfg(feature = "metrics")]
            exported: Exported::new(labels.store, &labels.groups),
            ..Self::default()
        }
    }

    /// An acquire call has ended. `error`: the kind of the error with which it failed.
    pub(crate) fn acquire_ended(
        &self,
        (kind, name): (LockKind, &Name),
        end: AcquireEnd,
        took: Duration,
        error: Option<ErrorKind>,
    ) {
        self.acquires[end as usize].add();
        if end.is_acquired() {
            self.wait.record(took);
        }
        #[cfg(feature = "metrics")]
        self.exported.acquire_ended(kind, name, end, took, error);
        #[cfg(not(feature = "metrics"))]
        let _ = (kind, name, error);
    }

    /// An acquire call has begun to wait (`true`), or waits no more.
    pub(crate) fn waits(&self, (kind, name): (LockKind, &Name), begins: bool) {
        self.waits[usize::from(!begins)].add();
        #[cfg(feature = "metrics")]
        self.exported.waits(kind, name, begins);
        #[cfg(not(feature = "metrics"))]
        let _ = (kind, name);
    }

    pub(crate) fn hold_began(&self, (kind, name): (LockKind, &Name)) {
        self.holds[0].add();
        #[cfg(feature = "metrics")]
        self.exported.holds(kind, name, true);
        #[cfg(not(feature = "metrics"))]
        let _ = (kind, name);
    }

    pub(crate) fn hold_ended(
        &self,
        (kind, name): (LockKind, &Name),
        outcome: HoldOutcome,
        lasted: Duration,
    ) {
        self.holds[1].add();
        self.hold.record(lasted);
        if let HoldOutcome::Lost(reason) = outcome {
            self.lost[usize::from(reason.number())].add();
        }
        #[cfg(feature = "metrics")]
        self.exported.hold_ended(kind, name, outcome, lasted);
        #[cfg(not(feature = "metrics"))]
        let _ = (kind, name);
    }

    /// A renewal was confirmed while that much of the lease was left.
    pub(crate) fn renewed(&self, (kind, name): (LockKind, &Name), left: Duration) {
        self.lease_margin.record(left);
        #[cfg(feature = "metrics")]
        self.exported.renewed(kind, name, left);
        #[cfg(not(feature = "metrics"))]
        let _ = (kind, name);
    }

    /// A waiter was woken and has asked the store. `useful`: it got the lock.
    pub(crate) fn woken(&self, (kind, name): (LockKind, &Name), cause: WakeCause, useful: bool) {
        self.wakes[cause as usize].add();
        if useful {
            self.useful_wakes.add();
        }
        #[cfg(feature = "metrics")]
        self.exported.woken(kind, name, cause, useful);
        #[cfg(not(feature = "metrics"))]
        let _ = (kind, name);
    }

    /// A holder of this process gave up its hold. `None`: the next waiter of this process has it. Otherwise why it went
    /// back to the store although a waiter was there.
    pub(crate) fn handed_over(
        &self,
        (kind, name): (LockKind, &Name),
        stopped: Option<HandOverStop>,
    ) {
        if let Some(stop) = stopped {
            self.stops[stop as usize].add();
        }
        #[cfg(feature = "metrics")]
        self.exported.handed_over(kind, name, stopped);
        #[cfg(not(feature = "metrics"))]
        let _ = (kind, name);
    }

    pub(crate) fn cleaned_up(
        &self,
        (kind, name): (LockKind, &Name),
        cause: CleanupCause,
        end: CleanupEnd,
    ) {
        self.cleanups[end as usize].add();
        #[cfg(feature = "metrics")]
        self.exported.cleaned_up(kind, name, cause, end);
        #[cfg(not(feature = "metrics"))]
        let _ = (kind, name, cause);
    }

    /// The store has answered a request, or has failed to.
    pub(crate) fn answered(&self, request: StoreRequest, took: Duration, error: Option<&Error>) {
        if error.is_some() {
            self.failed_requests.add();
        } else {
            self.store_latency.record(took);
        }
        #[cfg(feature = "metrics")]
        self.exported
            .answered(request, took, error.map(Error::kind));
        #[cfg(not(feature = "metrics"))]
        let _ = request;
    }

    /// Whether a slow acquire may be logged now. At most once in 30 s: a lock that is slow is slow for many.
    pub(crate) fn may_warn(&self, now: BootInstant) -> bool {
        let until = self.quiet_until.load(Ordering::Relaxed);
        let next = now + Duration::from_secs(30);
        now.nanos() >= until
            && self
                .quiet_until
                .compare_exchange(until, next.nanos(), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// The present numbers.
    pub(crate) fn stats(&self) -> Stats {
        // The end is read before the begin: an operation that ends meanwhile must not make the difference negative.
        let open = |[begun, ended]: &[Counter; 2]| {
            let ended = ended.get();
            begun.get().saturating_sub(ended)
        };
        let acquires = |end: AcquireEnd| self.acquires[end as usize].get();
        let cleanups = |end: CleanupEnd| self.cleanups[end as usize].get();
        Stats {
            held: open(&self.holds),
            waiting: open(&self.waits),
            acquired_directly: acquires(AcquireEnd::Direct),
            acquired_after_wait: acquires(AcquireEnd::Waited),
            handed_over: acquires(AcquireEnd::HandedOver),
            reentered: acquires(AcquireEnd::Reentered),
            busy: acquires(AcquireEnd::Busy),
            timed_out: acquires(AcquireEnd::TimedOut),
            cancelled: acquires(AcquireEnd::Cancelled),
            failed: acquires(AcquireEnd::Failed),
            lost: LostReason::ALL
                .into_iter()
                .zip(self.lost.iter().map(Counter::get))
                .collect(),
            woken_by_message: self.wakes[WakeCause::Message as usize].get(),
            woken_by_timer: self.wakes[WakeCause::Timer as usize].get(),
            useful_wakes: self.useful_wakes.get(),
            returned_after_count: self.stops[HandOverStop::Count as usize].get(),
            returned_after_time: self.stops[HandOverStop::Time as usize].get(),
            returned_in_doubt: self.stops[HandOverStop::Doubt as usize].get(),
            cleanups_undone: cleanups(CleanupEnd::Undone),
            cleanups_of_nothing: cleanups(CleanupEnd::Nothing),
            cleanups_given_up: cleanups(CleanupEnd::GivenUp),
            failed_requests: self.failed_requests.get(),
            wait: self.wait.durations(),
            hold: self.hold.durations(),
            lease_margin: self.lease_margin.durations(),
            store_latency: self.store_latency.durations(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_as_opentelemetry_names_it() {
        for (url, store) in [
            ("redis://cache", "redis"),
            ("rediss://cache", "redis"),
            ("redis+sentinel://a:1/b", "redis"),
            ("postgres://db", "postgresql"),
            ("postgresql://db", "postgresql"),
            ("mysql://db", "mysql"),
            ("mariadb://db", "mariadb"),
            ("etcd://here", "etcd"),
            ("etcds://here", "etcd"),
            ("sqlite:/var/lib/locks", "sqlite"),
            ("memory:", "memory"),
            ("zookeeper://here", "zookeeper"),
            ("memcached://here", "memcached"),
            ("nonsense", "other"),
            ("", "other"),
        ] {
            assert_eq!(store_of(url), store, "{url}");
        }
    }

    /// A lock that is slow is slow for many.
    #[test]
    fn slow_acquires_are_logged_at_most_once_in_thirty_seconds() {
        let instruments = Instruments::default();
        let at = |seconds| BootInstant::from_nanos(1) + Duration::from_secs(seconds);
        let may_warn = [0, 1, 29, 30, 31, 60].map(|seconds| instruments.may_warn(at(seconds)));
        assert_eq!(may_warn, [true, false, false, true, false, true]);
    }
}
