//! `run` and `hold` on several locks at once, and on a side of a read-write lock.

use crate::bench::{Bench, Run};

fn start(bench: &Bench, args: &[&str]) -> Run {
    Run::start(bench.tidelock(args))
}

#[test]
fn several_locks_are_held_together() {
    let bench = Bench::new();
    let mut held = start(&bench, &["hold", "a", "--also", "b", "--also", "c"]);
    assert!(held.line().starts_with("held a+b+c"));
    for name in ["a", "b", "c"] {
        assert_eq!(bench.code(&["try", name, "--", "true"]), 75, "{name}");
    }
    drop(held.child.stdin.take());
    assert_eq!(held.end().0, Some(0));
    for name in ["a", "b", "c"] {
        assert_eq!(bench.code(&["try", name, "--", "true"]), 0, "{name}");
    }
}

#[test]
fn a_part_that_is_taken_leaves_the_others_free() {
    let bench = Bench::new();
    let mut held = start(&bench, &["hold", "b"]);
    assert!(held.line().starts_with("held b"));
    let args = ["try", "a", "--also", "b", "--", "true"];
    let refused = bench.refused(&args);
    assert_eq!(refused.status.code(), Some(75));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("a+b: not acquired: held by"), "{said}");
    assert_eq!(bench.code(&["try", "a", "--", "true"]), 0);
    drop(held.child.stdin.take());
    assert_eq!(held.end().0, Some(0));
}

#[test]
fn two_runs_with_the_names_in_opposite_orders_both_end() {
    let bench = Bench::new();
    let mut first = start(&bench, &["hold", "a"]);
    assert!(first.line().starts_with("held a"));
    let mut runs: Vec<Run> = [["a", "b"], ["b", "a"]]
        .iter()
        .map(|[one, other]| {
            let args = [
                "run", one, "--also", other, "--wait", "30s", "--", "echo", "ran",
            ];
            start(&bench, &args)
        })
        .collect();
    drop(first.child.stdin.take());
    for run in &mut runs {
        assert_eq!(run.line(), "ran");
    }
    for run in runs {
        assert_eq!(run.end().0, Some(0));
    }
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    let bench = Bench::new();
    for flags in [
        &["--read", "--write"][..],
        &["--read", "--fenced"],
        &["--write", "--also", "b"],
        &["--fenced", "--also", "b"],
    ] {
        let args = [&["run", "a"], flags, &["--", "true"]].concat();
        assert_eq!(bench.code(&args), 64, "{flags:?}");
    }
}

#[test]
fn commands_that_read_share_and_one_that_writes_is_alone() {
    let bench = Bench::new();
    let out = |args: &[&str]| String::from_utf8(bench.output(args).stdout).unwrap();
    let read = ["a", "--read", "--", "true"];
    let write = ["a", "--write", "--", "true"];
    let with = |verb, args: &[&str]| bench.code(&[&[verb], args].concat());
    let mut readers = [(); 2].map(|()| start(&bench, &["hold", "a", "--read"]));
    for reader in &mut readers {
        assert!(reader.line().starts_with("held a"));
    }
    assert_eq!(out(&["ls", "--modes"]), "a\tread\t2\n");
    assert_eq!(out(&["show", "a"]).matches(" to read").count(), 2);
    assert_eq!((with("run", &read), with("try", &write)), (0, 75));
    assert_eq!(bench.code(&["try", "a", "--", "true"]), 75);
    for mut reader in readers {
        drop(reader.child.stdin.take());
        assert_eq!(reader.end().0, Some(0));
    }
    let mut writer = start(&bench, &["hold", "a", "--write"]);
    assert!(writer.line().starts_with("held a"));
    assert_eq!(out(&["ls", "--modes"]), "a\twrite\t1\n");
    assert_eq!((with("try", &read), with("try", &write)), (75, 75));
    drop(writer.child.stdin.take());
    assert_eq!(writer.end().0, Some(0));
    assert_eq!((with("try", &read), with("try", &write)), (0, 0));
}
