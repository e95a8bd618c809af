//! Two replicas of the web service among the examples: both serve, one leads, and at its SIGTERM the other one follows.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, ensure};

use crate::sh::{self, command, root};

/// Longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the built example.
pub(super) fn check(program: &Path) -> Result<()> {
    let folder = Folder(root().join(format!("target/tmp/web-service-{}", std::process::id())));
    fs::create_dir_all(&folder.0)?;
    let store = format!("sqlite:{}", folder.0.join("locks.db").display());
    let mut first = Replica::start(program, &store, "web-1")?;
    first.line("leads in term")?;
    let mut second = Replica::start(program, &store, "web-2")?;
    first.answers("/ready", "connected: true, leads: true")?;
    second.answers("/ready", "connected: true, leads: false")?;
    second.answers("/leader", "web-1")?;
    first.terminate()?;
    second.line("leads in term")?;
    second.answers("/ready", "connected: true, leads: true")?;
    second.terminate()
}

/// The folder of the store, removed when it is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays is in `target`, and harms nobody.
        drop(fs::remove_dir_all(&self.0));
    }
}

struct Replica {
    process: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
    address: String,
}

impl Replica {
    fn start(program: &Path, store: &str, identity: &str) -> Result<Self> {
        let args = [store, identity, "127.0.0.1:0"];
        let mut service = command(&program.to_string_lossy(), &args);
        let mut process = service.stdout(Stdio::piped()).spawn()?;
        let stdout = process.stdout.take().context("no stdout")?;
        let (line, lines) = channel();
        thread::spawn(move || {
            for text in BufReader::new(stdout).lines().map_while(Result::ok) {
                // The check has ended if nobody reads the line.
                let _ = line.send(text);
            }
        });
        let mut started = Self {
            process,
            lines,
            seen: Vec::new(),
            address: String::new(),
        };
        let serves = started.line("serves http://")?;
        let (_, address) = serves.rsplit_once('/').context("no address")?;
        address.clone_into(&mut started.address);
        Ok(started)
    }

    /// The first line with this text, if it comes in time.
    fn line(&mut self, text: &str) -> Result<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(line) = self.seen.iter().find(|line| line.contains(text)) {
                return Ok(line.clone());
            }
            let left = end.saturating_duration_since(Instant::now());
            let next = self.lines.recv_timeout(left);
            self.seen
                .push(next.with_context(|| format!("no line {text:?} after {:?}", self.seen))?);
        }
    }

    /// Asks until the answer has this text: what the store shows may be a moment late.
    fn answers(&self, path: &str, text: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut stream = TcpStream::connect(&self.address)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            if answer.starts_with("HTTP/1.0 200") && answer.contains(text) {
                return Ok(());
            }
            ensure!(Instant::now() < end, "{path} has no {text:?}: {answer}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn terminate(&mut self) -> Result<()> {
        sh::run(command("kill", &[&self.process.id().to_string()]))?;
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait()? {
                ensure!(status.success(), "{status}: {:?}", self.seen);
                return Ok(());
            }
            ensure!(Instant::now() < end, "it does not end: {:?}", self.seen);
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // It has ended already, unless the check failed.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
