//! How turns at one key are shared with clients that only poll it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use real_servers::shares::{Rust, Shares, take_turns};
use testkit::servers::RedisServer;
use tidelock::Client;

const TURNS: u32 = 20;

/// A server that publishes keyspace events, which wake tidelock waiters.
fn telling() -> RedisServer {
    let server = RedisServer::builder().args(["--notify-keyspace-events", "Kgx"]);
    server.start().unwrap()
}

/// Runs processes that compete for one key.
fn share(parties: &[Rust]) -> Shares {
    let server = telling();
    let url = format!("{}?locks=plain", server.url());
    let program = Path::new(env!("CARGO_BIN_EXE_turns"));
    take_turns(program, &url, parties, &[]).unwrap()
}

/// The share of turns that two polling processes get against two tidelock processes with two tasks each.
fn of_pollers(ours: &'static str, theirs: &'static str) -> f64 {
    println!("--- {ours} beside {theirs}");
    let parties = [
        Rust(2, ours),
        Rust(2, ours),
        Rust(1, theirs),
        Rust(1, theirs),
    ];
    let shares = share(&parties);
    let (_, pollers) = shares.rust.split_at(2);
    let part = shares.of(pollers);
    println!("pollers have {:.1} %", part * 100.0);
    part
}

/// How many turns a client has that takes and releases a lock in a loop, while another client has [`TURNS`]. The
/// other asks after some hundred releases of the first.
async fn turns_beside(busy: &str, other: &str) -> u32 {
    let (busy, other) = (Client::connect(busy).await, Client::connect(other).await);
    let (busy, other) = (busy.unwrap(), other.unwrap());
    let turns = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..2)
        .map(|_| {
            let (lock, turns) = (busy.lock("hot"), Arc::clone(&turns));
            tokio::spawn(async move {
                loop {
                    let guard = lock.acquire().await.unwrap();
                    tokio::task::block_in_place(|| std::thread::sleep(Duration::from_millis(1)));
                    turns.fetch_add(1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    while turns.load(Ordering::SeqCst) < 400 {
        tokio::task::yield_now().await;
    }
    let before = turns.load(Ordering::SeqCst);
    for _ in 0..TURNS {
        let guard = other.lock("hot").acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    let theirs = turns.load(Ordering::SeqCst) - before;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    println!("{TURNS} turns beside {theirs}");
    theirs
}

/// A client that is never refused does not learn that the server publishes events. It must still count the subscribers,
/// otherwise it never pauses for another client.
#[tokio::test(flavor = "multi_thread")]
async fn t72_a_client_that_is_never_refused_lets_another_have_turns() {
    let server = telling();
    let url = format!("{}?locks=plain", server.url());
    let theirs = turns_beside(&url, &url).await;
    // The client keeps the lock for 10 ms in a row.
    assert!(theirs < TURNS * 15, "{TURNS} turns beside {theirs}");
}

/// Such a client asks for the setting after some releases. One that may not read it does not know that events are off.
#[tokio::test(flavor = "multi_thread")]
async fn t72_a_client_that_may_not_read_the_setting_lets_another_have_turns() {
    let server = RedisServer::builder()
        .args(["--notify-keyspace-events", "Kgx"])
        .acl("user default off\nuser blind on >secret ~* &* +@all -config\nuser seer on >secret ~* &* +@all")
        .start()
        .unwrap();
    let [blind, seer] = ["blind", "seer"]
        .map(|user| format!("redis://{user}:secret@{}?locks=plain", server.addr()));
    let theirs = turns_beside(&blind, &seer).await;
    assert!(theirs < TURNS * 15, "{TURNS} turns beside {theirs}");
}

/// How often releases have counted listeners.
fn counts(server: &RedisServer) -> Result<u64> {
    let stats: String = server.query(&["INFO", "COMMANDSTATS"])?;
    let of_counts = |line: &str| {
        Some(
            line.split_once("numsub:calls=")?
                .1
                .split_once(',')?
                .0
                .parse(),
        )
    };
    Ok(stats.lines().find_map(of_counts).transpose()?.unwrap_or(0))
}

/// Otherwise it would leave no turn to the waiters of other processes, which listen now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_only_releases_notices_soon_that_events_are_on() -> Result<()> {
    let server = RedisServer::start()?;
    let lock = Client::connect(&server.url()).await?.plain_lock("stock");
    let pairs = async |count: u64| {
        for _ in 0..count {
            lock.acquire().await?.release().await?;
        }
        anyhow::Ok(())
    };
    let counts_none = async || {
        let before = counts(&server)?;
        pairs(50).await?;
        anyhow::Ok(counts(&server)? == before)
    };
    let end = Instant::now() + Duration::from_secs(20);
    while !counts_none().await? {
        ensure!(
            Instant::now() < end,
            "it does not learn that events are off"
        );
    }
    server.admin(&["CONFIG", "SET", "notify-keyspace-events", "Kgx"])?;
    // Shorter than waiters trust a setting.
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let before = counts(&server)?;
        pairs(50).await?;
        if counts(&server)? == before + 50 {
            return Ok(());
        }
        ensure!(Instant::now() < end, "it still counts nobody");
    }
}

/// The pollers are a third of the competitors. Without the fairness delay they got 6.5 % of the turns.
#[test]
fn t72_clients_that_poll_get_turns_beside_those_who_are_woken() {
    let share = of_pollers("wait", "poll:10");
    assert!(share > 0.1, "{share}");
}

#[test]
fn t72_short_waits_do_not_keep_clients_out_that_poll() {
    let share = of_pollers("wait:3", "poll:10");
    assert!(share > 0.1, "{share}");
}

#[test]
#[ignore = "prints numbers for a change of the rules; run it with --profile bench -- --ignored --nocapture"]
fn shares_of_pollers_in_numbers() {
    for ours in ["wait", "wait:3"] {
        for theirs in ["poll:10", "poll:50"] {
            of_pollers(ours, theirs);
        }
    }
}
