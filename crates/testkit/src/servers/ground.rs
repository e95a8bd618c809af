use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::process::FakeClock;
use crate::reaper;
use crate::scratch::scratch;

/// What a server runs on, if not on the machine as it is: a small disk, or a wall clock that a test moves.
#[derive(Debug, Default)]
pub struct Ground {
    disk: Option<Disk>,
    clock: Option<FakeClock>,
    // Last, so that it goes after what lives in it.
    _dir: Option<TempDir>,
}

impl Ground {
    /// With its data on a disk of its own of so many bytes, which outlives the server's process. Needs a system that lets a
    /// user mount something in a namespace of their own.
    ///
    /// # Errors
    /// When nothing can be mounted.
    pub fn small_disk(bytes: u64) -> Result<Self> {
        let dir = open_dir()?;
        Ok(Self {
            disk: Some(Disk::mount(dir.path(), bytes)?),
            clock: None,
            _dir: Some(dir),
        })
    }

    /// Under a wall clock of its own, which for now shows the true time.
    ///
    /// # Errors
    /// When libfaketime is not installed.
    pub fn own_clock() -> Result<Self> {
        let dir = open_dir()?;
        Ok(Self {
            disk: None,
            clock: Some(FakeClock::new(dir.path())?),
            _dir: Some(dir),
        })
    }

    /// The small disk.
    ///
    /// # Errors
    /// When there is none.
    pub fn disk(&self) -> Result<&Disk> {
        self.disk
            .as_ref()
            .context("this server has no disk of its own")
    }

    /// The wall clock.
    ///
    /// # Errors
    /// When there is none.
    pub fn clock(&self) -> Result<&FakeClock> {
        let clock = self.clock.as_ref();
        clock.context("this server runs on the true clock")
    }

    /// Where the server's data goes: to its small disk, or else to this directory.
    pub(super) fn data(&self, dir: &Path) -> PathBuf {
        let disk = self.disk.as_ref().map(|disk| disk.at.as_path());
        disk.unwrap_or(dir).join("data")
    }

    /// The same place as it is seen from outside.
    pub(super) fn data_outside(&self, dir: &Path) -> PathBuf {
        let disk = self.disk.as_ref().map(Disk::outside);
        disk.unwrap_or_else(|| dir.to_owned()).join("data")
    }

    /// A program that sees the disk.
    pub(super) fn command(&self, program: impl AsRef<Path>) -> Command {
        match &self.disk {
            Some(disk) => disk.command(program.as_ref()),
            None => Command::new(program.as_ref()),
        }
    }

    /// Puts a server under the clock; what else is started does without.
    pub(super) fn set_clock(&self, command: &mut Command) {
        if let Some(clock) = &self.clock {
            clock.apply(command);
        }
    }
}

/// Some servers run as a user of their own, and look into it.
fn open_dir() -> Result<TempDir> {
    let dir = scratch()?;
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755))?;
    Ok(dir)
}

/// A small disk, in a namespace that lives as long as this value.
#[derive(Debug)]
pub struct Disk {
    /// In the namespace.
    at: PathBuf,
    /// It does nothing but stay there.
    keeper: Child,
}

impl Disk {
    fn mount(dir: &Path, bytes: u64) -> Result<Self> {
        let at = dir.join("disk");
        fs::create_dir(&at)?;
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
        unshare.arg(format!(
            r#"mount -t tmpfs -o size={bytes} none "$0" && echo mounted && exec cat"#
        ));
        unshare
            .arg(&at)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut keeper = unshare.spawn().context("starting unshare")?;
        reaper::watch(keeper.id())?;
        let mut said = String::new();
        if let Some(out) = keeper.stdout.take() {
            BufReader::new(out).read_line(&mut said)?;
        }
        let disk = Self { at, keeper };
        ensure!(said.trim() == "mounted", "no small disk could be mounted");
        Ok(disk)
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.keeper.id().to_string()]);
        command.args(["--user", "--mount", "--"]).arg(program);
        command
    }

    /// As it is seen from outside.
    fn outside(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.id()));
        let inside = self.at.strip_prefix("/").unwrap_or(&self.at);
        root.join(inside)
    }

    fn filler(&self) -> PathBuf {
        self.outside().join("filler")
    }

    /// Takes all the room there is left.
    ///
    /// # Errors
    /// When the disk cannot be seen.
    pub fn fill(&self) -> Result<()> {
        let mut filler = File::options()
            .create(true)
            .append(true)
            .open(self.filler())?;
        // First in large pieces, then to the last page.
        for piece in [1 << 20, 1 << 12] {
            let zeros = vec![0; piece];
            while filler.write_all(&zeros).is_ok() {}
        }
        Ok(())
    }

    /// Gives it back.
    ///
    /// # Errors
    /// When nothing was taken.
    pub fn clear(&self) -> Result<()> {
        fs::remove_file(self.filler()).context("the disk was not full")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Fails only if it is gone already, which is what is wanted.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
        reaper::forget(self.keeper.id());
    }
}
