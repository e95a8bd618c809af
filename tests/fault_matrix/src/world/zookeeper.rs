use std::net::SocketAddr;

use anyhow::Result;
use testkit::servers::{Ground, ZooKeeperServer};

use super::behind::{Served, is_a};

impl Served for ZooKeeperServer {
    is_a!(ZooKeeperServer);

    fn start(ground: Ground, _guarded: bool) -> Result<Self> {
        Self::start_on(ground, "")
    }

    fn ground(&self) -> Option<&Ground> {
        Some(Self::ground(self))
    }

    fn url(&self, way: SocketAddr) -> String {
        format!("zookeeper://{way}/matrix")
    }

    fn wipe(&self, name: &str) -> Result<()> {
        super::force(&format!("{}/matrix", Self::url(self)), &[name])
    }

    fn left(&self, _base: &str) -> Result<Vec<String>> {
        // `list` shows only holders, but a waiter leaves a node as well.
        let nodes = self.number("zk_ephemerals_count")?;
        Ok((nodes > 0)
            .then(|| format!("{nodes} ephemeral nodes"))
            .into_iter()
            .collect())
    }
}
