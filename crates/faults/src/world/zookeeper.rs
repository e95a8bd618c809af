use anyhow::{Context, Result, bail};
use testkit::proxy::Proxy;
use testkit::servers::ZooKeeperServer;

/// A server, and a proxy before it.
pub(super) struct World {
    proxy: Proxy,
    server: ZooKeeperServer,
}

impl World {
    pub(super) fn start() -> Result<Self> {
        let server = ZooKeeperServer::start()?;
        Ok(Self {
            proxy: Proxy::start_opaque(server.addr())?,
            server,
        })
    }
}

impl super::World for World {
    fn urls(&self) -> Vec<String> {
        vec![format!("zookeeper://{}/matrix", self.proxy.addr())]
    }

    fn version(&self) -> Result<String> {
        let said = self.server.say("srvr")?;
        let (_, version) = said.split_once("version: ").context("no version")?;
        let number = version.split(['-', ',']).next().unwrap_or_default();
        Ok(format!("ZooKeeper {number}"))
    }

    fn proxies(&self) -> Vec<&Proxy> {
        vec![&self.proxy]
    }

    fn freeze(&self) -> Result<()> {
        self.server.freeze()
    }

    fn thaw(&self) -> Result<()> {
        self.server.thaw()
    }

    fn restart(&self, forget: bool) -> Result<()> {
        if forget {
            bail!("what it knows is on its disk");
        }
        self.server.restart()
    }

    fn wipe(&self, name: &str) -> Result<()> {
        super::force(&format!("{}/matrix", self.server.url()), name)
    }

    fn left(&self, _base: &str) -> Result<Vec<String>> {
        // Its list knows holders; who waits has a node as well.
        let nodes = self.server.number("zk_ephemerals_count")?;
        Ok((nodes > 0)
            .then(|| format!("{nodes} ephemeral nodes"))
            .into_iter()
            .collect())
    }
}
