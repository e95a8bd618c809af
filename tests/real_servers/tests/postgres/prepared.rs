//! Statements that are parsed once for each connection, and sessions that do not know them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use real_servers::requests::{Protocol, RequestCounter};
use testkit::servers::{Pgbouncer, PostgresServer};
use tidelock::Client;
use tokio_postgres::NoTls;

use crate::{lease, server};

/// A client that sends nothing by itself.
async fn quiet(url: &str) -> Result<Client> {
    let builder = Client::builder()
        .publish_process_info(false)
        .response_timeout(lease());
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
    pairs(&client, "till", 200).await?;
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
    // Another client makes the tables.
    let other = quiet(&server.url()).await?;
    let held = other.lock("till").acquire().await?;
    ensure!(client.lock("till").try_acquire().await?.is_none());
    held.release().await?;
    pairs(&client, "till", 10).await
}

/// The server refuses a plan whose columns have other types now. The statement is prepared again, and goes on so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_of_another_type_is_no_reason_to_stop_preparing() -> Result<()> {
    let server = server();
    let client = quiet(&server.url()).await?;
    pairs(&client, "till", 10).await?;
    server.query("ALTER TABLE tidelock_locks ALTER COLUMN token TYPE numeric")?;
    pairs(&client, "till", 10).await?;
    ensure!(last(&server, "EXECUTE tidelock_")? == 1);
    Ok(())
}

/// How often the server has read the whole table, and how many rows it has changed.
fn scans_and_changes(server: &PostgresServer) -> Result<(u64, u64)> {
    let text = server.query(
        "SELECT seq_scan, n_tup_upd FROM pg_stat_user_tables WHERE relname = 'tidelock_locks'",
    )?;
    let (scans, changes) = text.trim().split_once('|').context("two columns")?;
    Ok((scans.parse()?, changes.parse()?))
}

/// The number of scans while the server counts some hundred pairs more.
async fn scans_of_pairs(server: &PostgresServer, client: &Client) -> Result<u64> {
    // A session shows its counts about once a second, those of one table together.
    let shown = async |before: (u64, u64)| loop {
        pairs(client, "till", 10).await?;
        let now = scans_and_changes(server)?;
        if now.1 >= before.1 + 20 {
            return anyhow::Ok(now);
        }
    };
    let first = shown(scans_and_changes(server)?).await?;
    Ok(shown(first).await?.0 - first.0)
}

/// A plan that was made for a table of one page reads all of it. The server keeps such a plan while the table grows,
/// until somebody analyses it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_for_a_small_table_does_not_outlive_its_growth() -> Result<()> {
    let server = server();
    let client = quiet(&server.url()).await?;
    server.query("ALTER TABLE tidelock_locks SET (autovacuum_enabled = off)")?;
    pairs(&client, "till", 10).await?;
    server.query("VACUUM ANALYZE tidelock_locks")?;
    pairs(&client, "till", 10).await?;
    ensure!(
        scans_of_pairs(&server, &client).await? >= 10,
        "the plan for a small table reads all of it, or this test shows nothing"
    );
    server.query(
        "INSERT INTO tidelock_locks (name, expires, token) \
         SELECT 'job:' || n, clock_timestamp(), n FROM generate_series(1, 100000) n",
    )?;
    // A look for old rows may read the table once.
    let few = async {
        while scans_of_pairs(&server, &client).await? > 1 {}
        anyhow::Ok(())
    };
    tokio::time::timeout(Duration::from_secs(60), few).await??;
    for _ in 0..3 {
        let scans = scans_of_pairs(&server, &client).await?;
        ensure!(scans <= 1, "{scans} scans again");
    }
    Ok(())
}

/// The requests of each pair of a client, and how many of them a session has refused.
async fn cost(client: &Client, counter: &RequestCounter) -> Result<(u64, u64)> {
    let refused = counter.unknown();
    counter.spent();
    pairs(client, "till", 1).await?;
    Ok((counter.spent(), counter.unknown() - refused))
}

/// Behind a transaction pooler the next statement may reach another session, and other clients may tell a session to
/// forget its statements.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t56_a_session_that_has_forgotten_a_statement_gets_it_in_full() -> Result<()> {
    let server = server();
    let pooler = Pgbouncer::start(&server).unwrap();
    let url = server.url_at(pooler.addr());
    // Two tables: what one client has prepared, the other must not run.
    let (mut clients, mut counters) = (Vec::new(), Vec::new());
    for options in ["", "?table=other_locks"] {
        let counter = RequestCounter::before(pooler.addr(), Protocol::Postgres).await?;
        let url = server.url_at(counter.addr);
        clients.push(quiet(&format!("{url}{options}")).await?);
        counters.push(counter);
    }
    let (other, connection) = tokio_postgres::connect(&url, NoTls).await?;
    let connection = tokio::spawn(connection);
    let mut costs = [Vec::new(), Vec::new()];
    for round in 0..30 {
        for n in 0..2 {
            costs[n].push(cost(&clients[n], &counters[n]).await?);
        }
        if round % 3 == 2 {
            // In both sessions of the pooler.
            let forget = "DISCARD ALL";
            let (one, two) = tokio::join!(other.batch_execute(forget), other.batch_execute(forget));
            one.and(two)?;
        }
    }
    for costs in &costs {
        let refused: u64 = costs.iter().map(|(_, refused)| refused).sum();
        ensure!(refused == 1, "{refused} refusals: {costs:?}");
        for (requests, refused) in &costs[1..] {
            // To acquire, to try in vain, to release, and once more what was refused.
            ensure!(*requests == 3 + refused, "{costs:?}");
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
