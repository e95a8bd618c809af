//! Processes that poll for one lock count each other in the table of waiters, and those behind the first ask less often.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use real_servers::requests::{Protocol, RequestCounter};
use testkit::servers::MariaDb;
use tidelock::{AcquireOptions, Client, ErrorKind, Guard};
use tokio::task::JoinHandle;

use super::soon;

/// The requests of one process that waits alone, in a second, without its beats.
const A_SECOND_OF_ONE: u64 = 20;

async fn client(url: &str) -> Result<Client> {
    let builder = Client::builder().publish_process_info(false);
    Ok(builder.connect(url).await?)
}

/// Waits in a client of its own, as in a process of its own.
async fn waiter(url: &str) -> Result<JoinHandle<tidelock::Result<()>>> {
    let client = client(url).await?;
    Ok(tokio::spawn(async move {
        client.lock("stock").acquire().await?.release().await
    }))
}

/// The rows of pollers that are alive.
const ROWS: &str = "SELECT COUNT(*) FROM locks.tidelock_waiters WHERE owner <> 'a dead one'";

/// Waits until so many have joined.
async fn joined(server: &MariaDb, count: u64) -> Result<()> {
    let begun = Instant::now();
    while server.query(ROWS)? != count.to_string() {
        ensure!(
            begun.elapsed() < Duration::from_secs(30),
            "{} of {count} rows",
            server.query(ROWS)?
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn held(server: &MariaDb) -> Result<Guard> {
    Ok(client(&server.url()).await?.lock("stock").acquire().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_processes_costs_less_than_half_of_what_each_alone_does() -> Result<()> {
    const CROWD: u64 = 24;
    const SECONDS: u64 = 8;
    let server = MariaDb::start()?;
    let counter = RequestCounter::before(server.addr(), Protocol::Mysql).await?;
    let held = held(&server).await?;
    let url = server.url_at(counter.addr, "tide");
    let mut crowd = vec![waiter(&url).await?];
    joined(&server, 1).await?;
    counter.spent();
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    let one = counter.spent();
    ensure!(one <= (A_SECOND_OF_ONE + 1) * SECONDS, "{one} of one");
    for _ in 1..CROWD {
        crowd.push(waiter(&url).await?);
    }
    joined(&server, CROWD).await?;
    // The pauses of those that came last grow for a while.
    tokio::time::sleep(Duration::from_secs(4)).await;
    counter.spent();
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    let all = counter.spent();
    println!("{one} requests of one and {all} of {CROWD} in {SECONDS} s");
    // Without a count each of them would ask as often as one. The counts of those behind the first are among the requests.
    ensure!(2 * all < one * CROWD, "{all} of {CROWD}, {one} of one");
    // The first one asks as often as before: the lock is found as soon.
    ensure!(all >= one, "{all} of {CROWD}, {one} of one");
    held.release().await?;
    for turn in crowd {
        soon("everybody's turn", turn).await??;
    }
    joined(&server, 0).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_of_a_held_lock_only_reads() -> Result<()> {
    let server = MariaDb::start()?;
    let status = |names: &str| -> Result<u64> {
        let sum = server.query(&format!(
            "SELECT CAST(SUM(VARIABLE_VALUE) AS INTEGER) FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME IN ({names})"
        ))?;
        Ok(sum.parse()?)
    };
    let (selects, inserts) = ("'COM_SELECT'", "'COM_INSERT', 'COM_INSERT_SELECT'");
    let held = held(&server).await?;
    let waiter = waiter(&server.url()).await?;
    joined(&server, 1).await?;
    let (read, written) = (status(selects)?, status(inserts)?);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (read, written) = (status(selects)? - read, status(inserts)? - written);
    ensure!(read >= 30, "{read} polls in 3 s");
    ensure!(written == 0, "{written} of {read} polls wrote");
    held.release().await?;
    soon("the turn", waiter).await??;
    Ok(())
}

/// As after a planned failover, when the old primary becomes a replica that still shows the lock as held.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_told_that_the_server_became_read_only() -> Result<()> {
    let server = MariaDb::start()?;
    let held = held(&server).await?;
    let lease = Duration::from_secs(3);
    let settings = Client::builder().lease(lease).publish_process_info(false);
    let lock = settings.connect(&server.url()).await?.lock("stock");
    let waiter = tokio::spawn(lock.acquire());
    joined(&server, 1).await?;
    server.query("SET GLOBAL read_only = 1")?;
    let answer = tokio::time::timeout(lease * 3, waiter).await;
    server.query("SET GLOBAL read_only = 0")?;
    let error = answer??.expect_err("it is held");
    ensure!(error.kind() == ErrorKind::Unavailable, "{error}");
    held.release().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pollers_that_have_shown_no_life_do_not_count() -> Result<()> {
    const SECONDS: u64 = 5;
    let server = MariaDb::start()?;
    let counter = RequestCounter::before(server.addr(), Protocol::Mysql).await?;
    let held = held(&server).await?;
    let waiter = waiter(&server.url_at(counter.addr, "tide")).await?;
    joined(&server, 1).await?;
    let now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    for (alive, fewest, most) in [
        (format!("{now} - 1"), 14, 21),
        // A fifth of that, and the counts.
        (format!("{now} + 60000000"), 3, 10),
    ] {
        server.query(&format!(
            "DELETE FROM locks.tidelock_waiters WHERE owner = 'a dead one'; \
             INSERT INTO locks.tidelock_waiters SELECT id, n, 'a dead one', '', 0, {alive} \
             FROM locks.tidelock_waiters, (SELECT 1 AS n UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 \
               UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) AS numbers \
             WHERE owner <> 'a dead one'"
        ))?;
        // Until the next beat it believes to be the first.
        tokio::time::sleep(Duration::from_secs(6)).await;
        counter.spent();
        tokio::time::sleep(Duration::from_secs(SECONDS)).await;
        let spent = counter.spent();
        ensure!(
            (fewest * SECONDS..=most * SECONDS).contains(&spent),
            "{spent} requests with rows that are alive until {alive}"
        );
    }
    held.release().await?;
    soon("the turn", waiter).await??;
    joined(&server, 0).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poller_leaves_no_row() -> Result<()> {
    let server = MariaDb::start()?;
    let held = held(&server).await?;
    let other = client(&server.url()).await?;
    let lock = other.lock("stock");
    let wait = AcquireOptions::new().wait(Duration::from_secs(10));
    let long = tokio::spawn(lock.acquire_with(wait));
    joined(&server, 1).await?;
    ensure!(long.await?.is_err(), "it is held");
    joined(&server, 0).await?;
    let dropped = tokio::spawn(lock.acquire());
    joined(&server, 1).await?;
    dropped.abort();
    joined(&server, 0).await?;
    let granted = tokio::spawn(lock.acquire());
    joined(&server, 1).await?;
    held.release().await?;
    let held = granted.await??;
    joined(&server, 0).await?;
    held.release().await?;
    Ok(())
}

/// As with the tables of an earlier tidelock, or without the right to this one.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_table_a_waiter_polls_as_if_alone() -> Result<()> {
    const SECONDS: u64 = 5;
    let server = MariaDb::start()?;
    let counter = RequestCounter::before(server.addr(), Protocol::Mysql).await?;
    let held = held(&server).await?;
    server.query("DROP TABLE locks.tidelock_waiters")?;
    let url = server.url_at(counter.addr, "tide");
    let (one, two) = (waiter(&url).await?, waiter(&url).await?);
    tokio::time::sleep(Duration::from_secs(2)).await;
    counter.spent();
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    let spent = counter.spent();
    ensure!(
        (28 * SECONDS..=42 * SECONDS).contains(&spent),
        "{spent} requests of two"
    );
    held.release().await?;
    soon("the turn of one", one).await??;
    soon("the turn of the other", two).await??;
    let table = server.query("SHOW TABLES FROM locks LIKE 'tidelock_waiters'")?;
    ensure!(table.is_empty(), "only a fair lock makes it");
    Ok(())
}
