//! One Redisson lock, used by one Java thread.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::wire::{Answer, JavaError, Link, Pending};

/// An `RLock` or `RFencedLock` used by one worker thread of a peer. Clones are cheap, and several threads can use it;
/// the worker executes one command at a time.
#[derive(Debug, Clone)]
pub struct JavaLock {
    link: Arc<Link>,
    worker: String,
    kind: &'static str,
    name: String,
}

/// The parameters of [`JavaLock::begin_hammer`].
#[derive(Debug, Clone)]
pub struct HammerPlan {
    /// Acquisitions per thread.
    pub rounds: u32,
    /// Number of Java threads that compete.
    pub threads: u32,
    /// A file made by [`WordFile::create`](super::WordFile::create).
    pub word_file: PathBuf,
    /// Duration of each hold.
    pub hold: Duration,
}

/// The result of a hammer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HammerReport {
    /// Number of holds.
    pub acquisitions: u64,
    /// Number of holds during which another client was inside: must be 0.
    pub overlaps: u64,
    /// Number of holds whose token was not above the last one in the file: must be 0.
    pub token_faults: u64,
    /// The highest token, 0 for a plain lock.
    pub last_token: u64,
    /// Median time from the request to the grant.
    pub wait_p50_ns: u64,
    /// The same, 99th percentile.
    pub wait_p99_ns: u64,
    /// The same, the longest.
    pub wait_max_ns: u64,
}

type Asked<T> = Result<Pending<T>, JavaError>;
type Answered<T> = Result<Answer<T>, JavaError>;

/// Every method sends one command and waits for its answer, unless its name begins with `begin_`.
#[allow(
    clippy::missing_errors_doc,
    reason = "all fail alike: Java threw, the peer has gone, or it is stuck"
)]
impl JavaLock {
    pub(super) fn new(link: Arc<Link>, worker: &str, kind: &'static str, name: &str) -> Self {
        Self {
            link,
            worker: worker.into(),
            kind,
            name: name.into(),
        }
    }

    pub(super) fn begin<T>(&self, command: &str, with: Value) -> Asked<T> {
        let mut request = match with {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        request.insert("kind".into(), self.kind.into());
        request.insert("name".into(), self.name.as_str().into());
        self.link.begin(&self.worker, command, request)
    }

    fn ask<T: DeserializeOwned>(&self, command: &str) -> Answered<T> {
        self.begin(command, Value::Null)?.wait()
    }

    /// `lock()`: waits without a limit; the watchdog renews the lock.
    pub fn lock(&self) -> Answered<()> {
        self.begin_lock()?.wait()
    }

    /// `lock()`, without waiting for the answer.
    pub fn begin_lock(&self) -> Asked<()> {
        self.begin("lock", Value::Null)
    }

    /// `lock(leaseTime)`: the lock expires by itself; Redisson never renews it.
    pub fn lock_for(&self, lease: Duration) -> Answered<()> {
        self.begin_lock_for(lease)?.wait()
    }

    /// `lock(leaseTime)`, without waiting for the answer.
    pub fn begin_lock_for(&self, lease: Duration) -> Asked<()> {
        self.begin("lock", json!({ "lease_ms": millis(lease) }))
    }

    /// `tryLock()`.
    pub fn try_lock(&self) -> Answered<bool> {
        self.ask("try_lock")
    }

    /// `tryLock(waitTime, leaseTime)`; without a lease, the watchdog renews the lock.
    pub fn try_lock_for(&self, wait: Duration, lease: Option<Duration>) -> Answered<bool> {
        self.begin_try_lock_for(wait, lease)?.wait()
    }

    /// `tryLock(waitTime, leaseTime)`, without waiting for the answer.
    pub fn begin_try_lock_for(&self, wait: Duration, lease: Option<Duration>) -> Asked<bool> {
        self.begin(
            "try_lock",
            json!({ "wait_ms": millis(wait), "lease_ms": lease.map_or(-1, millis) }),
        )
    }

    /// `unlock()`.
    pub fn unlock(&self) -> Answered<()> {
        self.ask("unlock")
    }

    /// `forceUnlock()`: returns whether there was a lock.
    pub fn force_unlock(&self) -> Answered<bool> {
        self.ask("force_unlock")
    }

    /// `isLocked()`.
    pub fn is_locked(&self) -> Answered<bool> {
        self.ask("is_locked")
    }

    /// `isHeldByCurrentThread()`.
    pub fn is_held(&self) -> Answered<bool> {
        self.ask("is_held")
    }

    /// `getHoldCount()`.
    pub fn hold_count(&self) -> Answered<u32> {
        self.ask("hold_count")
    }

    /// `remainTimeToLive()`: -2 means no lock, -1 a lock without an expiry.
    pub fn ttl_ms(&self) -> Answered<i64> {
        self.ask("ttl_ms")
    }

    /// `lockAndGetToken()`, fenced locks only.
    pub fn lock_and_get_token(&self) -> Answered<u64> {
        self.begin_lock_and_get_token()?.wait()
    }

    /// `lockAndGetToken()`, without waiting for the answer.
    pub fn begin_lock_and_get_token(&self) -> Asked<u64> {
        self.begin("lock_and_get_token", Value::Null)
    }

    /// `tryLockAndGetToken()`, fenced locks only. In 4.7.0 it does not return at once when another client holds the
    /// lock: it subscribes and waits. Use [`try_lock`](Self::try_lock) and [`token`](Self::token) for an attempt
    /// without a wait.
    pub fn try_lock_and_get_token(&self) -> Answered<Option<u64>> {
        self.ask("try_lock_and_get_token")
    }

    /// `getToken()`, fenced locks only: the last token, 0 if there was none.
    pub fn token(&self) -> Answered<u64> {
        self.ask("token")
    }

    /// Waits for the lock, records the time of the grant (`done_at_ns`), and releases it. For wake-up latencies.
    pub fn begin_lock_when_free(&self) -> Asked<()> {
        self.begin("lock_when_free", Value::Null)
    }

    /// Acquires the lock repeatedly and checks the word file inside, and the tokens if the lock is fenced.
    pub fn hammer(&self, plan: &HammerPlan) -> Answered<HammerReport> {
        self.begin_hammer(plan)?.wait()
    }

    /// [`hammer`](Self::hammer), without waiting for the answer.
    pub fn begin_hammer(&self, plan: &HammerPlan) -> Asked<HammerReport> {
        let hold_us = i64::try_from(plan.hold.as_micros()).unwrap_or(i64::MAX);
        self.begin(
            "hammer",
            json!({ "rounds": plan.rounds, "threads": plan.threads, "word_file": plan.word_file, "hold_us": hold_us }),
        )
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
