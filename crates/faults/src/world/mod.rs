//! One store with its servers, and what can be done to it. The stories are written against [`World`] once, for all.

mod behind;
mod etcd;
mod file;
mod independents;
mod mariadb;
mod memcached;
mod postgres;
mod redis;
mod topologies;
mod zookeeper;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use testkit::proxy::Proxy;
use testkit::servers::{EtcdServer, MariaDb, MemcachedServer, PostgresServer, ZooKeeperServer};
use tidelock::{Client, ClientBuilder, Credentials};

use self::behind::Behind;
use crate::store::Store;

/// On which server of a store a story is played.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum On {
    #[default]
    Usual,
    /// It has every write on disk before it answers.
    Durable,
    /// Its disk is soon full.
    SmallDisk,
    /// Its wall clock can be moved.
    OwnClock,
    /// It lets in one user only, whose password is told by a file.
    Guarded,
}

/// What an operator does to a store besides stopping and starting it. Each store knows some of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Ends every connection of a client.
    CutAll,
    /// Ends those on which waiters hear of releases.
    CutListeners,
    /// Serves nobody for a time, and says so to nobody.
    Pause(Duration),
    /// Is busy with one request for two seconds.
    Sleep,
    /// Forgets the scripts it was sent.
    ForgetScripts,
    /// Forgets all data.
    Flush,
    /// Another server becomes the primary, in good order.
    Failover,
    /// The primary dies, and another takes its place.
    Crash,
    /// The primary hangs, and another takes its place.
    Hang,
    /// The locks move to another node while they are used.
    MoveLocks,
    /// Its disk has no room left.
    FillDisk,
    /// It has again; who ended for the want of it is started.
    MakeRoom,
    /// It has all the data it may have.
    UseUpQuota,
    /// It may have more again.
    FreeQuota,
    /// Its wall clock is so many seconds ahead of the true time.
    SetClock(i64),
    /// It lets in this password only. Connections go on.
    SetPassword(&'static str),
    /// Those who use it are told this password.
    TellPassword(&'static str),
}

/// A store, its servers, and the proxies before them.
pub(crate) trait World: Send {
    /// Whom the processes connect to; several for a majority of them.
    fn urls(&self) -> Vec<String>;

    /// The file with the password, if only one user is let in.
    fn secret(&self) -> Option<PathBuf> {
        None
    }

    /// What runs, and which version of it.
    fn version(&self) -> Result<String>;

    /// What stands between all processes and the servers. Empty: nothing.
    fn proxies(&self) -> Vec<&Proxy> {
        Vec::new()
    }

    /// The servers stand still: the kernel takes what is sent to them, and nothing answers.
    fn freeze(&self) -> Result<()> {
        bail!("there is no server")
    }

    /// They go on.
    fn thaw(&self) -> Result<()> {
        bail!("there is no server")
    }

    /// They are killed and started again, with or without what they knew.
    fn restart(&self, _forget: bool) -> Result<()> {
        bail!("there is no server")
    }

    /// Some of several servers stand still.
    fn freeze_some(&self, _count: usize) -> Result<()> {
        bail!("there are not several servers")
    }

    /// One of several servers comes back, and has forgotten all.
    fn empty_one(&self, _which: usize) -> Result<()> {
        bail!("there are not several servers")
    }

    /// The lock is deleted, in whatever way somebody with a shell would do it.
    fn wipe(&self, name: &str) -> Result<()>;

    /// What an operator does. `name` is one of the locks in use.
    fn operate(&self, deed: Deed, _name: &str) -> Result<()> {
        bail!("nobody can do this here: {deed:?}")
    }

    /// What is there that belongs to locks whose names begin like this, and that nobody holds.
    fn left(&self, _base: &str) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Waits until all is whole again after a fault.
    fn mend(&self) -> Result<()> {
        Ok(())
    }
}

/// Starts its servers.
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

/// Settings for a client that asks for the password each time it logs in.
pub(crate) fn builder(secret: Option<PathBuf>) -> ClientBuilder {
    let builder = Client::builder();
    match secret {
        None => builder,
        Some(file) => builder.credentials_from(move || {
            // Without a password it is not let in, and says so.
            let password = std::fs::read_to_string(&file).unwrap_or_default();
            Credentials::new(behind::USER, password)
        }),
    }
}

/// Deletes a lock as `tidelock unlock --force` does, for stores that have no simpler tool at hand.
pub(crate) fn force(url: &str, name: &str) -> Result<()> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build()?.block_on(async {
        let client = Client::connect(url).await?;
        client.lock(name).force_release().await?;
        client.close(Duration::ZERO).await;
        Ok(())
    })
}
