//! A count-down latch, used by one Java thread.

use std::time::Duration;

use serde_json::{Value, json};

use super::lock::JavaLock;
use super::wire::{Answer, JavaError, Pending};

/// An `RCountDownLatch` used by one worker thread of a peer.
#[derive(Debug, Clone)]
pub struct JavaLatch(JavaLock);

type Answered<T> = Result<Answer<T>, JavaError>;

/// Every method sends one command and waits for its answer, unless its name begins with `begin_`.
#[allow(
    clippy::missing_errors_doc,
    reason = "all fail alike: Java threw, the peer has gone, or it is stuck"
)]
impl JavaLatch {
    pub(super) fn new(lock: JavaLock) -> Self {
        Self(lock)
    }

    /// `trySetCount(count)`.
    pub fn set_if_new(&self, count: u32) -> Answered<bool> {
        self.0
            .begin("set_if_new", json!({ "number": count }))?
            .wait()
    }

    /// `getCount()`.
    pub fn count(&self) -> Answered<i64> {
        self.0.begin("count", Value::Null)?.wait()
    }

    /// `countDown()`.
    pub fn count_down(&self) -> Answered<()> {
        self.0.begin("count_down", Value::Null)?.wait()
    }

    /// `delete()`.
    pub fn delete(&self) -> Answered<bool> {
        self.0.begin("delete", Value::Null)?.wait()
    }

    /// `await(waitTime)`.
    pub fn wait_for(&self, wait: Duration) -> Answered<bool> {
        let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        self.0.begin("wait", json!({ "wait_ms": wait }))?.wait()
    }

    /// `await()`, and records when it returned (`done_at_ns`).
    pub fn begin_wait(&self) -> Result<Pending<()>, JavaError> {
        self.0.begin("wait_until_open", Value::Null)
    }

    /// Counts down `threads` times `rounds` times.
    pub fn begin_hammer(&self, threads: u32, rounds: u32) -> Result<Pending<()>, JavaError> {
        let with = json!({ "threads": threads, "rounds": rounds });
        self.0.begin("hammer", with)
    }
}
