//! Fencing counters that are raised.

use anyhow::{Result, ensure};
use testkit::servers::RedisServer;
use tidelock::{ErrorKind, FencingToken};

use crate::client;

const COUNTER: &str = "redisson_lock_token:{ledger}";
const PLAIN: &str = "tidelock:token:{ledger}:ledger";

/// Redisson reads the counter as a number of Lua. Beyond 2^53, two Java holders could see the same token.
#[tokio::test]
async fn a_counter_is_not_raised_beyond_what_redisson_counts_exactly() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let lock = client.lock("ledger").fenced();
    let most = FencingToken::new(1 << 53);
    let error = lock.raise_token(FencingToken::new((1 << 53) + 1)).await;
    let error = error.expect_err("too large");
    ensure!(error.kind() == ErrorKind::InvalidOptions, "{error}");
    ensure!(server.keys()?.is_empty(), "{:?}", server.keys()?);
    ensure!(lock.raise_token(most).await? == most);
    ensure!(lock.acquire().await?.token() == most);
    let plain = client.plain_lock("ledger").fenced();
    ensure!(plain.raise_token(FencingToken::MAX).await? == FencingToken::MAX);
    ensure!(server.query::<String, _>(&["GET", PLAIN])? == (i64::MAX - 1).to_string());
    Ok(())
}

/// Texts are compared, not numbers of Lua: 2^53 and 2^53 + 1 are the same number there.
#[tokio::test]
async fn a_raise_is_exact_and_leaves_what_is_larger() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let plain = client.plain_lock("ledger").fenced();
    for (holds, raised, then) in [
        (
            "9007199254740992",
            9_007_199_254_740_994_u64,
            "9007199254740993",
        ),
        (
            "9007199254740993",
            9_007_199_254_740_993,
            "9007199254740993",
        ),
        ("99", 101, "100"),
        ("100", 100, "100"),
        ("9223372036854775806", 5, "9223372036854775806"),
    ] {
        server.admin(&["SET", PLAIN, holds])?;
        plain.raise_token(FencingToken::new(raised)).await?;
        ensure!(
            server.query::<String, _>(&["GET", PLAIN])? == then,
            "{holds}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_counter_at_its_end_or_without_a_number_is_refused_and_left() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server.url()).await?;
    let lock = client.lock("ledger").fenced();
    for value in [
        "9223372036854775807",
        "99999999999999999999",
        "-1",
        "007",
        "seven",
        "",
    ] {
        server.admin(&["SET", COUNTER, value])?;
        let error = lock.raise_token(FencingToken::new(7)).await;
        let error = error.expect_err("no counter");
        ensure!(error.kind() == ErrorKind::WrongType, "{value}: {error}");
        ensure!(error.to_string().contains(COUNTER), "{error}");
        ensure!(server.query::<String, _>(&["GET", COUNTER])? == value);
    }
    server.admin(&["DEL", COUNTER])?;
    server.admin(&["RPUSH", COUNTER, "7"])?;
    let error = lock.raise_token(FencingToken::new(7)).await;
    ensure!(error.expect_err("a list").kind() == ErrorKind::WrongType);
    Ok(())
}
