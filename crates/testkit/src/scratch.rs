//! Where throw-away servers keep their data.

use std::path::Path;

use anyhow::Result;
use tempfile::TempDir;

use crate::reaper;

/// Memory that looks like a disk. What is written there is synced at once: on a real disk, which others may be busy with, a
/// server stands still for seconds now and then until its data is safe, and every test is about what happens within less.
/// No test cuts the power.
const MEMORY: &str = "/dev/shm";

/// As many bytes must be free there: in a container it is often too small for a single database.
const ENOUGH: u64 = 4 << 30;

/// A new directory that goes with the value, or else with the process.
pub(crate) fn scratch() -> Result<TempDir> {
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
