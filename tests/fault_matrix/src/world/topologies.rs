use std::time::Duration;

use anyhow::{Context, Result};
use testkit::proxy::Proxy;
use testkit::servers::{Cluster, RedisServer, Replicated, Sentinels};

use super::{Deed, World, redis};

/// The bound on any failover here, even on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// A primary and two replicas, behind an address that always leads to the primary.
pub(super) struct Group {
    proxy: Proxy,
    group: Replicated,
}

impl Group {
    pub(super) fn start() -> Result<Self> {
        let group = Replicated::start_with(2, redis::builder())?;
        Ok(Self {
            proxy: Proxy::start(group.primary().addr())?,
            group,
        })
    }

    fn other(&self) -> usize {
        (self.group.primary_index() + 1) % 3
    }

    fn lead_to_primary(&self) {
        self.proxy.set_upstream(self.group.primary().addr());
        // Open connections still lead to the old primary, so the clients must reconnect.
        self.proxy.cut();
    }
}

impl World for Group {
    fn urls(&self) -> Vec<String> {
        vec![self.proxy.url()]
    }

    fn version(&self) -> Result<String> {
        let version = self.group.primary().version()?;
        Ok(format!("{version}, 1 + 2, acknowledged by any"))
    }

    fn proxies(&self) -> Vec<&Proxy> {
        vec![&self.proxy]
    }

    fn freeze(&self) -> Result<()> {
        self.group.primary().freeze()
    }

    fn thaw(&self) -> Result<()> {
        self.group.primary().thaw()
    }

    fn restart(&self, _forget: bool) -> Result<()> {
        // The primary restarts empty, and its replicas copy that.
        self.group.primary().restart_empty()?;
        self.group.await_ok()
    }

    fn wipe(&self, name: &str) -> Result<()> {
        self.group.primary().admin(&["DEL", name]).map(drop)
    }

    fn operate(&self, deed: Deed, _name: &str) -> Result<()> {
        match deed {
            Deed::Failover => {
                self.group.failover(self.other())?;
                self.lead_to_primary();
                Ok(())
            }
            Deed::Crash => {
                let (old, next) = (self.group.primary_index(), self.other());
                // We stall replication first, so that the last writes of the old primary do not reach the next one.
                self.group.stall(next);
                std::thread::sleep(Duration::from_millis(100));
                self.group.primary().kill()?;
                self.group.promote(next)?;
                self.group.resume(next);
                self.lead_to_primary();
                self.group.nodes()[old].restart_empty()?;
                self.group.demote(old)?;
                self.group.await_ok()
            }
            _ => redis::operate(self.group.primary(), deed),
        }
    }

    fn left(&self, base: &str) -> Result<Vec<String>> {
        redis::left(self.group.primary(), base)
    }

    fn mend(&self) -> Result<()> {
        self.group.await_ok()
    }
}

/// A primary and two replicas under three sentinels. The clients ask the sentinels for the primary.
pub(super) struct Watched(Sentinels);

impl Watched {
    pub(super) fn start() -> Result<Self> {
        Ok(Self(Sentinels::builder().server(redis::builder()).start()?))
    }

    fn replace(&self, down: impl Fn(&RedisServer) -> Result<()>) -> Result<()> {
        let old = self.0.primary()?;
        down(old)?;
        let new = self.0.await_primary_other_than(old.addr(), PATIENCE);
        new.map(drop)
    }
}

impl World for Watched {
    fn urls(&self) -> Vec<String> {
        vec![self.0.url()]
    }

    fn version(&self) -> Result<String> {
        let version = self.0.primary()?.version()?;
        Ok(format!("{version}, 1 + 2, three sentinels"))
    }

    fn freeze(&self) -> Result<()> {
        // We freeze all nodes. Otherwise the sentinels would promote a replica, and another row covers that.
        self.0.nodes().iter().try_for_each(|node| node.freeze())
    }

    fn thaw(&self) -> Result<()> {
        self.0.nodes().iter().try_for_each(|node| node.thaw())
    }

    fn restart(&self, _forget: bool) -> Result<()> {
        redis::empty(self.0.nodes())?;
        self.0.await_ok()
    }

    fn wipe(&self, name: &str) -> Result<()> {
        self.0.primary()?.admin(&["DEL", name]).map(drop)
    }

    fn operate(&self, deed: Deed, _name: &str) -> Result<()> {
        match deed {
            Deed::Failover => self.0.failover().map(drop),
            Deed::Crash => self.replace(|node| node.kill()),
            Deed::Hang => self.replace(|node| node.freeze()),
            _ => redis::operate(self.0.primary()?, deed),
        }
    }

    fn left(&self, base: &str) -> Result<Vec<String>> {
        redis::left(self.0.primary()?, base)
    }

    fn failovers(&self) -> Result<u64> {
        self.0.failovers()
    }

    fn mend(&self) -> Result<()> {
        revive(self.0.nodes())?;
        self.0.await_ok()
    }
}

/// Restarts or continues the nodes that were killed or frozen.
fn revive(nodes: &[RedisServer]) -> Result<()> {
    for node in nodes.iter().filter(|node| !node.is_up()) {
        match node.pid() {
            Ok(_) => node.thaw()?,
            Err(_) => node.restart()?,
        }
    }
    Ok(())
}

/// Three primaries, each with a replica.
pub(super) struct Sharded(Cluster);

impl Sharded {
    pub(super) fn start() -> Result<Self> {
        Ok(Self(Cluster::builder().server(redis::builder()).start()?))
    }

    fn replace(&self, name: &str, down: impl Fn(&RedisServer) -> Result<()>) -> Result<()> {
        let slot = self.0.slot_of(name)?;
        let old = self.0.primary_of_slot(slot)?;
        down(old)?;
        let new = self.0.await_primary_other_than(slot, old, PATIENCE);
        new.map(drop)
    }
}

impl World for Sharded {
    fn urls(&self) -> Vec<String> {
        vec![self.0.url()]
    }

    fn version(&self) -> Result<String> {
        let node = self.0.nodes().first().context("no nodes")?;
        Ok(format!("{}, 3 + 3", node.version()?))
    }

    fn freeze(&self) -> Result<()> {
        self.0.nodes().iter().try_for_each(|node| node.freeze())
    }

    fn thaw(&self) -> Result<()> {
        self.0.nodes().iter().try_for_each(|node| node.thaw())
    }

    fn restart(&self, _forget: bool) -> Result<()> {
        redis::empty(self.0.nodes())?;
        self.0.await_ok()
    }

    fn wipe(&self, name: &str) -> Result<()> {
        self.0.node_of(name)?.admin(&["DEL", name]).map(drop)
    }

    fn operate(&self, deed: Deed, name: &str) -> Result<()> {
        match deed {
            Deed::Failover => self.0.failover(self.0.slot_of(name)?).map(drop),
            Deed::Crash => self.replace(name, |node| node.kill()),
            Deed::Hang => self.replace(name, |node| node.freeze()),
            Deed::MoveLocks => {
                let slot = self.0.slot_of(name)?;
                let from = self.0.primary_of_slot(slot)?.port();
                let mut others = self.0.primaries()?.into_iter();
                let to = others.find(|node| node.port() != from);
                self.0.migrate_slot(slot, to.context("no other primary")?)
            }
            // Shorter than the node timeout of one second. Otherwise the other nodes call the sleeper failed, and it refuses
            // its clients for one more second after it has woken, which together is longer than a lease allows.
            Deed::Sleep => {
                let sleep = |node: &RedisServer| node.admin(&["DEBUG", "SLEEP", "0.6"]).map(drop);
                self.0.primaries()?.into_iter().try_for_each(sleep)
            }
            _ => {
                let all = self.0.primaries()?;
                all.into_iter()
                    .try_for_each(|node| redis::operate(node, deed))
            }
        }
    }

    fn left(&self, base: &str) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for node in self.0.primaries()? {
            left.extend(redis::left(node, base)?);
        }
        Ok(left)
    }

    fn mend(&self) -> Result<()> {
        revive(self.0.nodes())?;
        self.0.await_ok()
    }
}
