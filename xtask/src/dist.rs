//! `cargo xtask dist`: what a release consists of, in `target/dist`, and the proof that a stranger can use it.

mod build;
mod check;
mod debian;
mod from_source;
mod image;
mod packages;
mod papers;
mod proofs;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::sh::{self, command, root};

/// The version of the workspace, which is the version of every artefact.
const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Also makes everything again in another folder, compares the bytes, tries each artefact as its user would, and prints
    /// what was shown
    #[arg(long)]
    check: bool,
    /// Makes no artefact; builds and runs the demo in a Debian that has no network, and nothing but Rust and a C compiler
    #[arg(long, conflicts_with = "check")]
    from_source: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.from_source {
        return from_source::run();
    }
    let begun = Instant::now();
    build::install_tools(args.check)?;
    let release = Release::make(&scratch("a"), &root().join("target/dist"))?;
    for artefact in release.artefacts()? {
        let bytes = fs::metadata(&artefact)?.len();
        println!("{:>9} {}", bytes, artefact.display());
    }
    if args.check {
        return check::all(&release, begun);
    }
    Ok(())
}

fn scratch(name: &str) -> PathBuf {
    root().join("target/dist-work").join(name)
}

/// The artefacts of a release, and what they were made of.
struct Release {
    /// The artefacts.
    out: PathBuf,
    /// The source they were built from, and everything between it and them.
    work: PathBuf,
    /// For this machine's C library.
    dynamic: build::Built,
    /// For any Linux.
    fixed: build::Built,
}

impl Release {
    fn make(work: &Path, out: &Path) -> Result<Self> {
        empty(out)?;
        let source = build::copy_source(work)?;
        let [dynamic, fixed] = build::programs(&source, work)?;
        let release = Self {
            out: out.to_owned(),
            work: work.to_owned(),
            dynamic,
            fixed,
        };
        for built in [&release.dynamic, &release.fixed] {
            packages::archive(&release, built)?;
        }
        packages::deb(&release)?;
        packages::rpm(&release)?;
        image::write(&release)?;
        papers::sbom(&release)?;
        papers::formula(&release)?;
        papers::checksums(&release)?;
        Ok(release)
    }

    fn source(&self) -> PathBuf {
        self.work.join("source")
    }

    fn artefacts(&self) -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(&self.out).with_context(|| self.out.display().to_string())?;
        let mut paths = Vec::new();
        for entry in entries {
            paths.push(entry?.path());
        }
        paths.sort();
        Ok(paths)
    }

    /// The one artefact whose name ends so.
    fn artefact(&self, end: &str) -> Result<PathBuf> {
        let all = self.artefacts()?;
        let found = all
            .into_iter()
            .find(|it| it.to_string_lossy().ends_with(end));
        found.with_context(|| format!("no artefact *{end}"))
    }
}

/// The time of the commit. Packages bear it, so that the same commit gives the same bytes.
fn epoch() -> Result<String> {
    let told = sh::quiet(command("git", &["log", "-1", "--format=%ct"]))?;
    Ok(told.trim().to_owned())
}

/// An empty folder at this path.
fn empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())
}

/// Copies a file, and makes the folders above it.
fn put(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to).with_context(|| from.display().to_string())?;
    Ok(())
}

/// Runs a script of the shell, which stops at its first failure. Returns what it wrote.
fn script(text: &str, variables: &[(&str, &Path)]) -> Result<String> {
    let mut shell = command("bash", &["-euo", "pipefail", "-c", text]);
    shell.envs(variables.iter().copied());
    shell.env("SOURCE_DATE_EPOCH", epoch()?);
    // Names are sorted by their bytes, whatever the language of the machine.
    shell.env("LC_ALL", "C.UTF-8");
    sh::quiet(shell)
}

/// A file's SHA-256, in hexadecimal.
fn sha256(path: &Path) -> Result<String> {
    let told = sh::quiet(command("sha256sum", &[&path.to_string_lossy()]))?;
    let digest = told.split_whitespace().next();
    Ok(digest.context("sha256sum printed nothing")?.to_owned())
}
