//! With `-v` each command names the store and its scope once. Without it the commands print nothing about them.

use std::io::{BufRead, BufReader};

use crate::bench::{Bench, Run};

#[test]
fn a_store_and_whom_it_covers_are_said_when_asked_for() {
    let bench = Bench::new();
    let told = format!(
        "tidelock: store: {} (all who use this file on this machine)",
        bench.url()
    );
    for command in [
        &["-v", "try", "job", "--", "true"][..],
        &["run", "-v", "job", "--", "true"],
        &["-v", "ls"],
        &["-v", "unlock", "--force", "job"],
    ] {
        let output = bench.output(command);
        let said = String::from_utf8(output.stderr).unwrap();
        let times = said.lines().filter(|line| *line == told).count();
        assert_eq!(times, 1, "{command:?}: {said}");
    }
}

#[test]
fn a_script_is_told_nothing_that_it_has_not_asked_for() {
    let bench = Bench::new();
    for command in [
        &["try", "job", "--", "true"][..],
        &["run", "job", "--", "true"],
    ] {
        let output = bench.output(command);
        assert_eq!(output.stderr, b"", "{command:?}");
    }
}

#[test]
fn objects_name_their_store() {
    let bench = Bench::new();
    let mut holder = bench.run(&[], "echo in; read line; exit 0");
    assert_eq!(holder.line(), "in");
    for command in [
        &["show", "--json"][..],
        &["ls", "--json"],
        &["doctor", "--json"],
    ] {
        let output = bench.output(command);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(!said.is_empty(), "{command:?}");
        for line in said.lines() {
            let object: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(object["store"]["url"], bench.url(), "{line}");
            let covers = "all who use this file on this machine";
            assert_eq!(object["store"]["covers"], covers, "{line}");
        }
    }
    drop(holder.child.stdin.take());
    assert_eq!(holder.end().0, Some(0));
}

/// What `-v` says of a run, and what only `-vv` says.
#[test]
fn verbose_tells_the_store_and_each_step() {
    let bench = Bench::new();
    let said = |args: &[&str]| {
        let output = bench.output(args);
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stderr).unwrap()
    };
    let quiet = said(&["run", "job", "--", "true"]);
    assert_eq!(quiet, "");
    let steps = ["connected", "store: sqlite:", "acquired", "released"];
    let verbose = said(&["-v", "run", "job", "--", "true"]);
    let mut rest = &*verbose;
    for step in steps {
        let (_, after) = rest
            .split_once(step)
            .unwrap_or_else(|| panic!("no {step}: {verbose}"));
        rest = after;
    }
    assert!(verbose.lines().all(|line| line.starts_with("tidelock: ")));
    assert!(!verbose.contains("asking the store"), "{verbose}");
    let more = said(&["-vv", "run", "job", "--", "true"]);
    assert!(more.contains("asking the store for the lock"), "{more}");
}

#[test]
fn verbose_tells_a_wait_a_renewal_and_a_loss() {
    let bench = Bench::new();
    let mut held = bench.run(&[], "echo in; read line; exit 0");
    assert_eq!(held.line(), "in");
    let args = ["-v", "run", "job", "--wait", "2s", "--", "true"];
    let waited = bench.output(&args);
    let waited = String::from_utf8(waited.stderr).unwrap();
    assert!(
        waited.contains("the lock is held; waiting for it"),
        "{waited}"
    );
    drop(held.child.stdin.take());
    assert_eq!(held.end().0, Some(0));

    let mut lost = Run::start(bench.tidelock(&["-v", "--lease", "1s", "hold", "job"]));
    assert!(lost.line().starts_with("held job"));
    assert_eq!(bench.code(&["unlock", "--force", "job"]), 0);
    let input = lost.child.stdin.take();
    let (code, messages) = lost.end();
    drop(input);
    assert_eq!(code, Some(76));
    assert!(messages.contains("tidelock: job: lost: "), "{messages}");

    let mut renewed = Run::start(bench.tidelock(&["-v", "--lease", "3s", "hold", "job"]));
    let messages = renewed.child.stderr.take().unwrap();
    let mut lines = BufReader::new(messages).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("renewed")));
    drop(renewed.child.stdin.take());
    drop(lines);
    renewed.process().await_end();
}
