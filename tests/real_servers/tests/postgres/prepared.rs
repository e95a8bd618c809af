//! Statements that are parsed once for each connection, and sessions that do not know them.

use anyhow::{Result, ensure};
use testkit::servers::{Pgbouncer, PostgresServer};
use tidelock::Client;
use tokio_postgres::NoTls;

use crate::{LEASE, server};

/// A client that sends nothing by itself.
async fn quiet(url: &str) -> Result<Client> {
    let builder = Client::builder()
        .publish_process_info(false)
        .response_timeout(LEASE);
    Ok(builder.connect(url).await?)
}

/// The last statement of each session that begins so.
fn last(server: &PostgresServer, begin: &str) -> Result<usize> {
    let count = format!("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '{begin}%'");
    Ok(server.query(&count)?.trim().parse()?)
}

async fn pairs(client: &Client, name: &str, count: usize) -> Result<()> {
    let lock = client.lock(name);
    for _ in 0..count {
        let guard = lock.acquire().await?;
        ensure!(lock.try_acquire().await?.is_none(), "{name} is held twice");
        guard.release().await?;
    }
    Ok(())
}

/// Names that look like SQL, as those of the locks that hold them.
const NAMES: [&str; 4] = ["till", "it's \"here\"", r"a\'b\\", "'); DROP TABLE x; --漢"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_taken_and_released_by_prepared_statements() -> Result<()> {
    let server = server();
    let client = quiet(&server.url()).await?;
    for name in NAMES {
        let lock = client.lock(name).fenced();
        let guard = lock.acquire().await?;
        ensure!(lock.inspect().await?.is_locked(), "{name}");
        ensure!(lock.try_acquire().await?.is_none(), "{name}");
        let token = guard.token();
        guard.release().await?;
        ensure!(!lock.inspect().await?.is_locked(), "{name}");
        let next = lock.acquire().await?;
        ensure!(next.token() > token, "{name}");
        next.release().await?;
    }
    pairs(&client, "till", 3).await?;
    ensure!(last(&server, "EXECUTE tidelock_")? == 1);
    // A server that was restarted knows no names.
    server.restart()?;
    pairs(&client, "till", 3).await?;
    ensure!(last(&server, "EXECUTE tidelock_")? == 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_prepared_where_the_url_says_so() -> Result<()> {
    let server = server();
    let client = quiet(&format!("{}?statements=unnamed", server.url())).await?;
    for name in NAMES {
        pairs(&client, name, 2).await?;
    }
    ensure!(last(&server, "EXECUTE")? == 0 && last(&server, "WITH freed")? == 1);
    Ok(())
}

/// The tables change while the statements are prepared: other columns, and other tables of the same names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_table_is_used_by_statements_that_were_prepared_before() -> Result<()> {
    let server = server();
    let client = quiet(&server.url()).await?;
    // Enough that the server has a plan that it keeps.
    pairs(&client, "till", 10).await?;
    server.query("ALTER TABLE tidelock_locks ADD COLUMN note text")?;
    server.query("ALTER TABLE tidelock_locks DROP COLUMN note")?;
    server.query("ALTER TABLE tidelock_locks ADD COLUMN room int DEFAULT 7")?;
    pairs(&client, "till", 10).await?;
    server.query(
        "DROP TABLE tidelock_locks, tidelock_locks_withdrawn CASCADE; DROP SEQUENCE tidelock_locks_tokens",
    )?;
    ensure!(client.lock("till").acquire().await.is_err(), "no table");
    // Another client makes the tables.
    let other = quiet(&server.url()).await?;
    let held = other.lock("till").acquire().await?;
    ensure!(client.lock("till").try_acquire().await?.is_none());
    held.release().await?;
    pairs(&client, "till", 10).await
}

/// Behind a transaction pooler the next statement may reach another session, and other clients may tell a session to
/// forget its statements.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t56_a_session_that_has_forgotten_a_statement_gets_it_in_full() -> Result<()> {
    let server = server();
    let pooler = Pgbouncer::start(&server).unwrap();
    let url = server.url_at(pooler.addr());
    // Two tables: what one client has prepared, the other must not run.
    let clients = [
        quiet(&url).await?,
        quiet(&format!("{url}?table=other_locks")).await?,
    ];
    let (other, connection) = tokio_postgres::connect(&url, NoTls).await?;
    let connection = tokio::spawn(connection);
    for round in 0..30 {
        for client in &clients {
            pairs(client, "till", 1).await?;
        }
        if round % 3 == 2 {
            // In both sessions of the pooler.
            let forget = "DISCARD ALL";
            let (one, two) = tokio::join!(other.batch_execute(forget), other.batch_execute(forget));
            one.and(two)?;
        }
    }
    for (table, other) in [
        ("tidelock_locks", "other_locks"),
        ("other_locks", "tidelock_locks"),
    ] {
        let client = &clients[usize::from(table == "other_locks")];
        let guard = client.lock(table).acquire().await?;
        let count =
            |of: &str| server.query(&format!("SELECT count(*) FROM {of} WHERE name = '{table}'"));
        ensure!(count(table)? == "1" && count(other)? == "0");
        guard.release().await?;
    }
    // It is sent in full from now on, in one round trip again.
    ensure!(last(&server, "EXECUTE")? == 0, "it still uses names");
    connection.abort();
    Ok(())
}
