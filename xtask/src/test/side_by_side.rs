//! Runs programs of tests on real servers, two at a time.
//!
//! Some of them keep all cores busy, others wait for leases most of the time. One after the other, they would need half as long again.

use std::collections::VecDeque;
use std::io::Write as _;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::Tally;
use crate::programs::{self, Program};
use crate::sh::lines_within;

/// Programs that keep all cores busy, the longest first. Two of these never run at the same time, unless nothing else is left.
const BUSY: [&str; 7] = [
    "interop",
    "postgres",
    "zookeeper",
    "mysql",
    "command",
    "fleet",
    "names",
];

/// The longest of the others. They start first, so that no long one is left at the end.
const LONG: [&str; 4] = ["etcd", "redis", "partitions", "cluster"];

/// How many tests of a busy program run at once. More would only make each of them slower.
const AT_ONCE_IF_BUSY: &str = "6";

/// Bounds the run of one program.
const LONGEST: Duration = Duration::from_secs(20 * 60);

/// What came of one program.
struct Ended {
    name: String,
    passed: bool,
}

/// Builds the programs with these arguments of `cargo test`, and runs all of them with those of `rest`, even if some fail. `prepare` sets
/// their environment.
pub(super) fn run(
    tally: &mut Tally,
    cargo: Command,
    rest: &[&str],
    prepare: impl Fn(&mut Command) + Sync,
) -> Result<()> {
    let mut built = programs::build(cargo)?;
    ensure!(!built.is_empty(), "no program of tests was built");
    built.sort_by_key(|program| place(&program.target));
    let waiting = Mutex::new(VecDeque::from(built));
    let tally = Mutex::new(tally);
    let ended = Mutex::new(Vec::new());
    let worker = |busy: bool| -> Result<()> {
        while let Some(program) = next(&waiting, busy) {
            let mut command = program.command();
            prepare(&mut command);
            if BUSY.contains(&program.target.as_str()) {
                command.env("RUST_TEST_THREADS", AT_ONCE_IF_BUSY);
            }
            command.args(rest);
            let one = run_one(&program, command, &tally)?;
            locked(&ended).push(one);
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
    let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
    let failed: Vec<String> = ended
        .into_iter()
        .filter(|one| !one.passed)
        .map(|one| one.name)
        .collect();
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Where it stands in the queue: the busy ones in front, the longest of the others at the back.
fn place(target: &str) -> (usize, String) {
    let at = |names: &[&str]| names.iter().position(|name| *name == target);
    let place = match (at(&BUSY), at(&LONG)) {
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

/// Runs one program, and shows its output when it has ended: the lines of two at once could not be told apart.
fn run_one(program: &Program, command: Command, tally: &Mutex<&mut Tally>) -> Result<Ended> {
    println!("-- {} begins", program.name);
    let start = Instant::now();
    let mut output = Vec::new();
    let passed = lines_within(LONGEST, command, |line| {
        output.extend_from_slice(line);
        Ok(())
    })?;
    let mut tally = locked(tally);
    let mut shown = std::io::stdout().lock();
    shown.write_all(&output)?;
    let verdict = if passed { "ok" } else { "FAILED" };
    let seconds = start.elapsed().as_secs_f64();
    writeln!(shown, "-- {} {verdict} after {seconds:.1} s", program.name)?;
    for line in String::from_utf8_lossy(&output).lines() {
        tally.read(line.trim_end());
    }
    Ok(Ended {
        name: program.target.clone(),
        passed,
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
    fn a_program_that_fails_is_told_with_its_failures() -> Result<()> {
        let mut tally = Tally::default();
        let script = "echo '---- a stdout ----'; echo why; echo; echo failures:; \
                      echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored; finished in 0.5s'; exit 101";
        let mut command = program("x").command();
        command.args(["-c", script]);
        let ended = run_one(&program("x"), command, &Mutex::new(&mut tally))?;
        assert!(!ended.passed);
        assert_eq!(tally.passed(), 1);
        assert!(tally.failures.to_string().contains("why"));
        Ok(())
    }
}
