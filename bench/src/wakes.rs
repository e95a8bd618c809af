//! Measures the time from a release to the next waiter's acquisition, across processes and languages.

use std::time::Duration;

use anyhow::Result;
use testkit::foreign::Bench;
use testkit::java::{JavaLock, JavaPeer, RedissonVersion, monotonic_now_ns};
use testkit::servers::{Cluster, RedisServer, Sentinels};
use tidelock::{Client, Lock};

use crate::args::Args;
use crate::figures::{micros, percentile, short};
use crate::page::{Section, Table};
use crate::peers::Peer;
use crate::stage::Stage;
use crate::w6_majority::runtime;

/// Long enough for a waiter to try, subscribe, try again and go to sleep.
const ASLEEP: Duration = Duration::from_millis(8);

/// The time from the call of `release` to the return of `acquire`, in microseconds.
#[derive(Debug)]
struct Wakes {
    way: String,
    times: usize,
    p50: f64,
    p99: f64,
    worst: f64,
}

impl Wakes {
    fn of(way: String, mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        Self {
            way,
            times: times.len(),
            p50: micros(percentile(&times, 0.5)),
            p99: micros(percentile(&times, 0.99)),
            worst: micros(percentile(&times, 1.0)),
        }
    }
}

pub(crate) fn measure(stage: &mut Stage) -> Result<Section> {
    let times = times(&stage.args);
    let java = stage.peers.contains(&Peer::Foreign(Bench::Redisson));
    let all = runtime()?.block_on(everywhere(&stage.server, times, java))?;
    let mut table = Table::new(&["", "times", "p50 ms", "p99 ms", "worst ms"]);
    for wakes in all {
        let [p50, p99, worst] = [wakes.p50, wakes.p99, wakes.worst].map(|us| short(us / 1000.0));
        table.row([wakes.way, wakes.times.to_string(), p50, p99, worst]);
    }
    Ok(Section {
        title: "Release to acquired, across languages and topologies",
        text: TEXT.into(),
        tables: vec![(String::new(), table)],
        ..Section::default()
    })
}

fn times(args: &Args) -> usize {
    if args.quick { 10 } else { 100 }
}

/// Measures on one server, behind Sentinels, and in a cluster.
async fn everywhere(server: &RedisServer, times: usize, java: bool) -> Result<Vec<Wakes>> {
    let mut all = on("", &server.url(), times, &versions(java), Kind::Plain).await?;
    let fair = on(", fair", &server.url(), times, &versions(java), Kind::Fair).await?;
    all.extend(fair);
    let sentinels = tokio::task::block_in_place(Sentinels::start)?;
    all.extend(
        on(
            ", Sentinel",
            &sentinels.url(),
            times,
            &versions(java),
            Kind::Plain,
        )
        .await?,
    );
    drop(sentinels);
    let cluster = tokio::task::block_in_place(Cluster::start)?;
    let url = cluster.url();
    // The old Redisson does not support sharded pub/sub: clients that share locks with it in a cluster must not use it
    // either.
    let newest: Vec<_> = versions(java)
        .into_iter()
        .filter(|version| *version == RedissonVersion::Newest)
        .collect();
    all.extend(on(", cluster", &url, times, &newest, Kind::Plain).await?);
    let plain = format!("{url}?sharded_pubsub=off");
    let old: Vec<_> = versions(java)
        .into_iter()
        .filter(|version| *version != RedissonVersion::Newest)
        .collect();
    all.extend(
        on(
            ", cluster, plain messages",
            &plain,
            times,
            &old,
            Kind::Plain,
        )
        .await?,
    );
    Ok(all)
}

fn versions(java: bool) -> Vec<RedissonVersion> {
    if java {
        RedissonVersion::ALL.to_vec()
    } else {
        Vec::new()
    }
}

async fn on(
    place: &str,
    url: &str,
    times: usize,
    versions: &[RedissonVersion],
    kind: Kind,
) -> Result<Vec<Wakes>> {
    let (one, two) = (Client::connect(url).await?, Client::connect(url).await?);
    let mut all = vec![Wakes::of(
        format!("Rust to Rust{place}"),
        rust_to_rust(&one, &two, times, kind).await?,
    )];
    for version in versions {
        let peer = tokio::task::block_in_place(|| JavaPeer::start(*version, url))?;
        let number = version.number();
        let waits = java_to_rust(&peer, &one, times, kind).await?;
        all.push(Wakes::of(
            format!("Redisson {number} to Rust{place}"),
            waits,
        ));
        let waits = rust_to_java(&one, &peer, times, kind).await?;
        all.push(Wakes::of(
            format!("Rust to Redisson {number}{place}"),
            waits,
        ));
    }
    Ok(all)
}

/// The number of rounds that are not counted, while connections, subscriptions and the JVM's compiler warm up.
fn warm(times: usize) -> usize {
    (times / 5).max(20)
}

fn counted(mut waits: Vec<u64>, times: usize) -> Vec<u64> {
    waits.drain(..warm(times));
    waits
}

/// Which lock the waiters wait for.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Plain,
    Fair,
}

impl Kind {
    fn of(self, client: &Client, name: &str) -> Lock {
        match self {
            Self::Plain => client.lock(name),
            Self::Fair => client.fair_lock(&format!("fair {name}")),
        }
    }

    fn of_java(self, java: &JavaPeer, worker: &str, name: &str) -> JavaLock {
        match self {
            Self::Plain => java.lock(worker, name),
            Self::Fair => java.fair_lock(worker, &format!("fair {name}")),
        }
    }
}

async fn rust_to_rust(one: &Client, two: &Client, times: usize, kind: Kind) -> Result<Vec<u64>> {
    let mut waits = Vec::new();
    for _ in 0..times + warm(times) {
        let held = kind.of(one, "rust-rust").acquire().await?;
        let waiting = wait_in_rust(kind.of(two, "rust-rust"));
        tokio::time::sleep(ASLEEP).await;
        let start = monotonic_now_ns();
        held.release().await?;
        waits.push(waiting.await??.saturating_sub(start));
    }
    Ok(counted(waits, times))
}

async fn java_to_rust(
    java: &JavaPeer,
    rust: &Client,
    times: usize,
    kind: Kind,
) -> Result<Vec<u64>> {
    let lock = kind.of_java(java, "holder", "java-rust");
    let mut waits = Vec::new();
    for _ in 0..times + warm(times) {
        tokio::task::block_in_place(|| lock.lock())?;
        let waiting = wait_in_rust(kind.of(rust, "java-rust"));
        tokio::time::sleep(ASLEEP).await;
        let unlocked = tokio::task::block_in_place(|| lock.unlock())?;
        waits.push(waiting.await??.saturating_sub(unlocked.started_at_ns));
    }
    Ok(counted(waits, times))
}

async fn rust_to_java(
    rust: &Client,
    java: &JavaPeer,
    times: usize,
    kind: Kind,
) -> Result<Vec<u64>> {
    let lock = kind.of_java(java, "waiter", "rust-java");
    let mut waits = Vec::new();
    for _ in 0..times + warm(times) {
        let held = kind.of(rust, "rust-java").acquire().await?;
        let waiting = lock.begin_lock_when_free()?;
        tokio::time::sleep(ASLEEP).await;
        let start = monotonic_now_ns();
        held.release().await?;
        let locked = tokio::task::block_in_place(|| waiting.wait())?;
        waits.push(locked.done_at_ns.saturating_sub(start));
    }
    Ok(counted(waits, times))
}

/// When the lock was acquired, on the monotonic clock that Java reads too.
fn wait_in_rust(lock: Lock) -> tokio::task::JoinHandle<Result<u64>> {
    tokio::spawn(async move {
        let guard = lock.acquire().await?;
        let had = monotonic_now_ns();
        guard.release().await?;
        Ok(had)
    })
}

const TEXT: &str = "
From the call of `release` in one process to the return of `acquire` of a waiter in another, for waiters that sleep. The
waiters of Rust are in another client of the same program. One round, in no turns: an overview.
";
