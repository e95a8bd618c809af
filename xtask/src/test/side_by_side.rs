//! Runs programs of tests, two at a time.
//!
//! Some of them keep all cores busy, others wait for leases most of the time. One after the other, they would leave cores idle.

use std::collections::VecDeque;
use std::io::Write as _;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::Tally;
use crate::idle;
use crate::programs::Program;
use crate::sh::lines_within;

/// Programs of which two never run at the same time, unless nothing else is left, and how many of their tests run at once. Those that
/// need servers keep all cores busy; the longest are first. `interop` starts a JVM for most tests, so four of them find no idle core. In
/// `shares` two JVMs and two other processes want the same lock, and a JVM that waits for a core gets less than its share. The last
/// two run in a part without servers: most of their tests wait for leases, so they need many at once, and together they would be too many.
const BUSY: [(&str, usize); 10] = [
    ("interop", 4),
    ("postgres", 6),
    ("zookeeper", 6),
    ("mysql", 6),
    ("command", 6),
    ("fleet", 6),
    ("names", 6),
    ("shares", 6),
    ("it", 16),
    ("cli", 12),
];

/// The longest of the others. They start first, so that no long one is left at the end.
const LONG: [&str; 5] = ["clean", "etcd", "redis", "partitions", "cluster"];

/// Programs that only compute. Their tests run one after the other; otherwise they would take all cores from the program beside them,
/// whose tests then wait for a core until their leases end.
const COMPUTE: [&str; 3] = ["clean", "bugs", "hand_over"];

/// How many tests of another program run at once. Together with a busy one there are about as many as in a program that runs alone; with
/// more, a test on a slow machine would wait longer for a core than its leases last.
const AT_ONCE: usize = 8;

/// If less of the processors is idle in the seconds before the first program starts, others use the machine. Then fewer tests run at once, and the
/// leases are twice as long. Otherwise a test would wait for a core until its leases end. Most tests wait for leases, not for a core, so
/// with half of them at once the run would take three times as long.
const ENOUGH_IDLE: f64 = 0.6;

/// Bounds the run of one program.
const LONGEST: Duration = Duration::from_secs(20 * 60);

/// What came of one program.
struct Ended {
    program: Program,
    passed: bool,
    output: Vec<u8>,
    time: Duration,
}

impl Ended {
    fn show(&self) -> Result<()> {
        let verdict = if self.passed { "ok" } else { "FAILED" };
        let (name, seconds) = (&self.program.name, self.time.as_secs_f64());
        let mut shown = std::io::stdout().lock();
        shown.write_all(&self.output)?;
        writeln!(shown, "-- {name} {verdict} after {seconds:.1} s")?;
        Ok(())
    }

    fn count(&self, tally: &mut Tally) {
        for line in String::from_utf8_lossy(&self.output).lines() {
            tally.read(line.trim_end());
        }
    }
}

/// Runs all of these programs with these arguments, even if some fail. `prepare` sets their environment.
pub(super) fn run(
    tally: &mut Tally,
    mut programs: Vec<Program>,
    rest: &[&str],
    prepare: impl Fn(&mut Command) + Sync,
) -> Result<()> {
    ensure!(!programs.is_empty(), "no program of tests was built");
    programs.sort_by_key(|program| place(&program.target));
    let waiting = Mutex::new(VecDeque::from(programs));
    let is_idle = idle::is_idle(ENOUGH_IDLE);
    if !is_idle {
        println!(
            "-- other programs use this machine: fewer tests at once, with leases twice as long"
        );
    }
    let tally = Mutex::new(tally);
    let failed = Mutex::new(Vec::new());
    let worker = |front: bool| -> Result<()> {
        while let Some(program) = next(&waiting, front) {
            let mut command = program.command();
            prepare(&mut command);
            let at_once = at_once(&program.target);
            let (at_once, factor) = if is_idle {
                (at_once, 1)
            } else {
                ((at_once * 3 / 4).max(1), 2)
            };
            command.env("RUST_TEST_THREADS", at_once.to_string());
            command.env("TIDELOCK_LEASE_FACTOR", factor.to_string());
            command.args(rest);
            let one = run_one(program, command)?;
            let mut tally = locked(&tally);
            one.show()?;
            one.count(&mut tally);
            if !one.passed {
                locked(&failed).push(one.program.target);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| worker(false));
        let own = worker(true);
        let other = other.join();
        own?;
        other.unwrap_or_else(|_| anyhow::bail!("a worker panicked"))
    })?;
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Its place among the busy programs.
fn busy(target: &str) -> Option<usize> {
    BUSY.iter().position(|(name, _)| *name == target)
}

fn at_once(target: &str) -> usize {
    if COMPUTE.contains(&target) {
        return 1;
    }
    busy(target).map_or(AT_ONCE, |place| BUSY[place].1)
}

/// Where it stands in the queue: the busy ones in front, the longest of the others at the back.
fn place(target: &str) -> (usize, String) {
    let long = LONG.iter().position(|name| *name == target);
    let place = match (busy(target), long) {
        (Some(place), _) => place,
        (None, Some(place)) => usize::MAX - place,
        (None, None) => BUSY.len(),
    };
    (place, target.to_owned())
}

/// One worker takes the programs from the front, the other from the back.
fn next(waiting: &Mutex<VecDeque<Program>>, front: bool) -> Option<Program> {
    let mut waiting = locked(waiting);
    if front {
        waiting.pop_front()
    } else {
        waiting.pop_back()
    }
}

/// Runs one program, and keeps its output until it has ended: the lines of two at once could not be told apart.
fn run_one(program: Program, command: Command) -> Result<Ended> {
    println!("-- {} begins", program.name);
    let start = Instant::now();
    let mut output = Vec::new();
    let passed = lines_within(LONGEST, command, |line| {
        output.extend_from_slice(line);
        Ok(())
    })?;
    Ok(Ended {
        program,
        passed,
        output,
        time: start.elapsed(),
    })
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn program(target: &str) -> Program {
        Program {
            target: target.to_owned(),
            name: target.to_owned(),
            path: PathBuf::from("/bin/sh"),
            folder: PathBuf::from("/"),
        }
    }

    #[test]
    fn the_busy_programs_run_one_after_the_other() {
        let mut names = ["redis", "interop", "sets", "etcd", "mysql"];
        names.sort_by_key(|name| place(name));
        assert_eq!(names, ["interop", "mysql", "sets", "redis", "etcd"]);
        let waiting = Mutex::new(names.map(program).into_iter().collect());
        let taken = |front| next(&waiting, front).map(|it| it.target);
        assert_eq!(taken(true).as_deref(), Some("interop"));
        assert_eq!(taken(false).as_deref(), Some("etcd"));
        assert_eq!(taken(false).as_deref(), Some("redis"));
        assert_eq!(taken(true).as_deref(), Some("mysql"));
        assert_eq!(taken(true).as_deref(), Some("sets"));
        assert_eq!(taken(false), None);
    }

    #[test]
    fn a_program_that_only_computes_leaves_a_core_to_the_tests_of_the_library() {
        let mut names = ["left_out", "cli", "clean", "it"];
        names.sort_by_key(|name| place(name));
        assert_eq!(names, ["it", "cli", "left_out", "clean"]);
        assert_eq!(names.map(at_once), [16, 12, 8, 1]);
    }

    #[test]
    fn a_program_that_fails_is_told_with_its_failures() -> Result<()> {
        let mut tally = Tally::default();
        let script = "echo '---- a stdout ----'; echo why; echo; echo failures:; \
                      echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored; finished in 0.5s'; exit 101";
        let planted = program("planted");
        let mut command = planted.command();
        command.args(["-c", script]);
        let ended = run_one(planted, command)?;
        ended.count(&mut tally);
        assert!(!ended.passed);
        assert_eq!(tally.passed(), 1);
        assert!(tally.failures.to_string().contains("why"));
        Ok(())
    }
}
