//! A Redisson client that does the work of a worker process of the fault matrix.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::{RedissonVersion, build, java, monotonic_now_ns};
use crate::hosts::Host;
use crate::process::boot_time;

/// The parameters of a worker.
#[derive(Debug, Clone)]
pub struct WorkerPlan {
    /// The servers; several form a majority.
    pub urls: Vec<String>,
    /// The file for the history.
    pub file: PathBuf,
    /// The number of the process in its run.
    pub process: u32,
    /// The common prefix of the lock names.
    pub name: String,
    /// Redisson's `lockWatchdogTimeout`.
    pub lease: Duration,
    /// The seed for the times.
    pub seed: u64,
}

/// The command that starts the worker with the newest Redisson, on this host if there is one. It says `ready`, writes a
/// history on the boot clock, and ends when its stdin does.
///
/// # Errors
/// Fails when there is no JDK or Maven, or when the build fails.
pub fn redisson_worker(host: Option<&Host>, plan: &WorkerPlan) -> anyhow::Result<Command> {
    let class_path = build::redisson(RedissonVersion::Newest)?;
    let program = match host {
        Some(host) => host.command("java"),
        None => Command::new("java"),
    };
    // Java shows the monotonic clock only. The two clocks differ by the time for which the machine was suspended.
    let boot = i128::try_from(boot_time().as_nanos())?;
    let boot_ahead = boot - i128::from(monotonic_now_ns());
    let mut command = java(program, &class_path, true);
    command
        .args(["tidelock.peer.Worker", &plan.urls.join(" ")])
        .arg(&plan.file)
        .args([&plan.process.to_string(), &plan.name])
        .arg(plan.lease.as_millis().to_string())
        .args([&plan.seed.to_string(), &boot_ahead.to_string()]);
    Ok(command)
}
