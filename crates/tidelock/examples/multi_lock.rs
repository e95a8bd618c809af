//! Locks two accounts for a transfer: both or none. The set cannot deadlock, whatever order other clients use.

use std::time::Duration;

use tidelock::{AcquireOptions, Client, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "memory:".to_owned());
    let client = Client::connect(&url).await?;
    let transfer = |from: &'static str, to: &'static str| {
        let both = client.multi_lock([client.lock(from), client.lock(to)]);
        async move {
            let patient = AcquireOptions::new().wait(Duration::from_secs(5));
            let guard = both?.acquire_with(patient).await?;
            println!("{from} pays {to}, under {}", guard.name());
            tokio::time::sleep(Duration::from_millis(50)).await;
            guard.release().await
        }
    };
    tokio::try_join!(
        transfer("account:1", "account:2"),
        transfer("account:2", "account:1"),
    )?;
    client.close(Duration::from_secs(1)).await;
    Ok(())
}
