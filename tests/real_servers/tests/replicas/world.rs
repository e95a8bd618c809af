//! A primary with two replicas, a proxy in front of it, and clients through the proxy.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use real_servers::{ms, secs};
use testkit::process::boot_time;
use testkit::proxy::Proxy;
use testkit::servers::{RedisServer, Replicated};
use tidelock::{AcquireOptions, Client, ClientBuilder, Guard, LostReason, ReplicaAck};
use tokio::task::JoinHandle;

/// Longer than any event takes that must come.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// How long we wait for the replicas here.
pub(crate) fn brief() -> Duration {
    ms(150)
}

/// How long we wait for the replicas where a replica that works must acknowledge in time, on a busy machine too.
pub(crate) fn long() -> Duration {
    secs(2)
}

/// The servers and the proxy to their primary.
pub(crate) struct World {
    pub(crate) all: Replicated,
    pub(crate) proxy: Proxy,
    pub(crate) lease: Duration,
}

impl World {
    pub(crate) fn new(lease: Duration) -> Result<Self> {
        Self::of(2, lease)
    }

    /// With this many replicas.
    pub(crate) fn of(replicas: usize, lease: Duration) -> Result<Self> {
        let all = Replicated::start(replicas)?;
        let proxy = Proxy::start(all.primary().addr())?;
        let world = Self { all, proxy, lease };
        // A replica that has just copied the data counts as online, but receives nothing more before its first
        // heartbeat.
        world.all.primary().admin(&["SET", "in sync", "1"])?;
        (1..=replicas).try_for_each(|i| world.in_sync(i))?;
        Ok(world)
    }

    /// A client's settings. The response timeout is long enough for the whole replica timeout.
    pub(crate) fn builder(&self) -> ClientBuilder {
        Client::builder()
            .lease(self.lease)
            .response_timeout(brief() * 4)
            .acknowledge_within(brief())
            .publish_process_info(false)
    }

    pub(crate) async fn client(&self, policy: ReplicaAck) -> Result<Client> {
        let builder = self.builder().acknowledge(policy);
        Ok(builder
            .connect_within(SOON)
            .connect(&self.proxy.url())
            .await?)
    }

    /// A client that waits for the replicas for up to `limit`, and for at most a sixth of a lease.
    pub(crate) async fn client_within(
        &self,
        policy: ReplicaAck,
        limit: Duration,
    ) -> Result<Client> {
        let builder = self.builder().acknowledge(policy);
        // The library waits for the replicas for at most a third of the response timeout.
        let builder = builder
            .acknowledge_within(limit)
            .response_timeout(limit * 3);
        Ok(builder
            .connect_within(SOON)
            .connect(&self.proxy.url())
            .await?)
    }

    /// The number of times that the primary has run a command.
    pub(crate) fn calls(&self, command: &str) -> Result<u64> {
        let stats: String = self.all.primary().query(&["INFO", "commandstats"])?;
        let start = format!("cmdstat_{command}:calls=");
        let line = stats.lines().find_map(|line| line.strip_prefix(&start));
        let Some(line) = line else { return Ok(0) };
        let number = line.split(',').next().unwrap_or_default();
        Ok(number.parse()?)
    }

    /// True if nobody holds the lock on the primary.
    pub(crate) fn is_free(&self, name: &str) -> Result<bool> {
        Ok(self.all.primary().query::<u64, _>(&["EXISTS", name])? == 0)
    }

    /// The owner that holds a lock on this server.
    pub(crate) fn holder(server: &RedisServer, name: &str) -> Result<Option<String>> {
        let owners: Vec<String> = server.query(&["HKEYS", name])?;
        ensure!(owners.len() < 2, "{owners:?} hold {name} together");
        Ok(owners.into_iter().next())
    }

    /// Waits until node `i` has received everything that was written so far.
    pub(crate) fn in_sync(&self, i: usize) -> Result<()> {
        let offset = |server: &RedisServer, field: &str| -> Result<u64> {
            let info: String = server.query(&["INFO", "replication"])?;
            let value = info.lines().find_map(|line| line.strip_prefix(field));
            Ok(value.context("an offset")?.trim().parse()?)
        };
        let written = offset(self.all.primary(), "master_repl_offset:")?;
        eventually("the replica has it all", || {
            Ok(offset(&self.all.nodes()[i], "slave_repl_offset:")? >= written)
        })
    }

    /// From now on clients reach this server, also those that are already connected.
    pub(crate) fn lead_to(&self, server: &RedisServer) {
        self.proxy.set_upstream(server.addr());
        self.proxy.cut();
    }
}

/// Options for one attempt with this acknowledgement policy.
pub(crate) fn once(policy: ReplicaAck) -> AcquireOptions {
    AcquireOptions::new()
        .acknowledge(policy)
        .wait(Duration::ZERO)
}

/// Options for a longer wait with this acknowledgement policy.
pub(crate) fn patient(policy: ReplicaAck) -> AcquireOptions {
    AcquireOptions::new().acknowledge(policy).wait(SOON)
}

/// Polls until the condition is true, for state that only the server can report.
pub(crate) fn eventually(what: &str, mut reached: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !reached()? {
        ensure!(start.elapsed() < SOON, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(3));
    }
    Ok(())
}

/// Awaits a future with a time limit.
pub(crate) async fn within<F: Future>(limit: Duration, what: &str, future: F) -> Result<F::Output> {
    tokio::time::timeout(limit, future)
        .await
        .with_context(|| format!("not within {limit:?}: {what}"))
}

/// Waits for the loss of a guard, and records the boot time at which the guard reported it.
pub(crate) struct Told(JoinHandle<(Duration, LostReason)>);

pub(crate) fn listen(guard: &Guard) -> Told {
    let lost = guard.lost();
    Told(tokio::spawn(async move {
        let reason = lost.await;
        (boot_time(), reason)
    }))
}

impl Told {
    pub(crate) fn is_quiet(&self) -> bool {
        !self.0.is_finished()
    }

    pub(crate) async fn told(self) -> Result<(Duration, LostReason)> {
        Ok(within(SOON, "the holder is told", self.0).await??)
    }
}
