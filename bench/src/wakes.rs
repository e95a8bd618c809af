//! Measures the time from a release to the next waiter's acquisition, across processes and languages.

mod ends;

use std::time::Duration;

use anyhow::Result;
use testkit::foreign::Bench;
use testkit::java::{JavaPeer, RedissonVersion};
use testkit::servers::{Cluster, RedisServer, Sentinels};
use tidelock::Client;
use tokio::task::block_in_place;

use crate::args::Args;
use crate::figures::{micros, percentile, short};
use crate::page::{Section, Table};
use crate::peers::Peer;
use crate::stage::Stage;
use crate::w6_majority::runtime;
use ends::{End, Kind};

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
        title: "Release to acquired, across languages, kinds and topologies",
        text: TEXT.into(),
        tables: vec![(String::new(), table)],
        ..Section::default()
    })
}

fn times(args: &Args) -> usize {
    if args.quick { 10 } else { 100 }
}

/// The kinds that are measured on one server.
const KINDS: [Kind; 8] = [
    Kind::Plain,
    Kind::Fair,
    Kind::Spin,
    Kind::Reader,
    Kind::Writer,
    Kind::Permit,
    Kind::Counted,
    Kind::Latch,
];

/// Measures each kind on one server, and the lock behind Sentinels and in a cluster too.
async fn everywhere(server: &RedisServer, times: usize, java: bool) -> Result<Vec<Wakes>> {
    let mut all = Vec::new();
    for kind in KINDS {
        let place = Place {
            url: &server.url(),
            kind,
            suffix: kind.suffix(),
        };
        all.extend(place.measure(times, &versions(java)).await?);
    }
    let sentinels = block_in_place(Sentinels::start)?;
    let place = Place {
        url: &sentinels.url(),
        kind: Kind::Plain,
        suffix: ", Sentinel",
    };
    all.extend(place.measure(times, &versions(java)).await?);
    drop(sentinels);
    let cluster = block_in_place(Cluster::start)?;
    // The old Redisson does not support sharded pub/sub: clients that share locks with it in a cluster must not use it
    // either.
    let (newest, old): (Vec<_>, Vec<_>) = versions(java)
        .into_iter()
        .partition(|version| *version == RedissonVersion::Newest);
    let place = Place {
        url: &cluster.url(),
        kind: Kind::Plain,
        suffix: ", cluster",
    };
    all.extend(place.measure(times, &newest).await?);
    let place = Place {
        url: &format!("{}?sharded_pubsub=off", cluster.url()),
        suffix: ", cluster, plain messages",
        ..place
    };
    all.extend(place.measure(times, &old).await?);
    Ok(all)
}

fn versions(java: bool) -> Vec<RedissonVersion> {
    if java {
        RedissonVersion::ALL.to_vec()
    } else {
        Vec::new()
    }
}

/// Where the sides meet.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    url: &'a str,
    kind: Kind,
    /// What a row says after the languages.
    suffix: &'a str,
}

impl Place<'_> {
    /// Rust wakes Rust, and each version of Redisson and Rust wake each other.
    async fn measure(self, times: usize, versions: &[RedissonVersion]) -> Result<Vec<Wakes>> {
        let (one, two) = (
            Client::connect(self.url).await?,
            Client::connect(self.url).await?,
        );
        let (one, two) = (End::Rust(&one), End::Rust(&two));
        let mut all = vec![self.way("Rust to Rust", one, two, times).await?];
        for version in versions {
            let peer = block_in_place(|| JavaPeer::start(*version, self.url))?;
            let (java, number) = (End::Java(&peer), version.number());
            let way = format!("Redisson {number} to Rust");
            all.push(self.way(&way, java, one, times).await?);
            let way = format!("Rust to Redisson {number}");
            all.push(self.way(&way, one, java, times).await?);
        }
        Ok(all)
    }

    async fn way(self, way: &str, holder: End<'_>, waiter: End<'_>, times: usize) -> Result<Wakes> {
        // A name has one kind.
        let name = format!("{way}{}", self.suffix);
        let mut waits = Vec::new();
        for _ in 0..times + warm(times) {
            let held = holder.hold(self.kind, &name).await?;
            let waiting = waiter.begin_wait(self.kind, &name)?;
            tokio::time::sleep(ASLEEP).await;
            let start = held.free().await?;
            waits.push(waiting.done().await?.saturating_sub(start));
        }
        waits.drain(..warm(times));
        Ok(Wakes::of(name, waits))
    }
}

/// The number of rounds that are not counted, while connections, subscriptions and the JVM's compiler warm up.
fn warm(times: usize) -> usize {
    (times / 5).max(20)
}

const TEXT: &str = "
From the call of `release` in one process to the return of `acquire` of a waiter in another, for waiters that sleep; for a latch,
from the last `count_down` to the return of `wait`. A row that names no kind is of the lock. Those who wait for a spin lock
hear no message, and ask again after a pause. The waiters of Rust are in another client of the same program. One round, in no turns: an overview.
";
