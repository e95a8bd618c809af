//! The Redis store on a real server: the keys it writes, its costs, and the faults it survives.

mod counters;
mod counting;
mod derived;
mod doctor;
mod every_await;
mod fair;
mod fair_channels;
mod fair_scripts;
mod fair_steps;
mod fair_threads;
mod faults;
mod latches;
mod least_rights;
mod promises;
mod raised;
mod rights;
mod tls;
mod turns;
mod uncontended;
mod wire;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use real_servers::secs;
use testkit::servers::RedisServer;
use tidelock::Client;

/// Short, so that a test can wait for several, and long enough for the renewals of a busy machine.
fn lease() -> Duration {
    secs(2)
}

/// A client with a short lease. Its response timeout is longer: on a busy machine an answer may come late.
async fn client(url: &str) -> Result<Client> {
    let builder = Client::builder()
        .lease(lease())
        .response_timeout(lease() * 2)
        .publish_process_info(false);
    Ok(builder.connect(url).await?)
}

/// Polls until the condition is true. Returns an error after the limit.
async fn eventually(
    what: &str,
    limit: Duration,
    mut holds: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let end = Instant::now() + limit;
    while !holds()? {
        ensure!(Instant::now() < end, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Channels with at least one subscriber.
fn channels(server: &RedisServer) -> Result<Vec<String>> {
    server.query(&["PUBSUB", "CHANNELS"])
}

/// Waits until this many clients are subscribed to a lock's channel.
async fn listeners(server: &RedisServer, channel: &str, count: i64) -> Result<()> {
    eventually("subscribers", Duration::from_secs(8), || {
        let (_, subscribers): (String, i64) = server.query(&["PUBSUB", "NUMSUB", channel])?;
        Ok(subscribers == count)
    })
    .await
}
