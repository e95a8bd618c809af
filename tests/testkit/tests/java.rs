//! The Java peers execute their commands, in both versions of Redisson.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use testkit::java::{
    HammerPlan, JavaPeer, PeerOptions, RedissonVersion, WordFile, monotonic_now_ns,
};
use testkit::servers::free_port;

struct Redis {
    child: Child,
    url: String,
}

impl Redis {
    fn start() -> Self {
        let port = free_port().unwrap();
        let mut child = Command::new("redis-server")
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-server is missing; `cargo xtask servers` says how to get it");
        let mut log = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(
            log.any(|line| line.unwrap().contains("Ready to accept connections")),
            "redis-server ended"
        );
        std::thread::spawn(move || log.for_each(drop));
        Self {
            child,
            url: format!("redis://127.0.0.1:{port}"),
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn plan(word: &std::path::Path, rounds: u32) -> HammerPlan {
    HammerPlan {
        rounds,
        threads: 2,
        word_file: word.into(),
        hold: Duration::from_micros(50),
    }
}

#[test]
fn two_versions_take_turns() {
    let redis = Redis::start();
    let new = JavaPeer::start(RedissonVersion::Newest, &redis.url).unwrap();
    let old = JavaPeer::start(RedissonVersion::V3_15_6, &redis.url).unwrap();
    let (mine, theirs) = (new.lock("a", "turns"), old.lock("b", "turns"));

    mine.lock().unwrap();
    mine.lock().unwrap();
    assert_eq!(mine.hold_count().unwrap().value, 2);
    assert!(!theirs.try_lock().unwrap().value);
    assert!(theirs.unlock().unwrap_err().is_not_held());
    assert!(matches!(theirs.ttl_ms().unwrap().value, 20_000..=30_000));
    let waiter = theirs.begin_lock().unwrap();
    mine.unlock().unwrap();
    assert!(mine.is_held().unwrap().value);
    let before = monotonic_now_ns();
    mine.unlock().unwrap();
    let got = waiter.wait().unwrap();
    assert!(
        (before..=monotonic_now_ns()).contains(&got.done_at_ns),
        "the clocks of Rust and Java are not one"
    );

    assert!(mine.force_unlock().unwrap().value);
    assert!(!theirs.is_locked().unwrap().value);
    assert!(
        theirs
            .try_lock_for(Duration::ZERO, Some(Duration::from_millis(50)))
            .unwrap()
            .value
    );
    mine.begin_lock_when_free().unwrap().wait().unwrap();
}

#[test]
fn a_hammered_word_never_sees_two() {
    let redis = Redis::start();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("word");
    let word = WordFile::create(&path).unwrap();
    let peers = RedissonVersion::ALL.map(|version| JavaPeer::start(version, &redis.url).unwrap());
    let running = peers.each_ref().map(|peer| {
        peer.lock("h", "hammer")
            .begin_hammer(&plan(&path, 200))
            .unwrap()
    });
    for report in running.map(|pending| pending.value().unwrap()) {
        assert_eq!(
            (report.acquisitions, report.overlaps),
            (400, 0),
            "{report:?}"
        );
    }
    assert_eq!(word.counter().unwrap(), 800);
}

#[test]
fn fenced_tokens_grow() {
    let redis = Redis::start();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("word");
    let word = WordFile::create(&path).unwrap();
    let peers = [0, 1].map(|_| JavaPeer::start(RedissonVersion::Newest, &redis.url).unwrap());
    let running = peers.each_ref().map(|peer| {
        peer.fenced_lock("h", "fence")
            .begin_hammer(&plan(&path, 100))
            .unwrap()
    });
    let reports = running.map(|pending| pending.value().unwrap());
    assert!(
        reports
            .iter()
            .all(|report| report.overlaps == 0 && report.token_faults == 0),
        "{reports:?}"
    );
    assert_eq!(
        reports.iter().map(|report| report.last_token).max(),
        Some(400)
    );
    assert_eq!(word.counter().unwrap(), 400);

    let lock = peers[0].fenced_lock("a", "fence");
    assert_eq!(lock.lock_and_get_token().unwrap().value, 401);
    assert!(!peers[1].fenced_lock("a", "fence").try_lock().unwrap().value);
    assert_eq!(lock.token().unwrap().value, 401);
}

#[test]
fn a_peer_without_redis_says_so() {
    let error = JavaPeer::start_with(&PeerOptions::new(
        RedissonVersion::Newest,
        "redis://127.0.0.1:1",
    ))
    .unwrap_err();
    assert!(
        format!("{error:#}").contains("Unable to connect"),
        "{error:#}"
    );
}
