//! Renewals of locks in many slots: they meet in one request per node, and nothing is lost when a slot or a node moves.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use testkit::servers::{Cluster, RedisServer};
use tidelock::{Client, Guard, LostReason};
use tokio::time::sleep;

use crate::shards::{has, slot, slots};
use real_servers::{SOON, Told, boot_time, builder, listen, ms, secs};

/// Long enough for a machine that is busy with other tests.
fn lease() -> Duration {
    secs(4)
}

/// The calls of a command by all clients of these servers, and the microseconds that the servers spent on them.
fn spent(servers: &[&RedisServer], command: &str) -> Result<(u64, u64)> {
    let mut sum = (0, 0);
    for server in servers {
        let stats: String = server.query(&["INFO", "COMMANDSTATS"])?;
        let line = stats
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_")?.strip_prefix(command));
        let fields = line.unwrap_or_default().trim_start_matches(':').split(',');
        let fields: BTreeMap<&str, &str> =
            fields.filter_map(|field| field.split_once('=')).collect();
        let field = |name: &str| fields.get(name).map_or(Ok(0), |value| value.parse::<u64>());
        sum.0 += field("calls")?;
        sum.1 += field("usec")?;
    }
    Ok(sum)
}

/// Locks that are all on this node, each in a slot of its own.
async fn hold_at(client: &Client, node: &RedisServer, count: usize) -> Result<Vec<Guard>> {
    let ranges = slots(node)?;
    let mut taken = std::collections::BTreeSet::new();
    let names = (0..).map(|number| format!("stock {number}"));
    let names = names.filter(|name| has(&ranges, slot(name)) && taken.insert(slot(name)));
    let locks: Vec<_> = names.take(count).map(|name| client.lock(&name)).collect();
    Ok(try_join_all(locks.iter().map(|lock| lock.acquire())).await?)
}

/// What the renewals of many locks cost.
struct Cost {
    /// The scripts that the servers ran, for each lock and period.
    requests: f64,
    /// The time that they spent in scripts, for each lock and period, in microseconds.
    server: f64,
}

/// Holds so many locks until each was renewed.
async fn cost_of(url: &str, servers: &[&RedisServer], count: u32) -> Result<Cost> {
    // Long enough for a busy machine: a lost lock would not be renewed.
    let client = Client::builder()
        .lease(Duration::from_secs(20))
        .publish_process_info(false);
    let client = client.connect(url).await?;
    let locks: Vec<_> = (0..count)
        .map(|number| client.lock(&format!("stock {number}")))
        .collect();
    let guards = try_join_all(locks.iter().map(|lock| lock.acquire())).await?;
    for server in servers {
        server.admin(&["CONFIG", "RESETSTAT"])?;
    }
    let renewals = loop {
        let (renewals, _) = spent(servers, "pexpire")?;
        if renewals >= u64::from(count) {
            break renewals;
        }
        sleep(ms(20)).await;
    };
    ensure!(guards.iter().all(Guard::is_held), "none was lost");
    let (requests, micros) = spent(servers, "evalsha")?;
    #[allow(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    let each = |sum: u64| sum as f64 / renewals as f64;
    Ok(Cost {
        requests: each(requests),
        server: each(micros),
    })
}

/// Ten thousand locks over three shards are renewed with hardly more requests than on one server, although nearly each
/// of them is in a slot of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_meet_in_one_batch_per_node_and_not_per_slot() -> Result<()> {
    const LOCKS: u32 = 10_000;
    let (cluster, server) = (
        Cluster::builder().replicas(0).start()?,
        RedisServer::start()?,
    );
    let shards = cluster.primaries()?;
    ensure!(shards.len() == 3, "three shards");
    let one = cost_of(&server.url(), &[&server], LOCKS).await?;
    let many = cost_of(&cluster.url(), &shards, LOCKS).await?;
    eprintln!(
        "a renewal costs one server {:.4} requests and {:.2} µs in scripts, and three shards {:.4} and {:.2}",
        one.requests, one.server, many.requests, many.server
    );
    ensure!(
        many.requests <= 1.2 * one.requests,
        "{} requests for a renewal, on one server {}",
        many.requests,
        one.requests
    );
    Ok(())
}

/// Plain locks are renewed in the same way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_locks_in_many_slots_are_renewed_together() -> Result<()> {
    const LOCKS: u32 = 600;
    let cluster = Cluster::builder().replicas(0).start()?;
    let url = format!("{}?locks=plain", cluster.url());
    let cost = cost_of(&url, &cluster.primaries()?, LOCKS).await?;
    ensure!(
        cost.requests < 0.1,
        "{} requests for a renewal",
        cost.requests
    );
    Ok(())
}

/// A slot migrates, first half of it and then the rest, while its lock is renewed together with those of other
/// slots of the same node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_out_of_a_batch_loses_nothing() -> Result<()> {
    let cluster = crate::shared();
    let _alone = crate::alone().await;
    for form in ["", "?locks=plain"] {
        let client = builder(lease())
            .connect_within(SOON)
            .connect(&format!("{}{form}", cluster.url()))
            .await?;
        let primaries = cluster.primaries()?;
        let guards = hold_at(&client, primaries[0], 40).await?;
        let told: Vec<_> = guards.iter().map(listen).collect();
        let moved = guards[0].name().to_owned();
        let migration = cluster.migration(cluster.slot_of(&moved)?, primaries[1])?;
        migration.begin()?;
        migration.move_key(&moved)?;
        sleep(lease() * 3 / 2).await;
        ensure!(told.iter().all(Told::is_quiet), "while it migrates");
        migration.move_keys()?;
        migration.finish()?;
        sleep(lease() * 3 / 2).await;
        ensure!(told.iter().all(Told::is_quiet), "after it has moved");
        let left: i64 = primaries[1].query(&["PTTL", &moved])?;
        ensure!(left > 0, "it is on its new node: {left}");
        for guard in guards {
            guard.release().await?;
        }
    }
    Ok(())
}

/// A lock has migrated ahead of its slot to a node that then hangs. Its holder is told. The other locks of the
/// old node do not wait for it: they are asked for without it from then on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_has_moved_to_a_frozen_node_delays_no_other() -> Result<()> {
    let cluster = Cluster::builder()
        .replicas(0)
        .server(RedisServer::builder().args(["--cluster-require-full-coverage", "no"]))
        .start()?;
    // A reply is awaited for longer than a lease lasts: with the lost lock in their batch, all would be lost.
    let client = Client::builder()
        .lease(lease())
        .response_timeout(lease() * 2);
    // A busy machine may be late to tell the holder. A quarter of the lease is left for that.
    let client = client.drift(0.25, Duration::ZERO).connect_within(SOON);
    let client = client.connect(&cluster.url()).await?;
    let primaries = cluster.primaries()?;
    let mut guards = hold_at(&client, primaries[0], 40).await?;
    let moved = guards.remove(0);
    let lost = listen(&moved);
    let told: Vec<_> = guards.iter().map(listen).collect();
    let migration = cluster.migration(cluster.slot_of(moved.name())?, primaries[1])?;
    migration.begin()?;
    migration.move_key(moved.name())?;
    // From here on its renewals follow `ASK`.
    sleep(lease()).await;
    ensure!(lost.is_quiet(), "renewed where it went");
    primaries[1].freeze()?;
    let frozen = boot_time();
    sleep(lease() * 3).await;
    ensure!(told.iter().all(Told::is_quiet), "no other is lost");
    let (at, reason) = lost.told(SOON).await?;
    ensure!(reason == LostReason::Expired, "{reason}");
    ensure!(at < frozen + lease(), "told {:?} after", at - frozen);
    primaries[1].thaw()?;
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

/// A node hands its slots to its replica while many of its locks are renewed together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_replaced_loses_no_lock_of_a_batch() -> Result<()> {
    // Not the shared one: a failover disturbs other tests.
    let cluster = Cluster::start()?;
    let client = builder(lease())
        .connect_within(SOON)
        .connect(&cluster.url())
        .await?;
    let old = *cluster.primaries()?.first().context("a primary")?;
    let guards = hold_at(&client, old, 100).await?;
    let told: Vec<_> = guards.iter().map(listen).collect();
    let new = cluster.failover(cluster.slot_of(guards[0].name())?)?;
    ensure!(new.port() != old.port(), "another node");
    sleep(lease() * 3 / 2).await;
    ensure!(told.iter().all(Told::is_quiet), "none is lost");
    for guard in &guards {
        let left: i64 = new.query(&["PTTL", guard.name()])?;
        ensure!(left > 0, "{} has {left} ms", guard.name());
    }
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}
