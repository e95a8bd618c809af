//! A candidate of an election, as a process of its own.
//!
//! Arguments: store, name, identity, lease in milliseconds, and perhaps a file that is the resource. It prints
//! `campaigns`, and for each term `in TERM` when its work begins, `work TERM` each time the work is polled after a third of
//! a lease, and `out TERM` when the work is dropped. With a resource it appends `begin TERM` to the file, and `work TERM`
//! a hundred times per lease. On SIGTERM it closes its client, and exits.

use std::fs::{File, OpenOptions};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use real_servers::resource;
use tidelock::Client;
use tidelock::election::LeadershipTerm;
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
    let open = |path| OpenOptions::new().append(true).create(true).open(path);
    let resource = args.next().map(open).transpose()?.map(Arc::new);
    let mut terminated = signal(SignalKind::terminate())?;
    let client = Client::builder().lease(lease).connect(&store).await?;
    let election = client.election(&name).identity(identity);
    println!("campaigns");
    let led = election.lead(|term| work(term, lease, resource.clone()));
    tokio::select! {
        ended = led => ended?,
        _ = terminated.recv() => {}
    }
    client.close(lease).await;
    Ok(())
}

async fn work(
    term: LeadershipTerm,
    lease: Duration,
    resource: Option<Arc<File>>,
) -> io::Result<()> {
    let work = Work(term.number());
    let pace = lease / if resource.is_some() { 100 } else { 3 };
    if let Some(file) = &resource {
        resource::append(file, &format!("begin {}", work.0))?;
    }
    println!("in {}", work.0);
    loop {
        tokio::time::sleep(pace).await;
        match &resource {
            Some(file) => resource::append(file, &format!("work {}", work.0))?,
            None => println!("work {}", work.0),
        }
    }
}
