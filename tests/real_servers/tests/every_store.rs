//! Promises about a server that does not answer, and about what operators see: one test for each store.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::rc::Rc;
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
    /// A text that changes with every write, except one that only takes an advisory lock.
    written: Box<dyn Fn() -> Result<String>>,
}

/// The methods that every test server has.
macro_rules! store {
    ($start:expr, $options:expr, $written:expr, $($nodes:ident)+) => {{
        let server = Rc::new($start?);
        let (cold, warm, seen) = (Rc::clone(&server), Rc::clone(&server), Rc::clone(&server));
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
            written: Box::new(move || $written(&seen)),
        }
    }};
    ($start:expr, $options:expr, $written:expr) => {{
        let server = Rc::new($start?);
        let (cold, warm, seen) = (Rc::clone(&server), Rc::clone(&server), Rc::clone(&server));
        Store {
            url: format!("{}{}", server.url(), $options),
            freeze: Box::new(move || cold.freeze()),
            thaw: Box::new(move || warm.thaw()),
            written: Box::new(move || $written(&seen)),
        }
    }};
}

/// The number of changes since the last save to disk.
fn changes(server: &RedisServer) -> Result<String> {
    let info: String = server.query(&["INFO", "persistence"])?;
    let line = info.lines().find(|line| line.starts_with("rdb_changes"));
    Ok(line.unwrap_or_default().to_owned())
}

fn changes_of_all(servers: &[RedisServer]) -> Result<String> {
    servers.iter().map(changes).collect()
}

/// The next transaction id: a transaction that only reads takes none.
fn next_transaction(server: &PostgresServer) -> Result<String> {
    server.query("SELECT pg_snapshot_xmax(pg_current_snapshot())")
}

fn redis() -> Result<Store> {
    Ok(store!(RedisServer::start(), "", changes))
}

fn redis_plain() -> Result<Store> {
    Ok(store!(RedisServer::start(), "?locks=plain", changes))
}

fn redis_cluster() -> Result<Store> {
    let changes = |all: &Cluster| changes_of_all(all.nodes());
    Ok(store!(Cluster::start(), "", changes, nodes))
}

fn redis_sentinels() -> Result<Store> {
    let changes = |all: &Sentinels| changes_of_all(all.nodes());
    Ok(store!(Sentinels::start(), "", changes, nodes sentinels))
}

fn postgres() -> Result<Store> {
    Ok(store!(PostgresServer::start(), "", next_transaction))
}

fn postgres_session() -> Result<Store> {
    Ok(store!(
        PostgresServer::start(),
        "?locks=session",
        next_transaction
    ))
}

fn mysql() -> Result<Store> {
    let statements = |server: &MariaDb| {
        let names = "'Com_insert', 'Com_update', 'Com_delete', 'Com_replace'";
        server.query(&format!(
            "SHOW GLOBAL STATUS WHERE Variable_name IN ({names})"
        ))
    };
    Ok(store!(MariaDb::start(), "", statements))
}

fn zookeeper() -> Result<Store> {
    let last_change = |server: &ZooKeeperServer| {
        let said = server.say("srvr")?;
        let line = said.lines().find(|line| line.starts_with("Zxid"));
        Ok(line.unwrap_or_default().to_owned())
    };
    Ok(store!(ZooKeeperServer::start(), "", last_change))
}

fn etcd() -> Result<Store> {
    let revision = |server: &EtcdServer| {
        let said = server.admin(&["get", "none", "-w", "fields"])?;
        let line = said.lines().find(|line| line.starts_with("\"Revision\""));
        Ok(line.unwrap_or_default().to_owned())
    };
    Ok(store!(EtcdServer::start(), "", revision))
}

fn memcached() -> Result<Store> {
    let sets = |server: &MemcachedServer| Ok(server.stat("cmd_set")?.to_string());
    Ok(store!(MemcachedServer::start(), "", sets))
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
    a_ping_writes_nothing_and_notices_a_server_that_hangs
    an_acquire_of_a_lazy_client_waits_for_its_server
    a_holder_is_named_with_its_program_and_user
    what_only_reads_is_never_in_doubt
}

/// The default response timeout.
const ANSWER: Duration = Duration::from_secs(3);

mod promises {
    use super::{ANSWER, Client, ErrorKind, Instant, Result, Store, ensure};

    /// Several tasks wait for a free lock while the server is frozen: for less than the response timeout, alone and in
    /// the local queue of their process.
    pub(super) async fn a_store_that_hangs_is_no_lock_in_demand(store: Store) -> Result<()> {
        let builder = || Client::builder().response_timeout(ANSWER * 4);
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
        ensure!(begun.elapsed() < ANSWER * 2, "{:?}", begun.elapsed());
        (store.thaw)()?;
        // The attempts that were under way leave no lock behind.
        for name in ["till", "alone"] {
            let guard = other.lock(name).acquire_timeout(ANSWER * 5).await?;
            guard.release().await?;
        }
        // Now another owner does hold it.
        let held = other.lock("till").acquire().await?;
        let waits = client.lock("till").acquire_timeout(ANSWER).await;
        ensure!(
            waits.as_ref().is_err_and(tidelock::Error::is_timeout),
            "{waits:?}"
        );
        held.release().await?;
        Ok(())
    }

    /// The client is made while the server is frozen. One of its tasks gives up in the middle of the connecting.
    pub(super) async fn an_acquire_of_a_lazy_client_waits_for_its_server(
        store: Store,
    ) -> Result<()> {
        (store.freeze)()?;
        let answer = ANSWER;
        let builder = Client::builder().response_timeout(answer);
        let client = builder.connect_lazy(&store.url)?;
        ensure!(!client.status().is_connected);
        let begun = Instant::now();
        let error = client.ping().await.err();
        ensure!(begun.elapsed() < answer * 5 / 3, "{:?}", begun.elapsed());
        let kind = error.as_ref().map(tidelock::Error::kind);
        ensure!(kind == Some(ErrorKind::Unavailable), "{error:?}");
        let leaves = client.lock("left").acquire_timeout(answer * 2 / 3).await;
        ensure!(
            leaves.as_ref().is_err_and(|error| !error.is_timeout()),
            "nobody holds it: {leaves:?}"
        );
        let mut waits = tokio::task::JoinSet::new();
        for name in ["till", "till", "alone"] {
            let lock = client.lock(name);
            waits.spawn(async move { lock.acquire_timeout(ANSWER * 12).await?.release().await });
        }
        let done = tokio::time::timeout(answer, waits.join_next()).await;
        ensure!(done.is_err(), "it waits: {done:?}");
        (store.thaw)()?;
        while let Some(done) = waits.join_next().await {
            done??;
        }
        ensure!(client.status().is_connected);
        let other = Client::connect(&store.url).await?;
        let left = other.lock("left").acquire_timeout(ANSWER * 5).await?;
        left.release().await?;
        ensure!(client.close(ANSWER).await == 0);
        Ok(())
    }

    /// An advisory lock of PostgreSQL has no process info.
    pub(super) async fn a_holder_is_named_with_its_program_and_user(store: Store) -> Result<()> {
        let viewer = Client::connect(&store.url).await?;
        for user in [Some("deploy"), None] {
            let mut builder = Client::builder().program("report.sh");
            if let Some(user) = user {
                builder = builder.os_user(user);
            }
            let holder = builder.connect(&store.url).await?;
            let begun = Instant::now();
            let seen = loop {
                // The details are written in the background. ZooKeeper keeps them with each hold.
                let guard = holder.lock("till").acquire().await?;
                let seen = viewer.lock("till").inspect().await?.holders.remove(0);
                guard.release().await?;
                if seen.client.is_some() || store.url.contains("session") {
                    break seen;
                }
                ensure!(begun.elapsed() < ANSWER * 5, "{seen:?}");
            };
            let Some(client) = &seen.client else { continue };
            let found = (client.pid, &*client.program, client.user.as_deref());
            ensure!(found == (std::process::id(), "report.sh", user), "{seen:?}");
            let shown = user.map_or("report.sh (pid ", |_| "report.sh as deploy (pid ");
            ensure!(seen.to_string().starts_with(shown), "{seen}");
        }
        Ok(())
    }

    /// What an operator reads changes nothing, so no answer is no doubt about what it did.
    pub(super) async fn what_only_reads_is_never_in_doubt(store: Store) -> Result<()> {
        let builder = Client::builder().response_timeout(ANSWER);
        let client = builder.connect(&store.url).await?;
        let lock = client.lock("till");
        lock.acquire().await?.release().await?;
        (store.freeze)()?;
        let semaphore = client.semaphore("render");
        let (seen, counted, listed, ping) = tokio::join!(
            lock.inspect(),
            semaphore.inspect(),
            async { client.list("*").await },
            client.ping(),
        );
        for read in [seen.map(drop), ping] {
            let kind = read.err().map(|error| error.kind());
            ensure!(kind == Some(ErrorKind::Unavailable), "{kind:?}");
        }
        // A store without semaphores, or without a list, may answer without a request.
        for read in [counted.map(drop), listed.map(drop)] {
            let unknown = read.is_err_and(|error| error.outcome_unknown());
            ensure!(!unknown, "in doubt");
        }
        (store.thaw)()?;
        Ok(())
    }

    pub(super) async fn a_ping_writes_nothing_and_notices_a_server_that_hangs(
        store: Store,
    ) -> Result<()> {
        let answer = ANSWER;
        let builder = Client::builder().response_timeout(answer);
        let client = builder.publish_process_info(false).prefix("shop:");
        let client = client.connect(&store.url).await?;
        ensure!(client.status().is_connected);
        let guard = client.lock("warm").acquire().await?; // a store may create its tables now
        client.ping().await?;
        let before = (store.written)()?;
        ensure!(!before.is_empty());
        for _ in 0..10 {
            client.ping().await?;
            ensure!(client.status().is_connected && client.status().held == 1);
        }
        let after = (store.written)()?;
        ensure!(before == after, "{before} → {after}");
        guard.release().await?;
        client.lock("till").acquire().await?.release().await?;
        let changed = (store.written)()?;
        ensure!(
            store.url.contains("session") || changed != after,
            "{changed}"
        );
        (store.freeze)()?;
        let begun = Instant::now();
        let error = client.ping().await.err();
        ensure!(begun.elapsed() < answer * 5 / 3, "{:?}", begun.elapsed());
        let kind = error.as_ref().map(tidelock::Error::kind);
        ensure!(kind == Some(ErrorKind::Unavailable), "{error:?}");
        ensure!(!client.status().is_connected);
        (store.thaw)()?;
        let begun = Instant::now();
        while let Err(error) = client.ping().await {
            ensure!(begun.elapsed() < ANSWER * 5, "{error}");
        }
        ensure!(client.status().is_connected);
        Ok(())
    }
}

/// The error names the server, the database, and what to write instead.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_does_not_exist_is_told_with_its_server() -> Result<()> {
    let (redis, postgres) = (RedisServer::start()?, PostgresServer::start()?);
    let mysql = MariaDb::start()?;
    // To a user without rights on it, the server would not say that it does not exist.
    mysql.query("GRANT ALL ON shop.* TO tide@'127.0.0.1'")?;
    let other = |url: String, database: &str| {
        let (server, _) = url.rsplit_once('/').unwrap_or_default();
        format!("{server}/{database}")
    };
    for (url, address, words) in [
        (
            format!("redis://{}/99", redis.addr()),
            redis.addr(),
            ["no database 99", "it has 0 to 15", "/0"],
        ),
        (
            other(postgres.url(), "shop"),
            postgres.addr(),
            ["postgres://", "\"shop\"", "a database that exists"],
        ),
        (
            other(mysql.url(), "shop"),
            mysql.addr(),
            ["mysql://", "'shop'", "one that exists"],
        ),
    ] {
        let error = Client::connect(&url).await.unwrap_err();
        let said = error.to_string();
        for word in words.into_iter().chain([&*address.to_string()]) {
            assert!(said.contains(word), "{word} in {said}");
        }
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{said}");
    }
    Ok(())
}
