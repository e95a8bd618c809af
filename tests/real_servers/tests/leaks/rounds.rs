//! 20,000 rounds of a client whose connections are cut repeatedly.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Result;
use testkit::proxy::Proxy;
use testkit::servers::RedisServer;
use tidelock::Client;
use tokio::task::JoinSet;

use crate::books::{ALONE, Books, few_tasks, quiet};

/// Concurrent tasks. Two of them share each name, so there is always a waiter, and cuts hit subscriptions too.
const TASKS: u32 = 8;

/// Rounds between two cuts: about a second's worth on a busy machine, less on an idle one.
const CUT_EVERY: u32 = 800;

/// A leak of 100 bytes in each of the 20,000 rounds would exceed this; the allocator's own variation does not.
const MEMORY_SWING: u64 = 2 << 20;

/// Acquires and releases, and cuts all connections repeatedly. Every round must succeed: an acquire waits out an outage
/// shorter than the lease, and a release whose reply was lost is confirmed in the background.
async fn rounds(client: &Client, proxy: &Arc<Proxy>, count: u32) -> Result<u32> {
    let (done, cuts) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (done, cuts, proxy) = (Arc::clone(&done), Arc::clone(&cuts), Arc::clone(proxy));
        let lock = client.lock(&format!("stock {}", task.max(1)));
        tasks.spawn(async move {
            while done.fetch_add(1, Ordering::Relaxed) < count {
                let guard = lock.acquire().await?;
                if done.load(Ordering::Relaxed) / CUT_EVERY > cuts.load(Ordering::Relaxed) {
                    cuts.fetch_add(1, Ordering::Relaxed);
                    proxy.cut();
                    // The proxy's log grows with each command. We clear it, or its memory would look like a leak.
                    proxy.reset_counts();
                }
                guard.release().await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(cuts.load(Ordering::Relaxed))
}

/// After 20,000 rounds memory, descriptors, threads, tasks, keys, connections and channels are the same as after the
/// first 4,000.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_thousand_rounds_with_disconnects_leave_nothing() -> Result<()> {
    let _alone = ALONE.lock().await;
    let server = RedisServer::start()?;
    let proxy = Arc::new(Proxy::start(server.addr())?);
    let client = Client::connect(&proxy.url()).await?;

    tokio::time::timeout(Duration::from_secs(600), async {
        rounds(&client, &proxy, 4_000).await?;
        quiet(&server).await?;
        let before = Books::read(&server)?;

        let start = std::time::Instant::now();
        let cuts = rounds(&client, &proxy, 20_000).await?;
        let took = start.elapsed();
        assert!(cuts >= 20, "only {cuts} disconnects");
        quiet(&server).await?;
        // The task of a connection may just be restarting, so we allow one more.
        few_tasks(before.tasks + 1).await?;
        let after = Books::read(&server)?;
        println!("20,000 rounds with {cuts} disconnects in {took:.1?}\nbefore {before:?}\nafter  {after:?}");

        assert!(after.memory <= before.memory + MEMORY_SWING, "memory: {before:?} {after:?}");
        // Fewer is no leak: the runtime of the test before this one may have ended in between.
        assert!(after.threads <= before.threads, "threads: {before:?} {after:?}");
        // The connections are for commands, the steward and subscriptions; the last one may linger for the next waiter.
        assert!(after.connections <= 3, "connections: {after:?}");
        // Each connection has one descriptor here and two in the proxy. The number of other descriptors must not
        // grow.
        let others = |books: &Books| books.descriptors - 3 * books.connections;
        assert!(others(&after) <= others(&before), "descriptors: {before:?} {after:?}");
        anyhow::Ok(())
    })
    .await??;
    client.close(Duration::ZERO).await;
    Ok(())
}
