use std::io::{PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::output::{self, Heard};
use crate::reaper;

/// The time that a grandchild may need for its next line after the child has ended.
const LINGER: Duration = Duration::from_millis(500);

/// A child with piped lines. Drop kills it; so does the end of the test process, even by SIGKILL.
#[derive(Debug)]
pub struct Spawned {
    child: Child,
    stdin: Option<ChildStdin>,
    heard: Receiver<Heard>,
    /// Asks the thread that reads the output whether it has read all of it.
    ask: PipeWriter,
    seen: Vec<String>,
    ended: bool,
}

impl Spawned {
    /// Starts `command` with its stdin, stdout and stderr piped.
    ///
    /// # Errors
    /// Fails when it does not start.
    pub fn start(mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", command.get_program().display()))?;
        reaper::watch(child.id())?;
        let stdin = child.stdin.take();
        let out = child.stdout.take().map(OwnedFd::from);
        let err = child.stderr.take().map(OwnedFd::from);
        let (ask, heard) = output::read(out.into_iter().chain(err))?;
        Ok(Self {
            child,
            stdin,
            heard,
            ask,
            seen: Vec::new(),
            ended: false,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes one line to its stdin.
    ///
    /// # Errors
    /// Fails when stdin is closed.
    pub fn write_line(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("stdin is closed")?;
        writeln!(stdin, "{line}")?;
        stdin.flush().context("writing to the child")
    }

    /// Closes its stdin.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// The next line of stdout or stderr.
    ///
    /// # Errors
    /// Fails when no line comes within `timeout` or both streams have ended; the error contains all lines so far.
    pub fn next_line(&mut self, timeout: Duration) -> Result<String> {
        match self.heard.recv_timeout(timeout) {
            Ok(Heard::Line(line)) => {
                self.seen.push(line.clone());
                Ok(line)
            }
            // The answer to a question of `drain`, which had stopped waiting for it.
            Ok(Heard::Empty) => self.next_line(timeout),
            Err(RecvTimeoutError::Timeout) => bail!(
                "no line within {timeout:?}; so far:\n{}",
                self.seen.join("\n")
            ),
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the output has ended:\n{}", self.seen.join("\n"))
            }
        }
    }

    /// Reads until a line contains `part`, and returns that line.
    ///
    /// # Errors
    /// As [`next_line`](Self::next_line), with one `timeout` for all lines.
    pub fn wait_line(&mut self, part: &str, timeout: Duration) -> Result<String> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self
                .next_line(left)
                .with_context(|| format!("waiting for {part:?}"))?;
            if line.contains(part) {
                return Ok(line);
            }
        }
    }

    /// Every line read so far.
    pub fn seen(&self) -> &[String] {
        &self.seen
    }

    /// Freezes it (SIGSTOP).
    ///
    /// # Errors
    /// Fails when it has ended.
    pub fn freeze(&self) -> Result<()> {
        super::freeze(self.pid())
    }

    /// Continues it (SIGCONT).
    ///
    /// # Errors
    /// Fails when it has ended.
    pub fn thaw(&self) -> Result<()> {
        super::thaw(self.pid())
    }

    /// Kills it (SIGKILL) and waits for its exit.
    ///
    /// # Errors
    /// Fails when the exit status cannot be read.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        self.child.kill().context("killing the child")?;
        let status = self.child.wait().context("waiting for the child")?;
        self.forget();
        Ok(status)
    }

    /// Waits for its exit, and reads its remaining output.
    ///
    /// # Errors
    /// Fails when it has not exited within `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.forget();
                self.drain();
                return Ok(status);
            }
            if Instant::now() > deadline {
                self.drain();
                bail!(
                    "still running after {timeout:?}; so far:\n{}",
                    self.seen.join("\n")
                );
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Reads all lines that the child has written. We ask the reading thread for the end instead of waiting for some time: on a
    /// busy machine that thread may be late by any time, and the last line would be missing.
    fn drain(&mut self) {
        let asked = self.ask.write_all(b"?").is_ok();
        let mut limit = if asked { super::PATIENCE } else { LINGER };
        let end = Instant::now() + super::PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.heard.recv_timeout(limit.min(left)) {
                Ok(Heard::Line(line)) => self.seen.push(line),
                Ok(Heard::Empty) => limit = LINGER,
                // The output has ended, or a grandchild keeps it open or writes without end.
                Err(_) => return,
            }
        }
    }

    fn forget(&mut self) {
        // We report the id once only. The kernel may reuse it, and a second report could hit another child.
        if !self.ended {
            self.ended = true;
            reaper::forget(self.child.id());
        }
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        if !self.ended {
            // This fails only if it has already exited, and then there is nothing to do.
            let _ = self.kill();
        }
    }
}
