//! The programs of a release, built from a copy of the source in a folder of its own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::{epoch, script};
use crate::sh::{self, cargo, command as program, have, root};
use crate::{servers, tools};

/// A program, and the target it was built for.
pub(super) struct Built {
    pub(super) target: String,
    pub(super) path: PathBuf,
}

/// Debian's packages of what making a release needs, and of what trying it needs: the program, and its package.
const TO_MAKE: [(&str, &str); 3] = [
    ("dpkg-deb", "dpkg"),
    ("rpmbuild", "rpm"),
    ("musl-gcc", "musl-tools"),
];
const TO_TRY: [(&str, &str); 7] = [
    ("mmdebstrap", "mmdebstrap"),
    ("redis-server", "redis-server"),
    ("man", "man-db"),
    ("zsh", "zsh"),
    ("fish", "fish"),
    ("ip", "iproute2"),
    ("objcopy", "binutils"),
];

pub(super) fn install_tools(to_try: bool) -> Result<()> {
    let wanted = TO_MAKE.iter().chain(TO_TRY.iter().filter(|_| to_try));
    let missing: Vec<&str> = wanted
        .filter(|(program, _)| !have(program))
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    servers::apt::install(&missing)
}

/// The target of this machine, and the one whose programs need nothing of the machine.
fn targets() -> Result<[String; 2]> {
    let told = sh::quiet(program("rustc", &["-vV"]))?;
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc -vV names no host")?;
    ensure!(
        host.ends_with("-linux-gnu"),
        "releases are made on Linux with glibc, not on {host}"
    );
    Ok([host.to_owned(), host.replace("-gnu", "-musl")])
}

/// Copies the files that git knows, as they are now, so that nothing else can get into a release. They keep their times:
/// cargo builds only what has changed.
pub(super) fn copy_source(work: &Path) -> Result<PathBuf> {
    let source = work.join("source");
    if source.exists() {
        fs::remove_dir_all(&source)?;
    }
    fs::create_dir_all(&source)?;
    script(
        "git ls-files -z | xargs -0 cp --preserve=timestamps,mode --parents -t \"$TO\"",
        &[("TO", &source)],
    )?;
    Ok(source)
}

/// Parts of SQLite that rusqlite builds in and nothing here uses.
const WITHOUT_PARTS_OF_SQLITE: &str = "-USQLITE_ENABLE_FTS3 -USQLITE_ENABLE_FTS3_PARENTHESIS -USQLITE_ENABLE_FTS5 \
    -USQLITE_ENABLE_RTREE -USQLITE_ENABLE_STAT4 -USQLITE_ENABLE_DBSTAT_VTAB -USQLITE_ENABLE_COLUMN_METADATA \
    -USQLITE_ENABLE_LOAD_EXTENSION -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_OMIT_JSON";

/// Nothing unwinds through the functions in C: no panic leaves a callback.
const WITHOUT_UNWINDING_C: &str = "-fno-unwind-tables -fno-asynchronous-unwind-tables";

/// Builds the command with every store for both targets, at the same time, its dependencies noted inside.
pub(super) fn programs(source: &Path, work: &Path) -> Result<[Built; 2]> {
    let targets = targets()?;
    println!("building {} in {}", targets.join(" and "), work.display());
    let auditable = tools::cargo_auditable()?;
    let mut build = program(&auditable.to_string_lossy(), &["auditable", "build"]);
    build
        .args(["--quiet", "--locked", "--profile", "dist"])
        .args(["-p", "tidelock-cli", "--all-features"])
        .current_dir(source)
        .env("CARGO", cargo(&[]).get_program())
        .env("CARGO_TARGET_DIR", work.join("target"))
        .env("CARGO_INCREMENTAL", "0")
        .env("LIBSQLITE3_FLAGS", WITHOUT_PARTS_OF_SQLITE)
        .env("CFLAGS", WITHOUT_UNWINDING_C)
        .env("SOURCE_DATE_EPOCH", epoch()?)
        // It would take the place of the flags of a target.
        .env_remove("RUSTFLAGS");
    for target in &targets {
        if target.ends_with("-musl") {
            sh::quiet(program("rustup", &["target", "add", target]))?;
        }
        let name = target.replace('-', "_");
        build.args(["--target", target]);
        build.env(format!("CC_{name}"), compiler(target));
        let flags = format!("CARGO_TARGET_{}_RUSTFLAGS", name.to_uppercase());
        build.env(flags, remapped(source)? + packed(target));
    }
    sh::run(build)?;
    for target in &targets {
        let path = built(work, target).path;
        ensure!(path.is_file(), "{} was not built", path.display());
    }
    Ok(targets.map(|target| built(work, &target)))
}

/// Removes what cargo knows of our crates in this folder, so that it compiles them again.
pub(super) fn forget_ours(work: &Path) -> Result<()> {
    for target in targets()? {
        let known = work.join("target").join(target).join("dist/.fingerprint");
        let Ok(entries) = fs::read_dir(known) else {
            continue; // nothing was built there
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("tidelock") {
                fs::remove_dir_all(entry.path())?;
            }
        }
    }
    Ok(())
}

fn built(work: &Path, target: &str) -> Built {
    Built {
        target: target.to_owned(),
        path: work.join("target").join(target).join("dist/tidelock"),
    }
}

fn compiler(target: &str) -> &'static str {
    if target.ends_with("-musl") {
        "musl-gcc"
    } else {
        "cc"
    }
}

/// A program that can be loaded anywhere has a list of the places to correct: here 590 kB, and 7 kB if it is packed. The musl of
/// Rust reads a packed list. glibc reads one only from 2.36 on, which Ubuntu 22.04 does not have.
fn packed(target: &str) -> &'static str {
    if target.ends_with("-musl") {
        " -Clink-arg=-Wl,-z,pack-relative-relocs"
    } else {
        ""
    }
}

/// Panics name the source of a crate. No path of this machine may be among them: two machines would build two programs.
fn remapped(source: &Path) -> Result<String> {
    let home = cargo_home()?;
    Ok(format!(
        "--remap-path-prefix={}=/tidelock --remap-path-prefix={}=/cargo",
        source.display(),
        home.display()
    ))
}

pub(super) fn cargo_home() -> Result<PathBuf> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    let home = std::env::var_os("HOME").context("neither CARGO_HOME nor HOME is set")?;
    Ok(Path::new(&home).join(".cargo"))
}

/// The machine's paths that no artefact may name.
pub(super) fn private_paths() -> Result<[PathBuf; 2]> {
    Ok([root(), cargo_home()?])
}
