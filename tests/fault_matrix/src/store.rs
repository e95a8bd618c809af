//! The stores and topologies of the matrix: its columns.

use std::fmt;

/// A store or topology.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Store {
    /// One Redis
    Redis,
    /// One Redis, each lock one plain key
    Plain,
    /// A primary and two replicas
    Replicas,
    /// The same under three sentinels
    Sentinel,
    /// Three primaries with a replica each
    Cluster,
    /// A majority of five servers
    Redlock,
    /// A file of this machine
    Sqlite,
    /// This process
    Memory,
    Postgres,
    Mariadb,
    Zookeeper,
    Etcd,
    Memcached,
}

impl Store {
    pub(crate) const ALL: [Self; 13] = [
        Self::Redis,
        Self::Plain,
        Self::Replicas,
        Self::Sentinel,
        Self::Cluster,
        Self::Redlock,
        Self::Sqlite,
        Self::Memory,
        Self::Postgres,
        Self::Mariadb,
        Self::Zookeeper,
        Self::Etcd,
        Self::Memcached,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Plain => "plain",
            Self::Replicas => "replicas",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
            Self::Redlock => "redlock",
            Self::Sqlite => "sqlite",
            Self::Memory => "memory",
            Self::Postgres => "postgres",
            Self::Mariadb => "mariadb",
            Self::Zookeeper => "zookeeper",
            Self::Etcd => "etcd",
            Self::Memcached => "memcached",
        }
    }

    /// Whether this is a Redis topology.
    pub(crate) fn is_redis(self) -> bool {
        use Store::{Cluster, Plain, Redis, Redlock, Replicas, Sentinel};
        matches!(
            self,
            Redis | Plain | Replicas | Sentinel | Cluster | Redlock
        )
    }

    /// Whether the store has a server.
    pub(crate) fn has_server(self) -> bool {
        !matches!(self, Self::Sqlite | Self::Memory)
    }

    /// Whether the clients connect to the address they were given, so that a proxy can stand in front of the servers.
    pub(crate) fn has_proxy(self) -> bool {
        self.has_server() && !matches!(self, Self::Sentinel | Self::Cluster)
    }

    /// Whether the store notifies waiters when a lock becomes free.
    pub(crate) fn wakes(self) -> bool {
        !matches!(self, Self::Plain | Self::Mariadb | Self::Memcached)
    }

    /// Whether it keeps the waiters for a lock in a queue.
    pub(crate) fn queues(self) -> bool {
        matches!(self, Self::Zookeeper | Self::Etcd)
    }

    pub(crate) fn has_tokens(self) -> bool {
        !matches!(self, Self::Memcached | Self::Redlock)
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
