//! Every machine of a fleet starts the nightly job; one of them runs it.
//!
//! A lock alone excludes only runs that overlap. The clocks of machines differ, so a short job may end on one machine
//! before another machine starts it. `client.once` remembers which night was run, and a night begins by the clock of
//! the store.
//!
//! The job runs again if it fails or if its machine dies, on the next machine that calls in the same night. Where a
//! second run costs money, pass the token on: the resource refuses a smaller one than it has seen.

use std::fmt;
use std::time::Duration;

use tidelock::once::{MarkState, Once, OnceJob, Slot, SlotRun};
use tidelock::{Client, Result};

const NIGHT: Duration = Duration::from_secs(24 * 3600);

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1);
    let client = Client::connect(url.as_deref().unwrap_or("memory:")).await?;
    match nightly(&client).run(report).await? {
        Once::Ran(()) => println!("the report is written"),
        Once::Done(mark) if mark.state == MarkState::Done => {
            println!("process {} has run it", mark.process.pid);
        }
        Once::Done(mark) => println!("none of its {} attempts has succeeded", mark.attempt),
        Once::Running(holder) => println!("it is running: {holder:?}"),
        Once::Failed(error) => println!("it failed: {error}"),
    }
    Ok(())
}

/// The job. With a crontab line (feature `cron`): `Slot::cron("0 3 * * *", "Europe/Berlin")`.
pub(crate) fn nightly(client: &Client) -> OnceJob {
    client
        .once("nightly-report")
        .slot(Slot::every(NIGHT))
        .max_run(Duration::from_secs(3600))
}

async fn report(run: SlotRun) -> Result<(), fmt::Error> {
    println!("report of {} with token {}", run.slot(), run.token());
    Ok(())
}
