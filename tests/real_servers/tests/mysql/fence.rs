//! The fencing check in the user's own transaction: which transactions pass, and which are refused.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use testkit::servers::MariaDb;
use tidelock::{AcquireOptions, Client, ErrorKind, SqlFence};

use super::session::Session;
use super::{client, lease, soon};

const PASSES: &str = "18446744073709551615";

/// While a fenced transaction is open, the lease is renewed and the lock can be released, but nobody else is granted
/// the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_fence_holds_up_grants_and_nothing_else() -> Result<()> {
    let server = MariaDb::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let mut session = Session::open(&server)?;
    let guard = a.lock("it's stöck").fenced().acquire().await?;
    let answer = session.begin(&guard).await?;
    assert_eq!(answer, PASSES);
    tokio::time::sleep(lease() * 2).await;
    assert!(guard.is_held(), "it was renewed");
    guard.release().await?;
    let patience = AcquireOptions::new().wait(Duration::from_secs(1));
    let early = b.lock("it's stöck").fenced().acquire_with(patience).await;
    assert!(early.is_err(), "the transaction is still open");
    session.ask("COMMIT; SELECT 'done'").await?;
    let next = soon("the next holder", b.lock("it's stöck").fenced().acquire()).await?;
    next.release().await?;
    Ok(())
}

/// The lock has no holder, but nobody may get it before the transaction ends, however long that takes. The server answers
/// all the time, so this is no outage.
#[tokio::test(flavor = "multi_thread")]
async fn a_free_lock_that_a_fence_keeps_counts_as_held() -> Result<()> {
    let server = MariaDb::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let mut session = Session::open(&server)?;
    let guard = a.lock("stock").fenced().acquire().await?;
    let token = guard.token();
    assert_eq!(session.begin(&guard).await?, PASSES);
    guard.release().await?;
    let waiting = tokio::spawn(b.lock("stock").fenced().acquire());
    let begun = Instant::now();
    while begun.elapsed() < lease() * 5 / 2 {
        assert!(b.lock("stock").try_acquire().await?.is_none());
        assert!(!waiting.is_finished(), "after {:?}", begun.elapsed());
        tokio::time::sleep(lease() / 40).await;
    }
    session.ask("COMMIT; SELECT 'done'").await?;
    let next = soon("the next holder", waiting).await??;
    assert!(next.token() > token);
    next.release().await?;
    Ok(())
}

/// With READ COMMITTED the fence locks one entry of an index and no gap beside it. So other locks are granted at once, also
/// to the client whose transaction is open: locks with a row, and those that get their first one. A grant that had to wait
/// would fail. With REPEATABLE READ `other:0` does, the neighbour of `stock` in the index.
#[tokio::test(flavor = "multi_thread")]
async fn a_fence_in_a_read_committed_transaction_holds_up_no_other_lock() -> Result<()> {
    let server = MariaDb::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let mut session = Session::open(&server)?;
    let level = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
    session.ask(&format!("{level}; SELECT 'done'")).await?;
    let names: Vec<String> = (0..40).map(|n| format!("other:{n}")).collect();
    for name in &names[..20] {
        b.lock(name).acquire().await?.release().await?;
    }
    let guard = a.lock("stock").fenced().acquire().await?;
    assert_eq!(session.begin(&guard).await?, PASSES);
    for (n, name) in names.iter().enumerate() {
        let client = if n % 2 == 0 { &a } else { &b };
        let other = client.lock(name).try_acquire().await?;
        let other = other.with_context(|| format!("{name} is free"))?;
        other.release().await?;
    }
    session.ask("COMMIT; SELECT 'done'").await?;
    guard.release().await?;
    Ok(())
}

/// The queue of a fair lock waits for the fence too. The release does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_fence_holds_up_the_next_waiter_and_no_release() -> Result<()> {
    let server = MariaDb::start()?;
    let long = Client::builder()
        .lease(lease() * 10)
        .publish_process_info(false);
    let (a, b) = (
        long.clone().connect(&server.url()).await?,
        long.connect(&server.url()).await?,
    );
    let mut session = Session::open(&server)?;
    let guard = a.fair_lock("stock").fenced().acquire().await?;
    let token = guard.token();
    let waiting = tokio::spawn(b.fair_lock("stock").fenced().acquire());
    let placed = async {
        while b.fair_lock("stock").inspect().await?.queue.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        anyhow::Ok(())
    };
    soon("a place", placed).await?;
    assert_eq!(session.begin(&guard).await?, PASSES);
    let released = Instant::now();
    guard.release().await?;
    // A statement that waits for the fence gives up after a second.
    assert!(released.elapsed() < lease(), "{:?}", released.elapsed());
    tokio::time::sleep(lease() / 2).await;
    assert!(!waiting.is_finished());
    assert!(a.fair_lock("stock").try_acquire().await?.is_none());
    session.ask("COMMIT; SELECT 'done'").await?;
    let next = soon("its turn", waiting).await??;
    assert!(next.token() > token);
    next.release().await?;
    Ok(())
}

/// An older token is an error: while the newer one is held, after its release, and after its row was removed.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_token_fails_the_transaction() -> Result<()> {
    let server = MariaDb::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let mut session = Session::open(&server)?;
    let once = AcquireOptions::new().expires_after(Duration::from_millis(300));
    let old = a.lock("stock").fenced().acquire_with(once).await?;
    old.lost().await;
    // Nobody has acquired the lock since, so the token of the expired lease is still the newest one and passes.
    assert_eq!(session.begin(&old).await?, PASSES);
    session.ask("ROLLBACK; SELECT 'done'").await?;
    let new = soon("the next holder", b.lock("stock").fenced().acquire()).await?;
    let refused = session.begin(&old).await?;
    assert!(refused.contains("1690 (22003)"), "{refused}");
    assert!(SqlFence::is_refusal(Some("22003"), &refused), "{refused}");
    session.ask("ROLLBACK; SELECT 'done'").await?;
    assert_eq!(session.begin(&new).await?, PASSES);
    session.ask("ROLLBACK; SELECT 'done'").await?;
    new.release().await?;
    let refused = session.begin(&old).await?;
    assert!(SqlFence::is_refusal(Some("22003"), &refused), "{refused}");
    session
        .ask("ROLLBACK; DELETE FROM tidelock_locks; SELECT 'done'")
        .await?;
    let refused = session.begin(&old).await?;
    assert!(SqlFence::is_refusal(Some("22003"), &refused), "{refused}");
    Ok(())
}

/// The largest token has no successor. The attempt fails at once, and nobody holds the lock.
#[tokio::test(flavor = "multi_thread")]
async fn t68_a_token_without_a_next_one_is_refused_and_nothing_is_taken() -> Result<()> {
    let server = MariaDb::start()?;
    let client = client(&server.url()).await?;
    let lock = client.lock("stock").fenced();
    lock.acquire().await?.release().await?;
    server.query("UPDATE tidelock_locks SET token = 18446744073709551615")?;
    let patient = AcquireOptions::new().wait(Duration::from_secs(20));
    let begun = std::time::Instant::now();
    for error in [
        lock.try_acquire().await.map(drop).unwrap_err(),
        lock.acquire_with(patient).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        assert!(error.to_string().contains("token"), "{error}");
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "waited");
    assert!(!lock.inspect().await?.is_locked());
    server.query("UPDATE tidelock_locks SET token = 18446744073709551614")?;
    let guard = lock.acquire().await?;
    assert_eq!(guard.token().get(), u64::MAX);
    guard.release().await?;
    Ok(())
}
