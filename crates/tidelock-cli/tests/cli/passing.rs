//! What `run` passes on to the command: streams, signals, the environment.

use std::io::{Read, Write};
use std::process::Stdio;

use rustix::process::Signal;

use crate::bench::{Bench, Run};

#[test]
fn stdin_and_stdout_pass_through_untouched() {
    let bench = Bench::new();
    let mut child = bench
        .tidelock(&["run", "job", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let data: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut input = child.stdin.take().unwrap();
    let sent = data.clone();
    let writer = std::thread::spawn(move || input.write_all(&sent).unwrap());
    let mut got = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut got).unwrap();
    writer.join().unwrap();
    assert!(child.wait().unwrap().success());
    assert!(got == data, "{} of {} bytes", got.len(), data.len());
}

#[test]
fn signals_are_handed_on() {
    let bench = Bench::new();
    for (name, signal) in [
        ("INT", Signal::INT),
        ("TERM", Signal::TERM),
        ("HUP", Signal::HUP),
        ("QUIT", Signal::QUIT),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("WINCH", Signal::WINCH),
    ] {
        let script =
            format!("trap 'echo got {name}; exit 7' {name}; echo in; while :; do read line; done");
        let mut run = bench.run(&[], &script);
        assert_eq!(run.line(), "in");
        run.signal(signal);
        assert_eq!(run.line(), format!("got {name}"));
        assert_eq!(run.end().0, Some(7), "{name}");
    }
}

#[test]
fn a_signal_that_kills_the_command_is_its_exit_code() {
    let bench = Bench::new();
    // A terminal sends HUP when it hangs up.
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let mut run = bench.run(&[], "echo in; exec sleep 1000");
        assert_eq!(run.line(), "in");
        run.signal(signal);
        assert_eq!(run.end().0, Some(code));
        assert_eq!(bench.code(&["try", "job", "--", "true"]), 0, "released");
    }
}

#[test]
fn a_signal_while_waiting_ends_the_wait_and_leaves_nothing() {
    let bench = Bench::new();
    let mut holder = bench.run(&[], "echo in; read line; exit 0");
    assert_eq!(holder.line(), "in");
    let mut waiter = bench.tidelock(&["run", "job", "--", "true"]);
    // With this lease, a lock that the waiter left behind would block the last `try` for a minute.
    waiter.env("TIDELOCK_LEASE_MS", "60000");
    let waiter = Run::start(waiter);
    // From here on, a signal before or after the first request leaves nothing behind.
    waiter.process().await_handler(Signal::TERM);
    waiter.signal(Signal::TERM);
    assert_eq!(waiter.end().0, Some(143));
    drop(holder.child.stdin.take());
    assert_eq!(holder.end().0, Some(0));
    assert_eq!(bench.code(&["try", "job", "--", "true"]), 0);
}

#[test]
fn the_command_knows_its_lock_and_not_the_password() {
    let bench = Bench::new();
    let script = "echo $TIDELOCK_NAME; echo ${TIDELOCK_TOKEN-none}; echo ${TIDELOCK_PASSWORD-none}; echo $TIDELOCK_OWNER";
    let mut command = bench.tidelock(&[
        "--prefix", "shop:", "run", "--fenced", "stock", "--", "sh", "-c", script,
    ]);
    command.env("TIDELOCK_PASSWORD", "hush");
    let mut run = Run::start(command);
    assert_eq!(run.line(), "shop:stock");
    assert_eq!(run.line(), "1");
    assert_eq!(run.line(), "none");
    assert!(run.line().ends_with(":1"));
    assert_eq!(run.end().0, Some(0));
}

#[test]
fn no_descriptor_leaks_into_the_command() {
    let bench = Bench::new();
    let count = |through: bool| {
        let script = "ls /proc/self/fd | wc -l";
        let output = if through {
            bench.output(&["run", "job", "--", "sh", "-c", script])
        } else {
            std::process::Command::new("sh")
                .args(["-c", script])
                .stdin(Stdio::null())
                .output()
                .unwrap()
        };
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(count(true), count(false));
}
