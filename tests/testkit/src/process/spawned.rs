use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::reaper;

/// A child with piped lines. Drop kills it; so does the end of the test process, even by SIGKILL.
#[derive(Debug)]
pub struct Spawned {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
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
        let (sender, lines) = channel();
        if let Some(out) = child.stdout.take() {
            forward(out, sender.clone());
        }
        if let Some(err) = child.stderr.take() {
            forward(err, sender);
        }
        let stdin = child.stdin.take();
        Ok(Self {
            child,
            stdin,
            lines,
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
        match self.lines.recv_timeout(timeout) {
            Ok(line) => {
                self.seen.push(line.clone());
                Ok(line)
            }
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

    /// Reads the lines that are available. The time is bounded because a grandchild may keep the pipe open without end; on a busy
    /// machine the threads that read the pipes need some of it.
    fn drain(&mut self) {
        while let Ok(line) = self.lines.recv_timeout(Duration::from_millis(500)) {
            self.seen.push(line);
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

fn forward(pipe: impl Read + Send + 'static, lines: Sender<String>) {
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line);
            if lines
                .send(text.trim_end_matches(['\r', '\n']).to_owned())
                .is_err()
            {
                return;
            }
            line.clear();
        }
    });
}
