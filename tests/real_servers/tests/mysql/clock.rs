//! The server's wall clock, by which leases end. Instead of the clock a test moves what the server has written by it.

use anyhow::{Context, Result};
use testkit::proxy::{Mode, Proxy};
use testkit::servers::MariaDb;
use tidelock::AcquireOptions;
use tokio::time::sleep;

use super::{client, lease, soon};

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
    // It is free again after a lease if its holder dies now.
    let left = b.lock("stock").inspect().await?.expires_in;
    assert!(left.is_some_and(|left| left <= lease()), "{left:?}");
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
            sleep(lease() / 100).await;
        }
        anyhow::Ok(())
    })
    .await?;
    server.query("UPDATE tidelock_locks SET owner = ''")?;
    soon("the lock", waiting).await??.release().await?;
    Ok(())
}

/// The withdrawn tickets of a row: those of the current period, and those of the one before.
const NEWER: &str = "SELECT HEX(withdrawn) FROM tidelock_locks";
const OLDER: &str = "SELECT HEX(before_that) FROM tidelock_locks";

/// A waiter for a fair lock gives up while its attempt has no answer. The attempt may still arrive, so its ticket is withdrawn.
async fn withdraw(server: &MariaDb) -> Result<()> {
    let marks = || anyhow::Ok((server.query(NEWER)?, server.query(OLDER)?));
    let before = marks()?;
    let proxy = Proxy::start(server.addr())?;
    let waiter = client(&server.url_at(proxy.addr(), "tide")).await?;
    proxy.set_both(Mode::Hold);
    // Longer than the client waits for an answer: otherwise the answer is still expected, and comes before the withdrawal.
    let patience = AcquireOptions::new().wait(lease() * 2);
    let given_up = waiter.fair_lock("stock").acquire_with(patience).await;
    given_up.map(drop).unwrap_err();
    proxy.set_both(Mode::Pass);
    soon("the mark", async {
        while marks()? == before {
            sleep(lease() / 100).await;
        }
        anyhow::Ok(())
    })
    .await
}

/// A ticket was withdrawn while the clock was an hour ahead, and the clock is set right. It is remembered for one period more, and
/// then forgotten. Otherwise each withdrawal of an hour would stay in the row, and each attempt reads them all.
#[tokio::test(flavor = "multi_thread")]
async fn t41_withdrawn_tickets_are_forgotten_after_the_clock_was_set_back() -> Result<()> {
    let server = MariaDb::start()?;
    let a = client(&server.url()).await?;
    let _held = a.fair_lock("stock").acquire().await?;
    withdraw(&server).await?;
    let first = server.query(NEWER)?;
    server.query("UPDATE tidelock_locks SET turned = turned + 3600000000")?;
    withdraw(&server).await?;
    let both = server.query(NEWER)?;
    assert!(both.starts_with(&first) && both.len() > first.len());
    let is_past = "SELECT turned <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) FROM tidelock_locks";
    assert_eq!(server.query(is_past)?, "1");
    let a_period_passes = "UPDATE tidelock_locks SET turned = turned - 300000000";
    server.query(a_period_passes)?;
    withdraw(&server).await?;
    let older = server.query(OLDER)?;
    assert!(older.starts_with(&both), "{older} without {both}");
    server.query(a_period_passes)?;
    withdraw(&server).await?;
    let kept = server.query(OLDER)? + &server.query(NEWER)?;
    assert!(!kept.contains(&first), "{kept} has {first}");
    Ok(())
}
