//! Owners of plain locks that other clients have written.

use anyhow::{Result, ensure};
use testkit::servers::RedisServer;

use crate::counters::open;

fn hold(server: &RedisServer, owner: &[u8]) -> Result<()> {
    server.admin(&[b"SET".as_slice(), b"stock", owner, b"PX", b"30000"])?;
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
