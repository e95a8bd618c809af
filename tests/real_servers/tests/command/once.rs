//! `tidelock once` and `tidelock history`: a command once per slot, on whichever machine comes first.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::process::{FakeClock, Spawned};
use testkit::servers::RedisServer;

use crate::{SOON, say, shown_job, tidelock};

const SLOT: [&str; 3] = ["once", "--slot", "Monday"];

#[test]
fn the_same_line_on_five_machines_runs_once() -> Result<()> {
    let server = RedisServer::start()?;
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("log");
    // Their clocks are days apart. Seconds since the start of the slot do not matter, so the five may start at any time.
    let script = format!(
        "echo $TIDELOCK_SLOT $TIDELOCK_ATTEMPT $TIDELOCK_TOKEN >> {}",
        log.display()
    );
    let line = ["once", "--every", "1d", "report", "--", "sh", "-c", &script];
    let machines: Vec<Spawned> = (-2..=2)
        .map(|days: i64| {
            let machine = folder.path().join(days.to_string());
            fs::create_dir(&machine)?;
            let clock = FakeClock::new(&machine)?;
            clock.shift(days * 24 * 3600)?;
            let mut machine = tidelock(&server.url(), &line)?;
            clock.apply(&mut machine);
            Spawned::start(machine)
        })
        .collect::<Result<_>>()?;
    for mut machine in machines {
        ensure!(
            machine.wait(SOON)?.code() == Some(0),
            "{:?}",
            machine.seen()
        );
    }
    let ran = fs::read_to_string(&log)?;
    ensure!(
        ran.lines().count() == 1 && ran.ends_with("T00:00:00Z 1 1\n"),
        "{ran:?}"
    );
    // Later calls say why they run nothing only to a reader, or with an exit code for it.
    let late = say(&server.url(), &line)?;
    ensure!(late.code == 0 && late.err.is_empty(), "{:?}", late.err);
    let coded = [&["once", "-E", "9"], &line[1..]].concat();
    say(&server.url(), &coded)?.must(9, "report: not run: the slot 2")?;
    Ok(())
}

#[test]
fn a_command_that_fails_is_run_again_as_often_as_allowed() -> Result<()> {
    let server = RedisServer::start()?;
    let url = server.url();
    let job = [
        "--retries",
        "1",
        "mail",
        "--",
        "sh",
        "-c",
        "exit $((10 + TIDELOCK_ATTEMPT))",
    ];
    let job = [&SLOT, job.as_slice()].concat();
    say(&url, &job)?.must(11, "")?;
    say(&url, &job)?.must(12, "")?;
    // Without a reader too: nobody would hear of a job that never succeeds.
    say(&url, &job)?.must(1, "mail: not run: no attempt is left in the slot Monday")?;
    let coded = [&["once", "-E", "9"], &job[1..]].concat();
    say(&url, &coded)?.must(9, "mail: not run: no attempt is left")?;
    let history = say(&url, &["history", "mail", "--json"])?;
    let marks = history.objects()?;
    ensure!(marks.len() == 1, "{}", history.out);
    ensure!(
        marks[0]["state"] == "failed" && marks[0]["attempt"] == 2,
        "{}",
        history.out
    );
    ensure!(
        marks[0]["error"] == "exit code 12"
            && marks[0]["program"] == "sh"
            && marks[0]["user"].is_string(),
        "{}",
        history.out
    );
    let told = say(&url, &["history", "mail"])?;
    ensure!(
        told.out.starts_with("Monday: failed by sh as "),
        "{}",
        told.out
    );
    say(&url, &["history", "other"])?.must(0, "other: no slot has been run")?;
    Ok(())
}

#[test]
fn a_machine_that_dies_is_followed_by_one_that_waits() -> Result<()> {
    let server = RedisServer::start()?;
    let url = server.url();
    let flags = ["--lease", "4s"];
    let script =
        "echo in $TIDELOCK_ATTEMPT $TIDELOCK_TOKEN; [ $TIDELOCK_ATTEMPT = 2 ] || sleep 600";
    let job = [
        &flags,
        SLOT.as_slice(),
        &["--wait", "1m", "job", "--", "sh", "-c", script],
    ]
    .concat();
    let mut dying = Spawned::start(tidelock(&url, &job)?)?;
    dying.wait_line("in 1 1", SOON)?;
    let mut waiting = Spawned::start(tidelock(&url, &job)?)?;
    shown_job(&url)?;
    let busy = [&["-v"], SLOT.as_slice(), &["job", "--", "true"]].concat();
    say(&url, &busy)?.must(0, "job: not run: its lock is held by sh as ")?;
    testkit::process::kill(dying.pid())?;
    waiting.wait_line("in 2 2", SOON)?;
    ensure!(waiting.wait(SOON)?.success(), "{:?}", waiting.seen());
    Ok(())
}

#[test]
fn a_slot_that_begins_during_a_run_of_another_one_is_run_by_a_call_that_waits() -> Result<()> {
    let server = RedisServer::start()?;
    let url = server.url();
    let script = ["job", "--", "sh", "-c", "echo in; read line; exit 0"];
    let mut monday = Spawned::start(tidelock(&url, &[&SLOT[..], &script].concat())?)?;
    monday.wait_line("in", SOON)?;
    let tuesday = ["once", "--slot", "Tuesday"];
    let job = ["job", "--", "sh", "-c", "echo $TIDELOCK_SLOT"];
    let beside = say(&url, &[&tuesday[..], &job].concat())?;
    beside.must(0, "")?;
    ensure!(beside.out.is_empty(), "{}", beside.out);
    let waits = [&tuesday[..], &["--wait", "1m"], &job].concat();
    let mut waits = Spawned::start(tidelock(&url, &waits)?)?;
    // Otherwise Monday may be over before the call begins, and it would not have to wait.
    let mut watch = Spawned::start(tidelock(&url, &["watch", "--every", "20ms", "job"])?)?;
    watch.wait_line("1 waiting", SOON)?;
    monday.close_stdin();
    waits.wait_line("Tuesday", SOON)?;
    ensure!(waits.wait(SOON)?.success(), "{:?}", waits.seen());
    ensure!(monday.wait(SOON)?.success(), "{:?}", monday.seen());
    Ok(())
}

/// A script that goes on after the call relies on the run of the other machine: `tidelock once … && ./serve`.
#[test]
fn a_wait_that_is_over_before_the_run_is_no_success() -> Result<()> {
    let server = RedisServer::start()?;
    let url = server.url();
    let script = ["job", "--", "sh", "-c", "echo in; read line; exit 0"];
    let mut running = Spawned::start(tidelock(&url, &[&SLOT[..], &script].concat())?)?;
    running.wait_line("in", SOON)?;
    shown_job(&url)?;
    let job = ["job", "--", "true"];
    let waits = [&SLOT[..], &["--wait", "4s"], &job].concat();
    say(&url, &waits)?.must(75, "job: not run: its lock is held by sh as ")?;
    let coded = [&SLOT[..], &["--wait", "4s", "-E", "9"], &job].concat();
    say(&url, &coded)?.must(9, "job: not run: its lock is held by sh as ")?;
    let beside = say(&url, &[&SLOT[..], &job].concat())?;
    ensure!(
        beside.code == 0 && beside.err.is_empty(),
        "{} {:?}",
        beside.code,
        beside.err
    );
    running.close_stdin();
    ensure!(running.wait(SOON)?.success(), "{:?}", running.seen());
    say(&url, &waits)?.must(0, "")?;
    Ok(())
}

#[test]
fn a_command_that_runs_too_long_is_ended_and_has_failed() -> Result<()> {
    let server = RedisServer::start()?;
    let url = server.url();
    let job = [
        SLOT.as_slice(),
        &[
            "--max-run",
            "300ms",
            "--grace",
            "100ms",
            "job",
            "--",
            "sleep",
            "600",
        ],
    ]
    .concat();
    let begun = std::time::Instant::now();
    say(&url, &job)?.must(76, "job: lost: ")?;
    ensure!(begun.elapsed() < Duration::from_secs(20));
    let told = say(&url, &["history", "job"])?;
    ensure!(
        told.out.contains("failed") && told.out.contains("too long"),
        "{}",
        told.out
    );
    Ok(())
}

#[test]
fn a_slot_that_is_none_is_wrong_usage() -> Result<()> {
    let server = RedisServer::start()?;
    let url = server.url();
    for (args, words) in [
        (["--cron", "0 3 * *"], "no cron pattern"),
        (["--cron", "61 * * * *"], "no cron pattern"),
        (["--slot", ""], "the id of a slot"),
        (["--every", "8d"], "longer than its mark is kept"),
    ] {
        let line = [&["once"], args.as_slice(), &["job", "--", "true"]].concat();
        say(&url, &line)?.must(64, words)?;
    }
    let mars = [
        "once",
        "--cron",
        "0 3 * * *",
        "--tz",
        "Mars/Olympus",
        "job",
        "--",
        "true",
    ];
    say(&url, &mars)?.must(64, "Mars/Olympus")?;
    let memcached = testkit::servers::MemcachedServer::start()?;
    let job = ["once", "--slot", "x", "job", "--", "true"];
    say(&memcached.url(), &job)?.must(64, "not supported by this store")?;
    Ok(())
}
