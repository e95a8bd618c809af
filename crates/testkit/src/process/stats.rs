use std::fs;

use anyhow::{Context, Result};

/// Open file descriptors of `pid`.
///
/// # Errors
/// When there is no such process.
pub fn open_fds(pid: u32) -> Result<usize> {
    let dir =
        fs::read_dir(format!("/proc/{pid}/fd")).with_context(|| format!("no process {pid}"))?;
    Ok(dir.count())
}

/// Resident memory of `pid` in bytes.
///
/// # Errors
/// When there is no such process.
pub fn rss_bytes(pid: u32) -> Result<u64> {
    Ok(status_number(pid, "VmRSS:")? * 1024)
}

/// Threads of `pid`.
///
/// # Errors
/// When there is no such process.
pub fn threads(pid: u32) -> Result<u64> {
    status_number(pid, "Threads:")
}

/// The state letter of `pid` as `ps` prints it: `R` runs, `S` sleeps, `T` is stopped, `Z` has ended.
///
/// # Errors
/// When there is no such process.
pub fn state(pid: u32) -> Result<char> {
    status_word(pid, "State:")?
        .chars()
        .next()
        .context("an empty state")
}

fn status_number(pid: u32, key: &str) -> Result<u64> {
    status_word(pid, key)?
        .parse()
        .with_context(|| format!("{key} of process {pid}"))
}

fn status_word(pid: u32, key: &str) -> Result<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("no process {pid}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let word = line.and_then(|line| line.split_whitespace().next());
    word.map(str::to_owned)
        .with_context(|| format!("process {pid} has no {key}"))
}
