//! Keeps a process on one core while a small difference is measured.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A process whose threads all run on one of the cores that this program may use. Without it, a round trip takes fifty or a hundred microseconds, by
/// whether the kernel has put client and server on one core or on two. The drop lets the process run on all cores again.
#[derive(Debug)]
pub(crate) struct Pinned {
    pid: u32,
    cores: usize,
}

impl Pinned {
    /// `core` counts from 0.
    pub(crate) fn to(pid: u32, core: usize) -> Result<Self> {
        let cores = std::thread::available_parallelism()?.get();
        ensure!(core < cores, "this machine has {cores} cores");
        let pinned = Self { pid, cores };
        taskset(pid, core, core)?;
        Ok(pinned)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // This fails only if the process has already exited.
        let _ = taskset(self.pid, 0, self.cores - 1);
    }
}

fn taskset(pid: u32, first: usize, last: usize) -> Result<()> {
    let output = Command::new("taskset")
        .args(["--all-tasks", "--cpu-list", "--pid"])
        .args([format!("{first}-{last}"), pid.to_string()])
        .output()
        .context("starting taskset")?;
    ensure!(
        output.status.success(),
        "taskset: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
