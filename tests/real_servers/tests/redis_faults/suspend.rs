//! Simulates the suspension of a machine for the processes started on it: they stand still, and so does their monotonic
//! clock, while the boot clock and the wall clock advance.
//!
//! A real suspension would stop the test as well, and a time namespace can set the offset of a clock only once. So we
//! preload a small library that replaces `clock_gettime`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use testkit::process::boot_time;

use crate::peer::Peer;

const SHIM: &str = include_str!("clock_shim.c");

pub(crate) struct Suspended {
    /// The file that the processes map: how far their clock is behind, and the time at which it stands (0: it runs), in
    /// nanoseconds.
    shared: File,
    library: PathBuf,
    behind: Mutex<(i64, i64)>,
    started: Mutex<Vec<(u32, i64, Duration)>>,
    dir: TempDir,
}

impl Suspended {
    /// A machine whose clock runs.
    pub(crate) fn machine() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let (source, library) = (dir.path().join("clock.c"), dir.path().join("clock.so"));
        fs::write(&source, SHIM)?;
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .output()
            .context("a C compiler is needed: `cc`")?;
        let said = String::from_utf8_lossy(&built.stderr);
        ensure!(built.status.success(), "cc failed: {said}");
        let shared = File::create_new(dir.path().join("shared"))?;
        shared.write_all_at(&[0; 16], 0)?;
        Ok(Self {
            shared,
            library,
            behind: Mutex::default(),
            started: Mutex::default(),
            dir,
        })
    }

    /// Starts a process on this machine.
    pub(crate) fn start(&self, mut command: Command) -> Result<Peer> {
        command
            .env("LD_PRELOAD", &self.library)
            .env("HELD_BACK", self.dir.path().join("shared"));
        let mut peer = Peer::run(command)?;
        let shown = monotonic_of(&mut peer)?;
        let note = (peer.0.pid(), shown, boot_time());
        self.started
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(note);
        Ok(peer)
    }

    /// Stops the clock; the processes continue.
    pub(crate) fn hold_back(&self) -> Result<()> {
        let mut behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        behind.1 = monotonic();
        self.put(*behind)
    }

    /// Stops the process and the clock.
    pub(crate) fn suspend(&self, peer: &Peer) -> Result<()> {
        peer.0.freeze()?;
        self.hold_back()
    }

    /// Restarts the clock from where it stood, and the process.
    pub(crate) fn resume(&self, peer: &Peer) -> Result<()> {
        let mut behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        behind.0 += monotonic() - behind.1;
        behind.1 = 0;
        self.put(*behind)?;
        peer.0.thaw()
    }

    fn put(&self, (behind, stands): (i64, i64)) -> Result<()> {
        let words = [behind.to_ne_bytes(), stands.to_ne_bytes()].concat();
        Ok(self.shared.write_all_at(&words, 0)?)
    }

    /// Fails unless the process's clock is behind by at least `least`. Otherwise the test would pass without its fault.
    pub(crate) fn stood_still(&self, peer: &mut Peer, least: Duration) -> Result<()> {
        let shown = monotonic_of(peer)?;
        let now = boot_time();
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, then, since) = started
            .iter()
            .find(|(pid, ..)| *pid == peer.0.pid())
            .context("not started here")?;
        let went_on = Duration::from_nanos(u64::try_from(shown - then)?);
        let truly = now.saturating_sub(*since);
        ensure!(
            went_on + least <= truly,
            "its clock went on {went_on:?} of {truly:?}"
        );
        Ok(())
    }
}

fn monotonic_of(peer: &mut Peer) -> Result<i64> {
    Ok(peer.ask("clocks", "clocks")?.get("monotonic")?.parse()?)
}

fn monotonic() -> i64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
