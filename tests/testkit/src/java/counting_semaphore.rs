//! A semaphore whose permits have no holder, used by one Java thread.

use std::time::Duration;

use serde_json::{Value, json};

use super::lock::JavaLock;
use super::permits::PermitsReport;
use super::wire::{Answer, JavaError, Pending};

/// An `RSemaphore` used by one worker thread of a peer.
#[derive(Debug, Clone)]
pub struct JavaCountingSemaphore(JavaLock);

type Answered<T> = Result<Answer<T>, JavaError>;

/// Every method sends one command and waits for its answer, unless its name begins with `begin_`.
#[allow(
    clippy::missing_errors_doc,
    reason = "all fail alike: Java threw, the peer has gone, or it is stuck"
)]
impl JavaCountingSemaphore {
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

    /// `drainPermits()`.
    pub fn drain(&self) -> Answered<i64> {
        self.0.begin("drain", Value::Null)?.wait()
    }

    /// `tryAcquire(permits)`.
    pub fn try_acquire(&self, permits: u32) -> Answered<bool> {
        self.0
            .begin("try_acquire", json!({ "number": permits }))?
            .wait()
    }

    /// `tryAcquire(permits, waitTime)`.
    pub fn try_acquire_for(&self, permits: u32, wait: Duration) -> Answered<bool> {
        let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        let with = json!({ "number": permits, "wait_ms": wait });
        self.0.begin("try_acquire", with)?.wait()
    }

    /// `acquire(permits)`, and records when it returned (`done_at_ns`).
    pub fn begin_acquire(&self, permits: u32) -> Result<Pending<()>, JavaError> {
        self.0.begin("acquire", json!({ "number": permits }))
    }

    /// `release(permits)`.
    pub fn release(&self, permits: u32) -> Answered<()> {
        self.0
            .begin("release", json!({ "number": permits }))?
            .wait()
    }

    /// Takes one or two permits repeatedly on several threads, and counts in the key `inside` how many are out.
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
