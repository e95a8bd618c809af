//! The number of commands that a lock on memcached costs, and the number that waiting costs.

use std::time::{Duration, Instant};

use anyhow::Result;
use real_servers::waiting::{A_MINUTE, cost_next_to_nothing};
use testkit::servers::MemcachedServer;
use tidelock::Client;

/// The number of `get`, `set` and `delete` commands so far.
fn spent(server: &MemcachedServer) -> Result<[u64; 3]> {
    let count =
        |names: [&str; 2]| -> Result<u64> { names.iter().map(|name| server.stat(name)).sum() };
    Ok([
        server.stat("cmd_get")?,
        server.stat("cmd_set")?,
        count(["delete_hits", "delete_misses"])?,
    ])
}

const LEASE: Duration = Duration::from_secs(30);

async fn client(server: &MemcachedServer) -> Result<Client> {
    let builder = Client::builder().publish_process_info(false).lease(LEASE);
    Ok(builder.connect(&server.url()).await?)
}

/// An acquire and a release take two round trips each: a read, then the write that depends on it. The tombstone check
/// travels in the same round trip as the `add`.
#[tokio::test]
async fn the_requests_of_locks_on_memcached() -> Result<()> {
    let server = MemcachedServer::start()?;
    let client = client(&server).await?;
    let lock = client.lock("stock");
    let mut before = spent(&server)?;
    let mut since = || -> Result<[u64; 3]> {
        let now = spent(&server)?;
        let since = [0, 1, 2].map(|n| now[n] - before[n]);
        before = now;
        Ok(since)
    };
    let guard = lock.acquire().await?;
    assert_eq!(since()?, [2, 1, 0]);
    assert!(lock.try_acquire().await?.is_none());
    assert_eq!(since()?, [2, 0, 0]);
    guard.extend(Duration::from_secs(60)).await?;
    assert_eq!(since()?, [1, 1, 0]);
    guard.release().await?;
    assert_eq!(since()?, [1, 0, 1]);
    Ok(())
}

/// A hundred waiters of one process send as many requests as one waiter, and a release by another process is noticed
/// soon.
#[tokio::test]
async fn a_hundred_waiters_look_as_one_and_are_handed_over_to_soon() -> Result<()> {
    let server = MemcachedServer::start()?;
    let (one, two) = (client(&server).await?, client(&server).await?);
    let held = one.lock("stock").acquire().await?;
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..100 {
        waiters.spawn(two.lock("stock").acquire());
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = spent(&server)?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let looks = (spent(&server)?[0] - before[0]) / 3;
    println!("{looks} commands a second");
    assert!((5..=120).contains(&looks), "{looks} commands a second");
    waiters.shutdown().await;
    held.release().await?;
    let mut waits = Vec::new();
    for _ in 0..21 {
        let held = one.lock("stock").acquire().await?;
        let waiter = tokio::spawn(two.lock("stock").acquire());
        tokio::time::sleep(Duration::from_millis(200)).await;
        held.release().await?;
        let begun = Instant::now();
        let next = waiter.await??;
        waits.push(begun.elapsed());
        next.release().await?;
    }
    waits.sort();
    println!("handed over after {:?} (median)", waits[10]);
    assert!(waits[10] <= LEASE / 60, "{waits:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a minute: `cargo xtask full` runs it"]
async fn a_hundred_waiters_cost_next_to_nothing_for_a_minute() -> Result<()> {
    let server = MemcachedServer::start()?;
    let held = client(&server).await?.lock("stock").acquire().await?;
    let peer = (env!("CARGO_BIN_EXE_peer"), &*server.url());
    let asked = || Ok(spent(&server)?.iter().sum());
    cost_next_to_nothing(peer, held, A_MINUTE, asked).await
}
