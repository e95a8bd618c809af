//! `tidelock top --once --json` on every store whose locks it lists: three processes of Rust, and a JVM where Redisson runs.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::java::{JavaPeer, RedissonVersion};
use testkit::process::Spawned;
use testkit::servers::{
    Cluster, EtcdServer, PostgresServer, RedisServer, Sentinels, ZooKeeperServer,
};

use crate::{SOON, say, tidelock};

/// How long `top --once` may take, the start of its process and its connection included.
const ANSWERS: Duration = Duration::from_secs(2);

/// Ten seconds after its start a process tells for the first time.
const TOLD: Duration = Duration::from_secs(60);

/// One picture, and how long it took.
fn once(url: &str) -> Result<(Value, Duration)> {
    let begun = Instant::now();
    let said = say(url, &["top", "--once", "--json"])?;
    let took = begun.elapsed();
    ensure!(said.code == 0, "{}", said.err);
    let picture = said.objects()?.pop().context("nothing is shown")?;
    Ok((picture, took))
}

/// The lock `job` of a picture, if it is in it.
fn job(picture: &Value) -> Option<&Value> {
    let locks = picture["locks"].as_array()?;
    locks.iter().find(|lock| lock["name"] == "job")
}

/// No picture names another holder, or more waiters than there are, or fewer without saying so.
fn assert_honest(lock: &Value, waiters: u64, holder: &Spawned) -> Result<()> {
    let pid = holder.pid().to_string();
    let who = lock["holders"][0]["who"].as_str().unwrap_or_default();
    ensure!(lock["holders"][0]["gone"] == false, "{lock}");
    ensure!(who.starts_with("sh") && who.contains(&pid), "{lock}");
    let shown = lock["waiters"].as_u64().context("waiters")?;
    let is_exact = lock["waiters_is_lower_bound"] == false;
    ensure!(
        shown <= waiters && (shown == waiters || !is_exact || !is_told(lock)),
        "{waiters} wait: {lock}"
    );
    Ok(())
}

/// Whether both waiting processes of Rust have told.
fn is_told(lock: &Value) -> bool {
    lock["waiting"]
        .as_array()
        .is_some_and(|told| told.len() == 2)
        && lock["held_for_ms"].is_u64()
}

fn names_holder_and_waiters(url: &str, java: bool) -> Result<()> {
    let start =
        |script: &str| Spawned::start(tidelock(url, &["run", "job", "--", "sh", "-c", script])?);
    let mut holder = start("echo in; read line")?;
    holder.wait_line("in", SOON)?;
    let _waiters = [start("true")?, start("true")?];
    let java = java.then(|| JavaPeer::start(RedissonVersion::Newest, url));
    let java = java.transpose()?;
    let _waits = match &java {
        // Its two threads are one process for the store.
        Some(java) => ["a", "b"]
            .map(|worker| java.lock(worker, "job").begin_lock().ok())
            .into(),
        None => Vec::new(),
    };
    // The threads of the JVM count from the first picture that shows a waiter without a record: beside
    // busy processes the two of Rust have told before Redisson waits.
    let mut waiters = 2;
    let begun = Instant::now();
    let mut fastest = Duration::MAX;
    let lock = loop {
        let (picture, took) = once(url)?;
        fastest = fastest.min(took);
        if let Some(lock) = job(&picture) {
            if java.is_some() && lock["waiters_is_lower_bound"] == true {
                waiters = 4;
            }
            assert_honest(lock, waiters, &holder)?;
            // A JVM without a record is seen as one waiter or more.
            let known = if java.is_some() { 3 } else { 2 };
            if is_told(lock) && lock["waiters"] == known {
                break lock.clone();
            }
        }
        ensure!(begun.elapsed() < TOLD, "{picture}");
        std::thread::sleep(SOON / 100);
    };
    let is_lower_bound = &lock["waiters_is_lower_bound"];
    ensure!(*is_lower_bound == java.is_some(), "{lock}");
    // Other tests run at the same time, so one look alone may be slow.
    ensure!(fastest < ANSWERS, "the fastest look took {fastest:?}");
    Ok(())
}

#[test]
fn top_names_the_holder_and_the_waiters_on_redis() -> Result<()> {
    let server = RedisServer::start()?;
    names_holder_and_waiters(&server.url(), true)
}

#[test]
fn top_names_the_holder_and_the_waiters_on_sentinels() -> Result<()> {
    let sentinels = Sentinels::start()?;
    names_holder_and_waiters(&sentinels.url(), true)
}

#[test]
fn top_names_the_holder_and_the_waiters_on_a_cluster() -> Result<()> {
    let cluster = Cluster::start()?;
    names_holder_and_waiters(&cluster.url(), true)
}

#[test]
fn top_names_the_holder_and_the_waiters_on_postgresql() -> Result<()> {
    let server = PostgresServer::start()?;
    names_holder_and_waiters(&server.url(), false)
}

#[test]
fn top_names_the_holder_and_the_waiters_on_etcd() -> Result<()> {
    let server = EtcdServer::start()?;
    names_holder_and_waiters(&server.url(), false)
}

#[test]
fn top_names_the_holder_and_the_waiters_on_zookeeper() -> Result<()> {
    let server = ZooKeeperServer::start()?;
    names_holder_and_waiters(&server.url(), false)
}

#[test]
fn top_names_the_holder_and_the_waiters_on_a_file() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    names_holder_and_waiters(&url, false)
}
