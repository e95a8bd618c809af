use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};

use crate::reaper;

/// A network namespace with a name. It ends with this value, or at the latest with the process.
#[derive(Debug)]
pub(super) struct Namespace {
    name: String,
}

impl Namespace {
    pub(super) fn new() -> Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidelock-{}-{number}", std::process::id());
        // Before it is made: otherwise a kill between the two would leave it behind.
        reaper::watch_namespace(&name)?;
        let space = Self { name };
        let mut add = Command::new("ip");
        add.args(["netns", "add", &space.name]);
        run(add)?;
        Ok(space)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The file that stands for it.
    pub(super) fn path(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.name)
    }

    /// A program that runs in it. `ip` replaces itself with the program, so the process id is that of the program.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// An `ip` command about it.
    pub(super) fn ip(&self, args: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["-n", &self.name]).args(args);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let mut del = Command::new("ip");
        del.args(["netns", "del", &self.name]).stderr(Stdio::null());
        // This fails only if it was never made. Then there is nothing to do.
        let _ = del.status();
    }
}

/// Runs a command to its end; its output is part of the error.
pub(super) fn run(mut command: Command) -> Result<()> {
    let said = command.stdin(Stdio::null()).output();
    let said = said.with_context(|| format!("starting {}", command.get_program().display()))?;
    if !said.status.success() {
        let error = String::from_utf8_lossy(&said.stderr);
        bail!("{command:?}: {}", error.trim());
    }
    Ok(())
}
