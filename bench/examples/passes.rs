//! 64 tasks of one process acquire one name again and again. Prints the time and the CPU time per hold; profilers can
//! use it too.
//!
//! `passes ours|off|mutex URL TURNS [THREADS]`: with hand-off inside the process, without it, or with
//! `tokio::sync::Mutex` alone, as W3 of the bench does on two threads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use testkit::process::cpu_time;
use tidelock::{Client, HandOff};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

const TASKS: u32 = 64;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (side, url, turns, threads) = match &args[..] {
        [side, url, turns] => (side, url, turns, "2"),
        [side, url, turns, threads] => (side, url, turns, threads.as_str()),
        _ => bail!("passes ours|off|mutex URL TURNS [THREADS]"),
    };
    let each = turns.parse::<u32>()? / TASKS;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.parse()?)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        let rules = match side.as_str() {
            "ours" => Some(HandOff::default()),
            "off" => Some(HandOff::OFF),
            "mutex" => None,
            other => bail!("{other} is none of ours, off, mutex"),
        };
        let (began, before) = (Instant::now(), cpu_time(std::process::id())?);
        if let Some(rules) = rules {
            let client = Client::builder().hand_off(rules).connect(url).await?;
            for _ in 0..TASKS {
                let lock = client.lock("passes");
                tasks.spawn(async move {
                    for _ in 0..each {
                        lock.acquire().await?.release().await?;
                    }
                    anyhow::Ok(())
                });
            }
        } else {
            let mutex = Arc::new(Mutex::new(()));
            for _ in 0..TASKS {
                let mutex = Arc::clone(&mutex);
                tasks.spawn(async move {
                    for _ in 0..each {
                        drop(mutex.lock().await);
                    }
                    Ok(())
                });
            }
        }
        while let Some(done) = tasks.join_next().await {
            done?.context("a turn")?;
        }
        let cpu = cpu_time(std::process::id())?.saturating_sub(before);
        let of_each = |time: Duration| time.as_secs_f64() * 1e9 / f64::from(each * TASKS);
        println!(
            "{side}: {:.0} ns, {:.0} ns of CPU each",
            of_each(began.elapsed()),
            of_each(cpu)
        );
        Ok(())
    })
}
