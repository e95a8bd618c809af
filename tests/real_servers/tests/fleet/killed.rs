//! Candidates that are killed with SIGKILL: the leader, or another one, at random moments.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::process::Spawned;

use crate::election::{PATIENCE, candidate_at, term};
use crate::store::Store;

const LEASE: Duration = Duration::from_secs(2);

/// A candidate, and the newest term that it has led in.
struct Candidate {
    process: Spawned,
    led: u64,
}

impl Candidate {
    fn start(store: &Store, identity: usize, resource: &Path) -> Result<Self> {
        let process = candidate_at(store, &identity.to_string(), LEASE, resource)?;
        Ok(Self { process, led: 0 })
    }
}

/// Waits until one of them leads in a term after this one. Returns its place, and the term.
fn next_leader(fleet: &mut [Candidate], after: u64) -> Result<(usize, u64)> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        for (n, candidate) in fleet.iter_mut().enumerate() {
            while let Ok(line) = candidate.process.wait_line("in ", Duration::from_millis(1)) {
                candidate.led = term(&line)?;
            }
            if candidate.led > after {
                return Ok((n, candidate.led));
            }
        }
    }
    anyhow::bail!("nobody was elected")
}

/// Checks what the resource has seen: terms that grow, and after the first step of a term no step of an earlier one.
fn one_at_a_time(resource: &Path) -> Result<usize> {
    let (mut newest, mut terms) = (0, 0);
    for line in fs::read_to_string(resource)?.lines() {
        let (what, step) = line.split_once(' ').context("two words")?;
        let step: u64 = step.parse()?;
        if what == "begin" {
            ensure!(step > newest, "{line} after {newest}");
            (newest, terms) = (step, terms + 1);
        } else {
            ensure!(step == newest, "{line} in {newest}");
        }
    }
    Ok(terms)
}

/// Kills leaders, and one of the others now and then. Each is started again.
fn somebody_leads_again(store: &Store, candidates: usize, kills: usize) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let resource = folder.path().join("resource");
    let start = |n| Candidate::start(store, n, &resource);
    let mut fleet: Vec<Candidate> = (0..candidates).map(start).collect::<Result<_>>()?;
    let (mut leader, mut last) = next_leader(&mut fleet, 0)?;
    let mut gaps = Vec::new();
    for kill in 0..kills {
        std::thread::sleep(LEASE.mul_f64(fastrand::f64() / 2.0));
        if kill % 3 == 2 {
            // One that waits: its place in a queue must not keep the others from leading.
            let other = (leader + 1 + fastrand::usize(..candidates - 1)) % candidates;
            fleet[other].process.kill()?;
            fleet[other] = start(other)?;
        }
        fleet[leader].process.kill()?;
        let begun = Instant::now();
        let (next, term) = next_leader(&mut fleet, last)?;
        gaps.push(begun.elapsed());
        fleet[leader] = start(leader)?;
        (leader, last) = (next, term);
    }
    drop(fleet);
    let terms = one_at_a_time(&resource)?;
    ensure!(terms > kills, "{terms} terms");
    gaps.sort_unstable();
    println!(
        "figure: time without a leader when the leader of {candidates} is killed, a lease of {} s, {} = {} ms (median of {kills}), {} ms (most)",
        LEASE.as_secs(),
        store.name,
        gaps[gaps.len() / 2].as_millis(),
        gaps[gaps.len() - 1].as_millis()
    );
    Ok(())
}

/// Of candidates that are killed at random moments one leads at a time, and another one follows.
mod leaders_that_are_killed_are_followed_by_one_at_a_time {
    use anyhow::Result;

    use crate::store;

    #[test]
    fn on_every_store() -> Result<()> {
        store::on_six(|store| super::somebody_leads_again(store, 3, 3))
    }
}

mod leaders_that_are_killed_fifty_times_are_followed_by_one_at_a_time {
    fn promise(store: &super::Store) -> anyhow::Result<()> {
        super::somebody_leads_again(store, 5, 50)
    }

    crate::on!(full: promise: redis redis_plain redis_replicas redis_sentinels redis_cluster sqlite postgres mysql zookeeper etcd);
}
