//! W6: a majority of five servers, compared with five bare scripts sent at once.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use testkit::servers::Independents;
use tidelock::{Client, RedLock};

use crate::awake::Awake;
use crate::figures::{micros, percentile, ratio, short, with_spread};
use crate::goals::Goal;
use crate::page::{Section, Table};
use crate::raw::{Raw, RawLock};
use crate::stage::{Stage, nanos};

/// The median times to acquire, in microseconds, one per round.
#[derive(Debug, Default)]
struct Majority {
    ours: Vec<f64>,
    raw: Vec<f64>,
}

pub(crate) fn measure(stage: &mut Stage) -> Result<Section> {
    let _awake = Awake::keep()?;
    let times = if stage.args.quick { 300 } else { 1_500 };
    let found = runtime()?.block_on(take(stage.args.rounds(), times))?;
    let mut table = Table::new(&["", "p50 µs to acquire"]);
    table.row(["RedLock".into(), with_spread(&found.ours, |x| *x)]);
    table.row([
        "five bare scripts at once".into(),
        with_spread(&found.raw, |x| *x),
    ]);
    let ratio = ratio(&found.ours, &found.raw, |x| *x);
    table.row(["**ratio**".into(), short(ratio)]);
    Ok(Section {
        title: "W6: RedLock of five",
        text: TEXT.into(),
        tables: vec![(String::new(), table)],
        goals: vec![Goal::at_most(
            "W6: RedLock of five against five bare scripts at once",
            1.2,
            " ×",
            Some(ratio),
        )],
        ..Section::default()
    })
}

/// A runtime for measurements inside this process.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting a runtime")
}

async fn take(rounds: usize, times: usize) -> Result<Majority> {
    let servers = tokio::task::block_in_place(|| Independents::start(5))?;
    let (mut clients, mut raws) = (Vec::new(), Vec::new());
    for url in servers.urls() {
        clients.push(Client::connect(&url).await?);
        raws.push(Raw::connect(&url).await?.lock("bare"));
    }
    // The servers have only just started, so the restart guard would refuse them. It costs nothing here: it inspects a
    // server once per connection.
    let redlock = RedLock::builder(clients).restart_guard(false).build()?;
    let lock = redlock.lock("ours");
    let mut found = Majority::default();
    for round in 0..=rounds {
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        // The two alternate, so that a disturbance of the machine affects both.
        for _ in 0..times {
            let start = Instant::now();
            let guard = lock.acquire().await?;
            ours.push(start.elapsed());
            guard.release().await?;
            let start = Instant::now();
            try_join_all(raws.iter_mut().map(RawLock::try_acquire)).await?;
            bare.push(start.elapsed());
            try_join_all(raws.iter_mut().map(RawLock::give_back)).await?;
        }
        // The first round is the warm-up.
        if round > 0 {
            found.ours.push(middle(&ours));
            found.raw.push(middle(&bare));
        }
    }
    Ok(found)
}

fn middle(times: &[Duration]) -> f64 {
    let mut times: Vec<u64> = times.iter().copied().map(nanos).collect();
    times.sort_unstable();
    micros(percentile(&times, 0.5))
}

const TEXT: &str = "
One task takes a majority of five servers, in turns with the same script sent to all five over five bare connections at once.
";
