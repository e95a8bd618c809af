//! T69: the wrapper and the supervisor can each terminate the command without the other.

use std::fs::File;
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use crate::bench::{Bench, Process, Run};
use crate::faults::{STUBBORN, gone_before_taken, leader, two};

const LEASE: Duration = Duration::from_secs(15);

/// The processes of a command. Dropping this kills them, so that a failed test leaves none behind.
struct Doomed([Process; 2]);

impl Drop for Doomed {
    fn drop(&mut self) {
        for process in self.0 {
            if !process.is_dead() {
                process.signal(Signal::KILL);
            }
        }
    }
}

/// Starts [`STUBBORN`] with a lease of [`LEASE`]. Returns the run, its supervisor, and the processes of the command.
fn start(bench: &Bench, flags: &[&str]) -> (Run, Process, Doomed) {
    let flags = [&["--lease", "15s", "--grace", "200ms"], flags].concat();
    let mut run = bench.run(&flags, STUBBORN);
    let group = two(&mut run);
    let supervisor = leader(group).parent();
    (run, supervisor, Doomed(group))
}

#[test]
fn t69_the_supervisor_is_frozen_and_the_lock_is_broken() {
    let bench = Bench::new();
    let (run, supervisor, group) = start(&bench, &[]);
    let _frozen = supervisor.freeze();
    assert_eq!(bench.code(&["unlock", "--force", "job"]), 0);
    let broken = Instant::now();
    for process in group.0 {
        process.await_end();
    }
    // The wrapper notices the loss with its next renewal, a third of the lease later.
    assert!(broken.elapsed() < LEASE * 2 / 3, "{:?}", broken.elapsed());
    let (code, messages) = run.end();
    assert_eq!(code, Some(76), "{messages}");
}

#[test]
fn t69_the_supervisor_is_frozen_and_the_hold_reaches_its_cap() {
    let bench = Bench::new();
    let (run, supervisor, group) = start(&bench, &["--max-hold", "5s"]);
    let _frozen = supervisor.freeze();
    gone_before_taken(&bench, group.0);
    assert_eq!(run.end().0, Some(76));
}

#[test]
fn t69_the_command_ends_under_a_frozen_supervisor() {
    let bench = Bench::new();
    let mut run = bench.run(
        &["--lease", "6s", "--grace", "200ms"],
        "echo $$; read line; exit 4",
    );
    let command = run.pid();
    let _frozen = command.parent().freeze();
    drop(run.child.stdin.take());
    let (code, messages) = run.end();
    assert_eq!(code, Some(4), "{messages}");
    assert_eq!(bench.code(&["try", "job", "--", "true"]), 0, "released");
}

#[test]
fn t69_a_supervisor_that_was_frozen_past_the_lease_lets_the_command_go_on_if_the_lock_is_kept() {
    let bench = Bench::new();
    let mut run = bench.run(&["--lease", "6s"], "echo $$; read line; exit 4");
    let supervisor = run.pid().parent();
    let frozen = supervisor.freeze();
    // Two and a half leases.
    std::thread::sleep(Duration::from_secs(15));
    drop(frozen);
    drop(run.child.stdin.take());
    let (code, messages) = run.end();
    assert_eq!((code, messages.as_str()), (Some(4), ""));
}

#[test]
fn t69_nobody_reads_what_is_said() {
    let bench = Bench::new();
    let mut command = bench.tidelock(&["--lease", "15s", "run", "--grace", "200ms", "job", "--"]);
    command.args(["sh", "-c", STUBBORN]);
    let (unread, full) = full_pipe();
    let mut run = Run::start_saying(command, full.into());
    let group = Doomed(two(&mut run));
    assert_eq!(bench.code(&["unlock", "--force", "job"]), 0);
    let broken = Instant::now();
    for process in group.0 {
        process.await_end();
    }
    assert!(broken.elapsed() < LEASE * 2 / 3, "{:?}", broken.elapsed());
    assert_eq!(run.end().0, Some(76));
    drop(unread);
}

/// A pipe whose buffer is full: a write blocks until somebody reads from it.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let (reader, writer) = std::io::pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&writer, &[b'x'; 4096]).is_ok() {}
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

/// How `killall` and `pkill` select processes.
#[derive(Debug, Clone, Copy)]
enum Chosen {
    /// By the name of the process, or by its `argv[0]`: `killall NAME`, `pkill NAME`.
    ByName,
    /// By any part of its command line: `pkill -f NAME`.
    ByCommandLine,
}

#[test]
fn t69_a_kill_by_name_spares_the_supervisor() {
    for how in [Chosen::ByName, Chosen::ByCommandLine] {
        let bench = Bench::new();
        // No other process on this machine has this name.
        let name = format!("tl{}", std::process::id());
        let program = bench.path(&name);
        symlink(env!("CARGO_BIN_EXE_tidelock"), &program).unwrap();
        let mut command = bench.program(program.to_str().unwrap());
        command.args(["--lease", "15s", "run", "--grace", "200ms", &name, "--"]);
        command.args(["sh", "-c", STUBBORN]);
        let mut run = Run::start(command);
        let group = Doomed(two(&mut run));
        let chosen = named(&name, how);
        assert!(chosen.contains(&run.process().0), "{how:?}: {chosen:?}");
        for process in chosen {
            Process(process).signal(Signal::KILL);
        }
        let killed = Instant::now();
        for process in group.0 {
            process.await_end();
        }
        assert!(killed.elapsed() < LEASE, "{how:?}: {:?}", killed.elapsed());
    }
}

/// The processes that this name selects.
fn named(name: &str, how: Chosen) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").unwrap();
    let all = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    all.filter(|process: &i32| {
        let file = |what| std::fs::read_to_string(format!("/proc/{process}/{what}"));
        let comm = file("comm").unwrap_or_default();
        let line = file("cmdline").unwrap_or_default();
        let program = line.split('\0').next().unwrap_or_default();
        match how {
            Chosen::ByName => comm.trim_end() == name || program.rsplit('/').next() == Some(name),
            Chosen::ByCommandLine => line.contains(name),
        }
    })
    .collect()
}

/// A message of the wrapper to the supervisor: a letter and a number.
fn message(letter: u8, number: u64) -> [u8; 9] {
    let mut bytes = [letter; 9];
    bytes[1..].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Sends what the wrapper sends first: a lock that is proved for a minute, the input of the command, and the command.
fn send_orders(link: &UnixStream, command: &[&str]) {
    let words: Vec<_> = command
        .iter()
        .map(|word| json!({ "Unix": word.as_bytes() }))
        .collect();
    let orders = json!({
        "name": "job",
        "grace_ms": 60_000,
        "merciful": false,
        "terminal": false,
        "command": words,
    });
    let (read, mut write) = std::io::pipe().unwrap();
    write.write_all(orders.to_string().as_bytes()).unwrap();
    let input = File::open("/dev/null").unwrap();
    let fds = [input.as_fd(), read.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let now = clock_gettime(ClockId::Boottime);
    let until = u64::try_from(now.tv_sec + 60).unwrap() * 1_000_000_000;
    let first = message(b'P', until);
    let bytes = [IoSlice::new(&first)];
    sendmsg(link, &bytes, &mut control, SendFlags::empty()).unwrap();
}

/// While the shim starts, the supervisor hears of the loss, or that the wrapper is dead. TERM is ignored, so nothing would end
/// the command in time once it has begun.
#[test]
fn t69_a_command_whose_lock_is_lost_before_it_begins_does_not_begin() {
    for is_told in [true, false] {
        let bench = Bench::new();
        let begun = bench.path("begun");
        let (ours, theirs) = UnixStream::pair().unwrap();
        send_orders(&ours, &["touch", begun.to_str().unwrap()]);
        if is_told {
            (&ours).write_all(&message(b'L', 0)).unwrap();
        }
        let ours = is_told.then_some(ours);
        let mut supervisor = bench.program("env");
        supervisor.arg("--ignore-signal=TERM");
        supervisor.args([env!("CARGO_BIN_EXE_tidelock"), "__supervise"]);
        supervisor.stdin(Stdio::from(OwnedFd::from(theirs)));
        let output = supervisor.output().unwrap();
        drop(ours);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(76), "{is_told}: {said}");
        let why = "tidelock: job: the lock was lost before the command began\n";
        assert_eq!(said, why, "{is_told}");
        assert!(!begun.exists(), "{is_told}");
    }
}
