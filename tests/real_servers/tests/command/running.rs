//! Running a command under a lock: exit codes, its environment, and the ways in which it is terminated.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testkit::process::{Spawned, is_alive};
use testkit::servers::{EtcdServer, RedisServer, ZooKeeperServer};

use crate::{SOON, ended, refused, run, say, tidelock};

#[test]
fn the_exit_code_is_the_commands_and_the_lock_is_free_afterwards() -> Result<()> {
    let server = RedisServer::start()?;
    let url = server.url();
    for (code, script) in [(0, "exit 0"), (3, "exit 3"), (137, "kill -9 $$")] {
        say(&url, &["run", "job", "--", "sh", "-c", script])?.must(code, "")?;
        ensure!(
            server.query::<i64, _>(&["EXISTS", "job"])? == 0,
            "{script}: not released"
        );
    }
    say(&url, &["run", "job", "--", "./absent"])?.must(127, "job: cannot run ./absent")?;
    Ok(())
}

#[test]
fn a_lock_that_is_held_is_75_and_its_release_wakes_a_waiter() -> Result<()> {
    let server = RedisServer::start()?;
    let mut holder = run(&server, &[], "echo in; read line; exit 0")?;
    let url = server.url();
    refused(&url, &["try", "job", "--", "true"])?.must(75, "job: not acquired: held by")?;
    let wait = ["run", "--wait", "5s", "job", "--", "true"];
    say(&url, &wait)?.must(75, "job: not acquired within")?;
    let mut waiter = Spawned::start(tidelock(&url, &["run", "job", "--", "echo", "mine"])?)?;
    let listens = || -> Result<bool> {
        let channel = "redisson_lock__channel:{job}";
        let (_, count): (String, u64) = server.query(&["PUBSUB", "NUMSUB", channel])?;
        Ok(count == 1)
    };
    until(listens)?;
    let released = Instant::now();
    holder.close_stdin();
    waiter.wait_line("mine", SOON)?;
    // The lease is half a minute, so a waiter that missed the message would take much longer.
    ensure!(
        released.elapsed() < SOON / 2,
        "woken after {:?}",
        released.elapsed()
    );
    ensure!(holder.wait(SOON)?.success() && waiter.wait(SOON)?.success());
    Ok(())
}

/// A command that ignores TERM and prints its process id.
const STUBBORN: &str = "trap '' TERM; echo in $$; while :; do sleep 0.2; done";

/// Starts [`STUBBORN`], has `take_away` remove the lock, and expects the command to be gone with exit code 76.
fn loses(take_away: impl FnOnce(&RedisServer) -> Result<()>) -> Result<()> {
    let server = RedisServer::start()?;
    let flags = ["--lease", "6s"];
    let args = [&flags, ["run", "--grace"].as_slice(), &["100ms"]].concat();
    let args = [&args, ["job", "--", "sh", "-c", STUBBORN].as_slice()].concat();
    let mut run = Spawned::start(tidelock(&server.url(), &args)?)?;
    let line = run.wait_line("in ", SOON)?;
    let pid = line.trim_start_matches("in ").parse()?;
    take_away(&server)?;
    let code = run.wait(SOON)?.code();
    ensure!(code == Some(76), "{code:?}: {:?}", run.seen());
    ensure!(
        run.seen()
            .iter()
            .any(|line| line.starts_with("tidelock: job: lost: ")
                || line.starts_with("tidelock: job: no renewal")),
        "{:?}",
        run.seen()
    );
    ensure!(!is_alive(pid), "the command outlived its lock");
    Ok(())
}

#[test]
fn a_lost_lock_is_76_the_key_was_deleted() -> Result<()> {
    loses(|server| server.admin(&["DEL", "job"]).map(drop))
}

#[test]
fn a_lost_lock_is_76_it_was_broken_by_force() -> Result<()> {
    loses(|server| {
        say(&server.url(), &["unlock", "--force", "job"])?.must(0, "")?;
        ensure!(server.query::<i64, _>(&["EXISTS", "job"])? == 0);
        Ok(())
    })
}

#[test]
fn a_lost_lock_is_76_the_server_is_gone() -> Result<()> {
    loses(|server| server.kill())
}

#[test]
fn the_command_finds_its_token_only_where_there_is_one() -> Result<()> {
    let server = RedisServer::start()?;
    let script = "echo $TIDELOCK_NAME ${TIDELOCK_TOKEN-none}";
    for (fenced, said) in [
        (true, "job 1\n"),
        (true, "job 2\n"),
        (false, "plain none\n"),
    ] {
        let args: &[&str] = if fenced {
            &["run", "--fenced", "job", "--", "sh", "-c", script]
        } else {
            &["run", "plain", "--", "sh", "-c", script]
        };
        let told = say(&server.url(), args)?;
        ensure!(told.out == said, "{:?}", told.out);
    }
    ensure!(server.query::<u64, _>(&["GET", "redisson_lock_token:{job}"])? == 2);
    Ok(())
}

#[test]
fn a_password_comes_from_the_environment_and_is_shown_to_nobody() -> Result<()> {
    let server = RedisServer::builder()
        .acl("user default off\nuser shop on >hush ~* &* +@all")
        .start()?;
    let script =
        "echo $TIDELOCK_STORE ${TIDELOCK_PASSWORD-none}; tr '\\0' ' ' </proc/$PPID/cmdline";
    let mut command = tidelock(
        &server.url(),
        &["--user", "shop", "run", "job", "--", "sh", "-c", script],
    )?;
    command.env("TIDELOCK_PASSWORD", "hush");
    let told = ended(command)?;
    told.must(0, "")?;
    ensure!(!told.out.contains("hush"), "{}", told.out);
    let shop = format!("redis://shop:wrong@{}", server.addr());
    let refused = say(&shop, &["run", "job", "--", "true"])?;
    refused.must(77, "check user and password")?;
    ensure!(!refused.err.contains("wrong"), "{}", refused.err);
    ensure!(
        refused.err.contains(&server.addr().to_string()),
        "which store? {}",
        refused.err
    );
    let nobody = say(&server.url(), &["run", "job", "--", "true"])?;
    nobody.must(77, "check user and password")?;
    ensure!(
        nobody.err.contains(&server.addr().to_string()),
        "which store? {}",
        nobody.err
    );
    Ok(())
}

#[test]
fn a_signal_while_waiting_leaves_nothing() -> Result<()> {
    let server = RedisServer::start()?;
    let holder = run(&server, &[], "echo in; read line")?;
    let mut waiter = Spawned::start(tidelock(&server.url(), &["run", "job", "--", "true"])?)?;
    let channels = |of: &str| -> Result<Vec<String>> { server.query(&["PUBSUB", "CHANNELS", of]) };
    until(|| Ok(channels("redisson_*")?.len() == 1))?;
    testkit::process::terminate(waiter.pid())?;
    ensure!(waiter.wait(SOON)?.code() == Some(143));
    until(|| Ok(channels("*")?.is_empty()))?;
    drop(holder);
    Ok(())
}

/// Polls the server until the condition holds. The server sends no notification for it.
fn until(mut reached: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + SOON;
    while !reached()? {
        ensure!(Instant::now() < end, "it did not come to that");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[test]
fn a_frozen_command_line_loses_the_command_before_the_lock() -> Result<()> {
    let server = RedisServer::start()?;
    // Long, so that a busy machine has half a second for what must be done by the end of the lease.
    let args = ["--lease", "10s", "run", "job", "--", "sh", "-c", STUBBORN];
    let mut run = Spawned::start(tidelock(&server.url(), &args)?)?;
    let line = run.wait_line("in ", SOON)?;
    let pid: u32 = line.trim_start_matches("in ").parse()?;
    run.freeze()?;
    until(|| {
        // We read the lease first and look for processes after it: a process that is still alive after the answer was
        // alive when the server gave it.
        let left: i64 = server.query(&["PTTL", "job"])?;
        let alive = is_alive(pid);
        ensure!(left > 0 || !alive, "it ran after its lease had ended");
        Ok(!alive)
    })?;
    run.thaw()?;
    ensure!(run.wait(SOON)?.code() == Some(76));
    Ok(())
}

#[test]
fn fair_runs_have_their_turns_in_the_order_that_is_shown() -> Result<()> {
    let server = RedisServer::start()?;
    let url = server.url();
    let start = |script| {
        let args = ["run", "--fair", "job", "--", "sh", "-c", script];
        Spawned::start(tidelock(&url, &args)?)
    };
    let mut holder = start("echo in; read line; exit 0")?;
    holder.wait_line("in", SOON)?;
    let mut waiters = Vec::new();
    for place in 1..=3 {
        let waiter = start("echo in; read line; exit 0")?;
        let queue = "redisson_lock_queue:{job}";
        let end = Instant::now() + SOON;
        while server.query::<i64, _>(&["LLEN", queue])? < place {
            ensure!(Instant::now() < end, "it has no place");
            std::thread::sleep(Duration::from_millis(10));
        }
        waiters.push(waiter);
    }
    let shown = say(&url, &["show", "--json", "job"])?.objects()?;
    ensure!(
        shown[0]["queue"].as_array().map(Vec::len) == Some(3),
        "{shown:?}"
    );
    let text = say(&url, &["show", "job"])?.out;
    ensure!(text.contains("3 waiting, queue: 1. "), "{text}");
    holder.close_stdin();
    for mut waiter in waiters {
        waiter.wait_line("in", SOON)?;
        waiter.close_stdin();
        ensure!(waiter.wait(SOON)?.success());
    }
    Ok(())
}

#[test]
fn runs_with_permits_share_their_number() -> Result<()> {
    let server = RedisServer::start()?;
    share_permits(&server.url())
}

#[test]
fn runs_with_permits_share_the_number_in_a_file() -> Result<()> {
    let folder = tempfile::tempdir()?;
    share_permits(&format!(
        "sqlite:{}",
        folder.path().join("locks.db").display()
    ))
}

#[test]
fn runs_with_permits_share_the_number_on_etcd() -> Result<()> {
    let server = EtcdServer::start()?;
    share_permits(&format!("{}/shop", server.url()))
}

#[test]
fn runs_with_permits_share_the_number_on_zookeeper() -> Result<()> {
    let server = ZooKeeperServer::start()?;
    share_permits(&format!("{}/shop", server.url()))
}

fn share_permits(url: &str) -> Result<()> {
    let start = |permits| {
        let script = "echo in; read line; exit 0";
        let args = ["run", "--permits", permits, "job", "--", "sh", "-c", script];
        Spawned::start(tidelock(url, &args)?)
    };
    let mut two = start("2/3")?;
    two.wait_line("in", SOON)?;
    let mut one = start("1")?; // the number is set
    one.wait_line("in", SOON)?;
    let shown = say(url, &["show", "--json", "job"])?.objects()?;
    ensure!(shown[0]["kind"] == "semaphore", "{shown:?}");
    ensure!(shown[0]["permits"]["available"] == 0, "{shown:?}");
    ensure!(shown[0]["permits"]["total"] == 3, "{shown:?}");
    let text = say(url, &["show", "job"])?.out;
    ensure!(text.contains("with 2 permits"), "{text}");
    ensure!(text.contains("0 of 3 permits available"), "{text}");
    ensure!(say(url, &["ls"])?.out == "job\n");
    let busy = refused(url, &["try", "--permits", "1/9", "job", "--", "true"])?;
    busy.must(75, "0 of 3 permits available")?;
    one.close_stdin();
    ensure!(one.wait(SOON)?.success());
    say(url, &["try", "--permits", "1", "job", "--", "true"])?.must(0, "")?;
    two.close_stdin();
    ensure!(two.wait(SOON)?.success());
    let text = say(url, &["show", "job"])?.out;
    ensure!(text.contains("free, 3 of 3 permits available"), "{text}");
    Ok(())
}
