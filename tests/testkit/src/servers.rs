//! Temporary servers. Each has a free loopback port and its own directory, and ends when its value is dropped.

mod admin;
mod builder;
mod certs;
mod cluster;
mod etcd;
mod flavour;
mod ground;
mod independents;
mod info;
mod mariadb;
mod member;
mod memcached;
mod pgbouncer;
mod port;
mod postgres;
mod process;
mod prometheus;
mod redis;
mod replicated;
mod sentinels;
mod template;
mod version;
mod wait;
mod zookeeper;

use anyhow::{Result, ensure};

pub use admin::Reply;
pub use builder::RedisBuilder;
pub use certs::{Certs, ServerCert, Tls};
pub use cluster::{Cluster, ClusterBuilder, Migration};
pub use etcd::{EtcdBuilder, EtcdCluster, EtcdServer};
pub use flavour::Flavour;
pub use ground::{Disk, Ground};
pub use independents::Independents;
pub use mariadb::MariaDb;
pub use memcached::MemcachedServer;
pub use pgbouncer::Pgbouncer;
pub use postgres::PostgresServer;
pub use process::ServerProcess;
pub use prometheus::Prometheus;
pub use redis::RedisServer;
pub use replicated::Replicated;
pub use sentinels::{Sentinels, SentinelsBuilder};
pub use zookeeper::{ZooKeeperEnsemble, ZooKeeperServer};

/// A free loopback port that this process has not handed out before, for a server that is not of this kit.
///
/// # Errors
/// Fails when there is none.
pub fn free_port() -> Result<u16> {
    port::free()
}

/// `127.0.0.1:P1,127.0.0.1:P2,…`
fn hosts<'a>(servers: impl IntoIterator<Item = &'a RedisServer>) -> String {
    let addrs = servers.into_iter().map(|server| server.addr().to_string());
    addrs.collect::<Vec<_>>().join(",")
}

/// Fails unless every other running server follows `primary`, and `primary` counts all of them as in sync.
fn check_followers(primary: &RedisServer, all: &[RedisServer]) -> Result<()> {
    let mut wanted = 0;
    for server in all {
        if server.port() != primary.port() && server.is_up() {
            server.check_follows(primary.port())?;
            wanted += 1;
        }
    }
    let reached = primary.replicas_reached(wanted)?;
    ensure!(
        reached >= wanted,
        "{reached} of {wanted} replicas are in sync"
    );
    Ok(())
}
