//! `tidelock lead` and `tidelock leader`: a command on the elected machine.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::bench::{Bench, PATIENCE, Process, Run};

const SCRIPT: &str = "echo in $TIDELOCK_TERM $TIDELOCK_TOKEN; sleep 600";

fn lead(bench: &Bench, identity: &str, script: &str) -> Run {
    let args = ["lead", "billing", "--identity", identity, "--"];
    Run::start(bench.tidelock(&[&args[..], &["sh", "-c", script]].concat()))
}

/// Waits until so many candidates wait to lead.
fn listed(bench: &Bench, wanted: usize) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = tidelock::Client::connect(&bench.url()).await.unwrap();
        let election = client.election("billing");
        let end = Instant::now() + PATIENCE;
        while election.candidates().await.unwrap().len() != wanted {
            assert!(Instant::now() < end, "not all campaign");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        client.close(Duration::ZERO).await;
    });
}

/// The term of a line `in TERM TOKEN`.
fn term(line: &str) -> u64 {
    let mut words = line.split(' ');
    assert_eq!(words.next(), Some("in"), "{line}");
    let (term, token) = (words.next().unwrap(), words.next().unwrap());
    assert_eq!(term, token, "{line}");
    term.parse().unwrap()
}

fn leader(bench: &Bench) -> String {
    let said = bench.output(&["leader", "billing"]);
    assert!(said.status.success(), "{said:?}");
    String::from_utf8(said.stdout).unwrap()
}

#[test]
fn a_successor_leads_when_the_leader_is_terminated() {
    let bench = Bench::new();
    let mut first = lead(&bench, "web-1", SCRIPT);
    let old = term(&first.line());
    assert!(leader(&bench).starts_with("billing: web-1 leads"));
    let mut second = lead(&bench, "web-2", SCRIPT);
    second.process().await_handler(Signal::TERM);
    first.signal(Signal::TERM);
    assert_eq!(first.end().0, Some(143));
    assert!(term(&second.line()) > old);
    assert!(leader(&bench).starts_with("billing: web-2 leads"));
    second.signal(Signal::TERM);
    assert_eq!(second.end().0, Some(143));
    assert_eq!(leader(&bench), "billing: nobody leads\n");
}

#[test]
fn a_leader_that_loses_its_lock_starts_its_command_again() {
    let bench = Bench::new();
    let mut only = lead(
        &bench,
        "web-1",
        "trap 'echo out; exit' TERM; echo in $TIDELOCK_TERM $TIDELOCK_TOKEN; sleep 600 & wait",
    );
    let old = term(&only.line());
    assert_eq!(bench.code(&["unlock", "billing", "--force"]), 0);
    // The old command has ended before the new one begins.
    assert_eq!(only.line(), "out");
    assert!(term(&only.line()) > old);
    only.signal(Signal::TERM);
    only.end();
}

/// The command handles a signal that ends others, and goes on. The signal is no request to leave at a later loss.
fn campaigns_again_after(signal: Signal, name: &str) {
    let bench = Bench::new();
    let script = format!(
        "trap 'echo again' {name}; echo in $TIDELOCK_TERM $TIDELOCK_TOKEN; while :; do sleep 600 & wait; done"
    );
    let mut only = lead(&bench, "web-1", &script);
    let old = term(&only.line());
    only.signal(signal);
    assert_eq!(only.line(), "again");
    assert_eq!(bench.code(&["unlock", "billing", "--force"]), 0);
    assert!(term(&only.line()) > old);
    only.signal(Signal::TERM);
    only.end();
}

/// A HUP asks many daemons to read their configuration again.
#[test]
fn a_leader_whose_command_was_hung_up_campaigns_again_after_a_loss() {
    campaigns_again_after(Signal::HUP, "HUP");
}

/// A JVM answers a QUIT with the stacks of its threads.
#[test]
fn a_leader_whose_command_was_asked_for_its_threads_campaigns_again_after_a_loss() {
    campaigns_again_after(Signal::QUIT, "QUIT");
}

/// While the command is being terminated, a QUIT has no meaning for it any more.
#[test]
fn a_leader_that_gets_a_quit_while_it_loses_its_command_leaves() {
    let bench = Bench::new();
    let mut only = lead(
        &bench,
        "web-1",
        "trap 'echo asked' TERM; trap 'echo quit; exit' QUIT; echo in $TIDELOCK_TERM $TIDELOCK_TOKEN; while :; do sleep 600 & wait; done",
    );
    term(&only.line());
    assert_eq!(bench.code(&["unlock", "billing", "--force"]), 0);
    // It is terminated, and has its grace.
    assert_eq!(only.line(), "asked");
    only.signal(Signal::QUIT);
    assert_eq!(only.line(), "quit");
    assert_eq!(only.end().0, Some(76));
}

#[test]
fn a_leader_that_was_frozen_ends_its_command_before_another_leads() {
    let bench = Bench::new();
    // Long, so that a busy machine has half a second to end the command before the lease ends.
    let mut args = vec!["--lease", "10s", "lead", "billing", "--", "sh", "-c"];
    args.push("echo $$; echo in $TIDELOCK_TERM $TIDELOCK_TOKEN; sleep 600");
    let mut first = Run::start(bench.tidelock(&args));
    let command = Process(first.line().parse().unwrap());
    let old = term(&first.line());
    let mut second = Run::start(bench.tidelock(&args));
    second.process().await_handler(Signal::TERM);
    let frozen = first.process().freeze_between_writes();
    second.line();
    assert!(term(&second.line()) > old);
    assert!(command.is_dead(), "two commands at a time");
    drop(frozen);
    // It campaigns again: when the second one goes, it leads.
    let new = {
        second.signal(Signal::TERM);
        second.end();
        first.line();
        term(&first.line())
    };
    assert!(new > old + 1);
    first.signal(Signal::TERM);
    first.end();
}

#[test]
fn a_candidate_with_a_higher_priority_leads_first() {
    let bench = Bench::new();
    let with = |priority: &str| {
        // So long that nobody stands aside in vain on a busy machine.
        let args = ["--lease", "120s", "lead", "billing", "--priority", priority];
        let identity = format!("web with {priority}");
        let shown = ["--identity", &identity, "--", "sh", "-c", SCRIPT];
        bench.tidelock(&[&args[..], &shown].concat())
    };
    let mut first = Run::start(with("-1"));
    term(&first.line());
    let others = ["0", "2", "1"].map(|priority| Run::start(with(priority)));
    listed(&bench, 3);
    first.signal(Signal::TERM);
    first.end();
    let end = Instant::now() + PATIENCE;
    let mut seen = leader(&bench);
    // One that lets others through holds the lock for a moment, and is shown without a term.
    while !seen.contains(" in term ") {
        assert!(Instant::now() < end, "{seen}");
        seen = leader(&bench);
    }
    assert!(
        seen.starts_with("billing: web with 2 leads in term "),
        "{seen}"
    );
    for other in &others {
        other.signal(Signal::TERM);
    }
    for other in others {
        assert_eq!(other.end().0, Some(143));
    }
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    let bench = Bench::new();
    let (code, said) = lead(&bench, "web-1", "exit 7").end();
    assert_eq!(code, Some(7), "{said}");
    assert_eq!(leader(&bench), "billing: nobody leads\n");
}

#[test]
fn leader_shows_a_holder_that_is_no_candidate() {
    let bench = Bench::new();
    let mut held = Run::start(bench.tidelock(&["hold", "billing"]));
    assert!(held.line().starts_with("held"));
    bench.shown("billing");
    let json = bench.output(&["leader", "billing", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let user = json["leader"]["user"].as_str().unwrap();
    let shown = "billing: no candidate leads: its lock is held by tidelock as";
    assert!(
        leader(&bench).starts_with(&format!("{shown} {user}, pid ")),
        "{}",
        leader(&bench)
    );
    assert!(json["leader"]["identity"].is_null() && json["leader"]["owner"].is_string());
}

#[test]
fn watch_prints_the_leader_and_nobody() {
    let bench = Bench::new();
    bench.code(&["try", "x", "--", "true"]); // makes the store
    let mut watch = Run::start(bench.tidelock(&["leader", "billing", "--watch"]));
    assert!(watch.line().ends_with("billing: nobody leads"));
    let mut led = lead(&bench, "web-1", SCRIPT);
    term(&led.line());
    let line = watch.line();
    assert!(line.contains("billing: web-1 leads"), "{line}");
    led.signal(Signal::TERM);
    led.end();
    while !watch.line().ends_with("billing: nobody leads") {}
    watch.signal(Signal::INT);
    assert_eq!(watch.end().0, Some(0));
}
