//! The name and version of a server, as it tells them itself.

use anyhow::{Context, Result};

use super::{EtcdServer, MariaDb, MemcachedServer, PostgresServer, RedisServer, ZooKeeperServer};

impl RedisServer {
    /// As `Redis 7.0.15` or `Valkey 9.0.0`.
    ///
    /// # Errors
    /// The same as [`admin`](Self::admin).
    pub fn version(&self) -> Result<String> {
        match self.info("valkey_version") {
            Ok(number) => Ok(format!("Valkey {number}")),
            Err(_) => Ok(format!("Redis {}", self.info("redis_version")?)),
        }
    }
}

impl PostgresServer {
    /// As `PostgreSQL 15.18`.
    ///
    /// # Errors
    /// The same as [`query`](Self::query).
    pub fn version(&self) -> Result<String> {
        named("PostgreSQL", &self.query("SHOW server_version")?)
    }
}

impl MariaDb {
    /// As `MariaDB 10.11.19`.
    ///
    /// # Errors
    /// The same as [`query`](Self::query).
    pub fn version(&self) -> Result<String> {
        named("MariaDB", &self.query("SELECT VERSION()")?)
    }
}

impl ZooKeeperServer {
    /// As `ZooKeeper 3.8.0`.
    ///
    /// # Errors
    /// The same as [`say`](Self::say).
    pub fn version(&self) -> Result<String> {
        named("ZooKeeper", &self.say("srvr")?)
    }
}

impl EtcdServer {
    /// As `etcd 3.4.23`.
    ///
    /// # Errors
    /// The same as [`admin`](Self::admin).
    pub fn version(&self) -> Result<String> {
        let said = self.admin(&["endpoint", "status", "-w", "fields"])?;
        let mut lines = said.lines();
        let line = lines.find(|line| line.starts_with("\"Version\""));
        named("etcd", line.unwrap_or_default())
    }
}

impl MemcachedServer {
    /// As `memcached 1.6.18`.
    ///
    /// # Errors
    /// The same as [`admin`](Self::admin).
    pub fn version(&self) -> Result<String> {
        named("memcached", &self.admin("version")?)
    }
}

/// The name, and the first word that begins with a digit.
fn named(name: &str, said: &str) -> Result<String> {
    let mut words = said.split([' ', ':', '"', ',', '-', '\r', '\n']);
    let number = words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    let number = number.with_context(|| format!("{name} told no version: {said:?}"))?;
    Ok(format!("{name} {number}"))
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn a_version_is_found_where_a_server_says_it() {
        let said = [
            ("Zookeeper version: 3.8.0-5a02a05, built on", Some("3.8.0")),
            ("\"Version\" : \"3.4.23\"", Some("3.4.23")),
            ("15.14 (Debian 15.14-0+deb12u1)", Some("15.14")),
            ("10.11.14-MariaDB-0+deb12u2", Some("10.11.14")),
            ("VERSION 1.6.18\r\n", Some("1.6.18")),
            ("", None),
        ];
        for (text, version) in said {
            let wanted = version.map(|number| format!("it {number}"));
            assert_eq!(named("it", text).ok(), wanted);
        }
    }
}
