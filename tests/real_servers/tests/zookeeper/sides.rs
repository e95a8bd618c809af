//! Java's `InterProcessReadWriteLock` and tidelock's read-write lock on the same path, in both directions, and the
//! effect of session loss on readers.

use std::process::Command;
use std::time::{Duration, Instant};

use testkit::java::{HammerReport, WordFile, curator_peer};
use testkit::process::Spawned;
use testkit::servers::ZooKeeperServer;
use tidelock::{Guard, Lock, LostReason, Mode};
use tokio::task::JoinHandle;

use crate::world::{SOON, World, client, ms, noted, soon, until_waiters};

const ROUNDS: u32 = 300;
const THREADS: u32 = 2;
/// Far longer than the load takes.
const PATIENCE: Duration = Duration::from_secs(120);
const HOLD: Duration = Duration::from_micros(20);
/// Long enough for a turn among the waiters of a load.
const IN_TURN: Duration = Duration::from_secs(10);

fn curator(server: &ZooKeeperServer, path: &str) -> Spawned {
    curator_peer(server.addr(), path, Duration::from_secs(20)).unwrap()
}

fn tell(peer: &mut Spawned, command: &str, answer: &str) {
    peer.write_line(command).unwrap();
    peer.wait_line(answer, SOON).unwrap();
}

fn waits(lock: Lock) -> JoinHandle<Guard> {
    tokio::spawn(async move { lock.acquire().await.unwrap() })
}

/// Two Java and two Rust processes with two threads or tasks each, on one lock: 2,400 holds, two thirds of them by
/// readers. No writer overlaps with another holder, and each waiter is woken by a release.
#[test]
fn curators_and_our_readers_and_writers_never_overlap() {
    let server = ZooKeeperServer::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("word");
    let word = WordFile::create(&path).unwrap();
    let mut java = [0, 1].map(|_| curator(&server, "/shop/load"));
    let rust = [0, 1].map(|_| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hammer"));
        command
            .args([&format!("{}/shop", server.url()), "sides", "load"])
            .args([ROUNDS, THREADS].map(|number| number.to_string()))
            .arg(&path)
            .arg(HOLD.as_micros().to_string());
        Spawned::start(command).unwrap()
    });
    for peer in &mut java {
        let (file, hold) = (path.display(), HOLD.as_micros());
        peer.write_line(&format!("hammer {ROUNDS} {THREADS} {file} {hold} sides"))
            .unwrap();
    }
    let reports: Vec<HammerReport> = java.into_iter().chain(rust).map(report).collect();
    println!("{reports:#?}");
    for report in &reports {
        assert_eq!((report.overlaps, report.token_faults), (0, 0));
        assert_eq!(report.acquisitions, u64::from(ROUNDS * THREADS));
        assert!(
            Duration::from_nanos(report.wait_max_ns) < IN_TURN,
            "a wake-up was lost"
        );
    }
    // Every third hold is a writer's, and no update was lost.
    assert_eq!(word.counter().unwrap(), 800);
}

fn report(mut process: Spawned) -> HammerReport {
    let line = process.wait_line("acquisitions", PATIENCE).unwrap();
    serde_json::from_str(&line[line.find('{').unwrap()..]).unwrap()
}

/// Readers of both sides share the lock. A writer of either side waits for all of them, and later readers wait for a
/// waiting writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_both_sides_share_and_writers_wait() {
    let server = ZooKeeperServer::start().unwrap();
    let client = client(&format!("{}/shop", server.url()), ms(9000)).await;
    let sides = client.read_write_lock("prices");
    let mut java = curator(&server, "/shop/prices");
    let mut other = curator(&server, "/shop/prices");
    // Readers share the lock, in either order of arrival.
    tell(&mut java, "acquire read", "acquired");
    let ours = sides.read().try_acquire().await.unwrap().unwrap();
    tell(&mut other, "try 500 read", "acquired");
    let seen = client.lock("prices").inspect().await.unwrap();
    assert_eq!(seen.holders.len(), 3);
    assert!(seen.holders.iter().all(|one| one.mode == Mode::Read));
    // Our writer also waits for Java's readers, and Java's next reader waits for our writer.
    assert!(sides.write().try_acquire().await.unwrap().is_none());
    let writer = waits(sides.write());
    until_waiters(&client, "prices", 1).await;
    tell(&mut other, "release read", "released");
    tell(&mut other, "try 50 read", "refused");
    ours.release().await.unwrap();
    assert!(!writer.is_finished(), "Java reads");
    tell(&mut java, "release read", "released");
    let writer = soon("our writer", writer).await.unwrap();
    tell(&mut java, "try 50 write", "refused");
    // Java's writer waits for ours, and our reader waits for Java's writer.
    java.write_line("acquire write").unwrap();
    until_waiters(&client, "prices", 1).await;
    let reader = waits(sides.read());
    until_waiters(&client, "prices", 2).await;
    writer.release().await.unwrap();
    java.wait_line("acquired", SOON).unwrap();
    let seen = client.lock("prices").inspect().await.unwrap();
    assert_eq!(seen.holders[0].mode, Mode::Write);
    assert!(!reader.is_finished(), "Java writes");
    tell(&mut java, "release write", "released");
    soon("our reader", reader)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// A Java thread downgrades: it holds the write side, acquires the read side and releases the write side. Our writer
/// that waits meanwhile stays out, and our readers get in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_of_curators_is_respected() {
    let server = ZooKeeperServer::start().unwrap();
    let client = client(&format!("{}/shop", server.url()), ms(9000)).await;
    let sides = client.read_write_lock("prices");
    let mut java = curator(&server, "/shop/prices");
    tell(&mut java, "acquire write", "acquired");
    let writer = waits(sides.write());
    until_waiters(&client, "prices", 1).await;
    tell(&mut java, "acquire read", "acquired");
    tell(&mut java, "release write", "released");
    until_waiters(&client, "prices", 1).await;
    let seen = client.lock("prices").inspect().await.unwrap();
    assert_eq!(seen.holders[0].mode, Mode::Read);
    assert!(!writer.is_finished(), "Java still reads");
    tell(&mut java, "release read", "released");
    let writer = soon("our writer", writer).await.unwrap();
    writer.release().await.unwrap();
}

/// Our writer becomes a reader while Curator's writer waits: it stays out, and the next reader of Curator waits behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_downgrade_is_respected_by_curator() {
    let server = ZooKeeperServer::start().unwrap();
    let client = client(&format!("{}/shop", server.url()), ms(9000)).await;
    let sides = client.read_write_lock("prices");
    let mut java = curator(&server, "/shop/prices");
    let mut other = curator(&server, "/shop/prices");
    let writer = sides.write().acquire().await.unwrap();
    java.write_line("acquire write").unwrap();
    until_waiters(&client, "prices", 1).await;
    let reader = sides.downgrade(writer).await.unwrap();
    let seen = client.lock("prices").inspect().await.unwrap();
    assert_eq!(seen.holders[0].mode, Mode::Read);
    tell(&mut other, "try 200 read", "refused");
    let seen = client.lock("prices").inspect().await.unwrap();
    assert_eq!(seen.waiters, Some(1));
    assert!(reader.is_held());
    reader.release().await.unwrap();
    java.wait_line("acquired", SOON).unwrap();
    tell(&mut java, "release write", "released");
}

/// A reader that is cut off for longer than its session learns of the loss before a writer gets the lock. A reader that
/// is not cut off continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_whose_session_expires_is_told_before_a_writer_has_the_lock() {
    let w = World::new(ms(3000)).await;
    let (far, near) = (
        w.far.read_write_lock("prices"),
        w.near.read_write_lock("prices"),
    );
    let cut_off = far.read().acquire().await.unwrap();
    let stays = near.read().acquire().await.unwrap();
    let waiting = near.write();
    let writer = tokio::spawn(async move {
        let guard = waiting.acquire().await.unwrap();
        (guard, Instant::now())
    });
    until_waiters(&w.near, "prices", 1).await;
    w.partition();
    let told = noted(cut_off);
    assert!(stays.is_held() && !writer.is_finished());
    stays.release().await.unwrap();
    let (writer, taken) = soon("the writer", writer).await.unwrap();
    let (_, reason, at) = soon("the loss", told).await.unwrap();
    assert_eq!(reason, LostReason::Expired);
    assert!(at < taken, "told {:?} after the writer had it", at - taken);
    writer.release().await.unwrap();
    w.heal();
}

/// A waiting reader watches only the writer before it, and a waiting writer watches only the node before its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_side_watches_one_node() {
    let server = ZooKeeperServer::start().unwrap();
    let client = client(&format!("{}/shop", server.url()), ms(9000)).await;
    let sides = client.read_write_lock("prices");
    let readers = [
        sides.read().acquire().await.unwrap(),
        sides.read().acquire().await.unwrap(),
    ];
    let mut waiting = Vec::new();
    for n in 1..=4_u64 {
        let side = if n == 1 { sides.write() } else { sides.read() };
        waiting.push(waits(side));
        until_waiters(&client, "prices", n).await;
    }
    // The server counts the watches of one session on one node as one. Here it counts two: on the writer before the
    // three readers, and on the reader before the writer.
    let end = Instant::now() + SOON;
    while server.number("zk_watch_count").unwrap() != 2 {
        assert!(Instant::now() < end, "{}", server.say("mntr").unwrap());
        tokio::time::sleep(ms(5)).await;
    }
    for reader in readers {
        reader.release().await.unwrap();
    }
    for side in waiting {
        let held = soon("one after the other", side).await.unwrap();
        held.release().await.unwrap();
    }
    assert_eq!(server.number("zk_watch_count").unwrap(), 0);
}
