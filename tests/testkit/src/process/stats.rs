use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// The boot clock: the only clock that a test, its tasks and its child processes can compare.
pub fn boot_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // Neither part is ever negative on this clock.
    Duration::from_secs(time.tv_sec.unsigned_abs())
        + Duration::from_nanos(time.tv_nsec.unsigned_abs())
}

/// Open file descriptors of `pid`.
///
/// # Errors
/// Fails when there is no such process.
pub fn open_fds(pid: u32) -> Result<usize> {
    let dir =
        fs::read_dir(format!("/proc/{pid}/fd")).with_context(|| format!("no process {pid}"))?;
    Ok(dir.count())
}

/// Resident memory of `pid` in bytes.
///
/// # Errors
/// Fails when there is no such process.
pub fn rss_bytes(pid: u32) -> Result<u64> {
    Ok(status_number(pid, "VmRSS:")? * 1024)
}

/// Threads of `pid`.
///
/// # Errors
/// Fails when there is no such process.
pub fn threads(pid: u32) -> Result<u64> {
    status_number(pid, "Threads:")
}

/// The processor time of `pid` so far, to a hundredth of a second.
///
/// # Errors
/// Fails when there is no such process.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("no process {pid}"))?;
    // The format is `pid (name) state …`, and the name may contain any character. After the name, user and system time
    // are the 12th and 13th fields.
    let (_, rest) = stat.rsplit_once(')').context("no name in stat")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| -> Result<u64> { Ok(fields.get(at).context("a short stat")?.parse()?) };
    Ok(Duration::from_millis((ticks(11)? + ticks(12)?) * 10))
}

/// The state letter of `pid` as in `ps`: `R` running, `S` sleeping, `T` stopped, `Z` zombie.
///
/// # Errors
/// Fails when there is no such process.
pub fn state(pid: u32) -> Result<char> {
    status_word(pid, "State:")?
        .chars()
        .next()
        .context("an empty state")
}

/// The state letter of each thread of `pid`, as [`state`] has it of the first one.
///
/// # Errors
/// Fails when there is no such process.
pub fn thread_states(pid: u32) -> Result<Vec<char>> {
    let threads = format!("/proc/{pid}/task");
    let threads = fs::read_dir(&threads).with_context(|| format!("no process {pid}"))?;
    // A thread that ends meanwhile has no state any more.
    let texts = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
    let state = |text: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix("State:"))?
            .trim_start()
            .chars()
            .next()
    };
    Ok(texts.filter_map(|text| state(&text)).collect())
}

/// The running child processes of a process.
///
/// # Errors
/// Fails when `/proc` cannot be read.
pub fn children(parent: u32) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // The process has exited in the meantime, or we may not read it.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        if fields.split(' ').nth(1) == Some(&parent.to_string()) {
            found.push(pid);
        }
    }
    Ok(found)
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
