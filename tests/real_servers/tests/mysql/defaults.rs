//! Settings of a server that a session would begin with: they change no lock.

use anyhow::Result;
use testkit::servers::MariaDb;

use super::{LEASE, client};

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
    tokio::time::sleep(LEASE * 2).await;
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
