//! Shared by the tests: a store, commands on it, and access to their processes.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Longer than any step of these tests, unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A separate store for one test.
pub(crate) struct Bench {
    pub(crate) folder: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// A store in which a lock was taken once: read-only commands do not create a store.
    pub(crate) fn with_a_store() -> Self {
        let bench = Self::new();
        assert_eq!(bench.code(&["try", "job", "--", "true"]), 0);
        bench
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path("locks.db").display())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `tidelock` on this store, with no inherited environment variable that affects it.
    pub(crate) fn tidelock(&self, args: &[&str]) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_tidelock"));
        command.args(args);
        command
    }

    /// Like [`tidelock`](Self::tidelock), for another program.
    pub(crate) fn program(&self, name: &str) -> Command {
        // A shell starts background jobs with INT and QUIT ignored, and `run` must not change that. Without the
        // defaults here the outcome would depend on how these tests were started.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP,INT,QUIT,TERM,USR1,USR2");
        command.arg(name);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TIDELOCK_") {
                command.env_remove(name);
            }
        }
        command.env("TIDELOCK_STORE", self.url());
        command
    }

    /// Runs the command until it exits.
    pub(crate) fn output(&self, args: &[&str]) -> Output {
        self.tidelock(args).stdin(Stdio::null()).output().unwrap()
    }

    pub(crate) fn code(&self, args: &[&str]) -> i32 {
        self.output(args).status.code().unwrap()
    }

    /// The output of a command that is refused and says why. It looks for the holder for a second; on a busy machine the look
    /// may take longer, and then the command is run again.
    pub(crate) fn refused(&self, args: &[&str]) -> Output {
        let mut tries = 1;
        loop {
            let output = self.output(args);
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            let is_unknown = told.contains("the store does not say who holds it");
            if !is_unknown || tries == 3 {
                return output;
            }
            tries += 1;
        }
    }

    /// What `show` tells of a held lock as soon as its holder is described there. A process describes itself in the background,
    /// beside the grant.
    pub(crate) fn shown(&self, name: &str) -> Value {
        let begun = Instant::now();
        loop {
            let shown = self.output(&["show", "--json", name]).stdout;
            let lock: Value = serde_json::from_slice(&shown).unwrap();
            if !lock["holders"][0]["program"].is_null() {
                return lock;
            }
            assert!(begun.elapsed() < PATIENCE, "{lock}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Starts `tidelock run` with a shell script whose output lines can be awaited.
    pub(crate) fn run(&self, flags: &[&str], script: &str) -> Run {
        let mut args = vec!["run"];
        args.extend(flags);
        args.extend(["job", "--", "sh", "-c", script]);
        Run::start(self.tidelock(&args))
    }
}

/// A `tidelock run` in progress.
pub(crate) struct Run {
    pub(crate) child: Child,
    lines: Option<BufReader<ChildStdout>>,
}

impl Run {
    pub(crate) fn start(command: Command) -> Self {
        Self::start_saying(command, Stdio::piped())
    }

    /// Like [`start`](Self::start), with another target for the messages.
    pub(crate) fn start_saying(command: Command, messages: Stdio) -> Self {
        Self::start_with(command, Stdio::piped(), messages)
    }

    /// Like [`start`](Self::start), with another input, and another target for the messages.
    pub(crate) fn start_with(mut command: Command, input: Stdio, messages: Stdio) -> Self {
        let mut child = command
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(messages)
            .spawn()
            .unwrap();
        let lines = child.stdout.take().map(BufReader::new);
        Self { child, lines }
    }

    /// The next line. Empty at the end of the output.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let lines = self.lines.as_mut().expect("it is read");
        lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Closes the read end of its output.
    pub(crate) fn leave_unread(&mut self) {
        self.lines = None;
    }

    /// The next line, parsed as a process id.
    pub(crate) fn pid(&mut self) -> Process {
        Process(self.line().parse().expect("a process id"))
    }

    pub(crate) fn process(&self) -> Process {
        Process(i32::try_from(self.child.id()).unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process().signal(signal);
    }

    /// Waits until the run exits. Returns its exit code and its messages.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let errors = self.child.stderr.take();
        let messages = meanwhile(move || {
            let mut messages = String::new();
            errors.map(|mut errors| errors.read_to_string(&mut messages));
            messages
        });
        self.process().await_end();
        let code = self.child.wait().unwrap().code();
        (code, messages.recv_timeout(PATIENCE).expect("all is said"))
    }

    /// Waits until nobody holds the write end of stdout: the command and all processes it has started are gone.
    pub(crate) fn silence(&mut self) -> Instant {
        while !self.line().is_empty() {}
        Instant::now()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // A failed test must leave nothing running: the supervisor notices that the wrapper is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Any process on the machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Process(pub(crate) i32);

impl Process {
    pub(crate) fn signal(self, signal: Signal) {
        kill_process(Pid::from_raw(self.0).unwrap(), signal).unwrap();
    }

    pub(crate) fn parent(self) -> Self {
        Self(self.stat(1).expect("it lives").parse().unwrap())
    }

    pub(crate) fn group(self) -> i32 {
        self.stat(2).expect("it lives").parse().unwrap()
    }

    /// Stops the process, and returns when it has stopped. It resumes when the result is dropped.
    #[must_use]
    pub(crate) fn freeze(self) -> Frozen {
        self.signal(Signal::STOP);
        let begun = Instant::now();
        while self.stat(0).as_deref() != Some("T") {
            assert!(begun.elapsed() < PATIENCE, "{} was not stopped", self.0);
            std::thread::sleep(Duration::from_millis(1));
        }
        Frozen(self)
    }

    /// Stops the process while it does not write. One that is stopped in the middle of a write to a file of SQLite keeps
    /// everybody out until it goes on.
    #[must_use]
    pub(crate) fn freeze_between_writes(self) -> Frozen {
        loop {
            let frozen = self.freeze();
            if !self.writes() {
                return frozen;
            }
        }
    }

    /// Whether it has an exclusive lock on a part of a file, as SQLite while it writes.
    fn writes(self) -> bool {
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        let pid = self.0.to_string();
        locks.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.contains(&"POSIX") && words.contains(&"WRITE") && words.contains(&&*pid)
        })
    }

    /// True if the process runs no more: it is gone, or is a zombie.
    pub(crate) fn is_dead(self) -> bool {
        self.stat(0)
            .is_none_or(|state| state == "Z" || state == "X")
    }

    /// Its children, zombies too.
    pub(crate) fn children(self) -> Vec<i32> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.0)).unwrap();
        let lists = threads
            .flatten()
            .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
        let lists: Vec<String> = lists.collect();
        let pids = lists.iter().flat_map(|list| list.split_whitespace());
        pids.map(|pid| pid.parse().unwrap()).collect()
    }

    /// A field of `/proc/PID/stat`, counted from the one after the name.
    fn stat(self, field: usize) -> Option<String> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.0)).ok()?;
        let (_, rest) = text.rsplit_once(") ")?;
        rest.split(' ').nth(field).map(str::to_owned)
    }

    /// Waits until the process has a handler for the signal. The kernel sends no notification for that, so this polls.
    pub(crate) fn await_handler(self, signal: Signal) {
        let begun = Instant::now();
        loop {
            let status = std::fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
            if (caught >> (signal.as_raw() - 1)) & 1 == 1 {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "no handler for {signal:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until the process exits, with a pidfd.
    pub(crate) fn await_end(self) {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        use rustix::process::{PidfdFlags, pidfd_open};
        let Ok(fd) = pidfd_open(Pid::from_raw(self.0).unwrap(), PidfdFlags::empty()) else {
            return; // it was gone before
        };
        let limit = Timespec {
            tv_sec: PATIENCE.as_secs().try_into().unwrap(),
            tv_nsec: 0,
        };
        let ended = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)).unwrap();
        assert_eq!(ended, 1, "process {} has not ended", self.0);
    }
}

/// A stopped process that resumes when this is dropped, so that a failed test leaves none behind.
pub(crate) struct Frozen(Process);

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_raw(self.0.0).unwrap(), Signal::CONT);
    }
}

/// Runs a function on a thread. The caller can await the result.
pub(crate) fn meanwhile<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Receiver<T> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let _ = tell.send(work());
    });
    told
}
