//! Jobs that run once per slot, in five processes whose tickers are shifted.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::process::Spawned;

use crate::store::Store;

const TICKERS: usize = 5;

/// One run at the resource, in the order of its first line.
#[derive(Debug)]
struct Run {
    slot: u32,
    token: u64,
    /// Nobody else began before it ended. A run whose process was killed has no end.
    has_ended: bool,
}

struct Fleet<'a> {
    store: &'a Store,
    slots: u32,
    lease: Duration,
    resource: &'a Path,
}

impl Fleet<'_> {
    fn ticker(&self) -> Result<Spawned> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slots"));
        command.args([&self.store.url, "report"]);
        command.args([self.lease.as_millis().to_string(), self.slots.to_string()]);
        command.arg(self.resource);
        Spawned::start(command)
    }

    fn start(&self) -> Result<Vec<Spawned>> {
        (0..TICKERS).map(|_| self.ticker()).collect()
    }

    /// The limit for all slots: far more than they take, because the machine may be busy.
    fn limit(&self) -> Duration {
        Duration::from_secs(120) + Duration::from_millis(300) * self.slots
    }

    fn tell(&self, begun: Instant, what: &str, more: &str) {
        let (store, slots, time) = (self.store.name, self.slots, begun.elapsed().as_secs());
        println!("figure: {slots} slots, {TICKERS} processes{what}, {store} = {time} s, {more}");
    }
}

/// Reads what the resource has seen. Fails unless the tokens grow, and unless each run that was not killed ended before
/// the next one began.
fn runs(resource: &Path) -> Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    for line in fs::read_to_string(resource)?.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, slot, token, _process] = words[..] else {
            anyhow::bail!("{line:?}");
        };
        let (slot, token) = (slot.parse()?, token.parse()?);
        let newest = runs.last_mut();
        if what == "begin" {
            let before = newest.map_or(0, |run| run.token);
            ensure!(token > before, "{token} after {before}: {line}");
            runs.push(Run {
                slot,
                token,
                has_ended: false,
            });
        } else {
            // The resource would refuse an older token: nobody works without the newest one.
            let newest = newest.context("an end without a beginning")?;
            ensure!(
                (newest.slot, newest.token) == (slot, token),
                "{line}: {newest:?}"
            );
            newest.has_ended = true;
        }
    }
    Ok(runs)
}

fn by_slot(runs: &[Run]) -> BTreeMap<u32, Vec<&Run>> {
    let mut slots = BTreeMap::<u32, Vec<&Run>>::new();
    for run in runs {
        slots.entry(run.slot).or_default().push(run);
    }
    slots
}

fn each_slot_is_run_exactly_once(store: &Store, slots: u32) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let fleet = Fleet {
        store,
        slots,
        lease: Duration::from_secs(30),
        resource: &folder.path().join("resource"),
    };
    let begun = Instant::now();
    for mut ticker in fleet.start()? {
        ticker.wait_line("all are done", fleet.limit())?;
    }
    let runs = runs(fleet.resource)?;
    ensure!(runs.iter().all(|run| run.has_ended));
    let by_slot = by_slot(&runs);
    ensure!(by_slot.len() == slots as usize && runs.len() == by_slot.len());
    fleet.tell(begun, "", "each was run exactly once");
    Ok(())
}

/// How often tickers are killed.
struct Kills {
    /// The milliseconds from the first run after a kill to the next kill.
    pauses: Range<u64>,
    most: usize,
}

/// Kills a random ticker again and again while slots are run, and starts another one for it.
fn each_slot_is_run_at_least_once(store: &Store, slots: u32, plan: &Kills) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let fleet = Fleet {
        store,
        slots,
        // A loss is an error, which ends a ticker. A process loses a lock only if it does not run for most of a lease.
        lease: Duration::from_secs(4),
        resource: &folder.path().join("resource"),
    };
    let begun = Instant::now();
    let mut tickers = fleet.start()?;
    let (mut kills, mut seen) = (0, 0);
    let end = Instant::now() + fleet.limit() * 2;
    loop {
        ensure!(Instant::now() < end, "not all slots were run");
        let n = fastrand::usize(..TICKERS);
        // Where waiters stand in a queue, one that was killed holds it up for a lease. If they all died faster than that,
        // nobody would ever have its turn.
        let lines = fs::metadata(fleet.resource).map_or(0, |file| file.len());
        let is_kill = lines != seen && kills < plan.most;
        let pause = if is_kill { plan.pauses.clone() } else { 5..6 };
        let pause = Duration::from_millis(fastrand::u64(pause));
        if tickers[n].wait_line("all are done", pause).is_ok() {
            break;
        }
        let said = tickers[n].seen();
        ensure!(said.is_empty(), "a ticker failed: {said:?}");
        if !is_kill {
            continue;
        }
        tickers[n].kill()?;
        kills += 1;
        seen = fs::metadata(fleet.resource)?.len();
        tickers[n] = fleet.ticker()?;
    }
    drop(tickers);
    ensure!(kills > 0, "all slots were done before the first kill");
    let runs = runs(fleet.resource)?;
    let by_slot = by_slot(&runs);
    let again = runs.len() - by_slot.len();
    ensure!(by_slot.len() == slots as usize, "{} slots", by_slot.len());
    for (slot, runs) in by_slot {
        // All but the last one were killed, perhaps after their end and before their mark.
        let last = runs.last().context("no run")?;
        ensure!(last.has_ended, "slot {slot} was not run to its end");
    }
    let more = format!("{kills} kills, {again} runs again, each with a larger token");
    fleet.tell(begun, " that are killed", &more);
    Ok(())
}

mod five_processes_run_each_slot_exactly_once {
    fn promise(store: &super::Store) -> anyhow::Result<()> {
        super::each_slot_is_run_exactly_once(store, 30)
    }

    crate::on!(promise: redis redis_plain redis_replicas redis_sentinels redis_cluster sqlite postgres mysql zookeeper etcd);
}

mod five_processes_that_are_killed_run_each_slot_at_least_once {
    fn promise(store: &super::Store) -> anyhow::Result<()> {
        let plan = super::Kills {
            pauses: 20..250,
            most: 5,
        };
        super::each_slot_is_run_at_least_once(store, 80, &plan)
    }

    crate::on!(promise: redis redis_plain redis_replicas redis_sentinels redis_cluster sqlite postgres mysql zookeeper etcd);
}

mod five_processes_run_10000_slots_exactly_once {
    fn promise(store: &super::Store) -> anyhow::Result<()> {
        super::each_slot_is_run_exactly_once(store, 10_000)
    }

    crate::on!(full: promise: redis redis_plain redis_replicas redis_sentinels redis_cluster sqlite postgres mysql zookeeper etcd);
}

mod five_processes_that_are_killed_run_10000_slots_at_least_once {
    fn promise(store: &super::Store) -> anyhow::Result<()> {
        let plan = super::Kills {
            pauses: 200..2000,
            most: usize::MAX,
        };
        super::each_slot_is_run_at_least_once(store, 10_000, &plan)
    }

    crate::on!(full: promise: redis redis_plain redis_replicas redis_sentinels redis_cluster sqlite postgres mysql zookeeper etcd);
}
