use std::path::PathBuf;

use anyhow::{Result, bail};
use rusqlite::Connection;
use tempfile::TempDir;

use super::World;

/// A lock file.
pub(super) struct File(TempDir);

impl File {
    pub(super) fn new() -> Result<Self> {
        Ok(Self(TempDir::with_prefix("tidelock-")?))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("locks.db")
    }
}

impl World for File {
    fn urls(&self) -> Vec<String> {
        vec![format!("sqlite:{}", self.path().display())]
    }

    fn version(&self) -> Result<String> {
        Ok(format!("SQLite {}", rusqlite::version()))
    }

    fn wipe(&self, name: &str) -> Result<()> {
        let connection = Connection::open(self.path())?;
        connection.busy_timeout(std::time::Duration::from_secs(5))?;
        connection.execute("DELETE FROM locks WHERE name = ?1", [name])?;
        Ok(())
    }
}

/// The in-process store.
pub(super) struct Memory;

impl World for Memory {
    fn urls(&self) -> Vec<String> {
        vec!["memory:matrix".to_owned()]
    }

    fn version(&self) -> Result<String> {
        Ok(format!("tidelock {}", env!("CARGO_PKG_VERSION")))
    }

    fn wipe(&self, _name: &str) -> Result<()> {
        bail!("nobody but the process itself reaches its memory")
    }
}
