//! The servers whose primaries fail, one after another.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use testkit::servers::{Cluster, RedisServer, Sentinels};

/// The kind of failover.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    Killed,
    Frozen,
    Planned,
}

pub(crate) const ENDS: [End; 3] = [End::Killed, End::Frozen, End::Planned];

pub(crate) enum Servers {
    /// One primary with two replicas.
    Sentinels(Sentinels),
    /// Three shards, each with two replicas.
    Cluster(Cluster),
}

impl Servers {
    pub(crate) fn sentinels() -> Result<Self> {
        Ok(Self::Sentinels(Sentinels::start()?))
    }

    pub(crate) fn cluster() -> Result<Self> {
        // One replica more than `any` requires, so that one of them may lag.
        Ok(Self::Cluster(Cluster::builder().replicas(2).start()?))
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sentinels(sentinels) => sentinels.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    /// The last lines of the servers' logs.
    pub(crate) fn logs(&self) -> String {
        match self {
            Self::Sentinels(sentinels) => sentinels.logs(),
            Self::Cluster(cluster) => cluster.logs(),
        }
    }

    /// The server that has a lock.
    pub(crate) fn primary_of(&self, name: &str) -> Result<&RedisServer> {
        match self {
            Self::Sentinels(sentinels) => sentinels.primary(),
            Self::Cluster(cluster) => cluster.node_of(name),
        }
    }

    /// Fails over the primary of this lock. On return another primary is there, and the old one follows it. Returns how
    /// long there was none: after a split vote the next election takes place some seconds later.
    pub(crate) fn meet(&self, end: End, name: &str, within: Duration) -> Result<Duration> {
        let old = self.primary_of(name)?;
        let start = Instant::now();
        match end {
            End::Killed => old.kill()?,
            End::Frozen => old.freeze()?,
            End::Planned => self.hand_over(name)?,
        }
        self.await_other_than(old, name, within)?;
        let outage = start.elapsed();
        match end {
            End::Killed => old.restart()?,
            End::Frozen => old.thaw()?,
            End::Planned => {}
        }
        match self {
            Self::Sentinels(sentinels) => sentinels.await_ok()?,
            Self::Cluster(cluster) => cluster.await_ok()?,
        }
        Ok(outage)
    }

    fn hand_over(&self, name: &str) -> Result<()> {
        match self {
            Self::Sentinels(sentinels) => sentinels.failover().map(drop),
            Self::Cluster(cluster) => cluster.failover(cluster.slot_of(name)?).map(drop),
        }
    }

    fn await_other_than(&self, old: &RedisServer, name: &str, within: Duration) -> Result<()> {
        match self {
            Self::Sentinels(sentinels) => sentinels
                .await_primary_other_than(old.addr(), within)
                .map(drop),
            Self::Cluster(cluster) => {
                let slot = cluster.slot_of(name)?;
                let other = cluster.await_primary_other_than(slot, old, within);
                other.context("another primary of the shard").map(drop)
            }
        }
    }
}
