//! The data directories of temporary servers.

use std::path::Path;

use anyhow::Result;
use tempfile::TempDir;

use crate::reaper;

/// A directory in memory, where `fsync` returns at once. On a real, busy disk a server stops for seconds now and then
/// until its data is safe, while every test is about shorter times. No test cuts the power, so memory is safe enough.
const MEMORY: &str = "/dev/shm";

/// The minimum of free bytes there. In a container, it is often too small for a single database.
const ENOUGH: u64 = 4 << 30;

/// A new directory. It is removed with the value, or at the latest with the process.
///
/// # Errors
/// Fails when it cannot be made.
pub fn scratch() -> Result<TempDir> {
    let mut name = tempfile::Builder::new();
    name.prefix("tidelock-");
    let dir = if is_large(Path::new(MEMORY)) {
        name.tempdir_in(MEMORY)?
    } else {
        name.tempdir()?
    };
    reaper::watch_dir(dir.path())?;
    Ok(dir)
}

fn is_large(dir: &Path) -> bool {
    rustix::fs::statvfs(dir)
        .is_ok_and(|volume| volume.f_bavail.saturating_mul(volume.f_frsize) >= ENOUGH)
}
