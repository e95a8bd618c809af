use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::hosts::Host;
use crate::process::FakeClock;
use crate::reaper;
use crate::scratch::scratch;

/// The environment of a server, if it is not the plain machine: a small disk, a wall clock that a test moves, or a host
/// of its own.
#[derive(Debug, Default)]
pub struct Ground {
    disk: Option<Disk>,
    clock: Option<FakeClock>,
    host: Option<Host>,
    // The last field, so that the directory goes after its contents.
    _dir: Option<TempDir>,
}

impl Ground {
    /// A separate disk of this many bytes for the data. It outlives the server's process. The system must let a user
    /// mount a file system in a namespace.
    ///
    /// # Errors
    /// Fails when the disk cannot be mounted.
    pub fn small_disk(bytes: u64) -> Result<Self> {
        let dir = open_dir()?;
        Ok(Self {
            disk: Some(Disk::mount(dir.path(), bytes)?),
            clock: None,
            host: None,
            _dir: Some(dir),
        })
    }

    /// A separate wall clock that first shows the true time.
    ///
    /// # Errors
    /// Fails when libfaketime is not installed.
    pub fn own_clock() -> Result<Self> {
        let dir = open_dir()?;
        Ok(Self {
            disk: None,
            clock: Some(FakeClock::new(dir.path())?),
            host: None,
            _dir: Some(dir),
        })
    }

    /// A host of its own.
    pub fn on_host(host: &Host) -> Self {
        Self {
            host: Some(host.clone()),
            ..Self::default()
        }
    }

    /// The host, if it is not this machine.
    pub fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    /// The address to listen on.
    pub(super) fn addr(&self) -> Ipv4Addr {
        self.host.as_ref().map_or(Ipv4Addr::LOCALHOST, Host::addr)
    }

    /// Connects to a server on this ground, from the same host.
    pub(super) fn connect(&self, port: u16) -> Result<TcpStream> {
        let to = (self.addr(), port).into();
        match &self.host {
            Some(host) => host.connect(to),
            None => Ok(TcpStream::connect(to)?),
        }
    }

    /// The small disk.
    ///
    /// # Errors
    /// Fails when there is none.
    pub fn disk(&self) -> Result<&Disk> {
        self.disk
            .as_ref()
            .context("this server has no disk of its own")
    }

    /// The wall clock.
    ///
    /// # Errors
    /// Fails when there is none.
    pub fn clock(&self) -> Result<&FakeClock> {
        let clock = self.clock.as_ref();
        clock.context("this server runs on the true clock")
    }

    /// The data directory: on the small disk, or else `dir`.
    pub(super) fn data(&self, dir: &Path) -> PathBuf {
        let disk = self.disk.as_ref().map(|disk| disk.at.as_path());
        disk.unwrap_or(dir).join("data")
    }

    /// The same directory as seen from outside the namespace.
    pub(super) fn data_outside(&self, dir: &Path) -> PathBuf {
        let disk = self.disk.as_ref().map(Disk::outside);
        disk.unwrap_or_else(|| dir.to_owned()).join("data")
    }

    /// A program on the host, or inside the disk's namespace.
    pub(super) fn command(&self, program: impl AsRef<Path>) -> Command {
        let program = program.as_ref();
        match (&self.disk, &self.host) {
            (Some(disk), _) => disk.command(program),
            (None, Some(host)) => host.command(program),
            (None, None) => Command::new(program),
        }
    }

    /// Puts a server under the clock. Other programs do not use it.
    pub(super) fn set_clock(&self, command: &mut Command) {
        if let Some(clock) = &self.clock {
            clock.apply(command);
        }
    }
}

/// Some servers run as another user and must be able to read the directory.
fn open_dir() -> Result<TempDir> {
    let dir = scratch()?;
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755))?;
    Ok(dir)
}

/// A small disk, in a namespace that lives as long as this value.
#[derive(Debug)]
pub struct Disk {
    /// The path in the namespace.
    at: PathBuf,
    /// A process that does nothing; it keeps the namespace alive.
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

    /// The path as seen from outside the namespace.
    fn outside(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.id()));
        let inside = self.at.strip_prefix("/").unwrap_or(&self.at);
        root.join(inside)
    }

    fn filler(&self) -> PathBuf {
        self.outside().join("filler")
    }

    /// Fills the disk.
    ///
    /// # Errors
    /// Fails when the disk is not accessible.
    pub fn fill(&self) -> Result<()> {
        let mut filler = File::options()
            .create(true)
            .append(true)
            .open(self.filler())?;
        // Large pieces first, then single pages up to the last one.
        for piece in [1 << 20, 1 << 12] {
            let zeros = vec![0; piece];
            while filler.write_all(&zeros).is_ok() {}
        }
        Ok(())
    }

    /// Frees the disk again.
    ///
    /// # Errors
    /// Fails when the disk was not filled.
    pub fn clear(&self) -> Result<()> {
        fs::remove_file(self.filler()).context("the disk was not full")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // This fails only if the process has already exited, and then there is nothing to do.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
        reaper::forget(self.keeper.id());
    }
}
