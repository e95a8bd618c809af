//! Another process with a client of its own.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use real_servers::SOON;
use testkit::process::Spawned;

/// Another process with a client of its own. `src/bin/peer.rs` lists its commands.
pub(crate) struct Peer(pub(crate) Spawned);

/// A line that a peer has printed.
#[derive(Debug)]
pub(crate) struct Line {
    /// On the boot clock.
    pub(crate) at: Duration,
    pub(crate) text: String,
}

impl Line {
    /// The value of `key=` in the line.
    pub(crate) fn get(&self, key: &str) -> Result<&str> {
        let value = self.text.split_whitespace().find_map(|word| {
            word.strip_prefix(key)
                .and_then(|rest| rest.strip_prefix('='))
        });
        value.with_context(|| format!("no {key} in {:?}", self.text))
    }

    pub(crate) fn number(&self, key: &str) -> Result<u64> {
        Ok(self.get(key)?.parse()?)
    }
}

impl Peer {
    pub(crate) fn start(url: &str, lease: Duration) -> Result<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peer"));
        command.arg(url).arg(lease.as_millis().to_string());
        Self::run(command)
    }

    /// Starts a prepared command line, and waits until its client is connected.
    pub(crate) fn run(command: Command) -> Result<Self> {
        let mut peer = Self(Spawned::start(command)?);
        peer.hear("ready")?;
        Ok(peer)
    }

    /// Sends a command.
    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        self.0.write_line(line)
    }

    /// Reads the next line, which must begin with `words`.
    pub(crate) fn hear(&mut self, words: &str) -> Result<Line> {
        let line = self.0.next_line(SOON * 2)?;
        let (stamp, text) = line.split_once(' ').unwrap_or_default();
        if !text.starts_with(words) {
            bail!("the peer said {line:?} where {words:?} was due");
        }
        Ok(Line {
            at: Duration::from_nanos(stamp.parse()?),
            text: text.to_owned(),
        })
    }

    /// Sends a command and reads the next line.
    pub(crate) fn ask(&mut self, line: &str, words: &str) -> Result<Line> {
        self.tell(line)?;
        self.hear(words)
    }
}
