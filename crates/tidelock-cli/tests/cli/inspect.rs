//! Commands that inspect locks.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::bench::{Bench, Run};

fn parsed(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap()
}

pub(crate) fn user() -> String {
    let id = std::process::Command::new("id")
        .arg("-un")
        .output()
        .unwrap();
    String::from_utf8(id.stdout).unwrap().trim().to_owned()
}

#[test]
fn show_and_ls_tell_who_holds_what() {
    let bench = Bench::new();
    let mut run = bench.run(&["--fenced"], "echo in; read line");
    assert_eq!(run.line(), "in");
    let shown = bench.shown("job");
    assert_eq!(shown["name"], "job");
    assert_eq!(shown["locked"], true);
    assert_eq!(shown["token"], 1);
    let holder = &shown["holders"][0];
    assert_eq!(holder["pid"], run.child.id());
    assert_eq!(
        (&holder["program"], &holder["user"]),
        (&json!("sh"), &json!(user()))
    );
    assert_eq!(holder["holds"], 1);
    assert_eq!(holder["mode"], "exclusive");
    assert!(holder["since"].as_str().unwrap().ends_with('Z'));
    assert!((1..=30_000).contains(&shown["expires_in_ms"].as_u64().unwrap()));
    let text = String::from_utf8(bench.output(&["show"]).stdout).unwrap();
    let sh = format!("job: held by sh as {} (pid ", user());
    assert!(text.starts_with(&sh), "{text}");
    assert_eq!(bench.output(&["ls", "j*"]).stdout, b"job\n");
    assert_eq!(bench.output(&["ls", "x*"]).stdout, b"");
    assert_eq!(
        bench.output(&["ls", "--modes"]).stdout,
        b"job\texclusive\t1\n"
    );
    assert_eq!(
        parsed(&bench.output(&["ls", "--json"]).stdout)["name"],
        "job"
    );
    assert!(
        bench
            .output(&["show", "other"])
            .stdout
            .starts_with(b"other: free")
    );
}

/// The arguments may contain secrets.
#[test]
fn the_holder_is_the_program_of_the_command_without_its_folder_and_arguments() {
    let bench = Bench::new();
    let args = ["run", "job", "--", "/bin/sh", "-c", "echo in; read hunter2"];
    let mut run = Run::start(bench.tidelock(&args));
    assert_eq!(run.line(), "in");
    let shown = bench.shown("job");
    assert_eq!(shown["holders"][0]["program"], "sh");
    assert!(!shown.to_string().contains("hunter2"));
}

#[test]
fn a_store_without_held_locks_says_so_on_stderr() {
    let bench = Bench::with_a_store();
    for command in ["ls", "show"] {
        let output = bench.output(&[command]);
        assert_eq!(output.stdout, b"", "{command}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, "tidelock: no locks are held\n", "{command}");
    }
}

#[test]
fn a_prefix_is_said_once() {
    let bench = Bench::new();
    let mut run = Run::start(bench.tidelock(&[
        "--prefix",
        "shop:",
        "run",
        "job",
        "--",
        "sh",
        "-c",
        "echo in; read line",
    ]));
    assert_eq!(run.line(), "in");
    let shown = bench.output(&["--prefix", "shop:", "show"]).stdout;
    assert!(shown.starts_with(b"shop:job: held by "), "{shown:?}");
    assert_eq!(
        bench.output(&["--prefix", "shop:", "ls", "job"]).stdout,
        b"shop:job\n"
    );
}

/// `ls` prints names with the prefix, and a user gives them to the next command as they are.
#[test]
fn a_name_that_begins_with_the_prefix_is_told() {
    let bench = Bench::with_a_store();
    let said = |args: &[&str]| {
        let mut command = bench.tidelock(args);
        command.env("TIDELOCK_PREFIX", "shop:").stdin(Stdio::null());
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    for args in [
        &["show", "shop:job"][..],
        &["show", "other", "shop:job"],
        &["ls", "shop:job"],
        &["unlock", "--force", "shop:job"],
        &["token", "shop:job", "--at-least", "7"],
        &["leader", "shop:job"],
        &["history", "shop:job"],
        &["-v", "try", "shop:job", "--", "true"],
        &["-v", "try", "--also", "shop:job", "other", "--", "true"],
    ] {
        let told = "tidelock: shop:shop:job: the prefix shop: is added to the name; for the lock shop:job ";
        let said = said(args);
        assert_eq!(said.matches(told).count(), 1, "{args:?}: {said}");
    }
    for args in [
        &["show", "job", "workshop:job"][..],
        &["show", "--prefix=", "shop:job"],
        // Nobody reads it: cron would send a mail.
        &["try", "shop:job", "--", "true"],
    ] {
        assert_eq!(said(args), "", "{args:?}");
    }
}

/// A lock that is named as the prefix of others has no name behind that prefix.
#[test]
fn a_name_that_cannot_be_shown_hides_no_other() {
    let bench = Bench::new();
    let prefix = ["--prefix", "shop:"];
    let mut bare = Run::start(bench.tidelock(&["hold", "shop:"]));
    assert_eq!(bare.line(), "held shop:");
    let show = [&prefix[..], &["show"]].concat();
    let alone = bench.output(&show);
    assert_eq!(alone.status.code(), Some(64), "nothing could be shown");
    let mut stock = Run::start(bench.tidelock(&[&prefix[..], &["hold", "stock"]].concat()));
    assert_eq!(stock.line(), "held shop:stock");
    let modes = [&prefix[..], &["ls", "--modes"]].concat();
    for (command, shown) in [
        (&show, &["shop:stock: held by "][..]),
        (&modes, &["shop:stock\texclusive\t1\n", "shop:\t?\t?\n"]),
    ] {
        let output = bench.output(command);
        assert_eq!(output.status.code(), Some(0), "{command:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        for part in shown {
            assert!(printed.contains(part), "{command:?}: {printed}");
        }
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("shop:: cannot be shown: "), "{said}");
    }
}

#[test]
fn watch_tells_every_change() {
    let bench = Bench::with_a_store();
    let mut watch = Run::start(bench.tidelock(&["watch", "--json", "--every", "10ms", "job"]));
    let mut next = || -> Value { serde_json::from_str(&watch.line()).unwrap() };
    assert_eq!(next()["locked"], false);
    let mut run = bench.run(&[], "echo in; read line");
    assert_eq!(run.line(), "in");
    let seen = next();
    assert_eq!(
        (&seen["locked"], &seen["holders"][0]["holds"]),
        (&Value::from(true), &Value::from(1))
    );
    drop(run.child.stdin.take());
    run.end();
    // The details of the holder may be written after its lock.
    while next()["locked"] == true {}
    watch.signal(rustix::process::Signal::INT);
    assert_eq!(watch.end().0, Some(0));
}

/// The first process of a container does not die of a signal that it does not catch.
#[test]
fn what_shows_changes_ends_in_order_when_it_is_told_to() {
    let bench = Bench::with_a_store();
    for args in [
        &["watch", "job"][..],
        &["leader", "job", "--watch"],
        &["top"],
    ] {
        let mut shown = Run::start(bench.tidelock(args));
        assert!(!shown.line().is_empty(), "{args:?}");
        shown.signal(rustix::process::Signal::TERM);
        let (code, messages) = shown.end();
        assert_eq!(code, Some(0), "{args:?}: {messages}");
    }
}

/// Nothing changes, so nothing is written that could fail.
#[test]
fn watch_ends_when_nobody_reads_it_any_more() {
    let bench = Bench::with_a_store();
    for args in [
        &["watch", "job", "--every", "10ms"][..],
        &["leader", "job", "--watch"],
    ] {
        let mut watch = Run::start(bench.tidelock(args));
        assert!(!watch.line().is_empty(), "{args:?}");
        watch.leave_unread();
        let (code, messages) = watch.end();
        assert_eq!(code, Some(141), "{args:?}: {messages}");
    }
}

#[test]
fn unlock_wants_to_be_forced() {
    let bench = Bench::with_a_store();
    let refused = bench.output(&["unlock", "job"]);
    assert_eq!(refused.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--force"));
    assert_eq!(
        bench.output(&["unlock", "--force", "job"]).stderr,
        b"tidelock: job: was free\n"
    );
}

#[test]
fn unlock_spares_a_holder_that_is_not_the_expected_one() {
    let bench = Bench::new();
    let owner = || {
        let shown = bench.output(&["show", "job", "--json"]).stdout;
        let shown: Value = serde_json::from_slice(&shown).unwrap();
        let token = shown["token"].as_u64().unwrap().to_string();
        (
            shown["holders"][0]["owner"].as_str().unwrap().to_owned(),
            token,
        )
    };
    let mut first = bench.run(&["--fenced"], "echo in; read line");
    assert_eq!(first.line(), "in");
    let (former, token) = owner();
    first.signal(rustix::process::Signal::TERM);
    first.end();
    let mut second = bench.run(&["--fenced"], "echo in; read line");
    assert_eq!(second.line(), "in");
    let (holder, newest) = owner();
    for expected in [
        &["--owner", &former][..],
        &["--token", &token],
        &["--owner", &holder, "--token", &token],
        &["--owner", &former, "--token", &newest],
    ] {
        let refused = bench.output(&[&["unlock", "--force", "job"], expected].concat());
        assert_eq!(refused.status.code(), Some(1), "{expected:?}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            said.contains("not unlocked") && said.contains("held by sh"),
            "{said}"
        );
        assert_eq!(owner().0, holder);
    }
    let expected = ["--owner", &former, "--owner", &holder, "--token", &newest];
    let done = bench.output(&[&["unlock", "--force", "job"], &expected[..]].concat());
    assert_eq!(done.stderr, b"tidelock: job: unlocked\n");
    let again = bench.output(&["unlock", "--force", "job", "--owner", &holder]);
    assert_eq!(
        (again.status.code(), &*again.stderr),
        (Some(0), &b"tidelock: job: was free\n"[..])
    );
}

/// The findings of `tidelock doctor` that are dangers, and its exit code.
fn dangers(bench: &Bench) -> (Vec<Value>, Option<i32>) {
    let examined = bench.output(&["doctor", "--json"]);
    let mut findings: Vec<Value> = serde_json::Deserializer::from_slice(&examined.stdout)
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert!(!findings.is_empty());
    findings.retain(|finding| finding["severity"] == "danger");
    (findings, examined.status.code())
}

#[test]
fn the_doctor_finds_no_danger_in_a_fresh_file() {
    let (dangers, code) = dangers(&Bench::with_a_store());
    assert_eq!((dangers, code), (Vec::new(), Some(0)));
}

#[cfg(unix)]
#[test]
fn the_doctor_finds_a_file_that_everybody_may_write() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::with_a_store();
    let open = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(bench.path("locks.db"), open).unwrap();
    let (dangers, code) = dangers(&bench);
    assert_eq!((dangers.len(), code), (1, Some(1)), "{dangers:?}");
}

/// A name that would forge a line and change colours, also by characters that JSON leaves as they are.
const EVIL: &str = "evil\nx: free\u{1b}[31m\u{9b}31m\u{202e}RED";

#[track_caller]
fn forges_nothing(text: &str) {
    let own_lines = text.replace(['\n', '\t'], "");
    let forged = own_lines.contains(|c: char| c.is_control() || c == '\u{202e}');
    assert!(!forged && !text.contains("\nx: free"), "{text:?}");
}

#[test]
fn a_name_cannot_forge_lines_or_colours() {
    let bench = Bench::new();
    let script = "echo in; read line";
    let mut holder = Run::start(bench.tidelock(&["run", EVIL, "--", "sh", "-c", script]));
    assert_eq!(holder.line(), "in");
    let mut watch = Run::start(bench.tidelock(&["watch", "--every", "10ms", EVIL]));
    let mut watch_json = Run::start(bench.tidelock(&["watch", "--json", EVIL]));
    for command in [
        &["ls"][..],
        &["ls", "--json"],
        &["ls", "--modes"],
        &["show"],
        &["show", "--json"],
        &["show", EVIL],
        &["-vv", "show", EVIL],
        &["try", EVIL, "--", "true"],
        &["-vv", "run", EVIL, "--wait", "1.1s", "--", "true"],
        &["-vv", "hold", EVIL, "--wait", "0"],
        &["unlock", EVIL],
        &["-vv", "unlock", EVIL, "--force"],
    ] {
        // `hold` refuses `/dev/null` before it asks for the lock.
        let mut program = bench.tidelock(command);
        let output = program.stdin(Stdio::piped()).output().unwrap();
        for text in [output.stdout, output.stderr] {
            let text = String::from_utf8(text).unwrap();
            forges_nothing(&text);
        }
    }
    for watch in [&mut watch, &mut watch_json] {
        let line = watch.line();
        assert!(line.contains("evil"), "{line}");
        forges_nothing(&line);
    }
    let object = watch_json.line();
    assert_eq!(
        serde_json::from_str::<Value>(&object).unwrap()["name"],
        EVIL
    );
    for watch in [watch, watch_json] {
        watch.signal(rustix::process::Signal::INT);
        assert_eq!(watch.end().0, Some(0));
    }
    drop(holder.child.stdin.take());
    let (code, messages) = holder.end(); // lost: it was unlocked by force
    assert!(code == Some(76) || code == Some(0), "{code:?}: {messages}");
    forges_nothing(&messages);
}

#[test]
fn a_held_lock_cannot_forge_lines_or_colours() {
    let bench = Bench::new();
    let mut held = Run::start(bench.tidelock(&["hold", EVIL]));
    forges_nothing(&held.line());
    drop(held.child.stdin.take());
    assert_eq!(held.end().0, Some(0));
}
