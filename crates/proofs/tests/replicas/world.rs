//! A primary with two replicas, a proxy before it, and clients through the proxy.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use proofs::boot_time;
use testkit::proxy::Proxy;
use testkit::servers::{RedisServer, Replicated};
use tidelock::{AcquireOptions, Client, ClientBuilder, Guard, LostReason, ReplicaAck};
use tokio::task::JoinHandle;

/// Longer than any event takes that is awaited only to be sure that it has come.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// How long the replicas are waited for here.
pub(crate) const WITHIN: Duration = Duration::from_millis(150);

/// The servers and the way to their primary.
pub(crate) struct World {
    pub(crate) all: Replicated,
    pub(crate) proxy: Proxy,
    pub(crate) lease: Duration,
}

impl World {
    pub(crate) fn new(lease: Duration) -> Result<Self> {
        Self::of(2, lease)
    }

    /// With so many replicas.
    pub(crate) fn of(replicas: usize, lease: Duration) -> Result<Self> {
        let all = Replicated::start(replicas)?;
        let proxy = Proxy::start(all.primary().addr())?;
        let world = Self { all, proxy, lease };
        // A replica that has just copied the data counts as online, and hears nothing more until its first sign of life.
        world.all.primary().admin(&["SET", "in sync", "1"])?;
        (1..=replicas).try_for_each(|i| world.in_sync(i))?;
        Ok(world)
    }

    /// A client's settings. The response timeout leaves the replicas all the time they are given.
    pub(crate) fn builder(&self) -> ClientBuilder {
        Client::builder()
            .lease(self.lease)
            .response_timeout(WITHIN * 4)
            .acknowledge_within(WITHIN)
            .details(false)
    }

    pub(crate) async fn client(&self, policy: ReplicaAck) -> Result<Client> {
        let builder = self.builder().acknowledge(policy);
        Ok(builder.connect(&self.proxy.url()).await?)
    }

    /// How often the primary has run a command.
    pub(crate) fn calls(&self, command: &str) -> Result<u64> {
        let stats: String = self.all.primary().query(&["INFO", "commandstats"])?;
        let start = format!("cmdstat_{command}:calls=");
        let line = stats.lines().find_map(|line| line.strip_prefix(&start));
        let Some(line) = line else { return Ok(0) };
        let number = line.split(',').next().unwrap_or_default();
        Ok(number.parse()?)
    }

    /// Nobody holds the lock on the primary.
    pub(crate) fn is_free(&self, name: &str) -> Result<bool> {
        Ok(self.all.primary().query::<u64, _>(&["EXISTS", name])? == 0)
    }

    /// The owner that holds a lock on one server.
    pub(crate) fn holder(server: &RedisServer, name: &str) -> Result<Option<String>> {
        let owners: Vec<String> = server.query(&["HKEYS", name])?;
        ensure!(owners.len() < 2, "{owners:?} hold {name} together");
        Ok(owners.into_iter().next())
    }

    /// Node `i` has everything that was written so far.
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

    /// Clients come to this server from now on, those that are connected too.
    pub(crate) fn lead_to(&self, server: &RedisServer) {
        self.proxy.set_upstream(server.addr());
        self.proxy.cut();
    }
}

/// One try, acknowledged like this.
pub(crate) fn once(policy: ReplicaAck) -> AcquireOptions {
    AcquireOptions::new()
        .acknowledge(policy)
        .wait(Duration::ZERO)
}

/// Waits a while, acknowledged like this.
pub(crate) fn patient(policy: ReplicaAck) -> AcquireOptions {
    AcquireOptions::new().acknowledge(policy).wait(SOON)
}

/// Asks until it is so. For what only the server can tell.
pub(crate) fn eventually(what: &str, mut reached: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !reached()? {
        ensure!(start.elapsed() < SOON, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(3));
    }
    Ok(())
}

/// Awaits a future, but not for ever.
pub(crate) async fn within<F: Future>(limit: Duration, what: &str, future: F) -> Result<F::Output> {
    tokio::time::timeout(limit, future)
        .await
        .with_context(|| format!("not within {limit:?}: {what}"))
}

/// Listens for the loss of a guard, and notes when, on the boot clock, it was told.
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
