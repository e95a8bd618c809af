//! `tidelock hold`: a lock for a caller that is not a child of tidelock.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::bench::{Bench, PATIENCE, Run, meanwhile};

fn hold(bench: &Bench, flags: &[&str]) -> Run {
    let mut args = vec!["hold", "job"];
    args.extend(flags);
    Run::start(bench.tidelock(&args))
}

#[test]
fn the_lock_is_held_until_the_input_ends() {
    let bench = Bench::new();
    let mut held = hold(&bench, &["--fenced"]);
    let line = held.line();
    assert!(line.starts_with("held job "), "{line}"); // and the token
    assert_eq!(bench.code(&["try", "job", "--", "true"]), 75);
    drop(held.child.stdin.take());
    assert_eq!(held.end().0, Some(0));
    assert_eq!(bench.code(&["try", "job", "--", "true"]), 0);
}

#[test]
fn an_input_that_does_not_block_is_not_an_end() {
    let bench = Bench::new();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let input = Stdio::from(OwnedFd::from(theirs));
    let mut held = Run::start_with(bench.tidelock(&["hold", "job"]), input, Stdio::piped());
    assert_eq!(held.line(), "held job");
    for _ in 0..4 {
        // It reads this, and then finds nothing to read.
        ours.write_all(b"still working\n").unwrap();
        assert_eq!(bench.code(&["try", "job", "--", "true"]), 75);
    }
    drop(ours);
    assert_eq!(held.end().0, Some(0));
    assert_eq!(bench.code(&["try", "job", "--", "true"]), 0);
}

/// As that of a job in the background of a script.
#[test]
fn dev_null_as_input_is_refused_before_the_lock_is_taken() {
    let bench = Bench::new();
    let refused = bench.output(&["hold", "job"]);
    let told = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(64), "{told}");
    assert!(
        told.starts_with("tidelock: job: standard input is /dev/null"),
        "{told}"
    );
    assert!(refused.stdout.is_empty(), "{:?}", refused.stdout);
}

/// As of a script that gave `flock` the file. The end of a file is there from the beginning, also if it has lines.
#[test]
fn a_file_as_input_is_refused_before_the_lock_is_taken() {
    let bench = Bench::new();
    for text in ["", "deploy\n"] {
        let path = bench.path("input");
        std::fs::write(&path, text).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let mut held = bench.tidelock(&["hold", "job"]);
        let refused = held.stdin(file).output().unwrap();
        let told = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(64), "{told}");
        assert!(
            told.starts_with("tidelock: job: standard input is a file"),
            "{told}"
        );
        assert!(refused.stdout.is_empty(), "{:?}", refused.stdout);
    }
}

#[test]
fn an_input_that_had_ended_before_is_told() {
    let bench = Bench::new();
    let (input, caller) = std::io::pipe().unwrap();
    drop(caller);
    let mut held = Run::start_with(
        bench.tidelock(&["hold", "job"]),
        input.into(),
        Stdio::piped(),
    );
    assert_eq!(held.line(), "held job");
    let (code, messages) = held.end();
    assert_eq!(code, Some(0), "{messages}");
    let told = "tidelock: job: standard input had ended before the lock was held";
    assert!(messages.starts_with(told), "{messages}");
}

/// Starts it with its input open, sends a signal, and waits until it has said that it keeps the lock.
fn signalled(bench: &Bench, flags: &[&str]) -> Run {
    let mut held = hold(bench, flags);
    assert_eq!(held.line(), "held job");
    held.signal(Signal::TERM);
    until_still_held(&mut held);
    held
}

fn until_still_held(held: &mut Run) {
    let messages = held.child.stderr.take().unwrap();
    let mut message = String::new();
    BufReader::new(messages).read_line(&mut message).unwrap();
    let told = "tidelock: job: still held until the input ends";
    assert!(message.starts_with(told), "{message}");
}

/// A service manager tells the caller and `tidelock` at once, and the caller still works.
#[test]
fn a_signal_leaves_the_lock_to_the_caller() {
    let bench = Bench::new();
    let mut held = signalled(&bench, &[]);
    assert_eq!(bench.code(&["try", "job", "--", "true"]), 75);
    drop(held.child.stdin.take());
    assert_eq!(held.line(), "", "it is not lost");
    assert_eq!(held.end().0, Some(0));
    assert_eq!(bench.code(&["try", "job", "--", "true"]), 0);
}

#[test]
fn a_second_signal_tells_the_caller_and_releases_the_lock() {
    let bench = Bench::new();
    let mut held = signalled(&bench, &[]);
    let (process, input) = (held.process(), held.child.stdin.take());
    let told = meanwhile(move || {
        let line = held.line();
        (held, line)
    });
    let begun = Instant::now();
    let (held, line) = loop {
        assert!(begun.elapsed() < PATIENCE, "it is deaf");
        // In the first second it is the same request.
        process.signal(Signal::TERM);
        if let Ok(told) = told.recv_timeout(Duration::from_millis(100)) {
            break told;
        }
    };
    assert_eq!(line, "lost job");
    assert_eq!(held.end().0, Some(143));
    assert_eq!(bench.code(&["try", "job", "--", "true"]), 0);
    drop(input);
}

/// `timeout` sends its signal to the process, and to the group of the process.
#[test]
fn signals_that_come_together_are_one_request() {
    let bench = Bench::new();
    let mut held = hold(&bench, &[]);
    assert_eq!(held.line(), "held job");
    // Both are there when it goes on.
    let frozen = held.process().freeze_between_writes();
    held.signal(Signal::TERM);
    held.signal(Signal::INT);
    drop(frozen);
    until_still_held(&mut held);
    assert_eq!(bench.code(&["try", "job", "--", "true"]), 75);
    drop(held.child.stdin.take());
    assert_eq!(held.line(), "", "it is not lost");
    assert_eq!(held.end().0, Some(0));
}

#[test]
fn a_loss_after_a_signal_is_told() {
    let bench = Bench::new();
    let mut held = signalled(&bench, &["--lease", "6s"]);
    assert_eq!(bench.code(&["unlock", "--force", "job"]), 0);
    assert_eq!(held.line(), "lost job");
    let input = held.child.stdin.take();
    assert_eq!(held.end().0, Some(76));
    drop(input);
}

#[test]
fn a_loss_ends_it_with_76_while_the_input_is_open() {
    let bench = Bench::new();
    let mut held = hold(&bench, &["--max-hold", "5s"]);
    assert!(held.line().starts_with("held job"));
    let input = held.child.stdin.take();
    let (code, messages) = held.end();
    drop(input);
    assert_eq!(code, Some(76));
    assert!(messages.starts_with("tidelock: job: lost: "), "{messages}");
}

#[test]
fn a_freeze_past_the_lease_ends_it_with_76_before_it_does_anything_else() {
    let bench = Bench::new();
    let mut held = Run::start(bench.tidelock(&["--lease", "6s", "hold", "job"]));
    assert!(held.line().starts_with("held job"));
    let frozen = held.process().freeze_between_writes();
    assert_eq!(
        bench.code(&["run", "job", "--wait", "30s", "--", "true"]),
        0
    );
    // The input ends during the freeze. The loss comes first.
    drop(held.child.stdin.take());
    drop(frozen);
    assert_eq!(held.line(), "lost job");
    let (code, messages) = held.end();
    assert_eq!(code, Some(76), "{messages}");
    assert!(messages.contains("job: lost: "), "{messages}");
}

#[test]
fn a_store_that_vanishes_ends_it_with_76() {
    let bench = Bench::new();
    let mut held = Run::start(bench.tidelock(&["--lease", "6s", "hold", "job"]));
    assert!(held.line().starts_with("held job"));
    let input = held.child.stdin.take();
    for file in std::fs::read_dir(bench.folder.path()).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    assert_eq!(held.line(), "lost job");
    let (code, messages) = held.end();
    drop(input);
    assert_eq!(code, Some(76), "{messages}");
}
