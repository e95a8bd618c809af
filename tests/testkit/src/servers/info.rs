use anyhow::{Context, Result, bail, ensure};

use super::{RedisServer, Reply};

impl RedisServer {
    /// One field of `INFO everything`.
    ///
    /// # Errors
    /// Fails as [`admin`](Self::admin) does, or when there is no such field.
    pub fn info(&self, field: &str) -> Result<String> {
        let all: String = self.query(&["INFO", "everything"])?;
        let found = all.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name == field).then(|| value.to_owned())
        });
        found.with_context(|| format!("no {field} in INFO"))
    }

    /// Whether it considers itself a primary.
    ///
    /// # Errors
    /// The same as [`admin`](Self::admin).
    pub fn is_primary(&self) -> Result<bool> {
        Ok(self.info("role")? == "master")
    }

    /// How many replicas have acknowledged the current data, up to `wanted`. It waits for them for a moment.
    ///
    /// # Errors
    /// The same as [`admin`](Self::admin).
    pub fn replicas_reached(&self, wanted: usize) -> Result<usize> {
        // A replica whose link is up may not get its first write for a second, and INFO does not show that. So we
        // publish something and count the acknowledgements.
        let write = ["PUBLISH", "testkit:are-you-there", ""];
        let replies = self.admin_each(&[&write, &["WAIT", &wanted.to_string(), "200"]])?;
        match replies.last() {
            Some(Reply::Int(reached)) => Ok(usize::try_from(*reached)?),
            other => bail!("WAIT answered {other:?}"),
        }
    }

    /// Fails unless it follows the server on `port` and its link is up.
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
