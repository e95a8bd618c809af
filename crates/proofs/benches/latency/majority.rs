//! A majority of five, beside five bare scripts sent at once.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures_util::future::try_join_all;
use testkit::servers::Independents;
use tidelock::{Client, RedLock};

use crate::figures::{micros, percentile};
use crate::raw::{Raw, RawLock};

/// How many are taken in a round.
const TIMES: usize = 1_500;

/// Median times to acquire, in microseconds, round by round.
#[derive(Debug, Default)]
pub(crate) struct Majority {
    pub(crate) ours: Vec<f64>,
    pub(crate) raw: Vec<f64>,
}

pub(crate) async fn measure(rounds: usize) -> Result<Majority> {
    let servers = tokio::task::block_in_place(|| Independents::start(5))?;
    let (mut clients, mut raws) = (Vec::new(), Vec::new());
    for url in servers.urls() {
        clients.push(Client::connect(&url).await?);
        raws.push(Raw::connect(&url).await?.lock("bare"));
    }
    // The servers have only just been started. What the guard asks, it asks once a connection.
    let redlock = RedLock::builder(clients).restart_guard(false).build()?;
    let lock = redlock.lock("ours");
    let mut found = Majority::default();
    for round in 0..=rounds {
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        // In turns, so that what disturbs the machine disturbs both.
        for _ in 0..TIMES {
            let start = Instant::now();
            let guard = lock.acquire().await?;
            ours.push(nanos(start.elapsed())?);
            guard.release().await?;
            let start = Instant::now();
            try_join_all(raws.iter_mut().map(RawLock::acquire)).await?;
            bare.push(nanos(start.elapsed())?);
            try_join_all(raws.iter_mut().map(RawLock::release)).await?;
        }
        ours.sort_unstable();
        bare.sort_unstable();
        // The first one warms up.
        if round > 0 {
            found.ours.push(micros(percentile(&ours, 0.5)));
            found.raw.push(micros(percentile(&bare, 0.5)));
        }
    }
    Ok(found)
}

fn nanos(time: Duration) -> Result<u64> {
    Ok(u64::try_from(time.as_nanos())?)
}
