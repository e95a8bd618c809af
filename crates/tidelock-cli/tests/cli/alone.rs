//! T69: the wrapper and the supervisor can each terminate the command without the other.

use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::bench::{Bench, Process, Run};
use crate::faults::{STUBBORN, gone_before_taken, leader, two};

const LEASE: Duration = Duration::from_secs(3);

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
    let flags = [&["--lease", "3s", "--grace", "200ms"], flags].concat();
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
    let (run, supervisor, group) = start(&bench, &["--max-hold", "1s"]);
    let _frozen = supervisor.freeze();
    gone_before_taken(&bench, group.0);
    assert_eq!(run.end().0, Some(76));
}

#[test]
fn t69_the_command_ends_under_a_frozen_supervisor() {
    let bench = Bench::new();
    let mut run = bench.run(
        &["--lease", "2s", "--grace", "200ms"],
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
    let mut run = bench.run(&["--lease", "1s"], "echo $$; read line; exit 4");
    let supervisor = run.pid().parent();
    let frozen = supervisor.freeze();
    std::thread::sleep(Duration::from_millis(2500));
    drop(frozen);
    drop(run.child.stdin.take());
    let (code, messages) = run.end();
    assert_eq!((code, messages.as_str()), (Some(4), ""));
}

#[test]
fn t69_nobody_reads_what_is_said() {
    let bench = Bench::new();
    let mut command = bench.tidelock(&["--lease", "3s", "run", "--grace", "200ms", "job", "--"]);
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
        command.args(["--lease", "3s", "run", "--grace", "200ms", &name, "--"]);
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
