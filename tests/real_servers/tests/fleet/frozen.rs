//! A leader, and a process that runs a slot, frozen for three leases.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::process::Spawned;

use crate::election::{PATIENCE, candidate, term};
use crate::store::Store;

const LEASE: Duration = Duration::from_secs(4);

/// Calls once for the slot, and waits for its turn.
fn caller(store: &Store) -> Result<Spawned> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_caller"));
    command.args([&store.url, "report"]);
    command.arg(LEASE.as_millis().to_string());
    let mut started = Spawned::start(command)?;
    started.wait_line("calls", PATIENCE)?;
    Ok(started)
}

/// Freezes one process while it works until another works in its place, for three leases in all. When it goes on, it
/// drops its work before it polls it. `first`: the token of the old one. Returns that of the new one.
fn freeze(old: &mut Spawned, first: u64, new: &mut Spawned) -> Result<u64> {
    // Right after a line the work sleeps, for a third of a lease: it is not frozen in the middle of a poll.
    old.wait_line("work ", PATIENCE)?;
    old.freeze()?;
    let second = term(&new.wait_line("in ", PATIENCE)?)?;
    ensure!(second > first, "{second} after {first}");
    std::thread::sleep(LEASE * 2); // the lease had to end before the other could begin: three in all
    // It may have worked on until it was frozen. Its lines are all there by now.
    while let Ok(line) = old.next_line(Duration::from_millis(200)) {
        ensure!(line == format!("work {first}"), "{line}");
    }
    old.thaw()?;
    let next = old.next_line(PATIENCE)?;
    ensure!(next == format!("out {first}"), "{next}");
    Ok(second)
}

/// The successor is not disturbed: it works on in its term.
fn works_on(new: &mut Spawned, token: u64) -> Result<()> {
    let dropped = new.seen().iter().any(|line| line.starts_with("out"));
    ensure!(!dropped, "{:?}", new.seen());
    new.wait_line(&format!("work {token}"), PATIENCE).map(drop)
}

/// Both at once, because most of the time is spent waiting.
fn promise(store: &Store) -> Result<()> {
    let [mut leader, mut runs] = [candidate(store, "web-1", LEASE)?, caller(store)?];
    let leads_in = term(&leader.wait_line("in ", PATIENCE)?)?;
    let runs_with = term(&runs.wait_line("in ", PATIENCE)?)?;
    let [mut successor, mut waits] = [candidate(store, "web-2", LEASE)?, caller(store)?];
    std::thread::scope(|scope| {
        let elected =
            scope.spawn(|| a_leader_that_was_frozen(&mut leader, leads_in, &mut successor));
        a_run_that_was_frozen(&mut runs, runs_with, &mut waits)?;
        elected
            .join()
            .unwrap_or_else(|_| anyhow::bail!("it panicked"))
    })
}

fn a_leader_that_was_frozen(old: &mut Spawned, first: u64, new: &mut Spawned) -> Result<()> {
    let second = freeze(old, first, new)?;
    works_on(new, second)?;
    testkit::process::terminate(new.pid())?;
    ensure!(term(&old.wait_line("in ", PATIENCE)?)? > second);
    Ok(())
}

/// The old one is told of the loss, and its mark is refused: the slot says what the new one did.
fn a_run_that_was_frozen(old: &mut Spawned, first: u64, new: &mut Spawned) -> Result<()> {
    let second = freeze(old, first, new)?;
    old.wait_line("refused Lost", PATIENCE)?;
    works_on(new, second)?;
    new.write_line("finish")?;
    new.wait_line("ran", PATIENCE)?;
    let mark = new.wait_line("mark ", PATIENCE)?;
    ensure!(mark == format!("mark done 2 {second}"), "{mark}");
    Ok(())
}

mod a_process_that_was_frozen_drops_its_work_before_it_is_polled {
    use anyhow::Result;

    use super::promise;
    use crate::store;

    #[test]
    fn on_every_store() -> Result<()> {
        store::on_six(promise)
    }

    crate::on!(full: promise: redis_plain redis_replicas redis_sentinels redis_cluster);
}
