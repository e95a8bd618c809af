//! Every machine of a fleet starts the nightly job; one of them runs it.

use tidelock::{Client, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "memory:".to_owned());
    let client = Client::connect(&url).await?;
    let Some(guard) = client.lock("nightly-report").try_acquire().await? else {
        println!("somebody else does it");
        return Ok(());
    };
    println!(
        "it is ours tonight, until {:?} without news",
        guard.valid_for()
    );
    guard.release().await
}
