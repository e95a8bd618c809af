//! Runs tests of a program, for a bounded time, and stops at the first that fails.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::programs::Program;
use crate::sh::{command, root};

/// A mutant that allocates without end must not take the memory of the machine. In KiB of address space.
const MEMORY: u64 = 16 << 20;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    Passed,
    /// The first test that failed; `None` if the program ended in another way, such as by an abort.
    Failed(Option<String>),
    Hung,
}

/// Runs these tests of the program. The environment of a cargo test.
pub(super) fn run(
    program: &Program,
    tests: &[&str],
    threads: usize,
    environment: (&str, &str),
    limit: Duration,
) -> Result<End> {
    let script = format!("ulimit -v {MEMORY}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command
        .args(["-c", &script])
        .arg(&program.path)
        .args(["--exact", "--test-threads", &threads.to_string()])
        .args(tests)
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .env("TIDELOCK_BIN", root().join("target/release/tidelock"))
        .env("TIDELOCK_REQUIRE", "1")
        .env(environment.0, environment.1)
        // A group of its own, so that the processes that a test has started end with it.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let child = command
        .spawn()
        .with_context(|| format!("starting {}", program.name))?;
    watch(child, limit)
}

fn watch(mut child: Child, limit: Duration) -> Result<End> {
    let stdout = BufReader::new(child.stdout.take().context("no stdout")?);
    let (lines, heard) = mpsc::channel();
    // It ends when the last process that has the pipe does; we kill the group below, so it does not stay.
    std::thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                break;
            }
        }
    });
    let deadline = Instant::now() + limit;
    let mut passed = false;
    let end = loop {
        match heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if let Some(name) = failed(&line) {
                    break End::Failed(Some(name));
                }
                if line.starts_with("test result: ok") {
                    passed = true;
                    break End::Passed;
                }
            }
            Err(RecvTimeoutError::Timeout) => break End::Hung,
            Err(RecvTimeoutError::Disconnected) => break End::Failed(None),
        }
    };
    if passed {
        // It prints the result before it ends; what it has started may clean up after itself.
        let until = Instant::now() + Duration::from_secs(2);
        while child.try_wait()?.is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    let group = format!("-{}", child.id());
    drop(
        command("kill", &["-KILL", "--", &group])
            .stderr(Stdio::null())
            .status(),
    );
    child.wait()?;
    Ok(end)
}

/// The name of the test, if the line says that it failed.
fn failed(line: &str) -> Option<String> {
    let name = line.strip_prefix("test ")?.strip_suffix("FAILED")?;
    let (name, _) = name.split_once(" ... ")?;
    Some(name.trim_end_matches(" - should panic").to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_failed_test_is_named() {
        let line = "test engine::lease::table::tests::a_lease_ends ... FAILED";
        let name = super::failed(line);
        assert_eq!(
            name.as_deref(),
            Some("engine::lease::table::tests::a_lease_ends")
        );
        assert_eq!(super::failed("test a ... ok"), None);
        assert_eq!(super::failed("test result: FAILED. 1 passed"), None);
    }
}
