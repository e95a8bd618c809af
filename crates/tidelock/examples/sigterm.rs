//! On SIGTERM tell every holder, give the guards two seconds to go, and release the rest, so that nobody waits for a lease.

use std::time::Duration;

use tidelock::{Client, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let client = Client::connect("memory:").await?;
    let lock = client.lock("leader");
    let leading = tokio::spawn(async move {
        let guard = lock.acquire().await?;
        let reason = guard.lost().await; // a leader works here, in `while_held`
        println!("leading no more: {reason}");
        guard.release().await
    });
    // In a service: `tokio::signal::unix::signal(SignalKind::terminate())?.recv().await`.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let left = client.close(Duration::from_secs(2)).await;
    println!("{left} guards had not gone");
    leading.await.expect("it does not panic")
}
