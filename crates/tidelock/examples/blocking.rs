//! The same lock without async. It is re-entrant per thread, as in Java.

use std::time::Duration;

use tidelock::Result;
use tidelock::blocking::Client;

fn main() -> Result<()> {
    let client = Client::connect("memory:")?;
    let lock = client.lock("stock:42");
    let outer = lock.acquire()?;
    let inner = lock.acquire()?; // the same thread: returns at once
    inner.release()?;
    println!("still held: {}", outer.is_held());
    outer.release()?;
    client.close(Duration::from_secs(1))?;
    Ok(())
}
