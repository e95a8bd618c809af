//! T69: the wrapper and the supervisor can each terminate the command without the other, even if the other was killed
//! or frozen.

use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::process::{self, Spawned, is_alive};
use testkit::servers::RedisServer;

use crate::{SOON, tidelock};

/// Long, so that a busy machine has a third of a second for what must be done by the end of the lease.
const LEASE: Duration = Duration::from_secs(10);

/// A command and a child, both of which ignore TERM. It prints the process ids of both and of its parent.
const STUBBORN: &str = "trap '' TERM; sh -c 'trap \"\" TERM; echo pid $$; while :; do sleep 0.2; done' & \
     echo pid $$; echo pid $PPID; while :; do sleep 0.2; done";

/// A running [`STUBBORN`].
struct Job {
    run: Spawned,
    supervisor: u32,
    command: [u32; 2],
}

impl Job {
    fn start(command: Command) -> Result<Self> {
        let mut run = Spawned::start(command)?;
        let mut pids = Vec::new();
        for _ in 0..3 {
            let line = run.wait_line("pid ", SOON)?;
            pids.push(line.trim_start_matches("pid ").parse()?);
        }
        // The two processes that print `$$` are in the command's process group; the supervisor is in another one.
        let supervisor = pids.iter().copied().find(|pid| is_supervisor(*pid));
        let supervisor = supervisor.context("no supervisor")?;
        pids.retain(|pid| *pid != supervisor);
        let command = pids.try_into().ok().context("two processes")?;
        Ok(Self {
            run,
            supervisor,
            command,
        })
    }

    /// Returns when both processes have ended, and fails if that takes longer than a lease. The failure tells how late
    /// it was, and how long this thread itself has waited for a processor.
    fn ends(&self) -> Result<()> {
        let begun = Instant::now();
        let (mut seen, mut longest) = (begun, Duration::ZERO);
        while self.command.iter().any(|pid| is_alive(*pid)) {
            ensure!(begun.elapsed() < 2 * LEASE, "alive after {:?}", 2 * LEASE);
            std::thread::sleep(Duration::from_millis(2));
            longest = longest.max(seen.elapsed());
            seen = Instant::now();
        }
        let took = begun.elapsed();
        ensure!(
            took < LEASE,
            "alive after {LEASE:?}: ended after {took:?}; this thread has slept for up to {longest:?} instead of 2 ms: {:?}",
            self.run.seen()
        );
        Ok(())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for pid in self.command.into_iter().chain([self.supervisor]) {
            // The processes are usually gone already; this cleans up after a failed test.
            let _ = process::kill(pid);
        }
    }
}

fn is_supervisor(pid: u32) -> bool {
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
    line.is_ok_and(|line| line.split('\0').any(|word| word == "__supervise"))
}

const FLAGS: [&str; 5] = ["--lease", "10s", "run", "--grace", "200ms"];

#[test]
fn t69_a_frozen_supervisor_and_a_server_that_is_gone() -> Result<()> {
    let server = RedisServer::start()?;
    let args = [&FLAGS, ["job", "--", "sh", "-c", STUBBORN].as_slice()].concat();
    let mut job = Job::start(tidelock(&server.url(), &args)?)?;
    process::freeze(job.supervisor)?;
    server.kill()?;
    job.ends()?;
    let code = job.run.wait(SOON)?.code();
    ensure!(code == Some(76), "{code:?}: {:?}", job.run.seen());
    Ok(())
}

#[test]
fn t69_a_frozen_supervisor_and_a_server_that_is_frozen() -> Result<()> {
    let server = RedisServer::start()?;
    let args = [&FLAGS, ["job", "--", "sh", "-c", STUBBORN].as_slice()].concat();
    let mut job = Job::start(tidelock(&server.url(), &args)?)?;
    process::freeze(job.supervisor)?;
    server.freeze()?;
    job.ends()?;
    let code = job.run.wait(SOON)?.code();
    ensure!(code == Some(76), "{code:?}: {:?}", job.run.seen());
    Ok(())
}

/// Kills by name with the usual programs. The name is unique on this machine, so no other process is hit.
#[test]
fn t69_a_run_that_is_killed_by_name_leaves_no_command_behind() -> Result<()> {
    let server = RedisServer::start()?;
    let folder = tempfile::tempdir()?;
    for (number, how) in [
        &["killall", "-9"][..],
        &["killall", "-9", "-e"],
        &["pkill", "-9"],
        &["pkill", "-9", "-x"],
        &["pkill", "-9", "-f"],
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("tl{number}x{}", std::process::id());
        let program = folder.path().join(&name);
        symlink(testkit::tidelock_bin()?, &program)?;
        let mut command = Command::new(&program);
        command.env("TIDELOCK_STORE", server.url());
        // The lock gets the same name, so `pkill -f` matches each process with it on the command line.
        command
            .args(FLAGS)
            .args([&name, "--", "sh", "-c", STUBBORN]);
        let mut job = Job::start(command)?;
        let killed = Command::new(how[0]).args(&how[1..]).arg(&name).status();
        let killed = killed.with_context(|| format!("{how:?}"))?;
        ensure!(killed.success(), "{how:?}: {killed}");
        job.run.wait(SOON)?;
        job.ends().with_context(|| format!("{how:?}"))?;
    }
    Ok(())
}

#[test]
fn a_hold_reports_that_its_store_is_gone() -> Result<()> {
    let server = RedisServer::start()?;
    let mut held = Spawned::start(tidelock(&server.url(), &["--lease", "10s", "hold", "job"])?)?;
    held.wait_line("held job", SOON)?;
    server.kill()?;
    held.wait_line("lost job", SOON)?;
    let status = held.wait(SOON)?;
    ensure!(status.code() == Some(76), "{status}");
    Ok(())
}
