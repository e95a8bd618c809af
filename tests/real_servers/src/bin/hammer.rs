//! Takes and releases one lock in a loop, and checks in a shared file that no other holder is inside: the Rust
//! counterpart of the Java peer's hammer. The report has the same format as the Java one.
//!
//! Arguments: the store, or several separated by spaces; `plain`, `fair`, `fenced`, `spin`, `non_reentrant`, `multi` (the name is several names
//! joined by `+`), `majority` `sides` (a read-write lock: two of three holds are a reader's) or `upgrades` (the same, and the
//! third is an upgradeable reader that becomes a writer); then name, rounds per
//! task, tasks, word file, microseconds per hold, and optionally the milliseconds between connecting and the first round.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use testkit::java::{HammerReport, WordFile};
use tidelock::testing::AnyLock;
use tidelock::{Client, ReadWriteLock, RedLock};

struct Plan {
    store: String,
    kind: String,
    name: String,
    rounds: u32,
    tasks: u32,
    word_file: PathBuf,
    hold: Duration,
    rest: Duration,
}

impl Plan {
    fn from_args() -> Result<Self> {
        let mut args = std::env::args().skip(1);
        let mut next = || args.next().context("too few arguments");
        Ok(Self {
            store: next()?,
            kind: next()?,
            name: next()?,
            rounds: next()?.parse()?,
            tasks: next()?.parse()?,
            word_file: next()?.into(),
            hold: Duration::from_micros(next()?.parse()?),
            rest: Duration::from_millis(next().map_or(Ok(0), |rest| rest.parse())?),
        })
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    let plan = Plan::from_args()?;
    let mut clients = Vec::new();
    for store in plan.store.split(' ') {
        clients.push(Client::connect(store).await?);
    }
    let client = &clients[0];
    let lock: AnyLock = match &*plan.kind {
        "fair" => client.fair_lock(&plan.name).into(),
        "fenced" => client.lock(&plan.name).fenced().into(),
        "spin" => client.spin_lock(&plan.name).into(),
        "non_reentrant" => client.lock(&plan.name).non_reentrant().into(),
        "multi" => {
            let parts = plan.name.split('+').map(|name| client.lock(name));
            client.multi_lock(parts)?.into()
        }
        "majority" => {
            // The servers have just started, so the restart guard would refuse to grant.
            let settings = RedLock::builder(clients.clone()).restart_guard(false);
            settings.build()?.lock(&plan.name).into()
        }
        "sides" => client.read_write_lock(&plan.name).write().fenced().into(),
        _ => client.lock(&plan.name).into(),
    };
    let read = match &*plan.kind {
        "sides" => Some(client.read_write_lock(&plan.name).read().fenced().into()),
        _ => None,
    };
    tokio::time::sleep(plan.rest).await;
    let mut running = Vec::new();
    for task in 1..=u64::from(plan.tasks) {
        let me = u64::from(std::process::id()) << 16 | task;
        let word = WordFile::open(&plan.word_file)?;
        if plan.kind == "upgrades" {
            let sides = client.read_write_lock(&plan.name);
            running.push(tokio::spawn(upgrade(
                sides,
                word,
                me,
                plan.rounds,
                plan.hold,
            )));
            continue;
        }
        running.push(tokio::spawn(work(
            (read.clone(), lock.clone()),
            word,
            me,
            plan.rounds,
            plan.hold,
        )));
    }
    let mut report = HammerReport::default();
    let mut waits = Vec::new();
    for task in running {
        let (part, mut waited) = task.await??;
        report.overlaps += part.overlaps;
        report.token_faults += part.token_faults;
        report.last_token = report.last_token.max(part.last_token);
        waits.append(&mut waited);
    }
    waits.sort_unstable();
    report.acquisitions = waits.len() as u64;
    report.wait_p50_ns = at(&waits, 50);
    report.wait_p99_ns = at(&waits, 99);
    report.wait_max_ns = at(&waits, 100);
    println!("{}", serde_json::to_string(&report)?);
    for client in clients {
        client.close(Duration::from_secs(5)).await;
    }
    Ok(())
}

async fn work(
    (read, write): (Option<AnyLock>, AnyLock),
    word: WordFile,
    me: u64,
    rounds: u32,
    hold: Duration,
) -> Result<(HammerReport, Vec<u64>)> {
    let mut report = HammerReport::default();
    let mut waits = Vec::new();
    for round in 0..u64::from(rounds) {
        let asked = Instant::now();
        let side = read.as_ref().filter(|_| !(round + me).is_multiple_of(3));
        let guard = side.unwrap_or(&write).acquire().await?;
        waits.push(u64::try_from(asked.elapsed().as_nanos())?);
        let token = guard.number();
        report.last_token = report.last_token.max(token);
        let alone = if side.is_some() {
            // A reader's token must be larger than the last writer's. Readers have no order among each other.
            report.token_faults += u64::from(!word.is_newer(token)?);
            let (alone, counter) = word.enter_reading()?;
            stay(hold).await;
            word.leave_reading(counter)? && alone
        } else {
            let (alone, counter) = word.enter(me)?;
            if token > 0 {
                report.token_faults += u64::from(!word.note_token(token)?);
            }
            stay(hold).await;
            word.leave(me, counter)? && alone
        };
        report.overlaps += u64::from(!alone);
        guard.release().await?;
    }
    Ok((report, waits))
}

/// What an upgradeable reader has read must still be there when it writes.
async fn upgrade(
    sides: ReadWriteLock,
    word: WordFile,
    me: u64,
    rounds: u32,
    hold: Duration,
) -> Result<(HammerReport, Vec<u64>)> {
    let mut report = HammerReport::default();
    let mut waits = Vec::new();
    for round in 0..u64::from(rounds) {
        let asked = Instant::now();
        let changes = (round + me).is_multiple_of(3);
        let side = if changes {
            sides.upgradeable_read()
        } else {
            sides.read()
        };
        let reader = side.fenced().acquire().await?;
        report.token_faults += u64::from(!word.is_newer(reader.token().get())?);
        let (mut alone, seen) = word.enter_reading()?;
        stay(hold).await;
        alone &= word.leave_reading(seen)?;
        if changes {
            let writer = sides.upgrade(&reader).await?;
            let token = writer.token().get();
            let (nobody_else, counter) = word.enter(me)?;
            alone &= nobody_else && counter == seen;
            report.token_faults += u64::from(!word.note_token(token)?);
            report.last_token = report.last_token.max(token);
            stay(hold).await;
            alone &= word.leave(me, counter)?;
            writer.release().await?;
        }
        waits.push(u64::try_from(asked.elapsed().as_nanos())?);
        report.overlaps += u64::from(!alone);
        reader.release().await?;
    }
    Ok((report, waits))
}

async fn stay(hold: Duration) {
    let end = Instant::now() + hold;
    while Instant::now() < end {
        tokio::task::yield_now().await;
    }
}

fn at(sorted: &[u64], percent: usize) -> u64 {
    let place = sorted.len().saturating_sub(1) * percent / 100;
    sorted.get(place).copied().unwrap_or(0)
}
