//! Builds the peers with Maven, the Redisson peer once for each version.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context as _, ensure};

use super::RedissonVersion;

pub(super) const MISSING: &str =
    "Java tests need a JDK and Maven; `cargo xtask servers` says how to get them";

/// The directory with `peer.jar` and `lib/`. Builds it first if it is missing or older than its sources.
pub(super) fn redisson(version: RedissonVersion) -> anyhow::Result<PathBuf> {
    let define = format!("-Dredisson.version={}", version.number());
    class_path("redisson", version.number(), &[define])
}

/// The same for Curator.
pub(super) fn curator() -> anyhow::Result<PathBuf> {
    class_path("curator", "peer", &[])
}

fn class_path(project: &str, target: &str, define: &[String]) -> anyhow::Result<PathBuf> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../interop")
        .join(project);
    let out = project.join("target").join(target);
    fs::create_dir_all(&out)?;
    // We take a file lock because tests run in parallel processes; two Mavens in one directory would corrupt each
    // other's files. The file lock ends with the process, so a killed test does not block the next build.
    let turn = File::create(project.join("target").join(format!("{target}.lock")))?;
    turn.lock()
        .context("waiting for another build of the Java peer")?;
    let stamp = out.join("built");
    let sources = newest(&project.join("src"))?.max(modified(&project.join("pom.xml"))?);
    if modified(&stamp).is_ok_and(|built| built > sources) {
        return Ok(out);
    }
    maven(&project, define)?;
    fs::write(&stamp, "")?;
    Ok(out)
}

fn maven(project: &Path, define: &[String]) -> anyhow::Result<()> {
    let output = Command::new("mvn")
        .args(["-q", "-B", "package"])
        .args(define)
        .current_dir(project)
        .output()
        .context(MISSING)?;
    ensure!(
        output.status.success(),
        "mvn package {define:?} in {} failed:\n{}{}",
        project.display(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    Ok(())
}

pub(crate) fn modified(path: &Path) -> anyhow::Result<SystemTime> {
    Ok(fs::metadata(path)?.modified()?)
}

/// The latest modification in a tree. Directories count because removing a file changes only its directory.
pub(crate) fn newest(path: &Path) -> anyhow::Result<SystemTime> {
    let mut latest = modified(path)?;
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            latest = latest.max(newest(&entry?.path())?);
        }
    }
    Ok(latest)
}
