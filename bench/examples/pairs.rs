//! Acquires and releases on 64 tasks of one thread, for a profiler that counts instructions. Run it twice with
//! different pair counts: the difference between the two totals is the cost of the extra pairs.
//!
//! `pairs ours|bare URL PAIRS`; with `own` as the URL, it starts a server of its own. callgrind cannot follow rustix
//! into the vDSO: build with `RUSTFLAGS="--cfg rustix_use_libc"` for it.

use anyhow::{Context, Result, bail};
use bench::raw::Raw;
use testkit::servers::RedisServer;
use tidelock::Client;
use tokio::task::JoinSet;

const TASKS: usize = 64;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [side, url, pairs] = &args[..] else {
        bail!("pairs ours|bare URL PAIRS");
    };
    let each = pairs.parse::<usize>()? / TASKS;
    let own = (url == "own").then(RedisServer::start).transpose()?;
    let url = &own.as_ref().map_or_else(|| url.clone(), RedisServer::url);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        match side.as_str() {
            "ours" => {
                let client = Client::builder()
                    .publish_process_info(false)
                    .connect(url)
                    .await?;
                for task in 0..TASKS {
                    let lock = client.lock(&format!("pairs {task}"));
                    tasks.spawn(async move {
                        for _ in 0..each {
                            lock.acquire().await?.release().await?;
                        }
                        anyhow::Ok(())
                    });
                }
            }
            "bare" => {
                let raw = Raw::connect(url).await?;
                for task in 0..TASKS {
                    let mut lock = raw.lock(&format!("pairs {task}"));
                    tasks.spawn(async move {
                        for _ in 0..each {
                            lock.try_acquire().await?;
                            lock.give_back().await?;
                        }
                        Ok(())
                    });
                }
            }
            other => bail!("{other} is neither ours nor bare"),
        }
        while let Some(done) = tasks.join_next().await {
            done?.context("a pair")?;
        }
        Ok(())
    })
}
