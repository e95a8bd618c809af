//! The stores that elections and jobs can use, each on servers of its own.

use std::any::Any;

use anyhow::{Context, Result, bail};
use testkit::servers::{
    Cluster, EtcdServer, MariaDb, PostgresServer, RedisServer, Replicated, Sentinels,
    ZooKeeperServer,
};

pub(crate) struct Store {
    pub(crate) name: &'static str,
    pub(crate) url: String,
    /// The servers, or the folder of a file. They end with it.
    _servers: Box<dyn Any>,
}

impl Store {
    fn new(name: &'static str, url: String, servers: impl Any) -> Self {
        let servers = Box::new(servers);
        Self {
            name,
            url,
            _servers: servers,
        }
    }
}

pub(crate) fn redis() -> Result<Store> {
    let server = RedisServer::start()?;
    Ok(Store::new("Redis", server.url(), server))
}

pub(crate) fn redis_plain() -> Result<Store> {
    let server = RedisServer::start()?;
    let url = format!("{}?locks=plain", server.url());
    Ok(Store::new("Redis, plain keys", url, server))
}

pub(crate) fn redis_replicas() -> Result<Store> {
    let servers = Replicated::start(2)?;
    Ok(Store::new("Redis with replicas", servers.url(), servers))
}

pub(crate) fn redis_sentinels() -> Result<Store> {
    let servers = Sentinels::start()?;
    Ok(Store::new("Redis under sentinels", servers.url(), servers))
}

pub(crate) fn redis_cluster() -> Result<Store> {
    let servers = Cluster::start()?;
    Ok(Store::new("Redis Cluster", servers.url(), servers))
}

pub(crate) fn sqlite() -> Result<Store> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    Ok(Store::new("SQLite", url, folder))
}

pub(crate) fn postgres() -> Result<Store> {
    let server = PostgresServer::start()?;
    Ok(Store::new("PostgreSQL", server.url(), server))
}

pub(crate) fn mysql() -> Result<Store> {
    let server = MariaDb::start()?;
    Ok(Store::new("MariaDB", server.url(), server))
}

pub(crate) fn zookeeper() -> Result<Store> {
    let server = ZooKeeperServer::start()?;
    Ok(Store::new("ZooKeeper", server.url(), server))
}

pub(crate) fn etcd() -> Result<Store> {
    let server = EtcdServer::start()?;
    Ok(Store::new("etcd", server.url(), server))
}

/// Checks a promise on a store of each kind, on all at once, because most of the time is spent waiting.
pub(crate) fn on_six(promise: impl Fn(&Store) -> Result<()> + Sync) -> Result<()> {
    let promise = &promise;
    let stores: [fn() -> Result<Store>; 6] = [redis, sqlite, postgres, mysql, zookeeper, etcd];
    std::thread::scope(|scope| {
        let each = stores.map(|start| {
            scope.spawn(move || {
                let store = start()?;
                promise(&store).with_context(|| store.name)
            })
        });
        for one in each {
            one.join().unwrap_or_else(|_| bail!("it panicked"))?;
        }
        Ok(())
    })
}
