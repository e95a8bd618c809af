use std::net::SocketAddr;

use anyhow::{Result, bail};
use testkit::servers::{Ground, PostgresServer};

use super::Deed;
use super::behind::{PASSWORD, Served, USER, is_a};

impl Served for PostgresServer {
    is_a!(PostgresServer);

    fn start(ground: Ground, guarded: bool) -> Result<Self> {
        let server = Self::start_on(ground)?;
        if guarded {
            server.query(&format!(
                "CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'; GRANT CREATE ON SCHEMA public TO {USER}"
            ))?;
            server.admit_first(&format!("host all {USER} 127.0.0.1/32 scram-sha-256"))?;
        }
        Ok(server)
    }

    fn ground(&self) -> Option<&Ground> {
        Some(Self::ground(self))
    }

    fn url(&self, way: SocketAddr) -> String {
        self.url_at(way)
    }

    fn wipe(&self, name: &str) -> Result<()> {
        let statement = format!("DELETE FROM tidelock_locks WHERE name = '{name}'");
        self.query(&statement).map(drop)
    }

    fn operate(&self, deed: Deed) -> Result<()> {
        let which = match deed {
            Deed::CutAll => "",
            Deed::CutListeners => "AND query ILIKE '%LISTEN%'",
            _ => bail!("nobody can do this here: {deed:?}"),
        };
        let statement = format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() {which}"
        );
        self.query(&statement).map(drop)
    }

    fn set_password(&self, password: &str) -> Result<()> {
        self.query(&format!("ALTER ROLE {USER} PASSWORD '{password}'"))
            .map(drop)
    }

    fn strain(&self) -> Result<()> {
        let filler = "CREATE TABLE filler AS SELECT generate_series(1, 1000000)";
        self.query(filler).map(drop)
    }
}
