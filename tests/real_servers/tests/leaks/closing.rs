//! A closed client uses no resources, even if a handle to it still exists.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use testkit::process::{open_fds, threads};
use testkit::servers::{
    EtcdServer, MariaDb, MemcachedServer, PostgresServer, RedisServer, ZooKeeperServer,
};
use tidelock::{Client, blocking};

use crate::books::ALONE;

/// A limit for a thread to end on a busy machine.
const PATIENCE: Duration = Duration::from_secs(15);

const ROUNDS: u64 = 8;

/// Threads and descriptors of this process.
fn read() -> Result<(u64, usize)> {
    let me = std::process::id();
    Ok((threads(me)?, open_fds(me)?))
}

/// Takes a lock, leaks every handle to it, and closes the client.
async fn forget_and_close(url: &str) -> Result<()> {
    let client = Client::connect(url).await?;
    let guard = client.lock("forgotten").acquire().await?;
    std::mem::forget(guard.lost());
    std::mem::forget(guard);
    std::mem::forget(client.lock("another"));
    assert_eq!(client.close(Duration::ZERO).await, 1);
    assert_eq!(client.close(Duration::ZERO).await, 0, "a second close");
    std::mem::forget(client);
    Ok(())
}

fn forget_and_close_blocking(url: &str) -> Result<()> {
    let client = blocking::Client::connect(url)?;
    let guard = client.lock("forgotten").acquire()?;
    std::mem::forget(guard);
    assert_eq!(client.close(Duration::ZERO)?, 1);
    assert_eq!(client.close(Duration::ZERO)?, 0, "a second close");
    std::mem::forget(client);
    Ok(())
}

async fn nothing_more_than(before: (u64, usize), what: &str) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        let now = read()?;
        if now.0 <= before.0 && now.1 <= before.1 {
            return Ok(());
        }
        if Instant::now() > end {
            bail!("{what}: threads and descriptors were {before:?}, and are {now:?}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn stays_flat_at(url: &str) -> Result<()> {
    let blocking_rounds = async |rounds: u64| {
        let url = url.to_owned();
        let body = move || (0..rounds).try_for_each(|_| forget_and_close_blocking(&url));
        let thread = move || std::thread::spawn(body).join();
        tokio::task::spawn_blocking(thread).await?.unwrap()
    };
    // Warm-up: the process starts some threads only once.
    forget_and_close(url).await?;
    blocking_rounds(1).await?;
    let before = read()?;
    for _ in 0..ROUNDS {
        forget_and_close(url).await?;
    }
    nothing_more_than(before, url).await?;
    blocking_rounds(ROUNDS).await?;
    nothing_more_than(before, &format!("blocking, {url}")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_guard_keeps_no_thread_of_a_closed_client() -> Result<()> {
    let _alone = ALONE.lock().await;
    let folder = tempfile::tempdir()?;
    stays_flat_at("memory:").await?;
    stays_flat_at(&format!("sqlite:{}/locks.db", folder.path().display())).await?;
    stays_flat_at(&RedisServer::start()?.url()).await?;
    stays_flat_at(&PostgresServer::start()?.url()).await?;
    stays_flat_at(&MariaDb::start()?.url()).await?;
    stays_flat_at(&EtcdServer::start()?.url()).await?;
    stays_flat_at(&MemcachedServer::start()?.url()).await?;
    stays_flat_at(&ZooKeeperServer::start()?.url()).await
}
