//! Stops the work at the moment the lock is lost, and prints the reason.

use std::time::Duration;

use tidelock::{AcquireOptions, Client, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let client = Client::connect("memory:").await?;
    let lock = client.lock("migration");
    // This lease is never renewed, so that the example sees a loss.
    let short = AcquireOptions::new().expires_after(Duration::from_millis(100));
    let guard = lock.acquire_with(short).await?;
    let work = tokio::time::sleep(Duration::from_secs(3600));
    match guard.while_held(work).await {
        Ok(()) => guard.release().await,
        Err(reason) => {
            println!("stopped: {reason}");
            Ok(())
        }
    }
}
