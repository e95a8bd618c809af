//! `cargo xtask dist --check`: tries each artefact as its user would, and prints a table of what was shown.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::proofs::{crates, image, installed, pages, parts};
use super::{Release, build, scratch, sha256};
use crate::sh::root;

/// A claim about a release, and the function that checks it. The function fails if the claim is false.
type Proof = (&'static str, fn(&Release) -> Result<String>);

const PROOFS: [Proof; 19] = [
    (
        "no path of this machine is in a program",
        installed::no_private_paths,
    ),
    (
        "sizes: program 12 MB, .deb 6 MB, image 8 MB at most",
        installed::sizes,
    ),
    (
        "the static program from its start to a lock on SQLite",
        installed::first_lock,
    ),
    (
        "checksums and the formula name these files",
        parts::checksums,
    ),
    (
        "--version, man page and changelog name this version",
        pages::versions,
    ),
    ("man pages have no warning", pages::man),
    (
        "bash, zsh and fish complete a command's name",
        pages::completions,
    ),
    ("the site has every page, and no dead link", pages::book),
    (
        "the program lists its crates, and Cargo.lock has them",
        parts::listed_inside,
    ),
    (
        "the list of parts agrees with the program and Cargo.lock",
        parts::sbom,
    ),
    (
        "the .deb in a Debian without a network: demo, removal",
        installed::deb,
    ),
    (
        "the .rpm installs these files, and removes them",
        installed::rpm,
    ),
    (
        "the image: digests, its user, its labels, authorities",
        image::layout,
    ),
    (
        "the image's root alone, without a network: demo",
        image::demo,
    ),
    (
        "the image's root alone finds a server by its name",
        image::by_name,
    ),
    (
        "the crates build from what would be published alone",
        crates::packaged,
    ),
    (
        "the oldest supported Rust compiles both crates",
        crates::oldest_rust,
    ),
    (
        "the docs as docs.rs builds them, without warnings",
        crates::docs_rs,
    ),
    // The longest, so the last.
    (
        "a second build in another folder has the same bytes",
        reproducible,
    ),
];

/// What cannot be shown on one machine without accounts.
const NOT_SHOWN: &str = "not shown here: uploads to registries, signatures, other processors and systems, `brew install`, \
                         a container runtime that loads the image";

/// Tries everything, and prints the time since `begun`, the start of the whole run.
pub(super) fn all(release: &Release, begun: Instant) -> Result<()> {
    let made_in = begun.elapsed();
    let mut table = Vec::new();
    let mut failed = 0;
    for (claim, proof) in PROOFS {
        let start = Instant::now();
        let (mark, told) = match proof(release) {
            Ok(told) => ("✓", told),
            Err(error) => {
                println!("{claim}: {error:#}");
                failed += 1;
                ("✗", "see above".to_owned())
            }
        };
        let time = start.elapsed().as_secs_f64();
        let line = format!("{mark} {claim:<58} {time:>6.1} s  {told}");
        println!("{line}");
        table.push(line);
    }
    println!("\n{}\n{NOT_SHOWN}", table.join("\n"));
    println!("{}", times(made_in, begun.elapsed()));
    if failed > 0 {
        bail!("{failed} of {} claims were not shown", PROOFS.len());
    }
    Ok(())
}

/// The last line: how long the whole run took.
fn times(made_in: Duration, all: Duration) -> String {
    let proofs = all.saturating_sub(made_in);
    format!(
        "{:.0} s in all: {:.0} s to make the release, {:.0} s for the proofs",
        all.as_secs_f64(),
        made_in.as_secs_f64(),
        proofs.as_secs_f64()
    )
}

/// Makes the whole release again elsewhere. Our crates are always compiled for it; otherwise a second run on one commit would
/// compare a program with the one that the run before had left.
fn reproducible(release: &Release) -> Result<String> {
    let work = scratch("b");
    build::forget_ours(&work)?;
    let again = Release::make(&work, &root().join("target/dist-work/again"))?;
    let (first, second) = (release.artefacts()?, again.artefacts()?);
    ensure!(first.len() == second.len(), "{first:?}, then {second:?}");
    for (one, other) in first.iter().zip(&second) {
        let same = one.file_name() == other.file_name() && sha256(one)? == sha256(other)?;
        ensure!(same, "{} and {} differ", one.display(), other.display());
    }
    Ok(format!("{} files", first.len()))
}
