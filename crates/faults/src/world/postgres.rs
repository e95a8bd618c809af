use anyhow::{Result, bail};
use testkit::proxy::Proxy;
use testkit::servers::PostgresServer;

use super::Deed;

/// A server, and a proxy before it.
pub(super) struct World {
    proxy: Proxy,
    server: PostgresServer,
}

impl World {
    pub(super) fn start() -> Result<Self> {
        let server = PostgresServer::start()?;
        Ok(Self {
            proxy: Proxy::start_opaque(server.addr())?,
            server,
        })
    }
}

impl super::World for World {
    fn urls(&self) -> Vec<String> {
        vec![self.server.url_at(self.proxy.addr())]
    }

    fn version(&self) -> Result<String> {
        let version = self.server.query("SHOW server_version")?;
        let number = version.split_whitespace().next().unwrap_or_default();
        Ok(format!("PostgreSQL {number}"))
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
        let which = match deed {
            Deed::CutAll => "",
            Deed::CutListeners => "AND query ILIKE '%LISTEN%'",
            _ => bail!("nobody can do this here: {deed:?}"),
        };
        let statement = format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() {which}"
        );
        self.server.query(&statement).map(drop)
    }
}
