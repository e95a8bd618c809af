//! A cluster whose nodes have IPv6 addresses: in the URL, in the node list, in MOVED and in ASK.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::servers::{Cluster, RedisServer};
use tidelock::redis::{PubSubMode, Topology};

use real_servers::{SOON, builder, insist, within};

/// The number of requests that a node has answered with this redirection.
fn sent_on(node: &RedisServer, how: &str) -> Result<u64> {
    let said: String = node.query(&["INFO", "errorstats"])?;
    let start = format!("errorstat_{how}:count=");
    let count = said.lines().find_map(|line| line.strip_prefix(&start));
    Ok(count.map_or(Ok(0), |count| count.trim().parse())?)
}

/// A slot moves while its lock is held, and then its primary hands over. The client follows both to an address in
/// brackets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_a_cluster_on_ipv6_follow_slots_and_failovers() -> Result<()> {
    let server = RedisServer::builder().ipv6(true);
    let cluster = Cluster::builder().server(server).start()?;
    let seed = format!("redis+cluster://{}", cluster.nodes()[0].addr());
    ensure!(seed.contains("[::1]"), "{seed}");
    let client = builder(Duration::from_secs(6)).connect(&seed).await?;
    // The same cluster, given as a topology instead of a URL.
    let parts =
        Topology::cluster([cluster.nodes()[1].addr().to_string()]).pubsub_mode(PubSubMode::Auto);
    let other = parts.connect(builder(Duration::from_secs(6))).await?;
    let guard = client.lock("stock").acquire().await?;
    ensure!(other.lock("stock").try_acquire().await?.is_none());
    let (slot, old) = (cluster.slot_of("stock")?, cluster.node_of("stock")?);
    let mut others = cluster.primaries()?.into_iter();
    let to = others
        .find(|node| node.port() != old.port())
        .context("another primary")?;
    // Nothing but MOVED tells this client that the slot has moved: it asks for the map again only after an ASK or an error.
    let before = sent_on(old, "MOVED")?;
    let migration = cluster.migration(slot, to)?;
    migration.begin()?;
    migration.move_keys()?;
    migration.finish()?;
    guard.release().await?;
    ensure!(
        sent_on(old, "MOVED")? > before,
        "nobody was sent on by MOVED"
    );
    let guard = client.lock("stock").acquire().await?;
    let migration = cluster.migration(slot, old)?;
    migration.begin()?;
    migration.move_keys()?;
    // ASK redirects this request to the node that has the key already.
    let shown = client.lock("stock").inspect().await?;
    ensure!(!shown.holders.is_empty(), "{shown:?}");
    ensure!(sent_on(to, "ASK")? > 0, "nobody was sent on by ASK");
    migration.finish()?;
    guard.release().await?;
    cluster.failover(slot)?;
    let guard = within(SOON, "the new primary", insist(other.lock("stock"))).await??;
    guard.release().await?;
    for client in [client, other] {
        client.close(Duration::ZERO).await;
    }
    Ok(())
}
