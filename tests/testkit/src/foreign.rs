//! Lock clients in other languages on plain Redis locks, in processes that execute commands from stdin.
//!
//! Their sources are in `interop/`, each with pinned dependencies. We build them into the target directory at first use
//! and again when their sources change. `interop/README.md` lists the commands.

mod bench;
mod build;

pub use bench::Bench;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::process::Spawned;
use crate::servers::RedisServer;

/// The limit for an answer, except that of a hammer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The client library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// Python: the `Lock` of redis-py.
    RedisPy,
    /// Go: redsync.
    Redsync,
    /// JavaScript: node-redlock.
    NodeRedlock,
    /// Rust: rslock.
    Rslock,
}

/// One process with one client and one lock.
#[derive(Debug)]
pub struct ForeignPeer(Spawned);

/// The result of a hammer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct ForeignReport {
    /// Number of holds.
    pub acquisitions: u64,
    /// Number of holds during which another client was inside: must be 0.
    pub overlaps: u64,
}

impl Foreign {
    /// All client libraries.
    pub const ALL: [Self; 4] = [
        Self::RedisPy,
        Self::Redsync,
        Self::NodeRedlock,
        Self::Rslock,
    ];

    /// Starts a process for the lock of that name, with leases of that length. Builds it first if needed.
    ///
    /// # Errors
    /// Fails when the process cannot be built or does not start.
    pub fn start(self, server: &RedisServer, name: &str, lease: Duration) -> Result<ForeignPeer> {
        let mut command = build::command(self)?;
        command
            .args(["127.0.0.1", &server.port().to_string(), name])
            .arg(lease.as_millis().to_string());
        let mut peer = Spawned::start(command)?;
        peer.wait_line("ready", PATIENCE)?;
        Ok(ForeignPeer(peer))
    }
}

impl ForeignPeer {
    fn ask(&mut self, words: &str, patience: Duration) -> Result<String> {
        self.0.write_line(words)?;
        self.0.next_line(patience)
    }

    fn is(&mut self, words: &str, yes: &str, no: &str) -> Result<bool> {
        let said = self.ask(words, PATIENCE)?;
        ensure!(said == yes || said == no, "{words}: {said}");
        Ok(said == yes)
    }

    /// Acquires the lock if it is free.
    ///
    /// # Errors
    /// Fails when the process has ended or gives an unexpected answer.
    pub fn try_acquire(&mut self) -> Result<bool> {
        self.is("try", "yes", "no")
    }

    /// Renews the lock for a whole lease. `false`: it was lost.
    ///
    /// # Errors
    /// The same as [`try_acquire`](Self::try_acquire).
    pub fn extend(&mut self) -> Result<bool> {
        self.is("extend", "extended", "lost")
    }

    /// Releases the lock. `false`: it was lost.
    ///
    /// # Errors
    /// The same as [`try_acquire`](Self::try_acquire).
    pub fn release(&mut self) -> Result<bool> {
        self.is("release", "released", "lost")
    }

    /// Starts to acquire the lock repeatedly and to check in a [`WordFile`](crate::java::WordFile) that nobody else is
    /// inside.
    ///
    /// # Errors
    /// Fails when the process has ended.
    pub fn begin_hammer(&mut self, rounds: u32, hold: Duration, word: &Path) -> Result<()> {
        let word = word.display();
        let line = format!("hammer {rounds} {} {word}", hold.as_micros());
        self.0.write_line(&line)
    }

    /// The result of the hammer, once it has ended.
    ///
    /// # Errors
    /// Fails when the hammer does not end in time, or gives an unexpected answer.
    pub fn hammered(&mut self, patience: Duration) -> Result<ForeignReport> {
        let line = self.0.next_line(patience)?;
        serde_json::from_str(&line).with_context(|| line.clone())
    }
}
