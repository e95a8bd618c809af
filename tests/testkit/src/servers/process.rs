//! The process of a server: how it starts, freezes, ends, and what it has printed.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tempfile::TempDir;

use crate::scratch::scratch;
use crate::{process, reaper};

/// The first and the longest poll interval of a start: servers send no notification when they are ready. Redis needs some
/// milliseconds; each question delays a cold JVM.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const MAX_PAUSE: Duration = Duration::from_millis(20);

/// The process of a server, and the directory of its data. It ends when this value is dropped. All methods take `&self`,
/// so tests can share a server.
///
/// Each server dereferences to its process: `server.freeze()`, `server.kill()`, `server.log()`.
#[derive(Debug)]
pub struct ServerProcess {
    name: &'static str,
    /// Whether the server works in child processes, as PostgreSQL does.
    forks: bool,
    child: Mutex<Option<Child>>,
    // The last field: fields drop in order, and the server must stop before its directory goes.
    dir: TempDir,
}

impl ServerProcess {
    /// A process that does not run yet, with an empty directory.
    pub(super) fn new(name: &'static str) -> Result<Self> {
        Ok(Self {
            name,
            forks: false,
            child: Mutex::new(None),
            dir: scratch()?,
        })
    }

    /// The server works in child processes: they are frozen with it, and it must end them itself.
    pub(super) fn forking(mut self) -> Self {
        self.forks = true;
        self
    }

    /// The directory of its data, log (`log`), certificates and socket.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Its process id, while it runs.
    ///
    /// # Errors
    /// Fails when it has been killed.
    pub fn pid(&self) -> Result<u32> {
        let child = self.lock();
        let running = child.as_ref().map(Child::id);
        running.with_context(|| format!("{} is not running", self.name))
    }

    /// Whether it runs and is not frozen, so that it can answer.
    pub fn is_up(&self) -> bool {
        self.pid()
            .and_then(process::state)
            .is_ok_and(|state| !matches!(state, 'T' | 'Z' | 'X'))
    }

    /// Everything it has written to stdout and stderr since its last start.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir().join("log")).unwrap_or_default()
    }

    /// Freezes it (SIGSTOP): the kernel still accepts connections and bytes for it, but nothing answers.
    ///
    /// # Errors
    /// Fails when it does not run.
    pub fn freeze(&self) -> Result<()> {
        let pid = self.pid()?;
        // We freeze the parent first; otherwise it could start more children in the meantime.
        process::freeze(pid)?;
        self.children(pid)?
            .into_iter()
            .try_for_each(process::freeze)
    }

    /// Continues it after a freeze (SIGCONT).
    ///
    /// # Errors
    /// Fails when it does not run.
    pub fn thaw(&self) -> Result<()> {
        let pid = self.pid()?;
        self.children(pid)?
            .into_iter()
            .try_for_each(process::thaw)?;
        process::thaw(pid)
    }

    /// Kills it (SIGKILL), frozen or not. Nothing listens on its port until `restart`. A server that works in child
    /// processes ends at once without a clean shutdown (SIGQUIT): after a SIGKILL, its children would prevent a restart.
    ///
    /// # Errors
    /// Fails when it cannot be waited for.
    pub fn kill(&self) -> Result<()> {
        let Some(mut child) = self.lock().take() else {
            return Ok(());
        };
        if self.forks {
            let workers = process::children(child.id())?;
            process::quit(child.id())?;
            // A frozen process acts on the signal when it continues.
            for pid in std::iter::once(child.id()).chain(workers) {
                // This fails only if the process has already exited.
                let _ = process::thaw(pid);
            }
        } else {
            child.kill().context("killing the server")?;
        }
        child.wait().context("waiting for the server")?;
        reaper::forget(child.id());
        Ok(())
    }

    /// Starts the program, and waits until `ready` succeeds, for at most `limit`.
    pub(super) fn start(
        &self,
        command: Command,
        limit: Duration,
        ready: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        self.spawn(command)?;
        self.await_ready(limit, ready)
    }

    /// Starts the program. Its output goes to the log.
    pub(super) fn spawn(&self, mut command: Command) -> Result<()> {
        let log = File::create(self.dir().join("log"))?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = command.spawn().with_context(|| {
            let program = command.get_program().display();
            format!("starting {program}; `cargo xtask servers` says how to get it")
        })?;
        reaper::watch(child.id())?;
        *self.lock() = Some(child);
        Ok(())
    }

    /// Polls until `ready` succeeds. If the process ends or the limit passes first, it kills the process and fails; the
    /// error contains the log.
    pub(super) fn await_ready(
        &self,
        limit: Duration,
        mut ready: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let deadline = Instant::now() + limit;
        let mut pause = FIRST_PAUSE;
        loop {
            // We look at the process before we ask. Otherwise another process that has taken the port would answer.
            let ended = self.exit_status()?;
            let answer = match ended {
                Some(status) => Err(anyhow!("it ended with {status}")),
                None => ready(),
            };
            let Err(error) = answer else {
                return Ok(());
            };
            if ended.is_some() || Instant::now() > deadline {
                // We ignore this error: the caller needs the one that led here.
                let _ = self.kill();
                bail!(
                    "{} does not answer ({error:#}); it said:\n{}",
                    self.name,
                    self.log()
                );
            }
            thread::sleep(pause);
            pause = (pause * 3 / 2).min(MAX_PAUSE);
        }
    }

    fn exit_status(&self) -> Result<Option<ExitStatus>> {
        match self.lock().as_mut() {
            Some(child) => Ok(child.try_wait()?),
            None => bail!("{} was killed while it started", self.name),
        }
    }

    fn children(&self, pid: u32) -> Result<Vec<u32>> {
        if self.forks {
            process::children(pid)
        } else {
            Ok(Vec::new())
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // This fails only if the process has already exited, and then there is nothing to do.
        let _ = self.kill();
    }
}

/// Lets a server be used as its [`ServerProcess`].
macro_rules! is_a_process {
    ($server:ty) => {
        impl std::ops::Deref for $server {
            type Target = $crate::servers::ServerProcess;

            fn deref(&self) -> &Self::Target {
                &self.process
            }
        }
    };
}
pub(super) use is_a_process;
