//! Clients in other languages and tidelock on one key, in both directions.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use real_servers::{ms, secs};
use testkit::foreign::{Foreign, ForeignReport};
use testkit::java::{HammerReport, WordFile};
use testkit::process::Spawned;
use testkit::servers::RedisServer;
use tidelock::{Client, LostReason};

/// Far longer than the load takes.
const PATIENCE: Duration = Duration::from_secs(120);
const LEASE: Duration = Duration::from_secs(10);
const HOLD: Duration = Duration::from_micros(100);
/// Rounds of each foreign process. There are two of them, and two of our processes make the same number of holds.
const ROUNDS: u32 = 1_050;
/// Tasks of each of our processes.
const TASKS: u32 = 2;

/// Two foreign processes and two of ours compete for the lock: more than 2,000 holds on each side.
fn nobody_overlaps(client: Foreign) {
    let server = RedisServer::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("word");
    let word = WordFile::create(&path).unwrap();
    let mut peers = [0, 1].map(|_| client.start(&server, "load", LEASE).unwrap());
    let own = [0, 1].map(|_| start_own(&server, &path));
    for peer in &mut peers {
        peer.begin_hammer(ROUNDS, HOLD, &path).unwrap();
    }
    let theirs = peers.map(|mut peer| peer.hammered(PATIENCE).unwrap());
    let ours = own.map(report);
    let expected = ForeignReport {
        acquisitions: ROUNDS.into(),
        overlaps: 0,
    };
    println!("{theirs:?} {ours:#?}");
    assert_eq!(theirs, [expected; 2], "{client:?}");
    for one in ours {
        let holds = (one.acquisitions, one.overlaps);
        assert_eq!(holds, (ROUNDS.into(), 0), "{client:?}");
    }
    let holds = u64::from(ROUNDS) * 4;
    assert_eq!(word.counter().unwrap(), holds, "an update was lost");
}

fn start_own(server: &RedisServer, word: &Path) -> Spawned {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hammer"));
    let url = format!("{}?locks=plain", server.url());
    command
        .args([&url, "plain", "load"])
        .args([ROUNDS / TASKS, TASKS].map(|number| number.to_string()))
        .arg(word)
        .arg(HOLD.as_micros().to_string());
    Spawned::start(command).unwrap()
}

fn report(mut process: Spawned) -> HammerReport {
    let line = process.wait_line("acquisitions", PATIENCE).unwrap();
    assert!(process.wait(PATIENCE).unwrap().success());
    serde_json::from_str(&line).unwrap()
}

/// Each side is refused while the other holds the lock, and each side notices when the other breaks its lock.
async fn they_respect_each_other(client: Foreign) {
    let server = RedisServer::start().unwrap();
    let own = Client::builder().lease(secs(3));
    let own = own.connect(&server.url()).await.unwrap();
    let lock = own.plain_lock("stock");
    let mut peer = client.start(&server, "stock", LEASE).unwrap();
    // We hold the lock.
    let guard = lock.acquire().await.unwrap();
    assert!(!peer.try_acquire().unwrap(), "{client:?}");
    tokio::time::sleep(ms(3750)).await; // longer than our lease
    assert!(!peer.try_acquire().unwrap(), "{client:?}: it was renewed");
    guard.release().await.unwrap();
    // The foreign client holds the lock.
    assert!(peer.try_acquire().unwrap(), "{client:?}");
    assert!(lock.try_acquire().await.unwrap().is_none());
    let seen = lock.inspect().await.unwrap();
    let left = seen.expires_in.unwrap();
    assert!(left <= LEASE && left > LEASE / 2, "{client:?}: {left:?}");
    assert!(peer.extend().unwrap(), "{client:?}");
    let waiter = tokio::spawn(lock.acquire());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(peer.release().unwrap(), "{client:?}");
    let guard = tokio::time::timeout(secs(2), waiter).await;
    guard.unwrap().unwrap().unwrap().release().await.unwrap();
    // We break the foreign lock.
    assert!(peer.try_acquire().unwrap(), "{client:?}");
    assert!(lock.force_release().await.unwrap());
    let guard = lock.acquire().await.unwrap();
    assert!(!peer.extend().unwrap(), "{client:?}: it was lost");
    assert!(!peer.release().unwrap(), "{client:?}: it was lost");
    assert!(guard.is_held());
    // An operator of the foreign client breaks our lock.
    server.admin(&["DEL", "stock"]).unwrap();
    assert!(peer.try_acquire().unwrap(), "{client:?}");
    let told = tokio::time::timeout(secs(3), guard.lost()).await;
    assert_eq!(told.unwrap(), LostReason::Taken);
    assert!(guard.release().await.is_err());
    assert!(peer.release().unwrap(), "{client:?}: untouched by ours");
}

macro_rules! with {
    ($($module:ident: $client:ident)*) => {
        $(
            mod $module {
                use super::*;

                #[test]
                fn nobody_overlaps() {
                    super::nobody_overlaps(Foreign::$client);
                }

                #[tokio::test(flavor = "multi_thread")]
                async fn they_respect_each_other() {
                    super::they_respect_each_other(Foreign::$client).await;
                }
            }
        )*
    };
}

with!(redis_py: RedisPy redsync: Redsync node_redlock: NodeRedlock rslock: Rslock);
