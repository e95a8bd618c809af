use anyhow::{Context, Result};
use testkit::proxy::Proxy;
use testkit::servers::EtcdServer;

/// One member, and a proxy before it.
pub(super) struct World {
    proxy: Proxy,
    server: EtcdServer,
}

impl World {
    pub(super) fn start() -> Result<Self> {
        let server = EtcdServer::start()?;
        Ok(Self {
            proxy: Proxy::start_opaque(server.addr())?,
            server,
        })
    }
}

impl super::World for World {
    fn urls(&self) -> Vec<String> {
        vec![format!("etcd://{}/matrix", self.proxy.addr())]
    }

    fn version(&self) -> Result<String> {
        let said = self.server.admin(&["endpoint", "status", "-w", "fields"])?;
        let mut lines = said.lines();
        let line = lines.find_map(|line| line.strip_prefix("\"Version\" : "));
        let version = line.context("no version")?;
        Ok(format!("etcd {}", version.trim_matches('"')))
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
            self.server.restart_empty()
        } else {
            self.server.restart()
        }
    }

    fn wipe(&self, name: &str) -> Result<()> {
        let prefix = format!("matrix/{name}/");
        let find = [
            "get",
            &prefix,
            "--prefix",
            "--keys-only",
            "--sort-by=CREATE",
            "--limit=1",
        ];
        let found = self.server.admin(&find)?;
        match found.lines().find(|line| !line.is_empty()) {
            Some(holder) => self.server.admin(&["del", holder]).map(drop),
            None => Ok(()),
        }
    }

    fn left(&self, base: &str) -> Result<Vec<String>> {
        let mut keys = self.server.keys()?;
        keys.retain(|key| key.contains(base));
        Ok(keys)
    }
}
