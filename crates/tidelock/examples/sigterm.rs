//! Shuts down on SIGTERM: first stops new work, then lets the work in progress end, then closes the client. So no work
//! is dropped, and no other client has to wait for a lease to expire.

use std::time::Duration;

use tidelock::{Client, Lock, Result};

/// A sale that takes a second. `while_held` drops it only if the lock is lost.
async fn sell(stock: Lock) -> Result<()> {
    let guard = stock.acquire().await?;
    guard
        .while_held(tokio::time::sleep(Duration::from_secs(1)))
        .await?;
    println!("sold");
    guard.release().await
}

async fn terminated() {
    // In a service: `tokio::signal::unix::signal(SignalKind::terminate())?.recv().await`.
    tokio::time::sleep(Duration::from_millis(300)).await;
}

#[tokio::main]
async fn main() -> Result<()> {
    let client = Client::connect("memory:").await?;
    let sale = tokio::spawn(sell(client.lock("stock:42")));
    terminated().await;
    // Stop new work here: an HTTP server refuses new connections and lets its requests end. Then:
    let left = client.close(Duration::from_secs(5)).await; // returns as soon as the last guard has gone
    println!("{left} guards had not gone");
    sale.await.unwrap_or(Ok(()))
}
