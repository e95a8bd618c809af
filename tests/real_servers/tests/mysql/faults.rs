//! Faults of connections, of the server and of single rows.

use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use real_servers::{lost_in_time, ms, secs};
use testkit::proxy::{Mode, Proxy};
use testkit::servers::MariaDb;
use tidelock::{AcquireOptions, ErrorKind, LostReason};
use tokio::time::sleep;

use super::{client, lease, soon};

/// Kills every connection of the user, also a busy one. Returns the number of killed connections.
fn kill_sessions(server: &MariaDb) -> Result<usize> {
    let ids = server.query("SELECT id FROM information_schema.processlist WHERE user = 'tide'")?;
    let kills: Vec<String> = ids
        .lines()
        .map(|id| format!("KILL CONNECTION {id}"))
        .collect();
    for kill in &kills {
        // `KILL` fails for a connection that has closed in the meantime. That is not an error here.
        let _ = server.query(kill);
    }
    Ok(kills.len())
}

/// The server closes idle connections long before the hold ends. A closed connection loses no lock.
#[tokio::test(flavor = "multi_thread")]
async fn t57_a_wait_timeout_of_a_second_loses_nothing() -> Result<()> {
    let server = MariaDb::start_with(&["--wait-timeout=1", "--interactive-timeout=1"])?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let long = AcquireOptions::new().lease(secs(12));
    let guard = a.lock("stock").acquire_with(long).await?;
    sleep(secs(7)).await;
    assert!(b.lock("stock").try_acquire().await?.is_none());
    assert!(guard.is_held());
    guard.release().await?;
    b.lock("stock")
        .try_acquire()
        .await?
        .context("it is free")?
        .release()
        .await?;
    Ok(())
}

/// Connections are killed repeatedly: leases are renewed, a waiter keeps waiting, and a release reaches the server.
#[tokio::test(flavor = "multi_thread")]
async fn t57_killed_connections_lose_nothing() -> Result<()> {
    let server = MariaDb::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let guard = a.lock("stock").acquire().await?;
    let waiter = b.lock("stock");
    let waiter = tokio::spawn(async move { waiter.acquire().await });
    let begun = Instant::now();
    let mut killed = 0;
    while begun.elapsed() < lease() * 3 {
        killed += kill_sessions(&server)?;
        sleep(ms(200)).await;
    }
    assert!(killed > 20, "only {killed} sessions were ended");
    assert!(guard.is_held());
    assert!(!waiter.is_finished());
    kill_sessions(&server)?;
    guard.release().await?;
    kill_sessions(&server)?;
    let next = soon("the waiter's turn", waiter).await??;
    kill_sessions(&server)?;
    drop(next);
    soon("the lock is free", a.lock("stock").acquire())
        .await?
        .release()
        .await?;
    Ok(())
}

/// `GET_LOCK` accepts at most 64 characters and compares them with a collation. In this store every distinct name is a
/// separate lock.
#[tokio::test(flavor = "multi_thread")]
async fn t57_names_of_any_length_and_look_are_apart() -> Result<()> {
    let server = MariaDb::start()?;
    let client = client(&server.url()).await?;
    let (stem, most) = ("n".repeat(64), "n".repeat(511));
    let mut names: Vec<String> = [
        "stock",
        "STOCK",
        "Stock",
        "stock ",
        " stock",
        "stöck",
        "sto\u{308}ck",
        "ß",
        "ss",
        "🔒",
        "🔓",
        "it's",
        "a\\",
        "%",
        "_",
    ]
    .map(str::to_owned)
    .into();
    names.extend([
        stem.clone(),
        format!("{stem}a"),
        format!("{stem}b"),
        format!("{stem}A"),
    ]);
    names.extend([format!("{most}1"), format!("{most}2")]);
    let mut guards = Vec::new();
    for name in &names {
        let guard = client.lock(name).try_acquire().await?;
        guards.push(guard.with_context(|| format!("{name:?} is another's name"))?);
    }
    for name in &names {
        let seen = client.lock(name).inspect().await?;
        assert_eq!(
            (seen.name.as_str(), seen.is_locked()),
            (name.as_str(), true)
        );
    }
    let mut listed = client.list("*").limit(100).await?;
    listed.sort();
    names.sort();
    assert_eq!(listed, names);
    let refused = client
        .lock(&"n".repeat(10_000))
        .acquire()
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidName);
    Ok(())
}

/// A server that crashes and restarts within the lease has lost no state.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_outlives_the_server() -> Result<()> {
    let server = MariaDb::start()?;
    let holder = tidelock::Client::builder().lease(Duration::from_secs(15));
    let a = holder.connect(&server.url()).await?;
    let b = client(&server.url()).await?;
    let guard = a.lock("stock").fenced().acquire().await?;
    let token = guard.token();
    server.kill()?;
    let error = b.lock("stock").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    server.restart()?;
    assert!(b.lock("stock").try_acquire().await?.is_none());
    assert!(guard.is_held());
    guard.release().await?;
    let next = soon("the next holder", b.lock("stock").fenced().acquire()).await?;
    assert!(next.token() > token);
    Ok(())
}

/// The server does not respond for longer than the lease: the holder learns of the loss in time, and the next waiter
/// gets the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_server_is_told_before_the_lease_ends() -> Result<()> {
    let server = MariaDb::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let guard = a.lock("stock").acquire().await?;
    server.freeze()?;
    // The last request that the server has answered was sent before this instant.
    let frozen = Instant::now();
    let told = lost_in_time(&guard, frozen, lease());
    assert_eq!(soon("the loss", told).await, LostReason::Expired);
    assert!(frozen.elapsed() < lease() * 2, "{:?}", frozen.elapsed());
    server.thaw()?;
    soon("the next holder", b.lock("stock").acquire())
        .await?
        .release()
        .await?;
    Ok(())
}

/// The connection drops all data in both directions without being closed, and later recovers.
#[tokio::test(flavor = "multi_thread")]
async fn a_half_open_connection_is_given_up() -> Result<()> {
    let server = MariaDb::start()?;
    let proxy = Proxy::start_opaque(server.addr())?;
    let a = client(&server.url_at(proxy.addr(), "tide")).await?;
    a.lock("stock").acquire().await?.release().await?;
    proxy.set_both(Mode::Drop);
    let error = a.lock("stock").try_acquire().await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    proxy.set_both(Mode::Pass);
    soon("a new connection", a.lock("stock").acquire())
        .await?
        .release()
        .await?;
    Ok(())
}

/// A foreign transaction holds the lock's row for longer than a statement waits. No abandoned statement may take effect
/// when the row is free again, and the other locks of the same batch are renewed.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_kept_delays_its_own_lock_only() -> Result<()> {
    let server = MariaDb::start()?;
    // The shortest row lock timeout of the server is one second, so the lease must be longer.
    let a = tidelock::Client::builder().lease(Duration::from_secs(6));
    let a = a.response_timeout(Duration::from_millis(2500));
    // Its response timeout fits the shortest row lock timeout of the server, which is the same on any machine.
    let b = tidelock::Client::builder()
        .lease(lease())
        .response_timeout(Duration::from_millis(1200));
    let b = b.publish_process_info(false);
    let (a, b) = (
        a.connect(&server.url()).await?,
        b.connect(&server.url()).await?,
    );
    let stock = a.lock("stock").acquire().await?;
    let mut others = Vec::new();
    for n in 0..20 {
        others.push(a.lock(&format!("other:{n}")).acquire().await?);
    }
    let mut session = server
        .client()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    let mut stdin = session.stdin.take().context("a pipe")?;
    writeln!(
        stdin,
        "START TRANSACTION; SELECT * FROM tidelock_locks WHERE id = UNHEX(SHA2('stock', 256)) FOR UPDATE;"
    )?;
    stdin.flush()?;
    soon("the loss of the one", stock.lost()).await;
    let patience = AcquireOptions::new().wait(lease() * 2);
    sleep(Duration::from_secs(3)).await;
    let error = b.lock("stock").acquire_with(patience).await.unwrap_err();
    assert!(error.is_timeout() || error.is_retryable(), "{error}");
    let lost: Vec<_> = others.iter().filter(|guard| !guard.is_held()).collect();
    assert!(lost.is_empty(), "{lost:?}");
    drop(stdin);
    session.wait()?;
    let next = soon("the row is free", b.lock("stock").acquire()).await?;
    next.release().await?;
    for other in others {
        other.release().await?;
    }
    Ok(())
}

/// A foreign transaction keeps the rows of more locks than the steward has connections. The others are younger, so they come
/// last.
#[tokio::test(flavor = "multi_thread")]
async fn many_rows_that_are_kept_delay_no_other_lock() -> Result<()> {
    let server = MariaDb::start()?;
    // As by default, the response timeout is shorter than an eighth of the lease.
    let lease = Duration::from_secs(10);
    let a = tidelock::Client::builder().lease(lease);
    let a = a.response_timeout(Duration::from_millis(1200));
    let a = a.connect(&server.url()).await?;
    let (mut kept, mut others, mut sides) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..12 {
        kept.push(a.lock(&format!("kept:{n}")).acquire().await?);
    }
    for n in 0..20 {
        others.push(a.lock(&format!("other:{n}")).acquire().await?);
        let side = a.read_write_lock(&format!("side:{n}"));
        sides.push(side.read().acquire().await?);
    }
    let mut session = server
        .client()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    let mut stdin = session.stdin.take().context("a pipe")?;
    writeln!(
        stdin,
        "START TRANSACTION; SELECT * FROM tidelock_locks FORCE INDEX (PRIMARY) WHERE id IN ({}) FOR UPDATE;",
        (0..12)
            .map(|n| format!("UNHEX(SHA2('kept:{n}', 256))"))
            .collect::<Vec<_>>()
            .join(", ")
    )?;
    stdin.flush()?;
    for guard in &kept {
        soon("the loss of those that are kept", guard.lost()).await;
    }
    // A second lease, in which the others must be renewed again.
    sleep(lease).await;
    for guards in [&others, &sides] {
        let lost: Vec<_> = guards.iter().filter(|guard| !guard.is_held()).collect();
        assert!(lost.is_empty(), "{lost:?}");
    }
    drop(stdin);
    session.wait()?;
    for other in others.into_iter().chain(sides) {
        other.release().await?;
    }
    Ok(())
}

/// Locks whose rows are kept for a moment are not lost, and a lock whose row is deleted meanwhile is.
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_free_again_are_renewed() -> Result<()> {
    let server = MariaDb::start()?;
    let a = tidelock::Client::builder().lease(Duration::from_secs(6));
    let a = a.response_timeout(Duration::from_millis(2500));
    let a = a.connect(&server.url()).await?;
    let mut held = Vec::new();
    for n in 0..12 {
        held.push(a.lock(&format!("kept:{n}")).acquire().await?);
    }
    let deleted = a.lock("deleted").acquire().await?;
    let mut session = server
        .client()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    let mut stdin = session.stdin.take().context("a pipe")?;
    writeln!(
        stdin,
        "START TRANSACTION; SELECT * FROM tidelock_locks FOR UPDATE; \
         DELETE FROM tidelock_locks WHERE name = 'deleted'; SELECT SLEEP(4); COMMIT;"
    )?;
    stdin.flush()?;
    let lost = soon("the loss of the one", deleted.lost()).await;
    assert_eq!(lost, LostReason::Taken);
    sleep(Duration::from_secs(6)).await;
    let lost: Vec<_> = held.iter().filter(|guard| !guard.is_held()).collect();
    assert!(lost.is_empty(), "{lost:?}");
    drop(stdin);
    session.wait()?;
    for guard in held {
        guard.release().await?;
    }
    Ok(())
}

/// After a failover the address leads to another server. The old one still answers on the connections that are open, but
/// takes no changes.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_no_changes_any_more_is_left() -> Result<()> {
    let (first, second) = (MariaDb::start()?, MariaDb::start()?);
    drop(client(&second.url()).await?); // makes the tables
    let proxy = Proxy::start_opaque(first.addr())?;
    let a = client(&first.url_at(proxy.addr(), "tide")).await?;
    // Requests that run at the same time leave several idle connections.
    let [one, two, three] = ["one", "two", "three"].map(|name| a.lock(name).acquire());
    let (one, two, three) = tokio::try_join!(one, two, three)?;
    for guard in [one, two, three] {
        guard.release().await?;
    }
    first.query("SET GLOBAL read_only = 1")?;
    proxy.set_upstream(second.addr());
    let guard = a.lock("stock").try_acquire().await?;
    let guard = guard.context("the server that takes changes grants it")?;
    let b = client(&second.url()).await?;
    assert!(b.lock("stock").try_acquire().await?.is_none());
    guard.release().await?;
    Ok(())
}
