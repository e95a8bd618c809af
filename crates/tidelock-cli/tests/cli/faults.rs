//! T62: whatever crashes, freezes or refuses to exit, the whole process group is gone before another client can take
//! the lease.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use crate::bench::{Bench, PATIENCE, Process, Run, meanwhile};

/// Long, so that a busy machine has half a second for what must be done by the end of the lease: no lease leaves more.
const LEASE: &str = "--lease=10s";

/// A command that ignores TERM and has a child that ignores it too.
pub(crate) const STUBBORN: &str = "trap '' TERM; sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' & echo $$; while :; do sleep 1; done";

/// Sends which of these processes were alive when another client had the lock. The command of that client looks, so it does not
/// matter when this process gets a processor.
fn next_holder(bench: &Bench, group: &[Process]) -> std::sync::mpsc::Receiver<Vec<String>> {
    let pids: Vec<String> = group.iter().map(|process| process.0.to_string()).collect();
    // As `Process::is_dead`: the state is the word after the name. No file, or none that can be read: it is gone.
    let script = format!(
        "for pid in {}; do if {{ read -r stat < /proc/$pid/stat; }} 2> /dev/null; then \
         stat=${{stat##*) }}; case ${{stat%% *}} in Z | X) ;; *) echo alive $pid ;; esac; fi; done; echo taken",
        pids.join(" ")
    );
    let mut waiter = bench.run(&["--lease", "30s"], &script);
    meanwhile(move || {
        let mut alive = Vec::new();
        loop {
            let line = waiter.line();
            if line == "taken" {
                return alive;
            }
            assert!(line.starts_with("alive "), "{line:?}");
            alive.push(line);
        }
    })
}

/// Both processes of [`STUBBORN`].
pub(crate) fn two(run: &mut Run) -> [Process; 2] {
    [run.pid(), run.pid()]
}

/// Fails unless the group is gone before another client has the lock.
pub(crate) fn gone_before_taken(bench: &Bench, group: [Process; 2]) {
    let taken = next_holder(bench, &group);
    for process in group {
        process.await_end();
    }
    let alive = taken
        .recv_timeout(PATIENCE)
        .expect("the lock is taken in the end");
    assert!(alive.is_empty(), "{alive:?} after the lock was taken");
}

#[test]
fn t62_the_wrapper_is_killed() {
    let bench = Bench::new();
    let mut run = bench.run(&[LEASE, "--grace", "200ms"], STUBBORN);
    let group = two(&mut run);
    run.signal(Signal::KILL);
    gone_before_taken(&bench, group);
}

#[test]
fn t62_the_wrapper_is_frozen() {
    let bench = Bench::new();
    let mut run = bench.run(&[LEASE, "--grace", "200ms"], STUBBORN);
    let group = two(&mut run);
    run.signal(Signal::STOP);
    gone_before_taken(&bench, group);
    run.signal(Signal::CONT);
    let (code, messages) = run.end();
    assert_eq!(code, Some(76), "{messages}");
    assert!(
        messages.contains("job: no renewal of the lock is known: ending the command"),
        "{messages}"
    );
}

#[test]
fn t62_the_supervisor_is_killed() {
    let bench = Bench::new();
    let mut run = bench.run(&["--lease", "20s"], STUBBORN);
    let group = two(&mut run);
    leader(group).parent().signal(Signal::KILL);
    gone_before_taken(&bench, group);
    assert_eq!(run.end().0, Some(137));
}

#[test]
fn t62_supervisor_and_wrapper_are_killed_at_once() {
    let bench = Bench::new();
    let mut run = bench.run(&[LEASE], "echo $$; exec sleep 1000");
    let command = run.pid();
    let supervisor = command.parent();
    // The wrapper is frozen first, so that only the supervisor can terminate the command.
    run.signal(Signal::STOP);
    supervisor.signal(Signal::KILL);
    run.signal(Signal::KILL);
    run.silence();
    command.await_end();
}

/// From here on the wrapper cannot write to the file of the locks: the kernel ends it with a signal at its next renewal.
#[test]
#[cfg(target_os = "linux")]
fn t62_the_wrapper_may_not_write_files_any_more() {
    let bench = Bench::new();
    let mut run = bench.run(&[LEASE, "--grace", "200ms"], STUBBORN);
    let group = two(&mut run);
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    prlimit(Pid::from_raw(run.process().0), Resource::Fsize, none).unwrap();
    gone_before_taken(&bench, group);
    let (code, messages) = run.end();
    assert!(code != Some(0), "{code:?}: {messages}");
}

#[test]
fn t62_the_lock_is_broken_while_the_command_runs() {
    let bench = Bench::new();
    let mut run = bench.run(&["--lease", "6s", "--grace", "100ms"], STUBBORN);
    let group = two(&mut run);
    assert_eq!(bench.code(&["unlock", "--force", "job"]), 0);
    run.silence();
    assert!(group.iter().all(|process| process.is_dead()));
    let (code, messages) = run.end();
    assert_eq!(code, Some(76), "{messages}");
    assert!(messages.contains("job: lost: "), "{messages}");
}

#[test]
fn a_lost_lock_may_be_told_only() {
    let bench = Bench::new();
    let mut run = bench.run(
        &["--lease", "6s", "--on-lost", "warn"],
        "echo in; read line; exit 5",
    );
    assert_eq!(run.line(), "in");
    assert_eq!(bench.code(&["unlock", "--force", "job"]), 0);
    let mut errors = std::io::BufReader::new(run.child.stderr.take().unwrap());
    let mut line = String::new();
    // Two processes report the loss, in either order.
    while !line.starts_with("tidelock: job: lost: ") {
        line.clear();
        let more = std::io::BufRead::read_line(&mut errors, &mut line).unwrap();
        assert!(more > 0, "the reason is told");
    }
    drop(run.child.stdin.take());
    assert_eq!(run.end().0, Some(5));
}

#[test]
fn a_command_that_ends_on_term_gets_no_kill() {
    let bench = Bench::new();
    let script = "trap 'echo cleaned; exit 0' TERM; echo in; while :; do read line; done";
    let mut run = bench.run(&["--lease", "6s"], script);
    assert_eq!(run.line(), "in");
    assert_eq!(bench.code(&["unlock", "--force", "job"]), 0);
    assert_eq!(run.line(), "cleaned");
    assert_eq!(run.end().0, Some(76));
}

#[test]
fn processes_left_in_the_group_end_before_the_release() {
    let bench = Bench::new();
    let script = "sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' & read line; exit 4";
    let mut run = bench.run(&["--grace", "100ms"], script);
    let left = run.pid();
    drop(run.child.stdin.take());
    let taken = next_holder(&bench, &[left]);
    left.await_end();
    let alive = taken.recv_timeout(PATIENCE).unwrap();
    assert!(alive.is_empty(), "{alive:?} after the release");
    assert_eq!(run.end().0, Some(4));
}

#[test]
fn a_stopped_command_ends_too() {
    let bench = Bench::new();
    let mut run = bench.run(
        &["--lease", "5s", "--grace", "20s"],
        "echo $$; exec sleep 1000",
    );
    let command = run.pid();
    command.signal(Signal::STOP);
    let begun = Instant::now();
    run.signal(Signal::KILL);
    command.await_end();
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn a_long_command_keeps_its_lock() {
    let bench = Bench::new();
    // The work lasts for two and a half leases.
    let mut run = bench.run(&["--lease", "6s"], "echo in; sleep 15; echo out");
    let lines = [run.line(), run.line()];
    let (code, messages) = run.end();
    assert_eq!((code, messages.as_str()), (Some(0), ""));
    assert_eq!(lines, ["in", "out"]);
}

/// The leader of the process group.
pub(crate) fn leader(group: [Process; 2]) -> Process {
    let leads = |process: &Process| process.group() == process.0;
    group.into_iter().find(leads).expect("one leads the group")
}

/// A daemon or a `git gc` in the background leaves orphans, which the supervisor adopts. As zombies they would count against
/// the limit of processes.
#[test]
fn orphans_of_a_command_do_not_stay_as_zombies() {
    let bench = Bench::new();
    let script = "for i in 1 2 3 4 5 6 7 8 9; do (true &); done; echo $$; read line";
    let mut run = bench.run(&[], script);
    let command = run.pid();
    let begun = Instant::now();
    // The command lives, and the supervisor has no other child.
    while command.parent().children() != [command.0] {
        assert!(begun.elapsed() < PATIENCE, "zombies are left");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(run.child.stdin.take());
    run.end();
}

/// The first process of a container gets the orphans of all others, and waits for its lock for any time.
#[test]
fn orphans_do_not_stay_as_zombies_while_a_command_waits_for_its_lock() {
    let bench = Bench::new();
    let mut holder = bench.run(&[], "echo in; read line");
    assert_eq!(holder.line(), "in");
    for wait in [
        &["run"][..],
        &["lead"],
        &["once", "--slot", "a", "--wait", "1m"],
    ] {
        // Its child is one that it does not know.
        let script = "true & exec \"$0\" \"$@\"";
        let mut command = bench.program("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_tidelock")]);
        command.args(wait).args(["job", "--", "true"]);
        let waiter = Run::start(command);
        waiter.process().await_handler(Signal::TERM);
        let begun = Instant::now();
        while !waiter.process().children().is_empty() {
            assert!(begun.elapsed() < PATIENCE, "{wait:?}: a zombie is left");
            std::thread::sleep(Duration::from_millis(5));
        }
        waiter.signal(Signal::TERM);
        let (code, messages) = waiter.end();
        assert_eq!(code, Some(143), "{wait:?}: {messages}");
    }
}

/// The supervisor cannot start the command: its words are more than the kernel takes with a small stack, which the process
/// gets while it waits for the lock. A child from before it became `tidelock` goes on.
#[test]
fn a_command_that_cannot_be_started_ends_the_run_beside_other_children() {
    let bench = Bench::new();
    let mut holder = bench.run(&[], "echo in; read line");
    assert_eq!(holder.line(), "in");
    let script = "sleep 60 > /dev/null 2>&1 & echo $!; exec \"$0\" \"$@\"";
    let word = "x".repeat(100_000);
    let mut command = bench.program("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_tidelock")]);
    command.args(["run", "job", "--", "true"]);
    command.args([word.as_str(); 12]);
    let mut run = Run::start(command);
    let other = run.pid();
    run.process().await_handler(Signal::TERM);
    let small = Rlimit {
        current: Some(4 << 20),
        maximum: Some(4 << 20),
    };
    prlimit(Pid::from_raw(run.process().0), Resource::Stack, small).unwrap();
    drop(holder.child.stdin.take());
    holder.end();
    let (code, messages) = run.end();
    assert!(!other.is_dead());
    other.signal(Signal::KILL);
    assert_eq!(code, Some(126), "{messages}");
    assert!(messages.contains("Argument list too long"), "{messages}");
    assert_eq!(bench.code(&["try", "job", "--", "true"]), 0, "released");
}

/// Perl, PHP and Python daemons often ignore CHLD so that the kernel reaps their children. `tidelock run` has its exit code from
/// its child.
#[test]
fn a_run_that_is_started_with_chld_ignored_has_the_exit_code_of_its_command() {
    let bench = Bench::new();
    for (script, code) in [("exit 0", 0), ("exit 3", 3)] {
        let mut command = bench.program("env");
        command
            .arg("--ignore-signal=CHLD")
            .arg(env!("CARGO_BIN_EXE_tidelock"));
        command.args(["run", "job", "--", "sh", "-c", script]);
        let output = command.stdin(std::process::Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
    }
}
