//! Mutual exclusion under load: two Java and two Rust processes on one name.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use testkit::java::{HammerPlan, HammerReport, JavaPeer, PeerOptions, RedissonVersion, WordFile};
use testkit::process::Spawned;
use testkit::servers::RedisServer;

const THREADS: u32 = 2;
/// The default of both sides. A waiter with a lost wake-up sleeps for the rest of a lease.
const LEASE: Duration = Duration::from_secs(30);
/// Far longer than the load takes, also on a machine that has ten times as much to do as it can.
const PATIENCE: Duration = Duration::from_secs(20 * 60);
const HOLD: Duration = Duration::from_micros(20);

with_each_redisson!(two_java_and_two_rust_processes_never_overlap);

/// Four processes with two threads or tasks, 650 rounds each: 5,200 holds with each version.
fn two_java_and_two_rust_processes_never_overlap(version: RedissonVersion) {
    let done = hammer(version, "plain", 650);
    assert_eq!(done.holds, 5_200);
}

#[test]
fn tokens_of_java_and_rust_grow_under_load() {
    let done = hammer(RedissonVersion::Newest, "fenced", 150);
    assert_eq!(done.holds, 1_200);
}

pub(crate) fn hammer(version: RedissonVersion, kind: &'static str, rounds: u32) -> Done {
    let server = RedisServer::start().unwrap();
    let load = Load {
        version,
        kind,
        rounds,
        rest: Duration::ZERO,
    };
    hammer_on(&server.url(), load)
}

/// The work of each of the eight threads and tasks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) version: RedissonVersion,
    pub(crate) kind: &'static str,
    pub(crate) rounds: u32,
    /// The pause between connecting and the first round.
    pub(crate) rest: Duration,
}

/// The results.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    pub(crate) holds: u64,
    /// The longest wait of any of them.
    pub(crate) longest: Duration,
}

/// Runs two Java and two Rust processes that take turns at one lock.
pub(crate) fn hammer_on(url: &str, load: Load) -> Done {
    let Load {
        version,
        kind,
        rounds,
        rest,
    } = load;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("word");
    let word = WordFile::create(&path).unwrap();
    let options = PeerOptions::new(version, url).answer_within(PATIENCE);
    let peers = [0, 1].map(|_| JavaPeer::start_with(&options).unwrap());
    let plan = HammerPlan {
        rounds,
        threads: THREADS,
        word_file: path.clone(),
        hold: HOLD,
    };
    let rust = [0, 1].map(|_| start_rust(url, kind, rounds, &path, rest));
    std::thread::sleep(rest);
    let java = peers.each_ref().map(|peer| {
        let lock = match kind {
            "fair" => peer.fair_lock("h", "load"),
            "fenced" => peer.fenced_lock("h", "load"),
            "spin" => peer.spin_lock("h", "load"),
            "non_reentrant" => peer.non_reentrant_lock("h", "load"),
            // The reverse of the order in which Rust acquires.
            "multi" => peer.multi_lock("h", "load 2+load 1"),
            "majority" => peer.majority_lock("h", "load"),
            "sides" => peer.sides("h", "load"),
            _ => peer.lock("h", "load"),
        };
        lock.begin_hammer(&plan).unwrap()
    });
    let java = java.map(|pending| pending.value().unwrap());
    let rust = rust.map(report);
    println!("{java:#?} {rust:#?}");
    check(&java, woken_in_java(kind));
    // Redisson publishes nothing when a set is free: tidelock's waiters retry after some seconds.
    check(&rust, woken_in_java(kind) || kind == "sides");
    let reports = [java, rust].concat();
    let holds = reports.iter().map(|report| report.acquisitions).sum();
    count(holds);
    // Readers only look at the counter.
    let written = word.counter().unwrap();
    assert!(
        written == holds || kind == "sides" && (1..holds).contains(&written),
        "an update was lost: {written} of {holds}"
    );
    if kind == "fenced" {
        let last = reports.iter().map(|report| report.last_token).max();
        // Rust reserves tokens for its local waiters and may skip some, so the last token can exceed the number of
        // holds.
        assert!(last >= Some(holds), "a token was given out twice");
    }
    let longest = reports.iter().map(|report| report.wait_max_ns).max();
    Done {
        holds,
        longest: Duration::from_nanos(longest.unwrap_or_default()),
    }
}

/// For docs/compatibility.md: `cargo xtask compatibility` reads this line.
pub(crate) fn count(acquisitions: u64) {
    println!("acquisitions: {acquisitions}");
}

/// Whether Redisson's own waiters notice a release soon. They do not for its sets, and its write release forgets a thread
/// that is about to sleep.
fn woken_in_java(kind: &str) -> bool {
    matches!(kind, "plain" | "fair" | "fenced" | "spin" | "non_reentrant")
}

/// Nobody saw two holders or a token that did not grow, and no waiter that is woken waited for the end of a lease.
fn check(reports: &[HammerReport], woken: bool) {
    for report in reports {
        assert_eq!(
            (report.overlaps, report.token_faults),
            (0, 0),
            "{reports:#?}"
        );
        let longest = Duration::from_nanos(report.wait_max_ns);
        assert!(
            !woken || longest < LEASE / 2,
            "a wake-up was lost: {reports:#?}"
        );
    }
}

/// The process is killed with the test. Otherwise it would wait without limit for a server that is gone.
fn start_rust(url: &str, kind: &str, rounds: u32, word_file: &Path, rest: Duration) -> Spawned {
    let name = if kind == "multi" {
        "load 1+load 2"
    } else {
        "load"
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_hammer"));
    command
        .args([url, kind, name])
        .args([rounds, THREADS].map(|number| number.to_string()))
        .arg(word_file)
        .arg(HOLD.as_micros().to_string())
        .arg(rest.as_millis().to_string());
    Spawned::start(command).unwrap()
}

fn report(mut process: Spawned) -> HammerReport {
    let line = process.wait_line("acquisitions", PATIENCE).unwrap();
    assert!(process.wait(PATIENCE).unwrap().success());
    serde_json::from_str(&line).unwrap()
}
