//! Every server starts, freezes, continues, is killed and starts again, with its data if it keeps any.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use anyhow::Result;
use testkit::servers::{
    EtcdServer, MariaDb, MemcachedServer, PostgresServer, RedisServer, ServerProcess,
    ZooKeeperServer,
};

fn lives(
    server: &ServerProcess,
    restart: impl Fn() -> Result<()>,
    answers: impl Fn() -> Result<()>,
) -> Result<()> {
    answers()?;
    let first = server.pid()?;
    server.freeze()?;
    assert!(!server.is_up(), "frozen");
    server.thaw()?;
    assert!(server.is_up(), "continued");
    answers()?;
    // The kill also ends a frozen server.
    server.freeze()?;
    server.kill()?;
    assert!(server.pid().is_err() && !server.is_up(), "killed");
    assert!(!testkit::process::is_alive(first));
    answers().expect_err("a killed server answers");
    server.kill()?;
    restart()?;
    answers()?;
    assert_ne!(server.pid()?, first);
    Ok(())
}

#[test]
fn redis() -> Result<()> {
    let server = RedisServer::start()?;
    let answers = || server.admin(&["PING"]).map(drop);
    lives(&server, || server.restart(), answers)
}

#[test]
fn etcd() -> Result<()> {
    let server = EtcdServer::start()?;
    server.admin(&["put", "a", "1"])?;
    let answers = || server.keys().map(|keys| assert_eq!(keys, ["a"]));
    lives(&server, || server.restart(), answers)
}

#[test]
fn zookeeper() -> Result<()> {
    let server = ZooKeeperServer::start()?;
    let answers = || server.number("zk_znode_count").map(drop);
    lives(&server, || server.restart(), answers)
}

#[test]
fn postgres() -> Result<()> {
    let server = PostgresServer::start()?;
    server.query("CREATE TABLE a ()")?;
    let answers = || server.query("SELECT * FROM a").map(drop);
    lives(&server, || server.restart(), answers)
}

#[test]
fn mariadb() -> Result<()> {
    let server = MariaDb::start()?;
    server.query("CREATE TABLE a (b INT)")?;
    let answers = || server.query("SELECT * FROM a").map(drop);
    lives(&server, || server.restart(), answers)
}

#[test]
fn memcached() -> Result<()> {
    let server = MemcachedServer::start()?;
    let answers = || server.stat("pid").map(drop);
    lives(&server, || server.restart(), answers)
}

#[test]
fn a_server_that_ends_at_its_start_is_an_error_with_its_log() {
    let failed = RedisServer::builder()
        .args(["--no-such-setting", "1"])
        .start();
    let error = format!("{:#}", failed.unwrap_err());
    assert!(error.contains("it ended with"), "{error}");
    assert!(error.contains("no-such-setting"), "{error}");
}
