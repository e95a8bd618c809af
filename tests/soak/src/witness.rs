//! The witness: a second server without faults, which checks the holders' claims one at a time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use testkit::java::monotonic_now_ns;
use testkit::servers::RedisServer;
use tidelock::Guard;
use tidelock::testing::AnyGuard;

const ENTER: &str = include_str!("enter.lua");
const LEAVE: &str = include_str!("leave.lua");

/// The current time in microseconds, on a clock that all processes share.
pub(crate) fn now() -> u64 {
    monotonic_now_ns() / 1_000
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The server, as seen by the process that started it.
#[derive(Debug)]
pub(crate) struct Witness {
    pub(crate) server: RedisServer,
    pub(crate) enter: String,
    pub(crate) leave: String,
}

impl Witness {
    pub(crate) fn start() -> Result<Self> {
        let server = RedisServer::start()?;
        let enter = server.query(&["SCRIPT", "LOAD", ENTER])?;
        let leave = server.query(&["SCRIPT", "LOAD", LEAVE])?;
        Ok(Self {
            server,
            enter,
            leave,
        })
    }

    /// Call this before a lock is deleted under its holder: claims that began earlier are not judged from now on.
    pub(crate) fn deleting(&self, name: &str) -> Result<()> {
        self.put("deleted", name, u64::MAX / 4)
    }

    /// Call this after the deletion. `holder` must hear of the loss within `within`.
    pub(crate) fn deleted(&self, name: &str, holder: Option<&str>, within: Duration) -> Result<()> {
        if let Some(holder) = holder {
            self.put("gone", holder, now() + micros(within))?;
        }
        self.put("deleted", name, now())
    }

    fn put(&self, key: &str, field: &str, value: u64) -> Result<()> {
        self.server.query(&["HSET", key, field, &value.to_string()])
    }

    pub(crate) fn numbers(&self, key: &str) -> Result<BTreeMap<String, u64>> {
        self.server.query(&["HGETALL", key])
    }

    pub(crate) fn lines(&self, key: &str) -> Result<Vec<String>> {
        self.server.query(&["LRANGE", key, "0", "-1"])
    }
}

/// Numbers the claims. Hand-offs in a process pass one hold, with one owner, to many holders, so the owner alone would
/// not identify a claim.
static CLAIMS: AtomicU64 = AtomicU64::new(0);

/// The period in which a holder is sure to have its lock.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) name: String,
    /// Unique to this holder: the owner and a number.
    pub(crate) id: String,
    pub(crate) from: u64,
    pub(crate) until: u64,
    pub(crate) token: u64,
}

impl Claim {
    /// The claim of a guard now. We read the clock before the guard. Otherwise the claim could be longer than the
    /// truth; now it can only be shorter.
    pub(crate) fn of(guard: &AnyGuard) -> Self {
        let from = now();
        Self {
            name: guard.name().to_owned(),
            id: format!(
                "{}#{}",
                guard.owner_id(),
                CLAIMS.fetch_add(1, Ordering::Relaxed)
            ),
            from,
            until: from + micros(guard.valid_for()),
            token: guard.number(),
        }
    }

    /// Extends the claim in case the guard has been renewed.
    pub(crate) fn renew(&mut self, guard: &Guard) {
        let now = now();
        let left = micros(guard.valid_for());
        if left > 0 {
            self.until = now + left;
        }
    }
}

/// The same server, as seen by a process that takes locks.
#[derive(Debug, Clone)]
pub(crate) struct Desk {
    connection: MultiplexedConnection,
    enter: String,
    leave: String,
    slot: String,
}

impl Desk {
    pub(crate) async fn open(url: &str, enter: &str, leave: &str, slot: usize) -> Result<Self> {
        // No timeout: this server always answers, and a process that was frozen must still get its answer after the
        // thaw.
        let patient = AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = redis::Client::open(url)?
            .get_multiplexed_async_connection_with_config(&patient)
            .await
            .context("the witness")?;
        Ok(Self {
            connection,
            enter: enter.to_owned(),
            leave: leave.to_owned(),
            slot: slot.to_string(),
        })
    }

    pub(crate) async fn enter(&self, claim: &Claim) -> Result<()> {
        self.claim(claim, "new").await
    }

    pub(crate) async fn keep(&self, claim: &Claim) -> Result<()> {
        self.claim(claim, "kept").await
    }

    async fn claim(&self, claim: &Claim, how: &str) -> Result<()> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.enter).arg(0);
        command.arg(&claim.name).arg(&claim.id).arg("tidelock");
        command.arg(&self.slot).arg(claim.from).arg(claim.until);
        command.arg(claim.token).arg(how);
        self.send(&command).await
    }

    pub(crate) async fn leave(&self, claim: &Claim, how: &str, late: Duration) -> Result<()> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.leave).arg(0);
        command.arg(&claim.name).arg(&claim.id).arg(&self.slot);
        command.arg(now()).arg(how).arg(micros(late));
        self.send(&command).await
    }

    pub(crate) async fn count(&self, key: &str, field: &str) -> Result<()> {
        let mut command = redis::cmd("HINCRBY");
        command.arg(key).arg(field).arg(1);
        self.send(&command).await
    }

    /// Stores a figure of this process.
    pub(crate) async fn put(&self, key: &str, value: u64) -> Result<()> {
        let mut command = redis::cmd("HSET");
        command.arg(key).arg(std::process::id()).arg(value);
        self.send(&command).await
    }

    /// Records a long wait for the report, with the recent holders of the lock.
    pub(crate) async fn waited(&self, name: &str, story: &str) -> Result<()> {
        let mut connection = self.connection.clone();
        let held: Vec<String> = redis::cmd("LRANGE")
            .arg(format!("held {name}"))
            .arg(-12)
            .arg(-1)
            .query_async(&mut connection)
            .await?;
        let line = format!("process {} at {}: {story}", self.slot, now());
        let mut command = redis::cmd("RPUSH");
        command
            .arg("waits")
            .arg(format!("{line}; {}", held.join(", ")));
        self.send(&command).await
    }

    async fn send(&self, command: &redis::Cmd) -> Result<()> {
        let mut connection = self.connection.clone();
        let _: redis::Value = command.query_async(&mut connection).await?;
        Ok(())
    }
}
