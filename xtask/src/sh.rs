//! Running other programs.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Whether a program of this name is on the search path.
pub(crate) fn have(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// A command that runs at the root of the workspace.
pub(crate) fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root());
    command
}

/// The same cargo that runs this. Tests that cannot run here are failures, not left out.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut cargo = command(
        &std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()),
        args,
    );
    cargo.env("TIDELOCK_REQUIRE", "1");
    cargo
}

/// Runs it in the open.
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

/// Runs it quietly, and shows what it said only if it failed.
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

/// Runs it in the open and hands each line of its stdout to `line` as well. Whether it succeeded.
pub(crate) fn tee(mut command: Command, mut line: impl FnMut(&str)) -> Result<bool> {
    let shown = show(&command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {shown}"))?;
    let mut stdout = BufReader::new(child.stdout.take().context("no stdout")?);
    let mut bytes = Vec::new();
    while stdout.read_until(b'\n', &mut bytes)? > 0 {
        std::io::stdout().write_all(&bytes)?;
        line(String::from_utf8_lossy(&bytes).trim_end());
        bytes.clear();
    }
    Ok(child.wait()?.success())
}

pub(crate) fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
