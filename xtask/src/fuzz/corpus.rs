//! The corpus of a target: inputs that reach different code. It is kept from run to run as an archive beside the targets,
//! so that a run begins where the last one ended.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::fuzz::cargo_fuzz;
use crate::sh::{command, quiet, root};

fn archive(target: &str) -> PathBuf {
    root().join(format!("fuzz/kept/{target}.tar.gz"))
}

/// Adds the inputs that are kept to those that are there.
pub(super) fn unpack(target: &str) -> Result<()> {
    let (archive, folder) = (archive(target), root().join("fuzz/corpus"));
    if !archive.exists() {
        return Ok(());
    }
    fs::create_dir_all(&folder)?;
    let mut tar = command("tar", &["-xzf"]);
    tar.arg(&archive).arg("-C").arg(folder);
    quiet(tar).with_context(|| format!("cannot unpack {}", archive.display()))?;
    Ok(())
}

/// Drops the inputs that reach nothing which smaller ones do not reach, and keeps the rest.
pub(super) fn pack(tool: &Path, target: &str) -> Result<()> {
    quiet(cargo_fuzz(tool, &["cmin", target])).context("cannot minimise the corpus")?;
    let archive = archive(target);
    if let Some(folder) = archive.parent() {
        fs::create_dir_all(folder)?;
    }
    // The same inputs make the same archive, byte for byte.
    let same = [
        "--sort=name",
        "--mtime=@0",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "-czf",
    ];
    let mut tar = command("tar", &same);
    tar.arg(archive)
        .arg("-C")
        .arg(root().join("fuzz/corpus"))
        .arg(target);
    quiet(tar).context("cannot pack the corpus")?;
    Ok(())
}
