//! A client removes the details of its process from the store when it closes.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testkit::servers::{
    EtcdServer, MariaDb, MemcachedServer, PostgresServer, RedisServer, ZooKeeperServer,
};
use tidelock::Client;

use crate::books::ALONE;

/// Waits until there are as many records as they should be.
async fn until(
    right: impl Fn(usize) -> bool,
    what: &str,
    records: &dyn Fn() -> Result<usize>,
) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let found = records()?;
        if right(found) {
            return Ok(());
        }
        ensure!(Instant::now() < end, "{what}: {found} records");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn leaves_no_record(url: &str, records: &dyn Fn() -> Result<usize>) -> Result<()> {
    let client = Client::connect(url).await?;
    until(|found| found > 0, "a client is there", records).await?;
    client.close(Duration::ZERO).await;
    ensure!(records()? == 0, "{url}: the record of a closed client");
    // The write may still be in flight, or not even sent.
    for _ in 0..20 {
        let client = Client::connect(url).await?;
        client.close(Duration::ZERO).await;
        ensure!(
            records()? == 0,
            "{url}: the record of a client closed at once"
        );
    }
    let client = Client::connect(url).await?;
    until(|found| found > 0, "a client is there", records).await?;
    drop(client);
    until(|found| found == 0, "a dropped client", records).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_client_leaves_no_record_on_redis() -> Result<()> {
    let _alone = ALONE.lock().await;
    let server = RedisServer::start()?;
    leaves_no_record(&server.url(), &|| Ok(server.keys()?.len())).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_client_leaves_no_record_in_a_database() -> Result<()> {
    let _alone = ALONE.lock().await;
    let server = PostgresServer::start()?;
    let count = "SELECT count(*) FROM tidelock_locks_clients";
    let records = || Ok(server.query(count)?.trim().parse()?);
    leaves_no_record(&server.url(), &records).await?;
    let server = MariaDb::start()?;
    let count = "SELECT count(*) FROM tidelock_clients";
    let records = || Ok(server.query(count)?.trim().parse()?);
    leaves_no_record(&server.url(), &records).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_client_leaves_no_record_on_etcd() -> Result<()> {
    let _alone = ALONE.lock().await;
    let server = EtcdServer::start()?;
    leaves_no_record(&server.url(), &|| Ok(server.keys()?.len())).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_client_leaves_no_record_on_memcached() -> Result<()> {
    let _alone = ALONE.lock().await;
    let server = MemcachedServer::start()?;
    let records = || Ok(usize::try_from(server.stat("curr_items")?)?);
    leaves_no_record(&server.url(), &records).await
}

/// A client writes its first record after ten seconds there. One that closes before that must not create a node, either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_client_leaves_no_record_on_zookeeper() -> Result<()> {
    let _alone = ALONE.lock().await;
    let server = ZooKeeperServer::start()?;
    let nodes = || server.number("zk_znode_count");
    let first = Client::connect(&server.url()).await?;
    let end = Instant::now() + Duration::from_secs(60);
    while first.processes().await?.is_empty() {
        ensure!(Instant::now() < end, "no record was written");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let with_record = nodes()?;
    first.close(Duration::ZERO).await;
    // The parents of the records stay.
    ensure!(nodes()? == with_record - 1, "the record of a closed client");
    for _ in 0..20 {
        let client = Client::connect(&server.url()).await?;
        client.close(Duration::ZERO).await;
        let left = nodes()?;
        ensure!(
            left == with_record - 1,
            "{left} nodes instead of {with_record} less one"
        );
    }
    Ok(())
}
