//! One process of the bench on any store: `bench-store KIND URL [NUMBER]`, then orders on stdin.
//!
//! The kinds are the lock of tidelock on each store, other kinds of tidelock, and locks that people write by hand.
//! `NUMBER` is how many permits there are, or how many of a hundred holds read.

mod advisory;
mod idle;
mod kinds;
mod lease_table;

use anyhow::{Context, Result, bail};
use load::serve;
use tidelock::Client;

use crate::advisory::Advisory;
use crate::kinds::{Counting, Locks, Permits, Sides};
use crate::lease_table::LeaseTable;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().context("KIND URL [NUMBER]");
    let (kind, url) = (next()?, next()?);
    let mut number = || -> Result<u32> { Ok(next()?.parse()?) };
    match &*kind {
        "lock" => serve(Locks(Client::connect(&url).await?)).await,
        "permits" => serve(Permits::new(Client::connect(&url).await?, number()?)).await,
        "counting" => serve(Counting::new(Client::connect(&url).await?, number()?)).await,
        "sides" => serve(Sides::new(Client::connect(&url).await?, number()?)?).await,
        "advisory" => serve(Advisory::new(url)).await,
        "lease-table" => serve(LeaseTable::new(&url).await?).await,
        _ => bail!("{kind} is none of lock, permits, counting, sides, advisory, lease-table"),
    }
}
