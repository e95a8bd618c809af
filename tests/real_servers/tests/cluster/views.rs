//! The views that nodes have of each other, and which of them the client trusts.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::servers::{Cluster, RedisServer};

use real_servers::{SOON, builder, eventually, insist, secs, within};

fn epoch(node: &RedisServer) -> Result<u64> {
    let info: String = node.query(&["CLUSTER", "INFO"])?;
    let mut lines = info.lines();
    let epoch = lines.find_map(|line| line.strip_prefix("cluster_current_epoch:"));
    Ok(epoch.context("an epoch")?.trim().parse()?)
}

/// Isolates the replica of the first shard: it knows only its primary, and no other node knows it. Then it starts an
/// election.
fn cut_off(cluster: &Cluster) -> Result<&RedisServer> {
    let primary = cluster.primaries()?[0];
    let replica = cluster.replica_of(primary)?;
    let id = |node: &RedisServer| -> Result<String> { node.query(&["CLUSTER", "MYID"]) };
    let own = id(replica)?;
    let others = || {
        cluster
            .nodes()
            .iter()
            .filter(|node| node.port() != replica.port())
    };
    for node in others() {
        node.admin(&["CLUSTER", "FORGET", &own])?;
        if node.port() != primary.port() {
            replica.admin(&["CLUSTER", "FORGET", &id(node)?])?;
        }
    }
    let newest = others().map(epoch).collect::<Result<Vec<_>>>()?;
    let newest = newest.into_iter().max().unwrap_or_default();
    replica.admin(&["CLUSTER", "FAILOVER", "FORCE"])?;
    eventually(SOON, "it has counted up", || Ok(epoch(replica)? > newest))?;
    Ok(replica)
}

/// The epoch of an election that no other node took part in does not count: the client trusts the primaries and finds
/// every shard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_cut_off_hides_no_shard() -> Result<()> {
    let cluster = Cluster::start()?;
    let replica = cut_off(&cluster)?;
    // The client asks the isolated replica first.
    let url = format!("redis+cluster://{}", replica.addr());
    let client = builder(secs(3)).connect(&url).await?;
    for primary in cluster.primaries()? {
        let mut names = (0..).map(|number| format!("stock {number}"));
        let name = loop {
            let name = names.next().context("a name")?;
            if cluster.node_of(&name)?.port() == primary.port() {
                break name;
            }
        };
        let guard = within(SOON, &name, insist(client.lock(&name))).await??;
        ensure!(guard.is_held());
        guard.release().await?;
    }
    client.close(Duration::ZERO).await;
    Ok(())
}
