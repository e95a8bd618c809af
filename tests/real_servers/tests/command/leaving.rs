//! The work has ended, and the store does not answer: `tidelock run` and `tidelock hold` wait for one response timeout and
//! leave the lock to its lease.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testkit::process::{Spawned, is_alive};
use testkit::servers::{
    Cluster, EtcdServer, MariaDb, MemcachedServer, PostgresServer, RedisServer, Sentinels,
    ZooKeeperServer,
};

use crate::{SOON, tidelock};

/// The response timeout. Long, because the slack of [`is_in_time`] is for all processes of a run and for this one.
const ANSWER: Duration = Duration::from_secs(6);

/// Sets the response timeout of a command.
fn limited(command: &mut Command) {
    command.env(
        "TIDELOCK_RESPONSE_TIMEOUT_MS",
        ANSWER.as_millis().to_string(),
    );
}

/// Whether the command has waited for one answer: two would take longer. The end of its processes counts too.
fn is_in_time(took: Duration) -> bool {
    took < ANSWER * 7 / 4
}

/// Ends the command while the store is frozen.
fn leaves_in_time(url: &str, freeze: impl FnOnce() -> Result<()>) -> Result<()> {
    let script = "echo in; read line; exit 3";
    let mut command = tidelock(url, &["run", "job", "--", "sh", "-c", script])?;
    limited(&mut command);
    let mut run = Spawned::start(command)?;
    run.wait_line("in", SOON)?;
    freeze()?;
    run.close_stdin();
    let ended = Instant::now();
    let code = run.wait(SOON)?.code();
    let took = ended.elapsed();
    ensure!(code == Some(3), "{code:?}: {:?}", run.seen());
    ensure!(is_in_time(took), "{took:?}: {:?}", run.seen());
    let told = run.seen().iter().any(|line| line.contains("lease ends"));
    ensure!(told, "{took:?}: {:?}", run.seen());
    Ok(())
}

#[test]
fn a_frozen_redis_is_left_in_time() -> Result<()> {
    let server = RedisServer::start()?;
    leaves_in_time(&server.url(), || server.freeze())
}

#[test]
fn a_redis_that_is_gone_is_left_in_time() -> Result<()> {
    let server = RedisServer::start()?;
    leaves_in_time(&server.url(), || server.kill())
}

#[test]
fn a_frozen_redis_with_plain_locks_is_left_in_time() -> Result<()> {
    let server = RedisServer::start()?;
    let url = format!("{}?locks=plain", server.url());
    leaves_in_time(&url, || server.freeze())
}

#[test]
fn frozen_servers_behind_sentinels_are_left_in_time() -> Result<()> {
    let sentinels = Sentinels::start()?;
    leaves_in_time(&sentinels.url(), || {
        let mut all = sentinels.nodes().iter().chain(sentinels.sentinels());
        all.try_for_each(|node| node.freeze())
    })
}

#[test]
fn a_frozen_cluster_is_left_in_time() -> Result<()> {
    let cluster = Cluster::start()?;
    let freeze = || cluster.nodes().iter().try_for_each(|node| node.freeze());
    leaves_in_time(&cluster.url(), freeze)
}

#[test]
fn a_frozen_postgres_is_left_in_time() -> Result<()> {
    let server = PostgresServer::start()?;
    leaves_in_time(&server.url(), || server.freeze())
}

#[test]
fn a_frozen_postgres_with_session_locks_is_left_in_time() -> Result<()> {
    let server = PostgresServer::start()?;
    let url = format!("{}?locks=session", server.url());
    leaves_in_time(&url, || server.freeze())
}

#[test]
fn a_frozen_mysql_is_left_in_time() -> Result<()> {
    let server = MariaDb::start()?;
    leaves_in_time(&server.url(), || server.freeze())
}

#[test]
fn a_frozen_zookeeper_is_left_in_time() -> Result<()> {
    let server = ZooKeeperServer::start()?;
    leaves_in_time(&server.url(), || server.freeze())
}

#[test]
fn a_frozen_etcd_is_left_in_time() -> Result<()> {
    let server = EtcdServer::start()?;
    leaves_in_time(&server.url(), || server.freeze())
}

#[test]
fn a_frozen_memcached_is_left_in_time() -> Result<()> {
    let server = MemcachedServer::start()?;
    leaves_in_time(&server.url(), || server.freeze())
}

#[test]
fn a_hold_leaves_a_frozen_redis_in_time() -> Result<()> {
    let server = RedisServer::start()?;
    let mut command = tidelock(&server.url(), &["hold", "job"])?;
    limited(&mut command);
    let mut held = Spawned::start(command)?;
    held.wait_line("held job", SOON)?;
    server.freeze()?;
    held.close_stdin();
    let ended = Instant::now();
    let code = held.wait(SOON)?.code();
    let took = ended.elapsed();
    ensure!(code == Some(69), "{code:?}: {:?}", held.seen());
    ensure!(is_in_time(took), "{took:?}: {:?}", held.seen());
    let told = held.seen().iter().any(|line| line.contains("lease ends"));
    ensure!(told, "{:?}", held.seen());
    Ok(())
}

/// The store has a whole lease for the mark of a run.
#[test]
fn a_once_that_cannot_mark_its_run_is_ended_by_a_signal() -> Result<()> {
    let server = RedisServer::start()?;
    let job = ["--lease", "2m", "once", "--slot", "x", "job", "--"];
    let script = "echo in; read line; exit 0";
    let args = [&job[..], &["sh", "-c", script]].concat();
    let mut command = tidelock(&server.url(), &args)?;
    command.env("TIDELOCK_RESPONSE_TIMEOUT_MS", "1000");
    let mut run = Spawned::start(command)?;
    run.wait_line("in", SOON)?;
    server.freeze()?;
    run.close_stdin();
    let begun = Instant::now();
    let status = loop {
        // Those that come before the end of the command are for the command.
        testkit::process::terminate(run.pid())?;
        if let Ok(status) = run.wait(Duration::from_millis(500)) {
            break status;
        }
        ensure!(begun.elapsed() < SOON, "{:?}", run.seen());
    };
    ensure!(status.code() == Some(143), "{status}: {:?}", run.seen());
    let told = "job: the store has not confirmed how the run ended";
    let is_told = run.seen().iter().any(|line| line.contains(told));
    ensure!(is_told, "{:?}", run.seen());
    Ok(())
}

#[test]
fn a_run_whose_lock_was_lost_to_a_frozen_server_ends_in_time() -> Result<()> {
    let server = RedisServer::start()?;
    let script = "echo in $$; exec sleep 1000";
    let args = ["--lease", "18s", "run", "job", "--", "sh", "-c", script];
    let mut command = tidelock(&server.url(), &args)?;
    limited(&mut command);
    let mut run = Spawned::start(command)?;
    let line = run.wait_line("in ", SOON)?;
    let pid = line.trim_start_matches("in ").parse()?;
    server.freeze()?;
    let frozen = Instant::now();
    while is_alive(pid) {
        ensure!(frozen.elapsed() < 3 * SOON, "the command outlived its lock");
        std::thread::sleep(Duration::from_millis(2));
    }
    let ended = Instant::now();
    let code = run.wait(SOON)?.code();
    let took = ended.elapsed();
    ensure!(code == Some(76), "{code:?}: {:?}", run.seen());
    ensure!(is_in_time(took), "{took:?}: {:?}", run.seen());
    Ok(())
}

/// The command is terminated before the lease ends, while the lock may still be held.
#[test]
fn a_leader_campaigns_again_after_an_outage() -> Result<()> {
    let server = RedisServer::start()?;
    let script = "echo begun $$; exec sleep 1000";
    let args = ["--lease", "3s", "lead", "job", "--", "sh", "-c", script];
    let mut command = tidelock(&server.url(), &args)?;
    command.env("TIDELOCK_RESPONSE_TIMEOUT_MS", "1000");
    let mut run = Spawned::start(command)?;
    let line = run.wait_line("begun ", SOON)?;
    let pid = line.rsplit(' ').next().unwrap_or_default().parse()?;
    server.freeze()?;
    let frozen = Instant::now();
    while is_alive(pid) {
        ensure!(frozen.elapsed() < SOON, "the command outlived its lock");
        std::thread::sleep(Duration::from_millis(2));
    }
    server.thaw()?;
    run.wait_line("begun ", SOON)?;
    testkit::process::terminate(run.pid())?;
    ensure!(run.wait(SOON)?.code() == Some(143), "{:?}", run.seen());
    Ok(())
}
