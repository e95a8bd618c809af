//! Minimal Debian systems, which take a minute to make, and are kept as archives.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::{scratch, script};

/// The archive of a system of this name that has these packages.
pub(super) fn archive(name: &str, packages: &str) -> Result<PathBuf> {
    let kept = scratch(&format!("{name}.tar"));
    if !kept.is_file() {
        if let Some(folder) = kept.parent() {
            fs::create_dir_all(folder)?;
        }
        // We rename the whole archive into place. Otherwise an interrupted run would leave half of one.
        let fresh = scratch(&format!("{name}-new.tar"));
        let make = format!(
            "mmdebstrap --quiet --variant=essential --include={packages} \
             \"$(. /etc/os-release; echo \"$VERSION_CODENAME\")\" \"$TO\""
        );
        script(&make, &[("TO", &fresh)]).context("making a Debian")?;
        fs::rename(&fresh, &kept)?;
    }
    Ok(kept)
}
