use std::net::SocketAddr;

use anyhow::Result;
use testkit::servers::{EtcdServer, Ground};

use super::Deed;
use super::behind::{PASSWORD, Served, USER, is_a, line};

/// The quota on a small disk. It is lower than the disk's size, so the quota runs out first.
const QUOTA: [&str; 2] = ["--quota-backend-bytes", "16777216"];

impl Served for EtcdServer {
    is_a!(EtcdServer);

    fn own_clock() -> Result<Ground> {
        // We move the clock of the running server instead; see `set_clock`.
        Ok(Ground::default())
    }

    fn start(ground: Ground, guarded: bool) -> Result<Self> {
        // By default a login costs etcd 70 ms of a core, and all clients whose connections were cut log in at once.
        let mut builder = Self::builder().args(["--bcrypt-cost", "4"]);
        if ground.disk().is_ok() {
            builder = builder.args(QUOTA);
        }
        let server = builder.start_on(ground)?;
        if guarded {
            server.user(USER, PASSWORD, "matrix/")?;
            server.guard()?;
        }
        Ok(server)
    }

    fn ground(&self) -> Option<&Ground> {
        Some(Self::ground(self))
    }

    fn restart_empty(&self) -> Result<()> {
        Self::restart_empty(self)
    }

    fn url(&self, way: SocketAddr) -> String {
        format!("etcd://{way}/matrix")
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
        let found = self.admin(&find)?;
        match found.lines().find(|line| !line.is_empty()) {
            Some(holder) => self.admin(&["del", holder]).map(drop),
            None => Ok(()),
        }
    }

    fn operate(&self, deed: Deed) -> Result<()> {
        match deed {
            Deed::UseUpQuota => use_up(self),
            Deed::FreeQuota => free(self),
            _ => anyhow::bail!("nobody can do this here: {deed:?}"),
        }
    }

    fn set_clock(&self, seconds: i64) -> Result<()> {
        self.shift_clock(seconds)
    }

    fn set_password(&self, password: &str) -> Result<()> {
        Self::set_password(self, USER, password)
    }

    fn left(&self, base: &str) -> Result<Vec<String>> {
        let mut keys = self.keys()?;
        // Marks are kept for longer than the run, each under a lease of its own.
        keys.retain(|key| key.contains(base) && !key.contains("%marks/"));
        Ok(keys)
    }
}

/// Writes until etcd reports that its quota is used up.
fn use_up(server: &EtcdServer) -> Result<()> {
    let piece = "x".repeat(100_000);
    for _ in 0..400 {
        if server.admin(&["put", "filler", &piece]).is_err() {
            let said = server.admin(&["alarm", "list"])?;
            anyhow::ensure!(said.contains("NOSPACE"), "another alarm: {said}");
            return Ok(());
        }
    }
    anyhow::bail!("it keeps whatever it is given")
}

/// Follows etcd's manual: compact the history, defragment, then clear the alarm.
fn free(server: &EtcdServer) -> Result<()> {
    let said = server.admin(&["endpoint", "status", "-w", "fields"])?;
    let revision = line(&said, "\"Revision\" : ")?;
    server.admin(&["compact", revision.trim()])?;
    server.admin(&["defrag"])?;
    server.admin(&["alarm", "disarm"]).map(drop)
}
