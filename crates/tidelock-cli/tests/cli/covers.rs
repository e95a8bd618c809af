//! With `-v` each command names the store and its scope once. Without it the commands print nothing about them.

use crate::bench::Bench;

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
