//! One Redisson lock in the hands of one Java thread.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::wire::{Answer, JavaError, Link, Pending};

/// An `RLock` or `RFencedLock` used by one worker thread of a peer. Cheap to clone, usable from several threads; the
/// worker does one thing at a time.
#[derive(Debug, Clone)]
pub struct JavaLock {
    link: Arc<Link>,
    worker: String,
    kind: &'static str,
    name: String,
}

/// What [`JavaLock::begin_hammer`] shall do.
#[derive(Debug, Clone)]
pub struct HammerPlan {
    /// Acquisitions of each thread.
    pub rounds: u32,
    /// Java threads of their own that take turns.
    pub threads: u32,
    /// A file made by [`WordFile::create`](super::WordFile::create).
    pub word_file: PathBuf,
    /// How long each hold lasts.
    pub hold: Duration,
}

/// What a hammer saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HammerReport {
    /// Holds in all.
    pub acquisitions: u64,
    /// Holds in which somebody else was inside: must be 0.
    pub overlaps: u64,
    /// Holds whose token was not above the last one in the file: must be 0.
    pub token_faults: u64,
    /// The highest token, 0 for a plain lock.
    pub last_token: u64,
    /// Median time from asking to holding.
    pub wait_p50_ns: u64,
    /// The same, 99th percentile.
    pub wait_p99_ns: u64,
    /// The same, the longest.
    pub wait_max_ns: u64,
}

type Asked<T> = Result<Pending<T>, JavaError>;
type Answered<T> = Result<Answer<T>, JavaError>;

/// Every method sends one command and, unless it begins with `begin_`, waits for its answer.
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

    /// `lock()`: waits for ever, kept by the watchdog.
    pub fn lock(&self) -> Answered<()> {
        self.begin_lock()?.wait()
    }

    /// `lock()`, not waited for.
    pub fn begin_lock(&self) -> Asked<()> {
        self.begin("lock", Value::Null)
    }

    /// `lock(leaseTime)`: ends by itself, never renewed.
    pub fn lock_for(&self, lease: Duration) -> Answered<()> {
        self.begin_lock_for(lease)?.wait()
    }

    /// `lock(leaseTime)`, not waited for.
    pub fn begin_lock_for(&self, lease: Duration) -> Asked<()> {
        self.begin("lock", json!({ "lease_ms": millis(lease) }))
    }

    /// `tryLock()`.
    pub fn try_lock(&self) -> Answered<bool> {
        self.ask("try_lock")
    }

    /// `tryLock(waitTime, leaseTime)`; without a lease the watchdog keeps it.
    pub fn try_lock_for(&self, wait: Duration, lease: Option<Duration>) -> Answered<bool> {
        self.begin_try_lock_for(wait, lease)?.wait()
    }

    /// `tryLock(waitTime, leaseTime)`, not waited for.
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

    /// `forceUnlock()`: whether there was a lock.
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

    /// `remainTimeToLive()`: -2 no lock, -1 a lock without end.
    pub fn ttl_ms(&self) -> Answered<i64> {
        self.ask("ttl_ms")
    }

    /// `lockAndGetToken()`, fenced locks only.
    pub fn lock_and_get_token(&self) -> Answered<u64> {
        self.begin_lock_and_get_token()?.wait()
    }

    /// `lockAndGetToken()`, not waited for.
    pub fn begin_lock_and_get_token(&self) -> Asked<u64> {
        self.begin("lock_and_get_token", Value::Null)
    }

    /// `tryLockAndGetToken()`, fenced locks only. In 4.7.0 it does not give up at once when another holds the lock: it
    /// subscribes and waits. Use [`try_lock`](Self::try_lock) and [`token`](Self::token) to ask without waiting.
    pub fn try_lock_and_get_token(&self) -> Answered<Option<u64>> {
        self.ask("try_lock_and_get_token")
    }

    /// `getToken()`, fenced locks only: the last token, 0 when there was none.
    pub fn token(&self) -> Answered<u64> {
        self.ask("token")
    }

    /// Waits for the lock, notes when it came (`done_at_ns`), and gives it back. For wake-up latencies.
    pub fn begin_lock_when_free(&self) -> Asked<()> {
        self.begin("lock_when_free", Value::Null)
    }

    /// Takes the lock again and again, checking the word file inside; tokens too if the lock is fenced.
    pub fn hammer(&self, plan: &HammerPlan) -> Answered<HammerReport> {
        self.begin_hammer(plan)?.wait()
    }

    /// [`hammer`](Self::hammer), not waited for.
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
