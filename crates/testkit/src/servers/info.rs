use anyhow::{Context, Result, ensure};

use super::RedisServer;
use crate::process;

impl RedisServer {
    /// Whether it runs and is not frozen, so that a question to it is answered.
    pub fn is_up(&self) -> bool {
        self.pid()
            .and_then(process::state)
            .is_ok_and(|state| !matches!(state, 'T' | 'Z' | 'X'))
    }

    /// One field of what `INFO everything` says.
    ///
    /// # Errors
    /// As [`admin`](Self::admin), and when there is no such field.
    pub fn info(&self, field: &str) -> Result<String> {
        let all: String = self.query(&["INFO", "everything"])?;
        let found = all.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name == field).then(|| value.to_owned())
        });
        found.with_context(|| format!("no {field} in INFO"))
    }

    /// Whether it takes itself for a primary.
    ///
    /// # Errors
    /// As [`admin`](Self::admin).
    pub fn is_primary(&self) -> Result<bool> {
        Ok(self.info("role")? == "master")
    }

    /// How many replicas it counts as in sync: those that `WAIT` can reach.
    ///
    /// # Errors
    /// As [`admin`](Self::admin).
    pub fn replicas_online(&self) -> Result<usize> {
        let all: String = self.query(&["INFO", "replication"])?;
        let online = |line: &&str| line.starts_with("slave") && line.contains("state=online");
        Ok(all.lines().filter(online).count())
    }

    /// An error unless it follows the server on `port` and has all its data.
    pub(super) fn check_follows(&self, port: u16) -> Result<()> {
        let of = self.info("master_port")?;
        ensure!(
            of == port.to_string(),
            "{} follows {of}, not {port}",
            self.addr()
        );
        let link = self.info("master_link_status")?;
        ensure!(link == "up", "the link of {} is {link}", self.addr());
        Ok(())
    }
}
