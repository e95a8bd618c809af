//! The end of a run: all rounds finish, the stores must be empty, and the results are judged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tidelock::Client;

use super::crew::{Change, Crew};
use super::judge::Build;
use super::stores::{FILES, ITEMS, NODES, ROWS, Running, Store};
use crate::record::Kind;
use crate::samples::{
    CHANNELS, CONNECTIONS, DESCRIPTORS, ENDLESS, LOCKS, MARKS, MEMORY, OTHERS, TASKS, THREADS,
};
use crate::thirds::{Row, compare, steep};

/// What a store keeps for some time grows until the first of it ends: answers to requests last five minutes.
const SETTLES: Duration = Duration::from_secs(15 * 60);

/// In a shorter run a process that is replaced has hardly connected before it goes, and its figures are those of a start.
const GROWN: Duration = Duration::from_secs(150);

/// The limit for any wait. A lock that a killed process held is free after its lease, and others wait too.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// What the run has shown.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) length: Duration,
    pub(crate) stores: Vec<Store>,
    pub(crate) acquired: BTreeMap<(Store, Kind), u64>,
    pub(crate) by_build: BTreeMap<(Store, Build), u64>,
    pub(crate) refused: BTreeSet<(Store, Build, Kind)>,
    pub(crate) notes: BTreeMap<&'static str, u64>,
    pub(crate) longest: BTreeMap<Store, (u64, Kind)>,
    pub(crate) changes: BTreeMap<Change, u64>,
    pub(crate) errors: BTreeMap<(Store, String, Build), (u64, String)>,
    /// Looks at a server that failed.
    pub(crate) blind: BTreeMap<Store, u64>,
    pub(crate) left: Vec<(Store, String)>,
    pub(crate) rows: Vec<Row>,
    pub(crate) problems: Vec<String>,
}

impl Verdict {
    pub(crate) fn reach(mut crew: Crew, length: Duration, lease: Duration) -> Self {
        let ended = crew.end();
        let mut problems = std::mem::take(&mut crew.problems);
        if let Err(error) = ended {
            problems.push(format!("{error:#}"));
        }
        let mut left = Vec::new();
        for running in &crew.running {
            match remains(running, lease) {
                Ok(text) => left.push((running.store, text)),
                Err(error) => problems.push(format!("{}: {error:#}", running.store.name())),
            }
        }
        let rows = compare(&crew.samples, length, tolerance);
        if rows.is_empty() {
            problems.push("there are no figures to compare".to_owned());
        }
        problems.extend(steep(&rows));
        let mut seen = crew.judge.seen();
        problems.append(&mut seen.broken);
        for (store, (longest, kind)) in &seen.longest {
            let longest = Duration::from_micros(*longest);
            if longest > LONGEST_WAIT {
                let (store, kind) = (store.name(), kind.title());
                problems.push(format!("{store}: a wait ({kind}) took {longest:.1?}"));
            }
        }
        for ((store, what, build), (times, text)) in &crew.errors {
            if !is_expected(what) {
                problems.push(format!(
                    "{}, the build {}: {what}, {times} times: {text}",
                    store.name(),
                    build.name()
                ));
            }
        }
        Self {
            length,
            stores: crew.running.iter().map(|running| running.store).collect(),
            acquired: std::mem::take(&mut seen.acquired),
            by_build: std::mem::take(&mut seen.by_build),
            refused: std::mem::take(&mut seen.refused),
            notes: std::mem::take(&mut seen.notes),
            longest: std::mem::take(&mut seen.longest),
            changes: std::mem::take(&mut crew.changes),
            errors: std::mem::take(&mut crew.errors),
            blind: std::mem::take(&mut crew.blind),
            left,
            rows,
            problems,
        }
    }

    pub(crate) fn acquisitions(&self) -> u64 {
        self.acquired.values().sum()
    }
}

/// The errors that a busy machine explains: a server that answers late, a lease that runs out meanwhile. They are listed.
fn is_expected(what: &str) -> bool {
    let expected = [" Unavailable", " OutcomeUnknown", " Lost"];
    expected.iter().any(|error| what.ends_with(error))
}

/// Fails if a lock is still held although nobody is there, or if something is left that no page tells of.
fn remains(running: &Running, lease: Duration) -> Result<String> {
    let urls = running.urls();
    if !running.store.is_private() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build()?;
        for url in urls {
            runtime.block_on(nothing_is_held(&url, lease))?;
        }
    }
    let (left, strange) = running.left()?;
    ensure!(strange.is_empty(), "left behind: {strange:?}");
    Ok(left)
}

/// The last process may have been killed a moment ago: its locks are held until their leases end.
async fn nothing_is_held(url: &str, lease: Duration) -> Result<()> {
    let client = Client::connect(url).await?;
    let begun = Instant::now();
    loop {
        let held = client.list("*").limit(100).await?;
        if held.is_empty() {
            client.close(Duration::from_secs(1)).await;
            return Ok(());
        }
        let late = begun.elapsed() > lease * 2 + Duration::from_secs(2);
        ensure!(!late, "still held: {held:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The growth that does not count as a leak.
fn tolerance(who: &str, what: &str, first: f64, length: Duration) -> Option<f64> {
    let is_server = who.contains("server");
    let settled = length >= SETTLES;
    if who.ends_with("replaced") && length < GROWN {
        return None;
    }
    match what {
        // The heap of a JVM grows up to its limit, also if little of it is in use.
        MEMORY if who.starts_with("zookeeper, server") => Some(96.0),
        // The buffer pool fills with rows and their history, up to its 64 MiB.
        MEMORY if who.starts_with("mariadb, server") => Some(64.0 + 16.0 + first / 10.0),
        MEMORY if is_server => Some(16.0 + first / 4.0),
        MEMORY => Some(2.0 + first / 10.0),
        DESCRIPTORS if is_server => Some(12.0),
        // It has a pipe from each process, and one of them may just be replaced.
        DESCRIPTORS if who == "driver" => Some(24.0),
        THREADS if who == "driver" => Some(12.0),
        THREADS if is_server => Some(8.0),
        // The threads that work for a database in a file come and go.
        THREADS if who.starts_with("sqlite") => Some(8.0),
        THREADS => Some(1.0),
        DESCRIPTORS | TASKS | CONNECTIONS | ENDLESS => Some(8.0),
        LOCKS => Some(24.0),
        CHANNELS => Some(64.0),
        ROWS | NODES | ITEMS if settled => Some(200.0 + first / 2.0),
        FILES if settled => Some(8.0 + first / 2.0),
        MARKS | OTHERS if settled => Some(64.0 + first / 2.0),
        _ => None,
    }
}
