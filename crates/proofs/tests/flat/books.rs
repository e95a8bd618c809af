//! What a client costs its process and its server, read when it has nothing to do.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use testkit::process::{open_fds, rss_bytes, threads};
use testkit::servers::RedisServer;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

/// How long a subscription lingers after its last waiter, and then some for a busy machine.
const QUIET: Duration = Duration::from_secs(15);

/// The books are those of the whole process, so only one of these tests runs at a time.
pub(crate) static ALONE: Mutex<()> = Mutex::const_new(());

/// What is there at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Books {
    pub(crate) memory: u64,
    pub(crate) descriptors: usize,
    pub(crate) threads: u64,
    pub(crate) tasks: usize,
    /// Connections at the server, the one that asks left out.
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

/// Keys that are not ours to leave: every lock, and whatever would stay for ever.
fn strange_keys(server: &RedisServer) -> Result<Vec<String>> {
    let mut strange = Vec::new();
    for key in server.keys()? {
        let left: i64 = server.query(&["PTTL", &key])?;
        // Gone between the two questions is well, too.
        if left != -2 && !(key.starts_with("tidelock:") && left > 0) {
            strange.push(format!("{key} ({left} ms)"));
        }
    }
    Ok(strange)
}

/// Waits, no longer than a lingering subscription lasts, until the server has neither a lock nor a channel.
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

/// Waits until this many tasks of the test's runtime are left at most.
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
