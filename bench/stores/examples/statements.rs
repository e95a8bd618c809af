//! What prepared statements save on PostgreSQL: the processor time of the server's processes for a pair that nobody waits
//! for, beside an advisory lock by hand. For docs/decisions/0052.
//!
//! `cargo run --profile bench -p bench_stores --example statements -- postgres://USER@HOST/DATABASE`, with the server on
//! this machine: the processor time is read from `/proc`. Makes the tables of the locks if they are missing.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tidelock::Client;
use tokio_postgres::NoTls;

const ROUNDS: usize = 5;
const PAIRS: u32 = 4_000;

/// The time of the server's processes with this name on a processor.
async fn busy(watch: &tokio_postgres::Client, application: &str) -> Result<Duration> {
    let statement = "SELECT pid FROM pg_stat_activity WHERE application_name = $1";
    let mut busy = Duration::ZERO;
    for row in watch.query(statement, &[&application]).await? {
        let path = format!("/proc/{}/schedstat", row.get::<_, i32>(0));
        let text = std::fs::read_to_string(path)?;
        let nanos = text.split(' ').next().context("no time")?;
        busy += Duration::from_nanos(nanos.parse()?);
    }
    Ok(busy)
}

/// A side that is measured, by the name of its sessions.
enum Pairs {
    Ours(Client),
    Advisory(Box<tokio_postgres::Client>),
}

impl Pairs {
    async fn ours(url: &str, options: &str) -> Result<Self> {
        let builder = Client::builder().publish_process_info(false);
        Ok(Self::Ours(
            builder.connect(&format!("{url}?{options}")).await?,
        ))
    }

    async fn advisory(url: &str, application: &str) -> Result<Self> {
        let url = format!("{url}?application_name={application}");
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
        // It ends with the client.
        tokio::spawn(connection);
        Ok(Self::Advisory(Box::new(client)))
    }

    async fn run(&self, pairs: u32) -> Result<()> {
        match self {
            Self::Ours(client) => {
                let lock = client.lock("statements");
                for _ in 0..pairs {
                    lock.acquire().await?.release().await?;
                }
            }
            Self::Advisory(client) => {
                let lock = client.prepare("SELECT pg_advisory_lock($1)").await?;
                let unlock = client.prepare("SELECT pg_advisory_unlock($1)").await?;
                for _ in 0..pairs {
                    client.query(&lock, &[&7_i64]).await?;
                    client.query(&unlock, &[&7_i64]).await?;
                }
            }
        }
        Ok(())
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).context("statements URL")?;
    let (watch, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    let unnamed = "application_name=unnamed&statements=unnamed";
    let sides = [
        ("unnamed", Pairs::ours(&url, unnamed).await?),
        (
            "prepared",
            Pairs::ours(&url, "application_name=prepared").await?,
        ),
        ("advisory", Pairs::advisory(&url, "advisory").await?),
    ];
    let mut seen = [const { Vec::<(f64, f64)>::new() }; 3];
    for round in 0..=ROUNDS {
        for ((application, side), seen) in sides.iter().zip(&mut seen) {
            let (before, start) = (busy(&watch, application).await?, Instant::now());
            side.run(PAIRS).await?;
            let took = start.elapsed().as_secs_f64() * 1e6;
            let spent = busy(&watch, application).await?.saturating_sub(before);
            let each = spent.as_secs_f64() * 1e6 / f64::from(PAIRS);
            // The first round warms up.
            if round > 0 {
                seen.push((each, took / f64::from(PAIRS)));
            }
        }
    }
    println!("| a pair | server CPU, µs | of unnamed | time, µs |");
    println!("| --- | ---: | ---: | ---: |");
    let base = median(seen[0].iter().map(|round| round.0).collect());
    for ((application, _), rounds) in sides.iter().zip(&seen) {
        let cpu = median(rounds.iter().map(|round| round.0).collect());
        let took = median(rounds.iter().map(|round| round.1).collect());
        println!(
            "| {application} | {cpu:.1} | {:.2} | {took:.0} |",
            cpu / base
        );
    }
    Ok(())
}
