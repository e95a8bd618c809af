//! Counters that any client can overwrite: larger than a Lua number can represent exactly, at the maximum, negative, or
//! not a number.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testkit::servers::RedisServer;
use tidelock::{AcquireOptions, Client, ErrorKind, FencingToken, HandOff};

use crate::client;

const COUNTER: &str = "redisson_lock_token:{ledger}";

/// Lua numbers are doubles: from this value on, two consecutive integers can be equal.
const EXACT: u64 = 1 << 53;

const END: u64 = i64::MAX as u64;

#[tokio::test]
async fn t68_tokens_grow_beyond_what_scripts_count_exactly() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let lock = client.lock("ledger").fenced();
    for start in [EXACT - 2, EXACT * 2 + 1, END - 6] {
        server.admin(&["SET", COUNTER, &start.to_string()])?;
        for expected in start + 1..=start + 6 {
            let guard = lock.acquire().await?;
            assert_eq!(guard.token().get(), expected);
            let seen = lock.inspect().await?;
            assert_eq!(seen.token.map(FencingToken::get), Some(expected));
            guard.release().await?;
        }
    }
    Ok(())
}

/// The next holders in the same process get tokens that the first grant reserved.
#[tokio::test]
async fn t68_reserved_tokens_are_exact_too() -> Result<()> {
    let server = RedisServer::start()?;
    let client = Client::builder()
        .publish_process_info(false)
        .hand_off(HandOff::default());
    let client = client.connect(&server.url()).await?;
    let start = EXACT - 2;
    server.admin(&["SET", COUNTER, &start.to_string()])?;
    let held = client.lock("ledger").acquire().await?;
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let lock = client.lock("ledger").fenced();
            tokio::spawn(async move {
                let guard = lock.acquire().await?;
                let token = guard.token().get();
                guard.release().await?;
                anyhow::Ok(token)
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    held.release().await?;
    let mut tokens = Vec::new();
    for task in tasks {
        tokens.push(task.await??);
    }
    let last: u64 = server.query(&["GET", COUNTER])?;

    let count = tokens.len();
    tokens.sort_unstable();
    tokens.dedup();
    ensure!(tokens.len() == count, "given out twice: {tokens:?}");
    ensure!(
        tokens[0] == start + 1 && tokens[count - 1] <= last,
        "{tokens:?} after {start}, of {last}"
    );
    Ok(())
}

/// The attempt fails at once with an error that names the counter, and changes nothing: the lock is free, and the
/// counter keeps its value.
#[tokio::test]
async fn t68_a_counter_without_a_next_token_is_refused_and_nothing_is_taken() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let (lock, plain) = (client.lock("ledger").fenced(), client.lock("ledger"));
    for value in [
        "9223372036854775807",
        "9223372036854775808",
        "99999999999999999999999999999999",
        "-1",
        "-5",
        "-9223372036854775808",
        "1.5",
        "007",
        "seven",
        "",
        "\u{1b}[2J",
    ] {
        server.admin(&["SET", COUNTER, value])?;
        let begun = Instant::now();
        let patient = AcquireOptions::new().wait(Duration::from_secs(20));
        for error in [
            lock.try_acquire().await.map(drop).unwrap_err(),
            lock.acquire_with(patient).await.map(drop).unwrap_err(),
        ] {
            let said = error.to_string();
            ensure!(error.kind() == ErrorKind::WrongType, "{value}: {said}");
            ensure!(
                said.contains("ledger: ") && said.contains(COUNTER),
                "{said}"
            );
            ensure!(!said.contains('\u{1b}'), "{said}");
        }
        ensure!(
            begun.elapsed() < Duration::from_secs(5),
            "waited for {value}"
        );
        ensure!(server.query::<String, _>(&["GET", COUNTER])? == value);
        ensure!(server.keys()? == [COUNTER], "{value}: {:?}", server.keys()?);
        // A lock without tokens does not read the counter, and `inspect` does not fail because of it.
        let guard = plain.acquire().await?;
        ensure!(lock.inspect().await?.is_locked());
        guard.release().await?;
    }
    server.admin(&["DEL", COUNTER])?;
    server.admin(&["RPUSH", COUNTER, "7"])?;
    let error = lock.try_acquire().await.map(drop).unwrap_err();
    ensure!(error.kind() == ErrorKind::WrongType, "{error}");
    ensure!(error.to_string().contains(COUNTER), "{error}");
    ensure!(server.keys()? == [COUNTER], "{:?}", server.keys()?);
    Ok(())
}

/// As a lock without tokens, a side without tokens leaves nothing when it is released.
#[tokio::test]
async fn a_side_without_tokens_has_no_counter() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let ledger = client.read_write_lock("ledger");
    for side in [ledger.read(), ledger.write()] {
        side.acquire().await?.release().await?;
        ensure!(server.keys()?.is_empty(), "{:?}", server.keys()?);
        let guard = side.fenced().acquire().await?;
        let token: u64 = server.query(&["GET", COUNTER])?;
        ensure!(guard.token().get() == token, "{token}");
        guard.release().await?;
        ensure!(server.keys()? == [COUNTER], "{:?}", server.keys()?);
        server.admin(&["DEL", COUNTER])?;
    }
    Ok(())
}

#[tokio::test]
async fn t68_the_last_token_is_given_out_once() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let lock = client.lock("ledger").fenced();
    server.admin(&["SET", COUNTER, &(END - 1).to_string()])?;
    let guard = lock.acquire().await?;
    assert_eq!(guard.token().get(), END);
    guard.release().await?;
    let error = lock.try_acquire().await.map(drop).unwrap_err();
    ensure!(error.kind() == ErrorKind::WrongType, "{error}");
    Ok(())
}

/// We do not parse a foreign value in the place of a hold count: the lock is held, it can be inspected, and it can be
/// freed.
#[tokio::test]
async fn t68_a_hold_with_any_count_is_held_shown_and_freed() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let lock = client.lock("ledger");
    let java = "0123abcd-0123-4123-8123-0123456789ab:7";
    for (count, holds) in [
        ("9223372036854775807", END),
        ("-1", 0),
        ("0", 0),
        ("three", 0),
        ("", 0),
    ] {
        server.admin(&["HSET", "ledger", java, count])?;
        ensure!(lock.try_acquire().await?.is_none(), "{count}");
        let seen = lock.inspect().await?;
        ensure!(seen.holders.len() == 1, "{count}: {seen:?}");
        ensure!(
            seen.holders[0].owner == java && seen.holders[0].holds == holds,
            "{seen:?}"
        );
        ensure!(lock.force_release().await?, "{count}");
    }
    server.admin(&[b"HSET".as_slice(), b"ledger", b"\xff\x00", b"1"])?;
    ensure!(lock.try_acquire().await?.is_none());
    ensure!(lock.inspect().await?.holders.len() == 1);
    Ok(())
}
