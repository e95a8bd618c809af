//! A holder that was frozen past its lease writes late. The token lets the resource refuse that write.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidelock::{AcquireOptions, Client, FencingToken, Result};

/// Stands for a table with a column for the token: `UPDATE … WHERE token <= $1`.
#[derive(Default)]
struct Ledger(Mutex<(Option<FencingToken>, i64)>);

impl Ledger {
    fn write(&self, token: FencingToken, balance: i64) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if Some(token) < state.0 {
            return false;
        }
        *state = (Some(token), balance);
        true
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let client = Client::connect("memory:").await?;
    let (lock, ledger) = (client.lock("ledger").fenced(), Ledger::default());

    let short = AcquireOptions::new().expires_after(Duration::from_millis(50));
    let slow = lock.acquire_with(short).await?;
    println!("the slow holder was told: {}", slow.lost().await);

    let next = lock.acquire().await?;
    assert!(ledger.write(next.token(), 100));
    assert!(!ledger.write(slow.token(), 7), "a late write is refused");
    println!("the late write was refused");
    next.release().await
}
