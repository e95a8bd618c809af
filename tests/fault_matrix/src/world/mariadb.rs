use std::net::SocketAddr;

use anyhow::{Result, bail};
use testkit::servers::{Ground, MariaDb};

use super::Deed;
use super::behind::{PASSWORD, Served, USER, is_a};

/// The user for runs that change no passwords; see the test kit.
const OPEN: &str = "tide";

impl Served for MariaDb {
    is_a!(MariaDb);

    fn start(ground: Ground, guarded: bool) -> Result<Self> {
        // A small redo log leaves room on a small disk.
        let server = Self::start_on(ground, &["--innodb-log-file-size=8M"])?;
        if guarded {
            server.user(USER, "ALL ON locks.*")?;
            Self::set_password(&server, USER, PASSWORD)?;
        }
        Ok(server)
    }

    fn ground(&self) -> Option<&Ground> {
        Some(Self::ground(self))
    }

    fn url(&self, way: SocketAddr) -> String {
        self.url_at(way, OPEN)
    }

    fn wipe(&self, name: &str) -> Result<()> {
        let statement = format!("DELETE FROM tidelock_locks WHERE name = '{name}'");
        self.query(&statement).map(drop)
    }

    fn operate(&self, deed: Deed) -> Result<()> {
        if deed != Deed::CutAll {
            bail!("nobody can do this here: {deed:?}");
        }
        let list = "SELECT id FROM information_schema.processlist WHERE user = 'tide'";
        for id in self.query(list)?.lines() {
            if let Ok(id) = id.trim().parse::<u64>() {
                // The connection may have ended since we listed it. That is just as good.
                let _ = self.query(&format!("KILL CONNECTION {id}"));
            }
        }
        Ok(())
    }

    fn set_password(&self, password: &str) -> Result<()> {
        Self::set_password(self, USER, password)
    }

    fn strain(&self) -> Result<()> {
        let filler = "CREATE TABLE filler AS SELECT REPEAT('x', 1000) AS x FROM seq_1_to_100000";
        self.query(filler).map(drop)
    }
}
