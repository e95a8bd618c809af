//! Child processes of a test: read their lines, freeze them, kill them, and count their resources.

mod clock;
mod output;
mod spawned;
mod stats;
mod vdso;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

pub use clock::FakeClock;
pub use spawned::Spawned;
pub use stats::{
    boot_time, children, cpu_time, open_fds, rss_bytes, state, thread_states, threads,
};
pub use vdso::{right_clocks, run_clocks, shift_wall_clock};

/// The limit for the kernel to stop or continue a process.
const PATIENCE: Duration = Duration::from_secs(10);

fn send(pid: u32, signal: Signal) -> Result<()> {
    let id = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .context("not a process id")?;
    kill_process(id, signal).with_context(|| format!("signal {signal:?} to process {pid}"))
}

/// Freezes `pid` (SIGSTOP) and returns once all of its threads have stopped.
///
/// # Errors
/// Fails when there is no such process.
pub fn freeze(pid: u32) -> Result<()> {
    send(pid, Signal::STOP)?;
    // A process that has just exited, and whose frozen parent cannot reap it, also counts as stopped. Otherwise we
    // would wait until the timeout.
    let stopped = |state: &char| matches!(state, 'T' | 'Z');
    wait_until(pid, || Ok(thread_states(pid)?.iter().all(stopped)))
}

/// Continues `pid` (SIGCONT).
///
/// # Errors
/// Fails when there is no such process.
pub fn thaw(pid: u32) -> Result<()> {
    send(pid, Signal::CONT)?;
    let continued = wait_until(pid, || Ok(state(pid)? != 'T'));
    // It may end at once, if it was told to while it was frozen.
    continued.or_else(|error| if is_alive(pid) { Err(error) } else { Ok(()) })
}

/// Kills `pid` (SIGKILL), frozen or not.
///
/// # Errors
/// Fails when there is no such process.
pub fn kill(pid: u32) -> Result<()> {
    send(pid, Signal::KILL)
}

/// Terminates `pid` (SIGTERM).
///
/// # Errors
/// Fails when there is no such process.
pub fn terminate(pid: u32) -> Result<()> {
    send(pid, Signal::TERM)
}

/// Makes `pid` quit at once (SIGQUIT).
///
/// # Errors
/// Fails when there is no such process.
pub fn quit(pid: u32) -> Result<()> {
    send(pid, Signal::QUIT)
}

/// Makes `pid` reload its settings (SIGHUP).
///
/// # Errors
/// Fails when there is no such process.
pub fn hang_up(pid: u32) -> Result<()> {
    send(pid, Signal::HUP)
}

/// Interrupts `pid` as Ctrl-C would (SIGINT).
///
/// # Errors
/// Fails when there is no such process.
pub fn interrupt(pid: u32) -> Result<()> {
    send(pid, Signal::INT)
}

/// Whether a process with this id runs. A zombie counts as gone.
pub fn is_alive(pid: u32) -> bool {
    state(pid).is_ok_and(|state| state != 'Z' && state != 'X')
}

fn wait_until(pid: u32, reached: impl Fn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !reached()? {
        if Instant::now() > deadline {
            bail!("process {pid} still has state {:?}", state(pid)?);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
