//! T74: hundreds of processes wait for one name of a `sqlite:` file, each of them a `tidelock run`.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// A limit for steps that are much faster unless they hang.
const SOON: Duration = Duration::from_secs(120);

/// A file and the processes that use it. Dropping it kills them.
struct Crowd {
    folder: TempDir,
    all: Vec<Child>,
}

impl Crowd {
    fn new() -> Result<Self> {
        let all = Vec::new();
        let folder = tempfile::tempdir()?;
        Ok(Self { folder, all })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn tidelock(&self, command: &[&str]) -> Result<Command> {
        let mut run = Command::new(testkit::tidelock_bin()?);
        let url = format!("sqlite:{}", self.path("locks.db").display());
        run.env("TIDELOCK_STORE", url);
        run.args(["run", "job", "--"]).args(command);
        let errors = self.path("errors");
        run.stderr(File::options().create(true).append(true).open(errors)?);
        Ok(run)
    }

    /// Holds the lock until its stdin closes, which also happens if this test is killed.
    fn holder(&self) -> Result<Child> {
        let mut holder = self.tidelock(&["sh", "-c", "echo in; read -r word"])?;
        holder.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = holder.spawn()?;
        let out = holder.stdout.as_mut().context("no stdout")?;
        std::io::Read::read_exact(out, &mut [0; 3])?;
        Ok(holder)
    }

    /// Starts processes that fail if another one holds the lock at the same time.
    fn grow(&mut self, many: usize) -> Result<()> {
        let inside = self.path("inside");
        let inside = inside.to_str().context("a path")?;
        let alone = ["sh", "-c", "mkdir \"$0\" && rmdir \"$0\"", inside];
        for _ in 0..many {
            let mut one = self.tidelock(&alone)?;
            self.all.push(one.stdin(Stdio::null()).spawn()?);
        }
        Ok(())
    }

    /// Returns once each of them waits in the queue.
    fn wait_until_all_wait(&self) -> Result<()> {
        let end = Instant::now() + SOON;
        for one in &self.all {
            while !threads(one.id())?
                .iter()
                .any(|name| name == "tidelock-queue")
            {
                ensure!(Instant::now() < end, "{} does not wait", one.id());
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }

    /// What all of them have used so far.
    fn cpu_use(&self) -> Result<CpuUse> {
        let mut all = CpuUse::default();
        for one in &self.all {
            let used = cpu_use(one.id())?;
            all.time += used.time;
            all.wakes += used.wakes;
        }
        Ok(all)
    }

    /// Fails unless all of them succeed.
    fn end_well(&mut self) -> Result<()> {
        let end = Instant::now() + SOON;
        for one in &mut self.all {
            let status = loop {
                match one.try_wait()? {
                    Some(status) => break status,
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
                ensure!(Instant::now() < end, "{} does not end", one.id());
            };
            let said = std::fs::read_to_string(self.folder.path().join("errors"))?;
            ensure!(status.success(), "{status}: {said}");
        }
        Ok(())
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for one in &mut self.all {
            // The process may have ended by itself.
            let _ = one.kill();
            let _ = one.wait();
        }
    }
}

fn tasks(pid: u32) -> Result<Vec<PathBuf>> {
    let all = std::fs::read_dir(format!("/proc/{pid}/task"))?;
    all.map(|task| Ok(task?.path())).collect()
}

fn threads(pid: u32) -> Result<Vec<String>> {
    let name = |task: &Path| {
        Ok(std::fs::read_to_string(task.join("comm"))?
            .trim()
            .to_owned())
    };
    tasks(pid)?.iter().map(|task| name(task)).collect()
}

/// What the threads of a process have used.
#[derive(Debug, Default, Clone, Copy)]
struct CpuUse {
    time: Duration,
    /// How often a thread was given a core: about once for each time that it woke.
    wakes: u64,
}

/// In nanoseconds: each process uses less in a second than the hundredths that other counters show.
fn cpu_use(pid: u32) -> Result<CpuUse> {
    let mut all = CpuUse::default();
    for task in tasks(pid)? {
        let stat = std::fs::read_to_string(task.join("schedstat"))?;
        let numbers: Vec<u64> = stat
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()?;
        let [time, _, wakes] = numbers[..] else {
            anyhow::bail!("schedstat has {} numbers", numbers.len());
        };
        all.time += Duration::from_nanos(time);
        all.wakes += wakes;
    }
    Ok(all)
}

/// Many processes wait while one holds the lock, then each gets its turn. Returns how often each woke in a second
/// while they waited, and the turns per second.
#[allow(clippy::cast_precision_loss, reason = "some thousands")]
fn wait_and_go(many: usize) -> Result<(f64, f64)> {
    let mut crowd = Crowd::new()?;
    let mut holder = crowd.holder()?;
    crowd.grow(many)?;
    crowd.wait_until_all_wait()?;
    let (began, before) = (Instant::now(), crowd.cpu_use()?);
    std::thread::sleep(Duration::from_secs(10));
    let after = crowd.cpu_use()?;
    let seconds = began.elapsed().as_secs_f64();
    let core = after.time.saturating_sub(before.time).as_secs_f64() / seconds;
    let wakes = after.wakes.saturating_sub(before.wakes) as f64 / seconds / many as f64;
    drop(holder.stdin.take());
    let released = Instant::now();
    crowd.end_well()?;
    holder.wait()?;
    let rate = many as f64 / released.elapsed().as_secs_f64();
    println!(
        "{many} waited with {:.1} % of a core, each woke {wakes:.2} times a second; then they had {rate:.0} turns a second",
        core * 100.0
    );
    Ok((wakes, rate))
}

/// A process that waits wakes about once a second: it looks whether its files are still there, and writes its record. On a busy
/// machine it is interrupted besides.
const MOST_WAKES: f64 = 10.0;

/// Regression: each waiting process used to poll the file every 4 to 10 ms. We count how often it wakes: what that costs depends
/// on the machine.
#[test]
fn t74_processes_that_wait_sleep_until_it_is_their_turn() -> Result<()> {
    let (wakes, rate) = wait_and_go(200)?;
    ensure!(wakes < MOST_WAKES, "each woke {wakes:.2} times a second");
    // The lease is 30 s. A turn that nobody hands on begins when a lease ends, or when a waiter looks by itself.
    let longest = 30.0 / 100.0;
    ensure!(1.0 / rate < longest, "{:.2} s a turn", 1.0 / rate);
    Ok(())
}

#[test]
#[ignore = "a minute, and a machine for itself; run by `cargo xtask full`"]
fn t74_a_thousand_processes_wait_and_have_fifty_turns_a_second() -> Result<()> {
    let (wakes, rate) = wait_and_go(1000)?;
    ensure!(wakes < MOST_WAKES, "each woke {wakes:.2} times a second");
    ensure!(rate > 50.0, "{rate:.1} turns a second");
    Ok(())
}

/// Regression: four in five used to fail with "database is locked".
#[test]
fn t74_processes_that_come_at_once_make_one_file() -> Result<()> {
    let mut crowd = Crowd::new()?;
    crowd.grow(200)?;
    crowd.end_well()
}
