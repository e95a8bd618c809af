//! A transfer between two accounts: both are locked, or none is. Two transfers in opposite directions do not deadlock,
//! whatever order they name the accounts in.
//!
//! `cargo run --example transfer` (or with a URL: `-- redis://127.0.0.1:6379`)

use tidelock::{Client, Result};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "memory:".to_owned());
    let client = Client::connect(&url).await?;
    let (ada, bob) = (client.lock("account:ada"), client.lock("account:bob"));
    let there = transfer(&client, [ada.clone(), bob.clone()]);
    let back = transfer(&client, [bob, ada]);
    tokio::try_join!(there, back)?;
    Ok(())
}

async fn transfer(client: &Client, accounts: [tidelock::Lock; 2]) -> Result<()> {
    let guard = client.multi_lock(&accounts)?.acquire().await?;
    // The future is dropped at once if the lock of either account is lost.
    let booked = guard.while_held(async { /* book both sides */ }).await;
    match booked {
        Ok(()) => println!("booked {}", guard.name()),
        // The commit may have been sent before the loss.
        Err(lost) => println!("not known whether it is booked: {lost}"),
    }
    guard.release().await
}
