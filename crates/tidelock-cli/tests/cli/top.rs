//! `tidelock top` on a file.

use std::time::Instant;

use serde_json::Value;

use crate::bench::{Bench, PATIENCE, Run};

fn picture(bench: &Bench) -> Value {
    let output = bench.output(&["top", "--once", "--json"]);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn top_shows_a_held_lock_and_its_waiter_on_a_file() {
    let bench = Bench::new();
    let mut holder = bench.run(&["--fenced"], "echo in; read line");
    assert_eq!(holder.line(), "in");
    let mut waits = bench
        .tidelock(&["run", "job", "--", "true"])
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let lock = loop {
        let seen = picture(&bench);
        let lock = &seen["locks"][0];
        if lock["waiting"][0]["waiters"] == 1 && lock["held_for_ms"].is_u64() {
            break lock.clone();
        }
        assert!(begun.elapsed() < PATIENCE, "{seen}");
    };
    assert_eq!(lock["name"], "job");
    assert_eq!(lock["waiters"], 1);
    assert_eq!(lock["token"], 1);
    assert_eq!(lock["holders"][0]["gone"], false);
    let text = String::from_utf8(bench.output(&["top", "-n", "1"]).stdout).unwrap();
    assert!(!text.contains('\u{1b}'), "no terminal reads it: {text:?}");
    assert!(text.contains("contended 1  waiters 1"), "{text}");
    waits.kill().unwrap();
    waits.wait().unwrap();
}

/// Nobody has told `top` the names of the election and of the job.
#[test]
fn top_shows_who_leads_and_which_job_runs() {
    let bench = Bench::new();
    let lead = |identity: &str| {
        let args = ["lead", "billing", "--identity", identity, "--"];
        let script = ["sh", "-c", "echo in; read line"];
        Run::start(bench.tidelock(&[&args[..], &script].concat()))
    };
    let mut leader = lead("web-1");
    assert_eq!(leader.line(), "in");
    let _candidate = lead("web-2");
    let slot = ["once", "--slot", "nov", "report", "--"];
    let script = ["sh", "-c", "echo in; read line"];
    let mut job = Run::start(bench.tidelock(&[&slot[..], &script].concat()));
    assert_eq!(job.line(), "in");
    let begun = Instant::now();
    let seen = loop {
        let seen = picture(&bench);
        let count = |key: &str| seen[key].as_array().unwrap().len();
        if (count("elections"), count("jobs")) == (2, 1) {
            break seen;
        }
        assert!(begun.elapsed() < PATIENCE, "{seen}");
    };
    let (first, second) = (&seen["elections"][0], &seen["elections"][1]);
    assert_eq!(
        (&first["name"], &first["identity"]),
        (&"billing".into(), &"web-1".into())
    );
    assert_eq!((&first["leads"], &first["term"]), (&true.into(), &1.into()));
    assert_eq!(
        (&second["identity"], &second["leads"]),
        (&"web-2".into(), &false.into())
    );
    let job = &seen["jobs"][0];
    assert_eq!(
        (&job["name"], &job["slot"]),
        (&"report".into(), &"nov".into())
    );
    assert_eq!(
        (&job["state"], &job["attempt"]),
        (&"running".into(), &1.into())
    );
    let text = String::from_utf8(bench.output(&["top", "--once"]).stdout).unwrap();
    let leads = |line: &str| line.starts_with("billing") && line.contains("  leads  ");
    assert!(text.lines().any(leads), "{text}");
}

#[test]
fn top_says_what_its_numbers_may_be() {
    let bench = Bench::with_a_store();
    for wrong in [
        &["top", "-n", "0"][..],
        &["top", "--once", "-n", "2"],
        &["top", "--every", "x"],
        &["top", "--replay", "file", "--scan"],
    ] {
        assert_eq!(bench.code(wrong), 64, "{wrong:?}");
    }
    let text = String::from_utf8(bench.output(&["top", "--once"]).stdout).unwrap();
    assert!(text.starts_with("tidelock top  sqlite:"), "{text}");
}

#[test]
fn a_recording_is_shown_again_without_a_store() {
    let bench = Bench::new();
    let mut holder = bench.run(&["--fenced"], "echo in; read line");
    assert_eq!(holder.line(), "in");
    let file = bench.path("seen.jsonl");
    let name = file.to_str().unwrap();
    let args = [
        "top", "-n", "2", "--every", "1s", "--json", "--record", name,
    ];
    let printed = bench.output(&args).stdout;
    assert_eq!(std::fs::read(&file).unwrap(), printed);
    let replay = ["--store", "sqlite:no/such/file.db", "top", "--replay", name];
    let again = bench.output(&replay);
    let text = String::from_utf8(again.stdout).unwrap();
    assert_eq!(text.matches("tidelock top  sqlite:").count(), 2, "{text}");
    assert!(
        again.status.success() && !text.contains("no/such"),
        "{text}"
    );
    let again = bench.output(&["top", "--replay", name, "--json"]).stdout;
    assert_eq!(again, printed, "a recording again");
    let missing = ["top", "--replay", "no/such/file"];
    assert_eq!(bench.code(&missing), 64);
}
