//! Two workers, one shelf: only one of them may count it at a time, even in different processes.
//!
//! `cargo run --example mutex -- redis://127.0.0.1:6379` in two terminals. Without a URL it uses the memory of this
//! process.

use std::time::Duration;

use tidelock::{Client, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "memory:".to_owned());
    let client = Client::connect(&url).await?;
    let worker = |name: &'static str| {
        let shelf = client.lock("shelf");
        async move {
            for round in 0..3 {
                let guard = shelf.acquire().await?;
                println!("{name} counts, round {round}");
                tokio::time::sleep(Duration::from_millis(50)).await;
                guard.release().await?;
            }
            Ok::<_, tidelock::Error>(())
        }
    };
    tokio::try_join!(worker("anna"), worker("ben"))?;
    client.close(Duration::from_secs(1)).await;
    Ok(())
}
