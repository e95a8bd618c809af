//! The permits of a semaphore, used by one Java thread.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::lock::JavaLock;
use super::wire::{Answer, JavaError, Pending};

/// An `RPermitExpirableSemaphore` used by one worker thread of a peer.
#[derive(Debug, Clone)]
pub struct JavaPermits(JavaLock);

/// The result of [`JavaPermits::begin_hammer`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermitsReport {
    /// Number of holds.
    pub acquisitions: u64,
    /// The largest number of holders of both languages at one time.
    pub most_inside: u64,
    /// The longest wait for a permit.
    pub wait_max_ns: u64,
}

type Answered<T> = Result<Answer<T>, JavaError>;

/// Every method sends one command and waits for its answer, unless its name begins with `begin_`.
#[allow(
    clippy::missing_errors_doc,
    reason = "all fail alike: Java threw, the peer has gone, or it is stuck"
)]
impl JavaPermits {
    pub(super) fn new(lock: JavaLock) -> Self {
        Self(lock)
    }

    /// `trySetPermits(total)`.
    pub fn set_if_new(&self, total: u32) -> Answered<bool> {
        self.0
            .begin("set_if_new", json!({ "number": total }))?
            .wait()
    }

    /// `addPermits(more)`.
    pub fn add(&self, more: i32) -> Answered<()> {
        self.0.begin("add", json!({ "number": more }))?.wait()
    }

    /// `availablePermits()`.
    pub fn available(&self) -> Answered<i64> {
        self.0.begin("available", Value::Null)?.wait()
    }

    /// `acquire()`: the id of a permit without a lease.
    pub fn acquire(&self) -> Answered<String> {
        self.0.begin("acquire", Value::Null)?.wait()
    }

    /// `tryAcquire(waitTime, leaseTime)`: the id of a permit. Without a lease it never expires.
    pub fn try_acquire(&self, wait: Duration, lease: Option<Duration>) -> Answered<Option<String>> {
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let lease = lease.map_or(-1, millis);
        let times = json!({ "wait_ms": millis(wait), "lease_ms": lease });
        self.0.begin("try_acquire", times)?.wait()
    }

    /// `tryRelease(id)`.
    pub fn release(&self, id: &str) -> Answered<bool> {
        self.0.begin("release", json!({ "permit": id }))?.wait()
    }

    /// `updateLeaseTime(id, leaseTime)`.
    pub fn extend(&self, id: &str, lease: Duration) -> Answered<bool> {
        let lease = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
        let with = json!({ "permit": id, "lease_ms": lease });
        self.0.begin("extend", with)?.wait()
    }

    /// Waits for a permit, records the time of the grant (`done_at_ns`), and gives it back. For wake-up latencies.
    pub fn begin_acquire_when_free(&self) -> Result<Pending<()>, JavaError> {
        self.0.begin("acquire_when_free", Value::Null)
    }

    /// Takes a permit repeatedly on several threads, and counts the holders in the key `inside`.
    pub fn begin_hammer(
        &self,
        threads: u32,
        rounds: u32,
        inside: &str,
    ) -> Result<Pending<PermitsReport>, JavaError> {
        let with = json!({ "threads": threads, "rounds": rounds, "inside": inside });
        self.0.begin("hammer", with)
    }
}
