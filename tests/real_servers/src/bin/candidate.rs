//! A candidate of an election, as a process of its own.
//!
//! Arguments: store, name, identity, lease in milliseconds. It prints `campaigns`, and for each term `in TERM` when its
//! work begins, `work TERM` each time the work is polled after a third of a lease, and `out TERM` when the work is
//! dropped. On SIGTERM it closes its client, and exits.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tidelock::Client;
use tokio::signal::unix::{SignalKind, signal};

/// Prints that the work is gone.
struct Work(u64);

impl Drop for Work {
    fn drop(&mut self) {
        println!("out {}", self.0);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().context("too few arguments");
    let (store, name, identity) = (next()?, next()?, next()?);
    let lease = Duration::from_millis(next()?.parse()?);
    let mut terminated = signal(SignalKind::terminate())?;
    let client = Client::builder().lease(lease).connect(&store).await?;
    let election = client.election(&name).identity(identity);
    println!("campaigns");
    let led = election.lead(|term| {
        let work = Work(term.number());
        println!("in {}", work.0);
        async move {
            let work = work; // the whole of it: a closure captures only the number otherwise, and drops the rest at once
            loop {
                tokio::time::sleep(lease / 3).await;
                println!("work {}", work.0);
            }
            #[allow(unreachable_code, reason = "gives the type of the error")]
            Ok::<(), Infallible>(())
        }
    });
    tokio::select! {
        ended = led => ended?,
        _ = terminated.recv() => {}
    }
    client.close(lease).await;
    Ok(())
}
