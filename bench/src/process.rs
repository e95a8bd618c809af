//! A child process that takes locks on command.

use std::collections::VecDeque;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use load::{Answer, Order, Stamp};
use testkit::process::{Spawned, cpu_time};

/// Bounds the start of a peer; longer than any peer takes on a busy machine.
const START: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Process {
    spawned: Spawned,
    due: VecDeque<&'static str>,
}

impl Process {
    /// Starts the process and waits until it is connected.
    pub(crate) fn start(command: Command) -> Result<Self> {
        let mut process = Self::begin(command)?;
        process.spawned.wait_line("ready", START)?;
        Ok(process)
    }

    /// Starts the process without waiting for its connection.
    pub(crate) fn begin(command: Command) -> Result<Self> {
        Ok(Self {
            spawned: Spawned::start(command)?,
            due: VecDeque::new(),
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.spawned.pid()
    }

    pub(crate) fn tell(&mut self, order: &Order) -> Result<()> {
        self.due.push_back(match order {
            Order::Run(_) => "run",
            Order::Hold { .. } => "hold",
            Order::Wait { .. } => "wait",
            Order::Served => "served",
            Order::Drop => "drop",
        });
        self.spawned.write_line(&serde_json::to_string(order)?)
    }

    /// The answer to the oldest unanswered order: a count and a time.
    pub(crate) fn answer(&mut self, patience: Duration) -> Result<(usize, u64)> {
        let what = self.due.pop_front().context("nothing was asked")?;
        // We skip other output: Java and Node print lines of their own.
        let line = self
            .spawned
            .wait_line("{\"", patience)
            .with_context(|| format!("waiting for the answer to `{what}`"))?;
        match serde_json::from_str(&line).with_context(|| line.clone())? {
            Answer::Done { count, at_ns } => Ok((count, at_ns)),
            Answer::Failed(why) => bail!("{what}: {why}"),
        }
    }

    /// The processor time so far, to a hundredth of a second.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        cpu_time(self.pid())
    }
}

/// Reads the stamps that a run wrote.
pub(crate) fn stamps(file: &std::path::Path) -> Result<Vec<Stamp>> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let stamps: Result<Vec<Stamp>> = text.lines().map(str::parse).collect();
    let stamps = stamps?;
    ensure!(!stamps.is_empty(), "a run without a hold");
    Ok(stamps)
}
