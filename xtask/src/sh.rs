//! Runs other programs.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// Bounds a test run, including its build.
const LONGEST: Duration = Duration::from_secs(40 * 60);

/// How many tests of a program run at once if nothing else is said. Among them may be tests on real servers, and those need more
/// of the processors than those for which `.cargo/config.toml` sets its number.
pub(crate) const TESTS_AT_ONCE: &str = "12";

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Whether a program of this name is on the search path, or a file or folder at this absolute path.
pub(crate) fn have(program: &str) -> bool {
    let path = std::path::Path::new(program);
    if path.is_absolute() {
        return path.exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// A command that runs at the root of the workspace.
pub(crate) fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root());
    command
}

/// The cargo that runs this program. The environment makes tests fail, instead of skipping them, if something they need
/// is missing.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut cargo = command(
        &std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()),
        args,
    );
    cargo.env("TIDELOCK_REQUIRE", "1");
    cargo.env("RUST_TEST_THREADS", TESTS_AT_ONCE);
    // `cargo xtask` is `cargo run`, which tells this program its package. Build scripts that read such a variable, as the one of
    // `ring` does, would run again, and all that depends on them would be built again, whenever a `cargo test` follows.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let of_package = text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_");
        if of_package {
            cargo.env_remove(&name);
        }
    }
    if std::env::var_os("CI").is_some() {
        // CI builds each program once, so that the files of incremental builds, 13 GB, would only fill its disk.
        cargo.env("CARGO_INCREMENTAL", "0");
    }
    cargo
}

/// Runs the command with its output visible.
pub(crate) fn run(mut command: Command) -> Result<()> {
    let shown = show(&command);
    let status = command
        .status()
        .with_context(|| format!("starting {shown}"))?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// Runs the command quietly, and returns its stdout. Its output is part of the error if it fails.
pub(crate) fn quiet(mut command: Command) -> Result<String> {
    let shown = show(&command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("starting {shown}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!(
            "{shown}: {}\n{said}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(said)
}

/// The first line that a program prints; `unknown` if it cannot be run.
pub(crate) fn first_line(program: &str, args: &[&str]) -> String {
    let output = quiet(command(program, args)).unwrap_or_else(|_| "unknown".to_owned());
    output.lines().next().unwrap_or_default().to_owned()
}

/// Runs the command with its output visible, and passes each line of its stdout to `line` as well. Returns whether it
/// succeeded.
///
/// A command that takes longer than [`LONGEST`] is killed with all its descendants. Otherwise a test that hangs would
/// block everything after it.
pub(crate) fn tee(command: Command, line: impl FnMut(&str)) -> Result<bool> {
    tee_within(LONGEST, command, line)
}

/// As [`tee`], with another bound.
pub(crate) fn tee_within(
    longest: Duration,
    command: Command,
    mut line: impl FnMut(&str),
) -> Result<bool> {
    lines_within(longest, command, |bytes| {
        std::io::stdout().write_all(bytes)?;
        line(String::from_utf8_lossy(bytes).trim_end());
        Ok(())
    })
}

/// Runs the command, and passes each line of its stdout to `line`, with its end and unseen. Otherwise as [`tee_within`].
pub(crate) fn lines_within(
    longest: Duration,
    mut command: Command,
    mut line: impl FnMut(&[u8]) -> Result<()>,
) -> Result<bool> {
    let shown = show(&command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {shown}"))?;
    let mut stdout = BufReader::new(child.stdout.take().context("no stdout")?);
    let (done, waits) = mpsc::channel::<()>();
    let pid = child.id();
    let watch = std::thread::spawn(move || {
        let late = waits.recv_timeout(longest) == Err(mpsc::RecvTimeoutError::Timeout);
        if late {
            println!("== took longer than {} s; ending it", longest.as_secs());
            end_tree(pid);
        }
    });
    let mut bytes = Vec::new();
    while stdout.read_until(b'\n', &mut bytes)? > 0 {
        line(&bytes)?;
        bytes.clear();
    }
    let status = child.wait()?;
    // This ends the watch thread before its timeout.
    drop(done);
    ensure!(watch.join().is_ok(), "the watch over {shown} panicked");
    Ok(status.success())
}

/// Kills a process and all its descendants.
fn end_tree(root: u32) {
    let mut tree = vec![root];
    let mut at = 0;
    // We collect all descendants before we kill any: orphans get a new parent and could not be found any more.
    while let Some(parent) = tree.get(at).copied() {
        tree.extend(children(parent));
        at += 1;
    }
    for pid in tree {
        // The process may have exited by itself already; then `kill` fails, and that is fine.
        drop(command("kill", &["-KILL", &pid.to_string()]).status());
    }
}

fn children(parent: u32) -> Vec<u32> {
    let everybody = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    everybody
        .filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
        .filter(|pid| parent_of(*pid) == Some(parent))
        .collect()
}

/// Parses `pid (name) state ppid …`. The name may contain any character, also brackets, so we split at the last one.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

pub(crate) fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
