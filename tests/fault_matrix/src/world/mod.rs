//! One store with its servers, and the faults that it supports. The stories use only [`World`], so each is written
//! once.

mod behind;
mod etcd;
mod file;
mod independents;
mod mariadb;
mod memcached;
mod postgres;
mod redis;
mod spread;
mod topologies;
mod zookeeper;

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use testkit::process::boot_time;
use testkit::proxy::Proxy;
use testkit::servers::{EtcdServer, MariaDb, MemcachedServer, PostgresServer, ZooKeeperServer};
use tidelock::{Client, ClientBuilder, Credentials};

use self::behind::Behind;
pub(crate) use self::spread::{Spread, Topology};
use crate::store::Store;

/// The server variant that a story needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum On {
    #[default]
    Usual,
    /// The server has every write on disk before it replies.
    Durable,
    /// The server has a small disk.
    SmallDisk,
    /// The server has a wall clock that the story can move.
    OwnClock,
    /// The server accepts one user only, whose password is in a file.
    Guarded,
}

/// An operator's action besides stopping and starting the server. Each store supports some of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Ends every client connection.
    CutAll,
    /// Ends the connections on which waiters receive notifications.
    CutListeners,
    /// Serves no client for a time, without an error.
    Pause(Duration),
    /// Is busy with one request for 1.2 seconds.
    Sleep,
    /// Forgets the cached scripts.
    ForgetScripts,
    /// Forgets all data.
    Flush,
    /// Another server becomes the primary in a planned failover.
    Failover,
    /// The primary is killed, and another server takes over.
    Crash,
    /// The primary is frozen, and another server takes over.
    Hang,
    /// The locks move to another node while they are in use.
    MoveLocks,
    /// Fills the disk.
    FillDisk,
    /// Frees the disk again; a server that exited because of it restarts.
    MakeRoom,
    /// Uses up the data quota.
    UseUpQuota,
    /// Frees the data quota.
    FreeQuota,
    /// Sets the wall clock so many seconds ahead of the true time.
    SetClock(i64),
    /// From now on only this password is valid. Open connections stay.
    SetPassword(&'static str),
    /// Gives the clients this password.
    TellPassword(&'static str),
}

/// A store, its servers, and the proxies in front of them.
pub(crate) trait World: Send {
    /// The addresses for the processes; several form a majority.
    fn urls(&self) -> Vec<String>;

    /// The file with the password, if the server accepts one user only.
    fn secret(&self) -> Option<PathBuf> {
        None
    }

    /// The name and version of the server.
    fn version(&self) -> Result<String>;

    /// The servers and the processes, if each has a host of its own.
    fn spread(&self) -> Option<&Spread> {
        None
    }

    /// The proxies between the processes and the servers. Empty: there are none.
    fn proxies(&self) -> Vec<&Proxy> {
        Vec::new()
    }

    /// Freezes the servers: the kernel accepts what clients send, but nothing answers.
    fn freeze(&self) -> Result<()> {
        bail!("there is no server")
    }

    /// Continues the frozen servers.
    fn thaw(&self) -> Result<()> {
        bail!("there is no server")
    }

    /// Kills and restarts the servers, with or without their data.
    fn restart(&self, _forget: bool) -> Result<()> {
        bail!("there is no server")
    }

    /// Freezes some of several servers.
    fn freeze_some(&self, _count: usize) -> Result<()> {
        bail!("there are not several servers")
    }

    /// Restarts one of several servers without its data.
    fn empty_one(&self, _which: usize) -> Result<()> {
        bail!("there are not several servers")
    }

    /// Deletes the lock, as an operator with a shell would.
    fn wipe(&self, name: &str) -> Result<()>;

    /// Performs the operator's action. `name` is one of the locks in use.
    fn operate(&self, deed: Deed, _name: &str) -> Result<()> {
        bail!("nobody can do this here: {deed:?}")
    }

    /// A number that grows whenever its servers choose another primary by themselves or by an order.
    fn failovers(&self) -> Result<u64> {
        Ok(0)
    }

    /// Remains of locks with this name prefix, other than held locks.
    fn left(&self, _base: &str) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Waits until the store is whole again after a fault.
    fn mend(&self) -> Result<()> {
        Ok(())
    }
}

/// Starts the servers of a store.
pub(crate) fn open(store: Store, on: On) -> Result<Box<dyn World>> {
    let durable = on == On::Durable;
    Ok(match store {
        Store::Redis => Box::new(redis::Single::start("", durable)?),
        Store::Plain => Box::new(redis::Single::start("?locks=plain", durable)?),
        Store::Replicas => Box::new(topologies::Group::start()?),
        Store::Sentinel => Box::new(topologies::Watched::start()?),
        Store::Cluster => Box::new(topologies::Sharded::start()?),
        Store::Redlock => Box::new(independents::Five::start()?),
        Store::Sqlite => Box::new(file::File::new()?),
        Store::Memory => Box::new(file::Memory),
        Store::Postgres => Box::new(Behind::<PostgresServer>::start(on)?),
        Store::Mariadb => Box::new(Behind::<MariaDb>::start(on)?),
        Store::Zookeeper => Box::new(Behind::<ZooKeeperServer>::start(on)?),
        Store::Etcd => Box::new(Behind::<EtcdServer>::start(on)?),
        Store::Memcached => Box::new(Behind::<MemcachedServer>::start(on)?),
    })
}

/// The locks with this prefix that the servers themselves list as held.
pub(crate) fn held(urls: &[String], secret: Option<&PathBuf>, base: &str) -> Result<Vec<String>> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build()?.block_on(async {
        let mut held = Vec::new();
        for url in urls {
            let client = patiently(|| builder(secret.cloned()).connect(url)).await?;
            held.extend(client.list(&format!("{base}*")).limit(100).await?);
            client.close(Duration::ZERO).await;
        }
        Ok(held)
    })
}

/// Client settings that read the password file at each login.
pub(crate) fn builder(secret: Option<PathBuf>) -> ClientBuilder {
    let builder = Client::builder();
    match secret {
        None => builder,
        Some(file) => builder.credentials_from(move || {
            // Without a password the server refuses the client with a clear error.
            let password = std::fs::read_to_string(&file).unwrap_or_default();
            Credentials::new(behind::USER, password)
        }),
    }
}

/// Ends locks as `tidelock unlock --force` does.
pub(crate) fn force(url: &str, names: &[&str]) -> Result<()> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build()?.block_on(async {
        let client = patiently(|| Client::connect(url)).await?;
        for name in names {
            client.lock(name).force_release().await?;
        }
        client.close(Duration::ZERO).await;
        Ok(())
    })
}

/// Retries for a while: it may be asked during an outage of the store.
pub(crate) async fn patiently<T, F: Future<Output = tidelock::Result<T>>>(
    ask: impl Fn() -> F,
) -> tidelock::Result<T> {
    let end = boot_time() + Duration::from_secs(20);
    loop {
        match ask().await {
            Err(error) if error.is_retryable() && boot_time() < end => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            answer => return answer,
        }
    }
}
