//! A lock over a majority of independent servers. Read its limits at `tidelock::RedLock` first.
//!
//! `cargo run --example redlock -- redis://one redis://two redis://three`. A server that has just been started votes
//! once it has been up for one lease.

use std::time::Duration;

use tidelock::{AcquireOptions, Client, RedLock, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let mut urls: Vec<String> = std::env::args().skip(1).collect();
    if urls.is_empty() {
        urls = vec!["memory:".to_owned(); 3];
    }
    let mut servers = Vec::new();
    for url in &urls {
        servers.push(Client::connect(url).await?);
    }
    let redlock = RedLock::new(servers.iter().cloned())?;
    let patient = AcquireOptions::new().wait(Duration::from_secs(60));
    let guard = redlock.lock("nightly-report").acquire_with(patient).await?;
    println!(
        "a majority of {} agrees, for {:?}",
        urls.len(),
        guard.valid_for()
    );
    match guard.while_held(async { "the report" }).await {
        Ok(report) => println!("{report} is written"),
        Err(reason) => eprintln!("stopped: {reason}"),
    }
    guard.release().await?;
    for server in servers {
        server.close(Duration::from_secs(1)).await;
    }
    Ok(())
}
