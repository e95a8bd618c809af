//! The resources that an idle client uses in its process and on its server.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use testkit::process::{open_fds, rss_bytes, threads};
use testkit::servers::RedisServer;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

/// The time for which a subscription lingers after its last waiter, plus a margin for a busy machine.
const QUIET: Duration = Duration::from_secs(15);

/// The counts are those of the whole process, so only one of these tests runs at a time.
pub(crate) static ALONE: Mutex<()> = Mutex::const_new(());

/// The resource counts at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Books {
    pub(crate) memory: u64,
    pub(crate) descriptors: usize,
    pub(crate) threads: u64,
    pub(crate) tasks: usize,
    /// Connections at the server, without the one that reads the count.
    pub(crate) connections: usize,
}

impl Books {
    pub(crate) fn read(server: &RedisServer) -> Result<Self> {
        let me = std::process::id();
        let connections: String = server.query(&["CLIENT", "LIST"])?;
        Ok(Self {
            memory: rss_bytes(me)?,
            descriptors: open_fds(me)?,
            threads: threads(me)?,
            tasks: Handle::current().metrics().num_alive_tasks(),
            connections: connections.lines().count() - 1,
        })
    }
}

/// Keys that should not be left: every lock, and every key without a time to live.
fn strange_keys(server: &RedisServer) -> Result<Vec<String>> {
    let mut strange = Vec::new();
    for key in server.keys()? {
        let left: i64 = server.query(&["PTTL", &key])?;
        // The key may also expire between the two requests (-2).
        if left != -2 && !(key.starts_with("tidelock:") && left > 0) {
            strange.push(format!("{key} ({left} ms)"));
        }
    }
    Ok(strange)
}

/// Waits, for no longer than a subscription lingers, until the server has neither a lock nor a channel.
pub(crate) async fn quiet(server: &RedisServer) -> Result<()> {
    let end = Instant::now() + QUIET;
    loop {
        let keys = strange_keys(server)?;
        let channels: Vec<String> = server.query(&["PUBSUB", "CHANNELS"])?;
        if keys.is_empty() && channels.is_empty() {
            return Ok(());
        }
        if Instant::now() > end {
            bail!("after {QUIET:?} there are still keys {keys:?} and channels {channels:?}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until at most `most` tasks of the test's runtime are left.
pub(crate) async fn few_tasks(most: usize) -> Result<()> {
    let end = Instant::now() + QUIET;
    loop {
        let alive = Handle::current().metrics().num_alive_tasks();
        if alive <= most {
            return Ok(());
        }
        if Instant::now() > end {
            bail!("{alive} tasks are left; {most} would be right");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
