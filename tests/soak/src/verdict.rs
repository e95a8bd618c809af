//! The end of a run: all tasks finish, the server must be empty, and the results are collected and judged.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::agenda::Freeze;
use crate::crew::{Crew, Redisson};
use crate::plan::{LEASE, names};
use crate::samples::worker;
use crate::thirds::{Row, compare_all, steep};
use crate::witness::Witness;

/// The limit for the rounds in progress when the faults end. It is long because several waiters may be queued behind a
/// lock that no process releases.
const LAST_ROUNDS: Duration = Duration::from_secs(40);

/// A limit for the channels to go: a subscription lingers after its last waiter.
const QUIET: Duration = Duration::from_secs(15);

/// The limit for any wait, in milliseconds, whatever faults occur during it.
const LONGEST_WAIT: u64 = 120_000;

#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) length: Duration,
    pub(crate) processes: usize,
    pub(crate) acquired: BTreeMap<String, u64>,
    pub(crate) counts: BTreeMap<String, u64>,
    pub(crate) ended: BTreeMap<String, u64>,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) faults: BTreeMap<&'static str, u64>,
    /// Losses that frozen processes reported late.
    pub(crate) frozen_late: usize,
    pub(crate) longest: BTreeMap<String, u64>,
    pub(crate) commands: u64,
    pub(crate) forgotten: u64,
    pub(crate) left_after: Duration,
    pub(crate) rows: Vec<Row>,
    pub(crate) problems: Vec<String>,
}

impl Verdict {
    pub(crate) fn reach(mut crew: Crew, length: Duration) -> Self {
        let mut verdict = Self {
            length,
            processes: crew.workers.len() + crew.java.len(),
            acquired: BTreeMap::new(),
            counts: BTreeMap::new(),
            ended: BTreeMap::new(),
            errors: BTreeMap::new(),
            faults: crew.faults.clone(),
            frozen_late: 0,
            longest: BTreeMap::new(),
            commands: crew.commands,
            forgotten: crew.forgotten,
            left_after: Duration::ZERO,
            rows: compare_all(&crew.samples, length),
            problems: std::mem::take(&mut crew.problems),
        };
        let end = verdict.end(&mut crew);
        verdict.note(end);
        let seen = verdict.judge(&crew.witness, &crew.agenda.freezes);
        verdict.note(seen);
        verdict
    }

    fn note(&mut self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.problems.push(format!("{error:#}"));
        }
    }

    fn end(&mut self, crew: &mut Crew) -> Result<()> {
        crew.wake_all()?;
        for worker in &mut crew.workers {
            worker.close_stdin();
        }
        for java in &crew.java {
            java.peer.stop_soak()?;
        }
        let deadline = Instant::now() + LAST_ROUNDS;
        for worker in &mut crew.workers {
            let left = deadline.saturating_duration_since(Instant::now());
            let served = worker.wait_line("served all", left).map(drop);
            self.note(served.context("a waiter was not served, or a process failed"));
        }
        for Redisson { peer, report, who } in crew.java.drain(..) {
            match report.value() {
                Ok(report) => {
                    for (class, times) in report.errors {
                        self.errors.insert(format!("{who}: {class}"), times);
                    }
                    self.longest.insert(who, report.longest_ms);
                }
                Err(error) => self.problems.push(format!("{who}: {error}")),
            }
            drop(peer);
        }
        self.check_remains(crew)
    }

    /// Fails if anything is left: a lock that no process released must end with its lease, everything else soon after.
    fn check_remains(&mut self, crew: &Crew) -> Result<()> {
        let begun = Instant::now();
        loop {
            let mut locks = Vec::new();
            for name in names() {
                let holders: Vec<String> = crew.server.query(&["HKEYS", &name])?;
                locks.extend(
                    holders
                        .into_iter()
                        .map(|holder| format!("{name} of {holder}")),
                );
            }
            self.left_after = begun.elapsed();
            if locks.is_empty() {
                break;
            }
            let late = self.left_after > LEASE + Duration::from_secs(1);
            ensure!(
                !late,
                "after {:?} there are still {locks:?}",
                self.left_after
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        loop {
            let channels: Vec<String> = crew.server.query(&["PUBSUB", "CHANNELS"])?;
            if channels.is_empty() {
                break;
            }
            ensure!(begun.elapsed() < QUIET, "there are still {channels:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        for key in crew.server.keys()? {
            let left: i64 = crew.server.query(&["PTTL", &key])?;
            let counter = key.starts_with("redisson_lock_token:");
            ensure!(left != -1 || counter, "{key} stays for ever");
            // A client's details expire after an hour, so each killed client leaves such a key.
            let details = key.starts_with("tidelock:client:");
            ensure!(left <= 300_000 || details, "{key} stays for {left} ms");
        }
        Ok(())
    }

    fn judge(&mut self, witness: &Witness, freezes: &[Freeze]) -> Result<()> {
        self.acquired = witness.numbers("acquired")?;
        self.counts = witness.numbers("counts")?;
        self.ended = witness.numbers("ended")?;
        self.errors.extend(witness.numbers("errors")?);
        let longest = witness.numbers("longest")?.into_values().max();
        self.longest
            .insert("tidelock".to_owned(), longest.unwrap_or(0));
        self.problems.extend(witness.lines("broken")?);
        for line in witness.lines("noted")? {
            println!("noted: {line}");
        }
        for line in witness.lines("waits")? {
            println!("a long wait: {line}");
        }
        for line in witness.lines("late")? {
            if is_explained(&line, freezes) {
                self.frozen_late += 1;
            } else {
                self.problems.push(format!("a loss was told late: {line}"));
            }
        }
        let ours = self.longest.get("tidelock").copied().unwrap_or(0);
        if ours > LONGEST_WAIT {
            self.problems.push(format!("somebody waited for {ours} ms"));
        }
        let watched = self.rows.iter().any(|row| row.who == worker(0));
        ensure!(watched, "there are no figures to compare");
        self.problems.extend(steep(&self.rows));
        Ok(())
    }

    pub(crate) fn acquisitions(&self) -> u64 {
        self.acquired.values().sum()
    }
}

/// The fields of `line`: slot, time, delay, how the hold ended, name.
fn is_explained(line: &str, freezes: &[Freeze]) -> bool {
    let mut words = line.split(' ');
    let slot = words.next().and_then(|word| word.parse().ok());
    let at = words.next().and_then(|word| word.parse().ok());
    let (Some(slot), Some(at)) = (slot, at) else {
        return false;
    };
    freezes.iter().any(|freeze| freeze.explains(slot, at))
}
