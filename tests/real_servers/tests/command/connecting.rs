//! T76: the store is not there yet, or full, when a command starts. Its wait includes the time to connect.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use real_servers::connecting::Insider;
use testkit::process::Spawned;
use testkit::servers::RedisServer;

use crate::{SOON, Said, ended, say, tidelock};

/// The time for which the store is unreachable here.
const AWAY: Duration = Duration::from_millis(700);
/// Less than the response timeout of a minute where this counts.
const LATE: Duration = Duration::from_secs(15);

#[test]
fn t76_a_wait_covers_the_connecting() -> Result<()> {
    let server = RedisServer::start()?;
    for flags in [&["--wait", "20s"][..], &[]] {
        server.kill()?;
        let args = [&["run"], flags, &["job", "--", "echo", "mine"]].concat();
        let mut run = Spawned::start(tidelock(&server.url(), &args)?)?;
        std::thread::sleep(AWAY);
        server.restart()?;
        run.wait_line("mine", SOON)?;
        ensure!(run.wait(SOON)?.success());
    }
    Ok(())
}

#[test]
fn t76_a_full_server_is_waited_for_by_the_command() -> Result<()> {
    let server = RedisServer::start()?;
    let mut inside = Insider::enter(server.addr())?;
    inside.say("CONFIG SET maxclients 1")?;
    let full = say(&server.url(), &["try", "job", "--", "true"])?;
    full.must(69, "job: the store cannot be reached")?;
    ensure!(full.err.contains("maxclients"), "{}", full.err);
    let args = ["run", "--wait", "20s", "job", "--", "echo", "mine"];
    let mut run = Spawned::start(tidelock(&server.url(), &args)?)?;
    std::thread::sleep(AWAY);
    drop(inside);
    run.wait_line("mine", SOON)?;
    ensure!(run.wait(SOON)?.success());
    Ok(())
}

/// There is one wait: the time spent on connecting is not available for the lock any more.
#[test]
fn t76_the_time_of_the_connecting_is_a_part_of_the_wait() -> Result<()> {
    let server = RedisServer::start()?;
    let java = "7f7c1a34-0000-4000-8000-000000000001:51";
    server.admin_each(&[&["HSET", "job", java, "1"], &["PEXPIRE", "job", "60000"]])?;
    server.freeze()?;
    let begun = Instant::now();
    let (away, wait) = (Duration::from_secs(5), Duration::from_secs(15));
    let limit = format!("{}ms", wait.as_millis());
    let args = ["run", "--wait", &limit, "job", "--", "true"];
    let mut run = Spawned::start(tidelock(&server.url(), &args)?)?;
    std::thread::sleep(away);
    server.thaw()?;
    let code = run.wait(SOON * 2)?.code();
    let took = begun.elapsed();
    ensure!(code == Some(75), "{code:?} {:?}", run.seen());
    // A wait that began after the connecting would end after both times. The start of the command counts too.
    ensure!(took >= wait && took < away + wait, "{took:?}");
    Ok(())
}

#[test]
fn t76_a_store_that_stays_away_is_told_when_the_wait_is_over() -> Result<()> {
    let server = RedisServer::start()?;
    let url = server.url();
    server.kill()?;
    let patient = |args: &[&str]| -> Result<Said> {
        let mut command = tidelock(&url, args)?;
        command.env("TIDELOCK_RESPONSE_TIMEOUT_MS", "60000");
        ended(command)
    };
    let begun = Instant::now();
    let wait = ["run", "--wait", "700ms", "job", "--", "true"];
    patient(&wait)?.must(69, "retried for 700ms")?;
    let took = begun.elapsed();
    // With one more response timeout, of a minute, it would take longer.
    ensure!(took >= AWAY && took < LATE, "{took:?}");
    let begun = Instant::now();
    let tried = patient(&["try", "job", "--", "true"])?;
    tried.must(69, "cannot be reached")?;
    ensure!(
        !tried.err.contains("retried"),
        "a try does not wait: {}",
        tried.err
    );
    let took = begun.elapsed();
    ensure!(took < LATE, "a response timeout: {took:?}");
    Ok(())
}

/// A permanent error is returned at once.
#[test]
fn t76_a_wrong_password_is_told_at_once() -> Result<()> {
    let server = RedisServer::builder().password("hush").start()?;
    let url = format!("redis://:loud@{}", server.addr());
    let begun = Instant::now();
    let wait = ["run", "--wait", "2m", "job", "--", "true"];
    say(&url, &wait)?.must(77, "check user and password")?;
    say(&url, &["run", "job", "--", "true"])?.must(77, "check user and password")?;
    ensure!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    Ok(())
}
