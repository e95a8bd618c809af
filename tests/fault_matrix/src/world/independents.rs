use anyhow::Result;
use testkit::proxy::Proxy;
use testkit::servers::{Independents, RedisServer};

use super::{Deed, World, redis};

/// Five independent servers, each with a proxy in front of it.
pub(super) struct Five {
    proxies: Vec<Proxy>,
    servers: Independents,
}

impl Five {
    pub(super) fn start() -> Result<Self> {
        let servers = Independents::start_with(5, redis::builder())?;
        let proxies = servers.nodes().iter().map(|node| Proxy::start(node.addr()));
        Ok(Self {
            proxies: proxies.collect::<Result<_>>()?,
            servers,
        })
    }
}

impl World for Five {
    fn urls(&self) -> Vec<String> {
        self.proxies.iter().map(Proxy::url).collect()
    }

    fn version(&self) -> Result<String> {
        let version = self.servers.nodes()[0].version()?;
        Ok(format!("{version}, five of them"))
    }

    fn proxies(&self) -> Vec<&Proxy> {
        self.proxies.iter().collect()
    }

    fn freeze(&self) -> Result<()> {
        self.servers
            .nodes()
            .iter()
            .try_for_each(|node| node.freeze())
    }

    fn thaw(&self) -> Result<()> {
        self.servers.nodes().iter().try_for_each(|node| node.thaw())
    }

    fn restart(&self, _forget: bool) -> Result<()> {
        redis::empty(self.servers.nodes())
    }

    fn freeze_some(&self, count: usize) -> Result<()> {
        self.servers.nodes()[..count]
            .iter()
            .try_for_each(|node| node.freeze())
    }

    fn empty_one(&self, which: usize) -> Result<()> {
        self.servers.nodes()[which].restart_empty()
    }

    fn wipe(&self, name: &str) -> Result<()> {
        let wipe = |node: &RedisServer| node.admin(&["DEL", name]).map(drop);
        self.servers.nodes().iter().try_for_each(wipe)
    }

    fn operate(&self, deed: Deed, _name: &str) -> Result<()> {
        let each = |node: &RedisServer| redis::operate(node, deed);
        self.servers.nodes().iter().try_for_each(each)
    }

    fn left(&self, base: &str) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for node in self.servers.nodes() {
            left.extend(redis::left(node, base)?);
        }
        Ok(left)
    }
}
