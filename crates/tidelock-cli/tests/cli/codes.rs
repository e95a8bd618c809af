//! Exit codes are part of the API.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::bench::{Bench, Run};

/// 0, `doctor`'s 1, and the constants of the source. 128 + n is a row without a number of its own.
#[test]
fn every_exit_code_is_on_its_page() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = fs::read_to_string(here.join("src/exit.rs")).unwrap();
    let constants = source.lines().filter_map(|line| {
        let (_, code) = line
            .strip_prefix("pub(crate) const ")?
            .split_once(": u8 = ")?;
        code.strip_suffix(';')?.parse().ok()
    });
    let codes: BTreeSet<u8> = constants.chain([0, 1]).collect();
    assert!(codes.len() > 5, "{codes:?}");
    let page = fs::read_to_string(here.join("../../docs/exit-codes.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| "));
    let first_cells = rows.filter_map(|row| row.split(" |").next());
    let listed: BTreeSet<u8> = first_cells.filter_map(|it| it.parse().ok()).collect();
    assert_eq!(listed, codes);
    assert!(page.contains("\n| 128 + n |"));
}

#[test]
fn the_exit_code_is_the_commands() {
    let bench = Bench::new();
    assert_eq!(bench.code(&["run", "job", "--", "true"]), 0);
    assert_eq!(bench.code(&["run", "job", "--", "sh", "-c", "exit 3"]), 3);
    assert_eq!(
        bench.code(&["try", "job", "--", "sh", "-c", "exit 255"]),
        255
    );
}

#[test]
fn a_death_by_signal_is_128_and_its_number() {
    let bench = Bench::new();
    assert_eq!(
        bench.code(&["run", "job", "--", "sh", "-c", "kill -9 $$"]),
        137
    );
    assert_eq!(
        bench.code(&["run", "job", "--", "sh", "-c", "kill -TERM $$"]),
        143
    );
}

#[test]
fn a_command_that_is_not_there_or_cannot_be_executed_is_told_as_shells_do() {
    let bench = Bench::new();
    let absent = bench.output(&["run", "job", "--", "./no-such-command"]);
    assert_eq!(absent.status.code(), Some(127));
    assert!(
        absent
            .stderr
            .starts_with(b"tidelock: job: cannot run ./no-such-command: ")
    );
    assert_eq!(bench.code(&["run", "job", "--", "/etc/passwd"]), 126);
}

#[test]
fn wrong_usage_is_64() {
    let bench = Bench::new();
    for wrong in [
        &["run"][..],
        &["run", "job"],
        &["run", "--wait", "soon", "job", "--", "true"],
        &["run", "", "--", "true"],
        &["--lease", "0s", "run", "job", "--", "true"],
        &["--store", "carrier-pigeon:", "ls"],
        &["--store", "memory:", "ls"],
        &["unlock", "job"],
        &["demo", "--processes", "1", "--workers", "1"],
        &["frobnicate"],
    ] {
        let output = bench.output(wrong);
        assert_eq!(output.status.code(), Some(64), "{wrong:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("tidelock: "), "{wrong:?}: {said}");
    }
    assert_eq!(bench.code(&["--help"]), 0);
    assert_eq!(bench.code(&["--version"]), 0);
}

#[test]
fn a_store_out_of_reach_is_69_and_no_password_is_shown() {
    let bench = Bench::new();
    // Port 1 is privileged, so nothing listens there unless the owner of this machine has set it up.
    let output = bench.output(&[
        "--store",
        "redis://u:hush@127.0.0.1:1",
        "try",
        "job",
        "--",
        "true",
    ]);
    assert_eq!(output.status.code(), Some(69));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("hush"));
    assert!(
        output
            .stderr
            .starts_with(b"tidelock: job: the store cannot be reached")
    );
    // Nobody can create a file in `/proc`, not even root.
    let code = bench.code(&[
        "--store",
        "sqlite:/proc/locks.db",
        "try",
        "job",
        "--",
        "true",
    ]);
    assert_eq!(code, 69);
}

#[test]
fn a_lock_that_is_held_is_75() {
    let bench = Bench::new();
    let mut holder = bench.run(&[], "echo in; read line");
    assert_eq!(holder.line(), "in");
    bench.shown("job");
    let tried = bench.refused(&["try", "job", "--", "true"]);
    assert_eq!(tried.status.code(), Some(75));
    let told = String::from_utf8(tried.stderr).unwrap();
    assert!(
        told.starts_with("tidelock: job: not acquired: held by sh as "),
        "{told}"
    );
    assert_eq!(
        bench.code(&["run", "--wait", "5s", "job", "--", "true"]),
        75
    );
    drop(holder.child.stdin.take());
    assert_eq!(holder.end().0, Some(1)); // the exit code of `read` at the end of its input
    assert_eq!(bench.code(&["try", "job", "--", "true"]), 0);
}

#[test]
fn a_wait_ends_when_the_lock_is_free() {
    let bench = Bench::new();
    let mut holder = bench.run(&[], "echo in; read line; exit 0");
    assert_eq!(holder.line(), "in");
    let mut waiter = bench.run(&[], "echo in too");
    drop(holder.child.stdin.take());
    assert_eq!(waiter.line(), "in too");
    assert_eq!(holder.end().0, Some(0));
    assert_eq!(waiter.end().0, Some(0));
}

#[test]
fn a_cap_on_the_hold_is_76() {
    let bench = Bench::new();
    let run = bench.run(&["--max-hold", "200ms"], "exec sleep 1000");
    let (code, messages) = run.end();
    assert_eq!(code, Some(76), "{messages}");
}

#[test]
fn a_wait_that_ended_says_how_long_it_was_who_holds_the_lock_and_where() {
    let bench = Bench::new();
    let mut holder = bench.run(&[], "echo in; read line");
    assert_eq!(holder.line(), "in");
    bench.shown("job");
    let waited = bench.refused(&["run", "--wait", "3.5", "job", "--", "true"]);
    assert_eq!(waited.status.code(), Some(75));
    let told = String::from_utf8(waited.stderr).unwrap();
    let holder_pid = format!(" (pid {} on ", holder.child.id());
    for part in [
        "tidelock: job: not acquired within 3s 500ms: ",
        &holder_pid,
        "connected since ",
        "store: sqlite:",
        "`tidelock watch job`",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

fn with_prefix<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [&["--prefix", "shop:"], args].concat()
}

#[test]
fn the_command_that_a_refusal_suggests_shows_the_lock_that_was_refused() {
    let bench = Bench::new();
    let refused = |args: &[&str]| {
        let mut hold = bench.tidelock(&with_prefix(args));
        let refused = hold.stdin(Stdio::piped()).output().unwrap();
        assert_eq!(refused.status.code(), Some(75), "{args:?}");
        let told = String::from_utf8(refused.stderr).unwrap();
        told.split('`').nth(1).expect("a command").to_owned()
    };
    let here = Path::new(env!("CARGO_BIN_EXE_tidelock")).parent().unwrap();
    let path = format!("{}:{}", here.display(), std::env::var("PATH").unwrap());
    let mut holders = Vec::new();
    for name in ["job", "-x", "it's; false"] {
        let mut holder = Run::start(bench.tidelock(&with_prefix(&["hold", "--", name])));
        assert_eq!(holder.line(), format!("held shop:{name}"));
        holders.push(holder);
        let command = refused(&["hold", "--wait", "0", "--", name]);
        let mut shell = bench.program("sh");
        shell.args(["-c", &format!("exec {command}")]);
        shell.env("PATH", &path);
        let shown = Run::start(shell).line();
        let held = format!(" shop:{name}: held by ");
        assert!(shown.contains(&held), "{command}: {shown}");
    }
    let both = refused(&["hold", "--wait", "0", "--also", "other", "job"]);
    assert_eq!(both, "tidelock --prefix=shop: show job other");
}

#[test]
fn the_exit_code_of_a_conflict_can_be_chosen() {
    let bench = Bench::new();
    let mut holder = bench.run(&[], "echo in; read line");
    assert_eq!(holder.line(), "in");
    assert_eq!(bench.code(&["try", "-E", "9", "job", "--", "true"]), 9);
    // A store that has not answered within the wait names no other owner, so that is no conflict.
    let run = [
        "run",
        "--wait",
        "5s",
        "--conflict-exit-code",
        "0",
        "job",
        "--",
        "true",
    ];
    assert_eq!(bench.code(&run), 0);
    let mut hold = bench.tidelock(&["hold", "--wait", "5s", "-E", "9", "job"]);
    let refused = hold.stdin(Stdio::piped()).output().unwrap();
    assert_eq!(refused.status.code(), Some(9));
}

/// Cron sends a mail for each call that says something, and the slot of a job that fails may get many calls.
#[test]
fn a_call_that_runs_nothing_and_ends_with_0_is_silent() {
    let bench = Bench::new();
    let once = |flags: &[&str], name: &str, program: &str| {
        let slot = ["once", "--slot", "nov", "--retries", "0"];
        let output = bench.output(&[&slot[..], flags, &[name, "--", program]].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), said)
    };
    for (name, program, code, why) in [
        ("done", "true", 0, "the slot nov: done"),
        ("failed", "false", 1, "no attempt is left in the slot nov"),
    ] {
        assert_eq!(once(&[], name, program), (Some(code), String::new()));
        let (again, said) = once(&[], name, program);
        assert_eq!(again, Some(code), "{said}");
        assert_eq!(said.contains(why), code != 0, "{said}");
        let quiet = once(&["-E", "0"], name, program);
        assert_eq!(quiet, (Some(0), String::new()));
        for flags in [&["-E", "9"][..], &["-E", "0", "-v"]] {
            let (_, said) = once(flags, name, program);
            assert!(said.contains(why), "{flags:?}: {said}");
        }
    }
}
