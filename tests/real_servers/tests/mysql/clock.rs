//! The server's wall clock, by which leases end. Instead of the clock a test moves what the server has written by it.

use anyhow::{Context, Result};
use testkit::servers::MariaDb;
use tokio::time::sleep;

use super::{LEASE, client, soon};

/// As if the clock had been an hour ahead when the ends of the locks were written.
const ENDS_LATER: &str = "UPDATE tidelock_locks SET expires = expires + 3600000000";

/// A lock is released while the clock is ahead, and the clock is set right. The lock is free for each kind of lock, and an operator
/// sees that it is. Its tokens grow.
#[tokio::test(flavor = "multi_thread")]
async fn t41_a_lock_that_was_released_before_the_clock_was_set_back_is_free() -> Result<()> {
    let server = MariaDb::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let first = a.lock("stock").fenced().acquire().await?;
    let token = first.token();
    first.release().await?;
    server.query(ENDS_LATER)?;
    assert!(!b.lock("stock").inspect().await?.is_locked());
    assert!(b.list("*").limit(100).await?.is_empty());
    assert!(!b.lock("stock").force_release().await?);
    let second = b.lock("stock").fenced().try_acquire().await?;
    let second = second.context("it is free")?;
    assert!(second.token() > token);
    second.release().await?;
    let sides = b.read_write_lock("stock");
    for lock in [b.fair_lock("stock"), sides.read(), sides.write()] {
        server.query(ENDS_LATER)?;
        let at_once = lock.try_acquire().await?;
        at_once.context("it is free")?.release().await?;
        server.query(ENDS_LATER)?;
        soon("its turn", lock.acquire()).await?.release().await?;
    }
    Ok(())
}

/// A waiter that was refused only looks until the lock is free.
#[tokio::test(flavor = "multi_thread")]
async fn t41_a_waiter_sees_that_a_lock_was_released_before_the_clock_was_set_back() -> Result<()> {
    let server = MariaDb::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    a.lock("till").acquire().await?.release().await?;
    server.query(ENDS_LATER)?;
    server.query("UPDATE tidelock_locks SET owner = 'somebody:1'")?;
    let attempts = || {
        server.query(
            "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'com_insert_select'",
        )
    };
    let before = attempts()?;
    let waiting = tokio::spawn(async move { b.lock("till").acquire().await });
    soon("a refusal", async {
        while attempts()? == before {
            sleep(LEASE / 100).await;
        }
        anyhow::Ok(())
    })
    .await?;
    server.query("UPDATE tidelock_locks SET owner = ''")?;
    soon("the lock", waiting).await??.release().await?;
    Ok(())
}
