use anyhow::{Result, bail};
use testkit::proxy::Proxy;
use testkit::servers::MariaDb;

use super::Deed;

/// Its user here, see the test kit.
const USER: &str = "tide";

/// A server, and a proxy before it.
pub(super) struct World {
    proxy: Proxy,
    server: MariaDb,
}

impl World {
    pub(super) fn start() -> Result<Self> {
        let server = MariaDb::start()?;
        Ok(Self {
            proxy: Proxy::start_opaque(server.addr())?,
            server,
        })
    }
}

impl super::World for World {
    fn urls(&self) -> Vec<String> {
        vec![self.server.url_at(self.proxy.addr(), USER)]
    }

    fn version(&self) -> Result<String> {
        let version = self.server.query("SELECT VERSION()")?;
        let number = version.trim().lines().last().unwrap_or_default();
        let number = number.split('-').next().unwrap_or_default();
        Ok(format!("MariaDB {number}"))
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
        let statement = format!("DELETE FROM tidelock_locks WHERE name = '{name}'");
        self.server.query(&statement).map(drop)
    }

    fn operate(&self, deed: Deed, _name: &str) -> Result<()> {
        if deed != Deed::CutAll {
            bail!("nobody can do this here: {deed:?}");
        }
        let list = "SELECT id FROM information_schema.processlist WHERE user = 'tide'";
        for id in self.server.query(list)?.lines() {
            if let Ok(id) = id.trim().parse::<u64>() {
                // Gone since it was listed, which is as good.
                let _ = self.server.query(&format!("KILL CONNECTION {id}"));
            }
        }
        Ok(())
    }
}
