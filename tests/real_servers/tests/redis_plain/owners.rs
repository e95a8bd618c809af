//! Owners of plain locks that other clients have written.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use testkit::servers::RedisServer;
use tidelock::Client;

use crate::counters::open;

fn hold(server: &RedisServer, owner: &[u8]) -> Result<()> {
    server.admin(&[b"SET".as_slice(), b"stock", owner, b"PX", b"30000"])?;
    Ok(())
}

/// Another program keeps a document under the name. An answer with all of it would end the connection, and with it the requests
/// of all other locks.
#[tokio::test]
async fn a_document_in_the_place_of_a_lock_is_a_held_lock_and_disturbs_no_other() -> Result<()> {
    let server = RedisServer::start()?;
    // The server is busy with each such value for a while.
    let builder = Client::builder().lease(Duration::from_secs(10));
    let url = format!("{}?locks=plain", server.url());
    let client = builder.connect(&url).await?;
    // The last of the bytes that are shown is in the middle of a character.
    let document = "é{x:7}".repeat((17 << 20) / 7);
    let (lock, other) = (client.lock("stock"), client.lock("other"));
    hold(&server, document.as_bytes())?;
    for _ in 0..3 {
        let (tried, held) = tokio::join!(lock.try_acquire(), other.acquire());
        ensure!(tried?.is_none());
        held?.release().await?;
    }
    let (seen, held) = tokio::join!(lock.inspect(), other.acquire());
    let (seen, held) = (seen?, held?);
    let owner = &seen.holders[0].owner;
    let length = format!("... ({} bytes, SHA-1 ", document.len());
    ensure!(
        owner.starts_with("é{x:7}é{x:7}") && owner.contains(&length) && owner.len() < 200,
        "{owner}"
    );
    let (_, same) = document.as_bytes().split_last().context("it is long")?;
    hold(&server, &[same, b"]"].concat())?;
    ensure!(!lock.force_release_if(&seen).await?, "as long, and another");
    hold(&server, document.as_bytes())?;
    ensure!(lock.force_release_if(&seen).await?);
    ensure!(server.query::<u64, _>(&["EXISTS", "stock"])? == 0);
    ensure!(held.is_held());
    held.release().await?;
    Ok(())
}

/// What an operator has seen of such a lock frees it, and does not free that of an owner that looks alike.
#[tokio::test]
async fn a_lock_whose_owner_is_no_text_can_be_freed_as_it_was_seen() -> Result<()> {
    for scripts in [true, false] {
        let (server, client) = open(scripts).await?;
        let lock = client.lock("stock");
        hold(&server, b"\xff\0\n\xc3(")?;
        let seen = lock.inspect().await?;
        ensure!(seen.holders[0].owner == "0xff000ac328", "{seen:?}");
        for other in [b"\xff\x01\n\xc3(".as_slice(), b"\xff\0\n\xc3", b"abcde"] {
            hold(&server, other)?;
            ensure!(!lock.force_release_if(&seen).await?, "{other:?}");
        }
        hold(&server, b"\xff\0\n\xc3(")?;
        ensure!(lock.force_release_if(&seen).await?, "scripts: {scripts}");
        ensure!(server.query::<u64, _>(&["EXISTS", "stock"])? == 0);
    }
    Ok(())
}
