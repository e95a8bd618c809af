//! A ticker that runs a short job once per slot, beside others of its kind.
//!
//! Arguments: store, name, lease in milliseconds, number of slots, and a file that is the resource. Each run appends
//! `begin SLOT TOKEN PID` and `end SLOT TOKEN PID` to it. Calls for a slot until it is done, then for the next one, each
//! a random moment late. It begins where the others are: all slots before that of the newest mark are done. Prints
//! `all are done` at the end.

use std::fs::{File, OpenOptions};
use std::time::Duration;

use anyhow::{Context as _, Result};
use real_servers::resource;
use tidelock::Client;
use tidelock::once::{Once, OnceJob, Retry, Slot, SlotRun};

/// Longer than any run, and than the leases of the dead.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().context("too few arguments");
    let (store, name) = (next()?, next()?);
    let lease = Duration::from_millis(next()?.parse()?);
    let slots: u32 = next()?.parse()?;
    let resource = OpenOptions::new().append(true).create(true).open(next()?)?;
    let client = Client::builder().lease(lease).connect(&store).await?;
    // A ticker that began with the first slot again would be killed before it came to a new one.
    let newest = client.once(&name).history(1).await?;
    let first = newest.first().map_or(Ok(0), |mark| mark.slot.parse())?;
    for slot in first..slots {
        let late = Duration::from_micros(fastrand::u64(0..5_000));
        tokio::time::sleep(late).await;
        let job = client
            .once(&name)
            .slot(Slot::id(slot.to_string()))
            .if_crashed(Retry::InSlot(1000))
            .wait(PATIENCE);
        until_done(&job, &resource).await?;
    }
    println!("all are done");
    client.close(lease).await;
    Ok(())
}

async fn until_done(job: &OnceJob, resource: &File) -> Result<()> {
    loop {
        match job.run(|run| work(run, resource)).await? {
            Once::Ran(()) | Once::Done(_) => return Ok(()),
            Once::Running(_) | Once::Failed(_) => {}
        }
    }
}

/// A job of a millisecond.
async fn work(run: SlotRun, resource: &File) -> std::io::Result<()> {
    append(resource, "begin", &run)?;
    tokio::time::sleep(Duration::from_millis(1)).await;
    append(resource, "end", &run)
}

fn append(file: &File, what: &str, run: &SlotRun) -> std::io::Result<()> {
    let (slot, token, process) = (run.slot(), run.token(), std::process::id());
    resource::append(file, &format!("{what} {slot} {token} {process}"))
}
