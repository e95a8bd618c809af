//! Three machines have the same crontab line. One of them is killed in the middle of a run, and another one runs that
//! slot again. No slot is run twice otherwise.
//!
//! `cargo run --example crontab` starts the machines as processes, which share a file. With a URL they share that store:
//! `cargo run --example crontab -- redis://127.0.0.1:6379`. It ends after a few slots, and fails if a slot was not run.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tidelock::Client;
use tidelock::once::{MarkState, OnceJob, Slot, SlotRun};

const MACHINES: [&str; 3] = ["web-1", "web-2", "web-3"];
/// Another machine can run the slot of a dead one after this time. The default is 30 s.
const LEASE: Duration = Duration::from_secs(2);
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let folder = tempfile::tempdir()?;
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["machine", name, store, fault] => machine(name, store, Path::new(fault)).await,
        [store] => three_machines(store, folder.path()).await,
        _ => {
            let file = folder.path().join("locks.db");
            three_machines(&format!("sqlite:{}", file.display()), folder.path()).await
        }
    }
}

fn report(client: &Client) -> OnceJob {
    // With `wait`, a call that finds the job running on another machine takes over if that machine dies.
    let every_other_second = Slot::cron("*/2 * * * * *", "UTC");
    client
        .once("report")
        .slot(every_other_second)
        .wait(PATIENCE)
}

/// A cron daemon. The daemons of the three machines are shifted against each other.
async fn machine(name: &str, store: &str, fault: &Path) -> Result<(), Box<dyn Error>> {
    let client = Client::builder().lease(LEASE).connect(store).await?;
    let mut ticks = tokio::time::interval(Duration::from_secs(2));
    loop {
        ticks.tick().await;
        let (job, name, fault) = (report(&client), name.to_owned(), fault.to_owned());
        tokio::spawn(async move {
            if let Err(error) = job.run(|run| work(run, name, fault)).await {
                eprintln!("{error}");
            }
        });
    }
}

/// The job. It hangs if it finds the file `fault`, so that its machine can be killed in the middle.
async fn work(run: SlotRun, machine: String, fault: PathBuf) -> std::io::Result<()> {
    if std::fs::remove_file(fault).is_ok() {
        println!("{machine} hangs {}", run.slot());
        std::future::pending::<()>().await;
    }
    println!("{machine} ran {} attempt {}", run.slot(), run.attempt());
    Ok(())
}

/// Ends its process when it is dropped.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a machine. What it prints is sent line by line.
fn start(
    name: &str,
    store: &str,
    fault: &Path,
    lines: &Sender<String>,
) -> std::io::Result<Machine> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["machine", name, store]).arg(fault);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let (printed, lines) = (child.stdout.take(), lines.clone());
    std::thread::spawn(move || {
        let printed = printed.map(BufReader::new).map(BufReader::lines);
        for line in printed.into_iter().flatten().map_while(Result::ok) {
            println!("{line}");
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    Ok(Machine(child))
}

async fn three_machines(store: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let fault = folder.join("fault");
    let (sender, lines) = channel();
    let mut machines = Vec::new();
    for name in MACHINES {
        machines.push(start(name, store, &fault, &sender)?);
    }
    for _ in 0..2 {
        until(&lines, " ran ")?;
    }
    std::fs::write(&fault, "")?;
    let hanging = until(&lines, " hangs ")?;
    let (name, slot) = hanging.split_once(" hangs ").unwrap_or_default();
    let victim = MACHINES.iter().position(|machine| *machine == name);
    drop(machines.remove(victim.ok_or("no such machine")?));
    println!("{name} is killed");
    until(&lines, &format!(" ran {slot} attempt 2"))?;
    for _ in 0..2 {
        until(&lines, " ran ")?;
    }
    drop(machines);
    check(store, slot).await
}

/// Waits for a line with these words.
fn until(lines: &Receiver<String>, words: &str) -> Result<String, Box<dyn Error>> {
    loop {
        let line = lines.recv_timeout(PATIENCE)?;
        if line.contains(words) {
            return Ok(line);
        }
    }
}

/// The marks tell which slots were run, by whom, and how often.
async fn check(store: &str, again: &str) -> Result<(), Box<dyn Error>> {
    let client = Client::connect(store).await?;
    let mut marks = report(&client).history(100).await?;
    marks.reverse();
    marks.pop(); // its machine was ended with the example, perhaps in the middle
    for mark in &marks {
        println!(
            "{}: {:?}, attempt {}, by process {}",
            mark.slot, mark.state, mark.attempt, mark.process.pid
        );
        let attempts = if mark.slot == again { 2 } else { 1 };
        if mark.state != MarkState::Done || mark.attempt != attempts {
            return Err(format!("{} was not run as it should: {mark:?}", mark.slot).into());
        }
    }
    Ok(())
}
