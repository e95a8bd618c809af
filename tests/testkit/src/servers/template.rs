//! The data directory of a new database server. Its installation needs a second of a core, more than most tests do. So
//! each process of tests installs one, and its servers start with copies.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};

use super::ServerProcess;

/// A server that never runs. Its data stands in `data` in its directory, which goes with this process.
#[derive(Debug)]
pub(super) struct Template(Mutex<Option<ServerProcess>>);

impl Template {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Copies the data to `data`, which does not exist yet. The first call installs it.
    ///
    /// # Errors
    /// Fails when it cannot be installed, and then the next call tries again; or when there is no room for the copy.
    pub(super) fn copy_to(
        &self,
        data: &Path,
        install: impl FnOnce() -> Result<ServerProcess>,
    ) -> Result<()> {
        let mut installed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let template = match &mut *installed {
            Some(template) => template,
            none => none.insert(install()?),
        };
        // It keeps the owner and the rights, on which servers insist.
        let mut copy = Command::new("cp");
        copy.arg("-a").arg(template.dir().join("data")).arg(data);
        let output = copy.output().with_context(|| format!("{copy:?}"))?;
        ensure!(
            output.status.success(),
            "{copy:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }
}
