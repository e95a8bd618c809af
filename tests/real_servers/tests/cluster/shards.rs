//! Failures of one shard, and of most shards at once.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::future::{join_all, try_join_all};
use testkit::servers::{Cluster, RedisServer};
use tidelock::{AcquireOptions, ErrorKind, Guard, LostReason};
use tokio::time::sleep;

use real_servers::{SOON, boot_time, builder, listen, ms, within};

/// T36. Two of three primaries are down, so the third refuses requests as well. The client retries within the wait and
/// then returns a clear error. With a longer wait it gets the lock once they are back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t36_a_cluster_that_is_down_is_waited_for() -> Result<()> {
    let cluster = Cluster::builder().replicas(0).start()?;
    let lease = Duration::from_secs(20);
    let settings = builder(lease).response_timeout(ms(4000));
    let client = settings.connect(&cluster.url()).await?;
    client.lock("{shop}warm").acquire().await?.release().await?;
    let own = cluster.node_of("{shop}")?;
    let primaries = cluster.primaries()?.into_iter();
    let others = primaries.filter(|node| node.port() != own.port());
    let others: Vec<&RedisServer> = others.collect();
    for other in &others {
        other.freeze()?;
    }
    real_servers::eventually(SOON, "the cluster is down", || {
        let info: String = own.query(&["CLUSTER", "INFO"])?;
        Ok(info.contains("cluster_state:fail"))
    })?;
    let begun = boot_time();
    let wait = ms(2000);
    let short = AcquireOptions::new().wait(wait);
    let error = client.lock("{shop}stock").acquire_with(short).await;
    let took = boot_time() - begun;
    let error = error.map(drop).unwrap_err();
    ensure!(error.kind() == ErrorKind::Unavailable, "{error}");
    ensure!(error.to_string().contains("CLUSTERDOWN"), "{error}");
    ensure!(
        (wait * 9 / 10..wait + lease / 2).contains(&took),
        "{took:?}"
    );
    let waiter = tokio::spawn(client.lock("{shop}stock").acquire());
    for other in &others {
        other.thaw()?;
    }
    cluster.await_ok()?;
    let guard = within(SOON, "the cluster is up", waiter).await???;
    guard.release().await?;
    Ok(())
}

/// T36. One node runs a script for longer than its limit, another still loads its data: the client retries on both
/// within the wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t36_a_busy_and_a_loading_server_are_waited_for() -> Result<()> {
    let slow = ["--lua-time-limit", "50", "--key-load-delay", "5000"];
    let server = RedisServer::builder().appendonly(true).args(slow).start()?;
    let client = builder(Duration::from_secs(20))
        .connect(&server.url())
        .await?;
    client.lock("warm").acquire().await?.release().await?;
    for number in 0..200 {
        server.admin(&["SET", &format!("key {number}"), "x"])?;
    }
    std::thread::scope(|scope| {
        let script = "local t = redis.call('time'); local e = t[1] * 1000000 + t[2] + 700000; \
            repeat t = redis.call('time') until t[1] * 1000000 + t[2] > e; return 1";
        let busy = scope.spawn(|| server.admin(&["EVAL", script, "0"]).map(drop));
        std::thread::sleep(ms(200));
        let got = here(client.lock("stock").acquire());
        busy.join().expect("no panic")?;
        anyhow::Ok(here(got?.release())?)
    })?;
    server.kill()?;
    std::thread::scope(|scope| {
        let restart = scope.spawn(|| server.restart());
        let got = here(client.lock("stock").acquire());
        restart.join().expect("no panic")?;
        Ok(here(got?.release())?)
    })
}

/// T36. A server loads a file of a million keys after it was killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t36_a_server_that_loads_a_big_file_is_waited_for() -> Result<()> {
    let server = RedisServer::builder()
        .args(["--enable-debug-command", "local"])
        .start()?;
    let client = builder(Duration::from_secs(20))
        .connect(&server.url())
        .await?;
    client.lock("stock").acquire().await?.release().await?;
    server.admin(&["DEBUG", "POPULATE", "1000000", "page", "100"])?;
    server.admin(&["SAVE"])?;
    server.kill()?;
    std::thread::scope(|scope| {
        let restart = scope.spawn(|| server.restart());
        let loads = scope.spawn(|| {
            loop {
                match server.admin(&["PING"]) {
                    Ok(_) => return false,
                    Err(error) if format!("{error:#}").to_lowercase().contains("loading") => {
                        return true;
                    }
                    Err(_) => std::thread::sleep(ms(1)),
                }
            }
        });
        let got = here(client.lock("stock").acquire());
        restart.join().expect("no panic")?;
        ensure!(
            loads.join().expect("no panic"),
            "it never said that it loads"
        );
        anyhow::Ok(here(got?.release())?)
    })
}

/// Runs a future on this thread while another thread keeps the server busy.
fn here<F: IntoFuture>(work: F) -> F::Output {
    let work = async { work.await };
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(work))
}

/// Until when the latest of these guards claims its lock, on the boot clock. Zero: none of them does.
fn claimed_until(guards: &[Guard]) -> Duration {
    let claims = guards.iter().map(|guard| {
        // We read the clock first, so that a pause between the two makes the claim no later.
        let (now, left) = (boot_time(), guard.valid_for());
        if left.is_zero() { left } else { now + left }
    });
    claims.max().unwrap_or_default()
}

/// T37. One of three shards is frozen for three leases, with a hundred locks held on each. Those on the healthy shards
/// stay held and renewed; the holders on the frozen shard are told before their leases can end there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t37_a_frozen_shard_costs_the_others_nothing() -> Result<()> {
    let lease = ms(3000);
    let cluster = Cluster::builder()
        .replicas(0)
        .server(RedisServer::builder().args(["--cluster-require-full-coverage", "no"]))
        .start()?;
    // A busy machine may be late to tell the holders. A quarter of the lease is left for that.
    let client = builder(lease).drift(0.25, Duration::ZERO);
    let client = client.connect_within(SOON).connect(&cluster.url()).await?;
    let primaries = cluster.primaries()?;
    let mut guards: Vec<Vec<_>> = Vec::new();
    for node in &primaries {
        let ranges = slots(node)?;
        let mut names = (0..).map(|number| format!("stock {number}"));
        let mine = std::iter::from_fn(|| names.find(|name| has(&ranges, slot(name))));
        let locks: Vec<_> = mine.take(100).map(|name| client.lock(&name)).collect();
        guards.push(try_join_all(locks.iter().map(|lock| lock.acquire())).await?);
    }
    let told: Vec<_> = guards[0].iter().map(listen).collect();
    primaries[0].freeze()?;
    let frozen = boot_time();
    let mut claimed = Duration::ZERO;
    while boot_time() < frozen + 3 * lease {
        claimed = claimed.max(claimed_until(&guards[0]));
        sleep(lease / 100).await;
    }
    // The frozen shard has confirmed nothing that was sent later.
    ensure!(
        claimed <= frozen + lease - lease / 4,
        "claimed for {:?} after the freeze",
        claimed - frozen
    );
    for (number, healthy) in guards[1..].iter().enumerate() {
        let held = healthy.iter().filter(|guard| guard.is_held()).count();
        ensure!(held == 100, "{held} of 100 held on shard {}", number + 1);
    }
    for (at, reason) in try_join_all(told.into_iter().map(|told| told.told(SOON))).await? {
        ensure!(reason == LostReason::Expired, "{reason}");
        ensure!(
            at < frozen + lease,
            "told {:?} after the freeze",
            at - frozen
        );
    }
    // The client may only believe that they are held, so we check the server: it must have them, with most of their
    // lease left.
    for (node, healthy) in primaries[1..].iter().zip(&guards[1..]) {
        for guard in healthy {
            let left: i64 = node.query(&["PTTL", guard.name()])?;
            ensure!(left > 0, "{} has {left} ms", guard.name());
        }
    }
    primaries[0].thaw()?;
    for healthy in guards.drain(1..) {
        for released in join_all(healthy.into_iter().map(tidelock::Guard::release)).await {
            released?;
        }
    }
    Ok(())
}

/// T37. The shard that has slot 0 is frozen, and there is no replica to take over. A process that starts now connects, and
/// acquires the locks of the other shards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t37_a_process_that_starts_needs_no_frozen_shard() -> Result<()> {
    let cluster = Cluster::builder()
        .replicas(0)
        .server(RedisServer::builder().args(["--cluster-require-full-coverage", "no"]))
        .start()?;
    let (mut first, mut elsewhere) = (None, None);
    for node in cluster.primaries()? {
        let ranges = slots(node)?;
        if has(&ranges, 0) {
            first = Some(node);
        } else {
            let mut names = (0..).map(|number| format!("stock {number}"));
            elsewhere = names.find(|name| has(&ranges, slot(name)));
        }
    }
    let (first, elsewhere) = first.zip(elsewhere).context("three shards")?;
    first.freeze()?;
    let client = builder(Duration::from_secs(20))
        .connect(&cluster.url())
        .await?;
    client.lock(&elsewhere).acquire().await?.release().await?;
    first.thaw()?;
    Ok(())
}

/// The slots of a node, as ranges from first to last.
pub(crate) fn slots(node: &RedisServer) -> Result<Vec<(u16, u16)>> {
    let text: String = node.query(&["CLUSTER", "NODES"])?;
    let own = text
        .lines()
        .find(|line| line.contains("myself"))
        .unwrap_or_default();
    let ranges = own.split_whitespace().skip(8).map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        anyhow::Ok((first.parse()?, last.parse()?))
    });
    ranges.collect()
}

pub(crate) fn has(ranges: &[(u16, u16)], slot: u16) -> bool {
    ranges
        .iter()
        .any(|(first, last)| (*first..=*last).contains(&slot))
}

/// The slot of a name without braces, by CRC-16/XMODEM.
pub(crate) fn slot(name: &str) -> u16 {
    let crc = name.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    });
    crc % 16384
}
