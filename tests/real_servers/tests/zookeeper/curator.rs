//! Java's Curator and tidelock on the same path, in both directions.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use testkit::java::{HammerReport, WordFile, curator_peer, monotonic_now_ns};
use testkit::process::Spawned;
use testkit::servers::ZooKeeperServer;

use crate::permits::patient_client;
use crate::world::{SOON, client, ms, soon, until_waiters, waits};

const ROUNDS: u32 = 300;
const THREADS: u32 = 2;
/// Far longer than the load takes.
const PATIENCE: Duration = Duration::from_secs(120);
const HOLD: Duration = Duration::from_micros(20);
/// Long enough for a wake, but too short for a session to end, and for our waiter to look by itself.
const WOKEN: Duration = Duration::from_secs(5);
/// Long enough for a turn among the waiters of a load.
const IN_TURN: Duration = Duration::from_secs(10);

fn curator(server: &ZooKeeperServer, path: &str) -> Spawned {
    curator_peer(server.addr(), path, Duration::from_secs(20)).unwrap()
}

fn tell(peer: &mut Spawned, command: &str, answer: &str) -> u64 {
    peer.write_line(command).unwrap();
    at(&peer.wait_line(answer, SOON).unwrap())
}

/// The time at which the process printed the line.
fn at(line: &str) -> u64 {
    line.split(' ').next().unwrap().parse().unwrap()
}

/// Two Java and two Rust processes with two threads or tasks each, on one lock: 2,400 holds, no two of them overlap,
/// and each holder is woken by the one before it.
#[test]
fn two_curators_and_two_of_ours_never_overlap() {
    let server = ZooKeeperServer::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("word");
    let word = WordFile::create(&path).unwrap();
    let mut java = [0, 1].map(|_| curator(&server, "/shop/load"));
    let mut rust = [0, 1].map(|_| ours(&format!("{}/shop", server.url()), &path));
    for peer in &mut java {
        let hold = HOLD.as_micros();
        let file = path.display();
        peer.write_line(&format!("hammer {ROUNDS} {THREADS} {file} {hold}"))
            .unwrap();
    }
    let reports: Vec<HammerReport> = java.iter_mut().chain(&mut rust).map(report).collect();
    println!("{reports:#?}");
    for report in &reports {
        assert_eq!((report.overlaps, report.token_faults), (0, 0));
        assert_eq!(report.acquisitions, u64::from(ROUNDS * THREADS));
        assert!(
            Duration::from_nanos(report.wait_max_ns) < IN_TURN,
            "a wake-up was lost"
        );
    }
    let holds: u64 = reports.iter().map(|report| report.acquisitions).sum();
    assert_eq!((word.counter().unwrap(), holds), (holds, 2_400));
}

fn ours(url: &str, word: &Path) -> Spawned {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hammer"));
    command
        .args([url, "plain", "load"])
        .args([ROUNDS, THREADS].map(|number| number.to_string()))
        .arg(word)
        .arg(HOLD.as_micros().to_string());
    Spawned::start(command).unwrap()
}

fn report(process: &mut Spawned) -> HammerReport {
    let line = process.wait_line("acquisitions", PATIENCE).unwrap();
    let json = &line[line.find('{').unwrap()..];
    serde_json::from_str(json).unwrap()
}

/// Each side waits for the other, is woken by its release, and keeps its place in the queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_waits_for_the_other_and_is_woken() {
    let server = ZooKeeperServer::start().unwrap();
    let client = patient_client(&server).await;
    let mut java = curator(&server, "/shop/till");
    tell(&mut java, "acquire", "acquired");
    assert!(client.lock("till").try_acquire().await.unwrap().is_none());
    let seen = client.lock("till").inspect().await.unwrap();
    assert!(seen.holders[0].owner.contains("-lock-"), "{seen:?}");
    assert_eq!(seen.waiters, Some(0));
    let waiter = waits(&client, "till");
    until_waiters(&client, "till", 1).await;
    let released = tell(&mut java, "release", "released");
    let (guard, _) = soon("our turn", waiter).await.unwrap();
    let woken = monotonic_now_ns();
    assert!(Duration::from_nanos(woken.saturating_sub(released)) < WOKEN);
    // Java queues behind us, and one of our clients queues behind Java.
    tell(&mut java, "try 50", "refused");
    java.write_line("acquire").unwrap();
    until_waiters(&client, "till", 1).await;
    let last = waits(&client, "till");
    until_waiters(&client, "till", 2).await;
    let released = monotonic_now_ns();
    guard.release().await.unwrap();
    let acquired = at(&java.wait_line("acquired", SOON).unwrap());
    assert!(Duration::from_nanos(acquired.saturating_sub(released)) < WOKEN);
    assert!(!last.is_finished());
    tell(&mut java, "release", "released");
    let (last, _) = soon("our second turn", last).await.unwrap();
    last.release().await.unwrap();
}

/// When a Java process dies, the next waiter gets the lock at the end of the session. An operator can force out a Java
/// holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_curator_that_dies_or_is_forced_out_is_followed() {
    let server = ZooKeeperServer::start().unwrap();
    let client = client(&format!("{}/shop", server.url()), ms(9000)).await;
    let mut java = curator_peer(server.addr(), "/shop/till", ms(2000)).unwrap();
    tell(&mut java, "acquire", "acquired");
    let waiter = waits(&client, "till");
    until_waiters(&client, "till", 1).await;
    java.kill().unwrap();
    let (guard, _) = soon("the follower", waiter).await.unwrap();
    guard.release().await.unwrap();
    let mut java = curator(&server, "/shop/till");
    tell(&mut java, "acquire", "acquired");
    assert!(client.lock("till").force_release().await.unwrap());
    let guard = client.lock("till").try_acquire().await.unwrap();
    guard.expect("free").release().await.unwrap();
}
