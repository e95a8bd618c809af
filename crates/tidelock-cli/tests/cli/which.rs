//! `run` and `hold` on several locks at once. The sides of read-write locks need a store that has them; those tests are
//! with the real servers.

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
    let refused = bench.output(&args);
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
    // A file has no read-write locks.
    let refused = bench.output(&["run", "a", "--read", "--", "true"]);
    assert_eq!(refused.status.code(), Some(64));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("read"), "{said}");
}
