//! What comes with the artefacts: the list of parts, the formula for Homebrew, the checksums.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::packages::filled;
use super::{Release, VERSION, epoch, sha256};
use crate::sh::{self, command};
use crate::tools;

pub(super) const CHECKSUMS: &str = "SHA256SUMS";

/// The list of parts in the format `CycloneDX`: every crate of the command with every store, and what builds them.
pub(super) fn sbom(release: &Release) -> Result<()> {
    let source = release.source();
    let tool = tools::cargo_cyclonedx()?;
    let mut list = command(
        &tool.to_string_lossy(),
        &[
            "cyclonedx",
            "--manifest-path",
            "crates/tidelock-cli/Cargo.toml",
        ],
    );
    list.args([
        "--format",
        "json",
        "--spec-version",
        "1.5",
        "--all-features",
    ])
    .args(["--target", &release.dynamic.target])
    .args(["--override-filename", "tidelock.cdx", "-qq"])
    .current_dir(&source)
    .env("SOURCE_DATE_EPOCH", epoch()?);
    sh::quiet(list)?;
    let written = source.join("crates/tidelock-cli/tidelock.cdx.json");
    let text = fs::read_to_string(&written).with_context(|| written.display().to_string())?;
    // The tool names our own crates by where they are on this machine.
    let text = text.replace(&source.display().to_string(), "/tidelock");
    fs::write(
        release.out.join(format!("tidelock-{VERSION}.cdx.json")),
        text,
    )?;
    Ok(())
}

pub(super) fn formula(release: &Release) -> Result<()> {
    let archive = release.artefact(&format!("{}.tar.gz", release.fixed.target))?;
    let sha = sha256(&archive)?;
    let values = [
        ("VERSION", VERSION),
        ("ARCHIVE", &*file_name(&archive)),
        ("SHA256", &*sha),
    ];
    fs::write(
        release.out.join("tidelock.rb"),
        filled("tidelock.rb", &values)?,
    )?;
    Ok(())
}

/// In the form that `sha256sum --check` reads.
pub(super) fn checksums(release: &Release) -> Result<()> {
    let mut lines = String::new();
    for artefact in release.artefacts()? {
        let _ = writeln!(lines, "{}  {}", sha256(&artefact)?, file_name(&artefact));
    }
    fs::write(release.out.join(CHECKSUMS), lines)?;
    Ok(())
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
