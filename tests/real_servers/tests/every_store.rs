//! Promises about a server that does not answer: one test for each store.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testkit::servers::{
    Cluster, EtcdServer, MariaDb, MemcachedServer, PostgresServer, RedisServer, Sentinels,
    ZooKeeperServer,
};
use tidelock::{Client, ErrorKind};

/// A server, or several, as all stores have them.
struct Store {
    url: String,
    freeze: Box<dyn Fn() -> Result<()>>,
    thaw: Box<dyn Fn() -> Result<()>>,
}

/// The methods that every test server has.
macro_rules! store {
    ($start:expr, $options:expr, $($nodes:ident)+) => {{
        let server = std::rc::Rc::new($start?);
        let (cold, warm) = (std::rc::Rc::clone(&server), std::rc::Rc::clone(&server));
        Store {
            url: format!("{}{}", server.url(), $options),
            freeze: Box::new(move || {
                $(cold.$nodes().iter().try_for_each(|node| node.freeze())?;)+
                Ok(())
            }),
            thaw: Box::new(move || {
                $(warm.$nodes().iter().try_for_each(|node| node.thaw())?;)+
                Ok(())
            }),
        }
    }};
    ($start:expr, $options:expr) => {{
        let server = std::rc::Rc::new($start?);
        let (cold, warm) = (std::rc::Rc::clone(&server), std::rc::Rc::clone(&server));
        Store {
            url: format!("{}{}", server.url(), $options),
            freeze: Box::new(move || cold.freeze()),
            thaw: Box::new(move || warm.thaw()),
        }
    }};
}

fn redis() -> Result<Store> {
    Ok(store!(RedisServer::start(), ""))
}

fn redis_plain() -> Result<Store> {
    Ok(store!(RedisServer::start(), "?locks=plain"))
}

fn redis_cluster() -> Result<Store> {
    Ok(store!(Cluster::start(), "", nodes))
}

fn redis_sentinels() -> Result<Store> {
    Ok(store!(Sentinels::start(), "", nodes sentinels))
}

fn postgres() -> Result<Store> {
    Ok(store!(PostgresServer::start(), ""))
}

fn postgres_session() -> Result<Store> {
    Ok(store!(PostgresServer::start(), "?locks=session"))
}

fn mysql() -> Result<Store> {
    Ok(store!(MariaDb::start(), ""))
}

fn zookeeper() -> Result<Store> {
    Ok(store!(ZooKeeperServer::start(), ""))
}

fn etcd() -> Result<Store> {
    Ok(store!(EtcdServer::start(), ""))
}

fn memcached() -> Result<Store> {
    Ok(store!(MemcachedServer::start(), ""))
}

/// A module per promise, with a test per store.
macro_rules! on_every_store {
    ($($promise:ident)+) => {
        $(mod $promise {
            on_every_store!(@ $promise redis redis_plain redis_cluster redis_sentinels postgres postgres_session mysql
                zookeeper etcd memcached);
        })+
    };
    (@ $promise:ident $($store:ident)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $store() -> anyhow::Result<()> {
                super::promises::$promise(super::$store()?).await
            }
        )+
    };
}

on_every_store! {
    a_store_that_hangs_is_no_lock_in_demand
}

/// The default. The waits below are shorter.
const ANSWER: Duration = Duration::from_secs(3);

mod promises {
    use super::{ANSWER, Client, ErrorKind, Instant, Result, Store, ensure};

    /// Several tasks wait for a free lock while the server is frozen: for less than the response timeout, alone and in
    /// the local queue of their process.
    pub(super) async fn a_store_that_hangs_is_no_lock_in_demand(store: Store) -> Result<()> {
        let builder = || Client::builder().response_timeout(ANSWER);
        let (client, other) = (
            builder().connect(&store.url).await?,
            builder().connect(&store.url).await?,
        );
        client.lock("warm").acquire().await?.release().await?;
        (store.freeze)()?;
        let begun = Instant::now();
        let mut waits = tokio::task::JoinSet::new();
        for name in ["till", "till", "till", "alone"] {
            let lock = client.lock(name);
            waits.spawn(async move { lock.acquire_timeout(ANSWER / 3).await.map(drop) });
        }
        for answer in waits.join_all().await {
            let error = answer.err().ok_or_else(|| anyhow::anyhow!("acquired"))?;
            ensure!(
                matches!(
                    error.kind(),
                    ErrorKind::Unavailable | ErrorKind::OutcomeUnknown
                ),
                "{error:?}"
            );
        }
        ensure!(begun.elapsed() < ANSWER, "{:?}", begun.elapsed());
        (store.thaw)()?;
        // The attempts that were under way leave no lock behind.
        for name in ["till", "alone"] {
            let guard = other.lock(name).acquire_timeout(ANSWER * 5).await?;
            guard.release().await?;
        }
        // Now another owner does hold it.
        let held = other.lock("till").acquire().await?;
        let waits = client.lock("till").acquire_timeout(ANSWER / 10).await;
        ensure!(
            waits.as_ref().is_err_and(tidelock::Error::is_timeout),
            "{waits:?}"
        );
        held.release().await?;
        Ok(())
    }
}
