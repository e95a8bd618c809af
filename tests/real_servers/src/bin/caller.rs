//! A caller of a job that runs once, as a process of its own.
//!
//! Arguments: store, name, lease in milliseconds. It prints `calls`, `in TOKEN` when its run begins, `work TOKEN` each
//! time the work is polled after a third of a lease, and `out TOKEN` when the work is dropped. A line `finish` on its
//! stdin ends the work. Then it prints `ran`, and the newest mark as `mark STATE ATTEMPT TOKEN`. If it was lost, it
//! prints `refused KIND`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tidelock::Client;
use tidelock::once::{Once, Retry, Slot};
use tokio::sync::Notify;

/// Longer than any step.
const PATIENCE: Duration = Duration::from_secs(60);

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
    let (store, name) = (next()?, next()?);
    let lease = Duration::from_millis(next()?.parse()?);
    let finish = finish();
    let client = Client::builder().lease(lease).connect(&store).await?;
    let job = client.once(&name).slot(Slot::id("today"));
    let job = job.if_crashed(Retry::InSlot(5)).wait(PATIENCE);
    println!("calls");
    let ran = job.run(|run| {
        let work = Work(run.token().get());
        println!("in {}", work.0);
        let finished = finish.notified();
        async move {
            let work = work; // the whole of it: a closure captures only the number otherwise, and drops the rest at once
            tokio::pin!(finished);
            loop {
                tokio::select! {
                    () = &mut finished => return Ok::<_, Infallible>(()),
                    () = tokio::time::sleep(lease / 3) => println!("work {}", work.0),
                }
            }
        }
    });
    match ran.await {
        Ok(Once::Ran(())) => println!("ran"),
        Ok(other) => println!("{other:?}"),
        Err(error) => println!("refused {:?}", error.kind()),
    }
    for mark in job.history(1).await? {
        println!(
            "mark {} {} {}",
            mark.state.as_str(),
            mark.attempt,
            mark.token
        );
    }
    client.close(lease).await;
    Ok(())
}

/// Fires at the first line on stdin.
fn finish() -> Arc<Notify> {
    let finish = Arc::new(Notify::new());
    let told = Arc::clone(&finish);
    std::thread::spawn(move || {
        let mut line = String::new();
        if std::io::stdin()
            .read_line(&mut line)
            .is_ok_and(|read| read > 0)
        {
            told.notify_one();
        }
    });
    finish
}
