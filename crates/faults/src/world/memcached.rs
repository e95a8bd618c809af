use anyhow::{Result, bail};
use testkit::proxy::Proxy;
use testkit::servers::MemcachedServer;

use super::Deed;

/// A server, and a proxy before it.
pub(super) struct World {
    proxy: Proxy,
    server: MemcachedServer,
}

impl World {
    pub(super) fn start() -> Result<Self> {
        let server = MemcachedServer::start()?;
        Ok(Self {
            proxy: Proxy::start_opaque(server.addr())?,
            server,
        })
    }
}

impl super::World for World {
    fn urls(&self) -> Vec<String> {
        vec![format!("memcached://{}", self.proxy.addr())]
    }

    fn version(&self) -> Result<String> {
        let said = self.server.admin("version")?;
        let line = said.lines().find_map(|line| line.strip_prefix("VERSION "));
        Ok(format!("memcached {}", line.unwrap_or("?")))
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
        if !forget {
            bail!("it keeps nothing");
        }
        self.server.restart()
    }

    fn wipe(&self, name: &str) -> Result<()> {
        self.server.admin(&format!("md {name}")).map(drop)
    }

    fn operate(&self, deed: Deed, _name: &str) -> Result<()> {
        if deed != Deed::Flush {
            bail!("nobody can do this here: {deed:?}");
        }
        self.server.admin("flush_all").map(drop)
    }
}
