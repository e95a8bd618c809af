//! Settings of a server that a session would begin with: they change no lock, or the client says what is wrong with them.

use std::time::Instant;

use anyhow::{Context, Result};
use testkit::servers::MariaDb;
use tidelock::{ErrorKind, Severity};

use super::{client, lease};

/// There a `COMMIT` begins the next transaction on its connection, and a grant in that one would not be committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_committed_where_a_commit_begins_the_next_transaction() -> Result<()> {
    let server = MariaDb::start_with(&["--completion-type=CHAIN"])?;
    let a = client(&server.url()).await?;
    // Each of these two requests is a transaction. The next ones find their connections in the pool.
    a.fair_lock("stock").acquire().await?.release().await?;
    let held = "SELECT COUNT(*) FROM tidelock_locks WHERE name = 'stock' AND owner <> ''";
    let guard = a.lock("stock").acquire().await?;
    assert_eq!(server.query(held)?, "1", "another session sees the grant");
    guard.release().await?;
    assert_eq!(server.query(held)?, "0", "and the release");
    Ok(())
}

/// Settings for people who type statements: a limit for the rows of an answer, and no change without a key.
#[tokio::test(flavor = "multi_thread")]
async fn limits_for_people_who_type_statements_cost_no_hold() -> Result<()> {
    const LOCKS: usize = 20;
    let server = MariaDb::start()?;
    server.query("SET GLOBAL sql_select_limit = 1, GLOBAL sql_safe_updates = 1")?;
    let a = client(&server.url()).await?;
    let mut guards = Vec::new();
    // Their renewals share requests, and each request has one answer for all of its locks.
    for n in 0..LOCKS {
        guards.push(a.lock(&format!("stock:{n}")).acquire().await?);
    }
    for n in 0..LOCKS {
        let price = a.read_write_lock(&format!("price:{n}")).read();
        guards.push(price.acquire().await?);
    }
    tokio::time::sleep(lease() * 2).await;
    let lost: Vec<_> = guards.iter().filter(|guard| !guard.is_held()).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert_eq!(a.list("*").limit(100).await?.len(), LOCKS * 2);
    Ok(())
}

/// Such a server ignores the character set that a connection asks for.
#[tokio::test(flavor = "multi_thread")]
async fn names_are_listed_as_they_are_whatever_character_set_the_server_prefers() -> Result<()> {
    let server = MariaDb::start_with(&[
        "--skip-character-set-client-handshake",
        "--character-set-server=latin1",
    ])?;
    let a = client(&server.url()).await?;
    let _stock = a.lock("stöck").acquire().await?;
    let _till = a.lock("🔒").acquire().await?;
    let mut listed = a.list("*").limit(10).await?;
    listed.sort();
    assert_eq!(listed, ["stöck", "🔒"]);
    Ok(())
}

/// `InnoDB` refuses every change of a READ COMMITTED transaction there. No change is waited for, and the doctor says what to
/// set. A format that is set later counts from the next request on.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_logs_statements_is_unsupported_at_once() -> Result<()> {
    // The last option counts: the servers of the tests write no binary log.
    let server = MariaDb::start_with(&["--log-bin=binlog", "--binlog-format=STATEMENT"])?;
    let error = client(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    server.query("SET GLOBAL binlog_format = 'MIXED'")?;
    let mixed = client(&server.url()).await?;
    mixed.lock("stock").acquire().await?.release().await?;
    server.query("SET GLOBAL binlog_format = 'STATEMENT'")?;
    let a = client(&server.url()).await?;
    let begun = Instant::now();
    for error in [
        a.lock("stock").acquire().await.map(drop).unwrap_err(),
        a.fair_lock("till").acquire().await.map(drop).unwrap_err(),
        a.lock("stock").try_acquire().await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("binlog_format"), "{error}");
    }
    // Two acquisitions that are repeated would take a lease each.
    assert!(begun.elapsed() < lease() * 2, "{:?}", begun.elapsed());
    let findings = a.diagnose().await?;
    let mut findings = findings.into_iter();
    let finding = findings.find(|finding| finding.subject == "binary log format");
    let finding = finding.context("no finding")?;
    assert_eq!(finding.severity, Severity::Danger, "{finding:?}");
    server.query("SET GLOBAL binlog_format = 'ROW'")?;
    a.lock("stock").acquire().await?.release().await?;
    Ok(())
}
