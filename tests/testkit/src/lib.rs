//! The base of the workspace's tests: temporary servers, a TCP proxy that injects faults, and helpers for processes.
//! Nothing here is published. A missing server is always an error, never a skipped test.

pub mod foreign;
pub mod golden;
pub mod hosts;
pub mod java;
pub mod pages;
pub mod process;
pub mod proxy;
pub mod servers;

mod reaper;
mod scratch;

use std::path::{Path, PathBuf};

pub use scratch::scratch;

use anyhow::{Result, ensure};

/// The root of the workspace, independent of the current directory.
pub fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// The release build of the `tidelock` command, which must have every store: `TIDELOCK_BIN` if set, else the one in the
/// workspace's target directory.
///
/// # Errors
/// Fails when it has not been built, or without some stores.
pub fn tidelock_bin() -> Result<PathBuf> {
    let path = std::env::var_os("TIDELOCK_BIN").map_or_else(
        || workspace().join("target/release/tidelock"),
        PathBuf::from,
    );
    ensure!(
        path.is_file(),
        "{} is missing: run `cargo build --release -p tidelock-cli --all-features`",
        path.display()
    );
    let version = std::process::Command::new(&path)
        .arg("--version")
        .output()?;
    ensure!(
        !String::from_utf8_lossy(&version.stdout).contains("left out"),
        "{} lacks stores: run `cargo build --release -p tidelock-cli --all-features`",
        path.display()
    );
    Ok(path)
}
