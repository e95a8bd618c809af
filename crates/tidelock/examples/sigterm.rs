//! On SIGTERM, notifies every holder, gives the guards two seconds to be dropped, and releases the rest, so that no
//! other client has to wait for a lease to expire.

use std::time::Duration;

use tidelock::{Client, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let client = Client::connect("memory:").await?;
    let lock = client.lock("leader");
    let leading = async {
        let guard = lock.acquire().await?;
        let reason = guard.lost().await; // a leader works here, in `while_held`
        println!("leading no more: {reason}");
        guard.release().await
    };
    let terminated = async {
        // In a service: `tokio::signal::unix::signal(SignalKind::terminate())?.recv().await`.
        tokio::time::sleep(Duration::from_millis(100)).await;
        client.close(Duration::from_secs(2)).await
    };
    let (led, left) = tokio::join!(leading, terminated);
    println!("{left} guards had not gone");
    led
}
