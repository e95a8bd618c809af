use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::dist::build::cargo_home;
use crate::dist::{Release, scratch};
use crate::sh::{self, cargo, command};

/// The oldest supported version of Rust.
const OLDEST_RUST: &str = env!("CARGO_PKG_RUST_VERSION");
/// What rustdoc writes beside an item that needs a feature.
const BADGE: &str = "Available on <strong>crate feature";

/// Packs both crates from the source of the release, and compiles each from its package.
pub(crate) fn packaged(release: &Release) -> Result<String> {
    forget_earlier()?;
    let mut package = cargo(&["package", "--quiet", "--locked", "--allow-dirty"]);
    package
        .args(["-p", "tidelock", "-p", "tidelock-cli"])
        .current_dir(release.source())
        .env("CARGO_TARGET_DIR", scratch("packaged"));
    sh::quiet(package)?;
    Ok("tidelock, tidelock-cli".to_owned())
}

/// Removes what cargo has unpacked and compiled of earlier packages. It takes a version for something that never changes, so the
/// command would be compiled with the library of an earlier run.
fn forget_earlier() -> Result<()> {
    for registry in entries(&cargo_home()?.join("registry/src"))? {
        // The registry of `cargo package` has no host, so its folder has no name but a hash.
        if named(&registry, "-") {
            forget_in(&registry)?;
        }
    }
    forget_in(&scratch("packaged").join("debug/.fingerprint"))
}

fn forget_in(dir: &Path) -> Result<()> {
    for entry in entries(dir)? {
        if named(&entry, "tidelock") {
            fs::remove_dir_all(entry)?;
        }
    }
    Ok(())
}

/// What a folder contains. Nothing if it does not exist yet.
fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let paths = fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.path()));
    Ok(paths.collect::<std::io::Result<_>>()?)
}

fn named(path: &Path, prefix: &str) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().starts_with(prefix)
}

/// The whole library and command, with the versions of all other crates that Cargo.lock names.
pub(crate) fn oldest_rust(release: &Release) -> Result<String> {
    install_rust(OLDEST_RUST)?;
    let mut check = with_rust(OLDEST_RUST, &["check", "--quiet", "--locked"]);
    check
        .args(["-p", "tidelock", "-p", "tidelock-cli", "--all-features"])
        .current_dir(release.source())
        .env("CARGO_TARGET_DIR", scratch("oldest-rust"));
    sh::quiet(check)?;
    Ok(OLDEST_RUST.to_owned())
}

/// As docs.rs builds the pages: with the nightly compiler and the flags of `package.metadata.docs.rs`. A warning is an error.
pub(crate) fn docs_rs(release: &Release) -> Result<String> {
    install_rust("nightly")?;
    let target = scratch("docs-rs");
    let mut doc = with_rust("nightly", &["doc", "--quiet", "--locked", "--no-deps"]);
    doc.args(["-p", "tidelock", "--all-features"])
        .current_dir(release.source())
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTDOCFLAGS", "--cfg docsrs -D warnings");
    sh::quiet(doc)?;
    let pages = with_badge(&target.join("doc/tidelock"))?;
    ensure!(pages > 0, "no page says which feature an item needs");
    Ok(format!("{pages} pages name a feature"))
}

/// Installs this version of Rust, unless it is there.
fn install_rust(version: &str) -> Result<()> {
    if sh::quiet(with_rust(version, &["--version"])).is_err() {
        let install = ["toolchain", "install", "--profile", "minimal", version];
        sh::quiet(command("rustup", &install))?;
    }
    Ok(())
}

/// Runs cargo of this version of Rust. It would otherwise take that of this program over from the environment.
fn with_rust(version: &str, args: &[&str]) -> std::process::Command {
    let mut cargo = command("rustup", &["run", version, "cargo"]);
    cargo.args(args);
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        cargo.env_remove(name);
    }
    cargo
}

/// How many pages below the folder have an item that needs a feature.
fn with_badge(folder: &Path) -> Result<usize> {
    let mut pages = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            pages += with_badge(&path)?;
        } else if fs::read(&path)?
            .windows(BADGE.len())
            .any(|it| it == BADGE.as_bytes())
        {
            pages += 1;
        }
    }
    Ok(pages)
}
