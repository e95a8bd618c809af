//! Clients of other languages on plain Redis locks, in processes that do what they are told.
//!
//! Their sources are in `interop/`, each with the versions of what it stands on; they are built into the target
//! directory when they are first needed, and when their sources have changed. `interop/README.md` has the words they obey.

mod bench;
mod build;

pub use bench::Bench;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::process::Spawned;
use crate::servers::RedisServer;

/// Longer than any answer takes; a hammer has its own.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which client.
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

/// What a hammer saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct ForeignReport {
    /// Holds in all.
    pub acquisitions: u64,
    /// Holds in which somebody else was inside: must be 0.
    pub overlaps: u64,
}

impl Foreign {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::RedisPy,
        Self::Redsync,
        Self::NodeRedlock,
        Self::Rslock,
    ];

    /// Starts a process for the lock of that name, with leases of that length. Built first if need be.
    ///
    /// # Errors
    /// When it cannot be built or does not start.
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

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// When the process has ended or says something else.
    pub fn try_acquire(&mut self) -> Result<bool> {
        self.is("try", "yes", "no")
    }

    /// Gives it a whole lease again. False: it was lost.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    pub fn extend(&mut self) -> Result<bool> {
        self.is("extend", "extended", "lost")
    }

    /// Gives it back. False: it was lost.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    pub fn release(&mut self) -> Result<bool> {
        self.is("release", "released", "lost")
    }

    /// Begins to take the lock again and again, and to look in a [`WordFile`](crate::java::WordFile) whether it is alone.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn begin_hammer(&mut self, rounds: u32, hold: Duration, word: &Path) -> Result<()> {
        let word = word.display();
        let line = format!("hammer {rounds} {} {word}", hold.as_micros());
        self.0.write_line(&line)
    }

    /// What the hammer saw, once it has ended.
    ///
    /// # Errors
    /// When it does not end in time, or with something else.
    pub fn hammered(&mut self, patience: Duration) -> Result<ForeignReport> {
        let line = self.0.next_line(patience)?;
        serde_json::from_str(&line).with_context(|| line.clone())
    }
}
