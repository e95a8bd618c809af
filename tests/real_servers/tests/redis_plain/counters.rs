//! Token counters of plain locks, which any client of the server can overwrite.

use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::servers::RedisServer;
use tidelock::{AcquireOptions, Client, ErrorKind};

const COUNTER: &str = "tidelock:token:{ledger}:ledger";

/// A server, and a client that is or is not allowed to run Lua scripts.
pub(crate) async fn open(scripts: bool) -> Result<(RedisServer, Client)> {
    let rights = if scripts {
        "+@all"
    } else {
        "+@all -@scripting"
    };
    let users = format!("user default on nopass ~* &* +@all\nuser app on >secret ~* &* {rights}");
    let server = RedisServer::builder().acl(&users).start()?;
    let url = format!("redis://app:secret@127.0.0.1:{}?locks=plain", server.port());
    let client = Client::builder()
        .lease(Duration::from_secs(30))
        .publish_process_info(false)
        .connect(&url)
        .await?;
    Ok((server, client))
}

#[tokio::test]
async fn t68_tokens_are_exact_to_the_last_one() -> Result<()> {
    for scripts in [true, false] {
        let (server, client) = open(scripts).await?;
        let lock = client.lock("ledger").fenced();
        for start in [(1_u64 << 53) - 2, i64::MAX.unsigned_abs() - 5] {
            server.admin(&["SET", COUNTER, &start.to_string()])?;
            for expected in start + 1..=start + 5 {
                let guard = lock.acquire().await?;
                assert_eq!(guard.token().get(), expected);
                guard.release().await?;
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn t68_a_counter_without_a_next_token_leaves_the_lock_free() -> Result<()> {
    for scripts in [true, false] {
        let (server, client) = open(scripts).await?;
        let lock = client.lock("ledger").fenced();
        for value in [
            "9223372036854775807",
            "9223372036854775808",
            "-1",
            "007",
            "seven",
            "",
        ] {
            server.admin(&["SET", COUNTER, value])?;
            let patient = AcquireOptions::new().wait(Duration::from_secs(20));
            for error in [
                lock.try_acquire().await.map(drop).unwrap_err(),
                lock.acquire_with(patient).await.map(drop).unwrap_err(),
            ] {
                let said = error.to_string();
                ensure!(
                    error.kind() == ErrorKind::WrongType,
                    "{value}, {scripts}: {said}"
                );
                ensure!(said.contains(COUNTER), "{said}");
            }
            ensure!(server.query::<String, _>(&["GET", COUNTER])? == value);
            ensure!(
                server.keys()? == [COUNTER],
                "{value}, {scripts}: {:?}",
                server.keys()?
            );
            ensure!(!lock.inspect().await?.is_locked());
        }
    }
    Ok(())
}
