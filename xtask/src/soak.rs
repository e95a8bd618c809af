//! `cargo xtask soak`: processes of tidelock and of Redisson on the same locks, with faults, for a long time.
//! `cargo xtask soak-everywhere`: every kind of lock on every store, by processes of today's build and of an older one.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::sh::{self, cargo, command, root};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Arguments of the soak: --minutes M, --acquisitions N, --seed N, --write FILE, --workers N, --java
    /// both|newest|none
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Uses the debug build, because its assertions are wanted. The exit code is 1 if anything is broken.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut soak = cargo(&["run", "--quiet", "-p", "soak", "--bin", "soak", "--"]);
    soak.args(&args.rest);
    sh::run(soak)
}

/// How old the other build is, unless a commit is named.
const AGE: &str = "3.days.ago";

/// The worker of the older library is built from today's source of the worker. It has the dependencies of that time, and
/// the settings of the workspace's release build.
const MANIFEST: &str = r#"[workspace]

[package]
name = "soak-worker-old"
version = "0.0.0"
edition = "2024"
publish = false

[[bin]]
name = "soak-worker-old"
path = "WORKER"

[features]
barriers = []
upgrades = []

[dependencies]
anyhow = "1"
clap = { version = "4", features = ["derive", "env", "wrap_help"] }
fastrand = "2"
rustix = { version = "1", features = ["std", "time"] }
tidelock = { path = "LIBRARY", features = ["etcd", "memcached", "mysql", "postgres", "sqlite", "zookeeper"] }
tokio = { version = "1", default-features = false, features = ["rt-multi-thread", "macros", "sync", "time"] }

[profile.release]
opt-level = 1
lto = "off"
codegen-units = 4
"#;

/// What the worker uses of the library, and the source that a library must have for it.
const FEATURES: [(&str, &str); 2] = [
    ("barriers", "src/barrier/mod.rs"),
    ("upgrades", "src/upgrade.rs"),
];

#[derive(Debug, clap::Args)]
pub(crate) struct EverywhereArgs {
    /// The commit of the older build; without it the newest that is three days old
    #[arg(long, value_name = "COMMIT")]
    old: Option<String>,
    /// Arguments of the run: --minutes M, --acquisitions N, --seed N, --write FILE, --stores A,B, --pause FACTOR,
    /// --lease SECONDS
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Uses the release build: a debug build makes too few acquisitions. The exit code is 1 if anything is broken.
pub(crate) fn everywhere(args: &EverywhereArgs) -> Result<()> {
    sh::run(cargo(&["build", "--quiet", "--release", "-p", "soak"]))?;
    let commit = older(args.old.as_deref())?;
    let worker = build_old(&commit)?;
    let mut soak = command(
        &built("soak").display().to_string(),
        &["everywhere", "--old"],
    );
    soak.arg(worker);
    let text = ["log", "-1", "--format=%h of %cs, %s", &commit];
    soak.args(["--old-is", sh::quiet(command("git", &text))?.trim()]);
    soak.args(&args.rest);
    sh::run(soak)
}

/// The full name of the older commit.
fn older(wanted: Option<&str>) -> Result<String> {
    let before = format!("--before={AGE}");
    let asked = match wanted {
        Some(commit) => vec!["rev-parse", "--verify", commit],
        None => vec!["log", "-1", "--first-parent", &before, "--format=%H"],
    };
    let commit = sh::quiet(command("git", &asked))?.trim().to_owned();
    ensure!(
        !commit.is_empty(),
        "no commit is so old; name one with --old"
    );
    Ok(commit)
}

/// Builds the worker with the library of this commit, and returns its path.
fn build_old(commit: &str) -> Result<PathBuf> {
    let home = root().join("target/soak").join(commit);
    let tree = home.join("tree");
    if !tree.is_dir() {
        unpack(commit, &tree)?;
    }
    let library = tree.join("crates/tidelock");
    let worker = root().join("tests/soak/worker/main.rs");
    let manifest = MANIFEST
        .replace("WORKER", &worker.display().to_string())
        .replace("LIBRARY", &library.display().to_string());
    // Beside the library's workspace and not above it: packages below a workspace are a part of it.
    let package = home.join("worker");
    fs::create_dir_all(&package)?;
    let file = package.join("Cargo.toml");
    fs::write(&file, manifest).with_context(|| file.display().to_string())?;
    // With the versions of that time.
    fs::copy(tree.join("Cargo.lock"), package.join("Cargo.lock"))?;
    let has = FEATURES
        .iter()
        .filter(|(_, file)| library.join(file).is_file());
    let features: Vec<&str> = has.map(|(feature, _)| *feature).collect();
    let mut build = cargo(&["build", "--quiet", "--release", "--manifest-path"]);
    build.arg(&file);
    build.args(["--features", &features.join(",")]);
    build.arg("--target-dir").arg(target());
    sh::run(build)?;
    Ok(built("soak-worker-old"))
}

/// Puts the files of a commit into a directory. An archive, unlike a work tree, leaves nothing in the repository.
fn unpack(commit: &str, tree: &Path) -> Result<()> {
    // Under another name first: what an interrupted run leaves is not complete.
    let half = tree.with_extension("half");
    fs::create_dir_all(&half)?;
    let archive = half.with_extension("tar");
    let file = archive.display().to_string();
    sh::run(command(
        "git",
        &["archive", "--format=tar", "--output", &file, commit],
    ))?;
    let into = half.display().to_string();
    sh::run(command("tar", &["-xf", &file, "-C", &into]))?;
    fs::remove_file(&archive)?;
    fs::rename(&half, tree).with_context(|| tree.display().to_string())
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

fn built(program: &str) -> PathBuf {
    target().join("release").join(program)
}
