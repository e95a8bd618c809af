//! Sells a piece from a stock in MySQL or MariaDB with mysql_async, under a lock in the same database.
//! Run it with `DATABASE_URL=mysql://… cargo run`, on a database without a table `stock`.

use mysql_async::prelude::Queryable;
use mysql_async::{Error, Pool, TxOpts};
use tidelock::{Client, FencedGuard, SqlFence};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Sells one piece. Returns `false` if another client has got the lock since, and then changes nothing.
async fn sell(pool: &Pool, guard: &FencedGuard) -> Result<bool> {
    let fence = guard.sql_fence()?;
    let mut connection = pool.get_conn().await?;
    // With REPEATABLE READ, the default, the fence would keep others from acquiring some of the other locks.
    connection
        .query_drop("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        .await?;
    let mut transaction = connection.start_transaction(TxOpts::default()).await?; // a drop rolls it back
    let fenced = transaction
        .exec_drop(fence.statement.as_str(), (&fence.name, fence.token))
        .await;
    match fenced {
        Err(Error::Server(error)) if SqlFence::is_refusal(Some(&error.state), &error.message) => {
            return Ok(false);
        }
        fenced => fenced?,
    }
    transaction
        .query_drop("UPDATE stock SET pieces = pieces - 1 WHERE item = 42")
        .await?;
    transaction.commit().await?; // before the lock is released
    Ok(true)
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("DATABASE_URL")?;
    let pool = Pool::new(url.as_str());
    let mut connection = pool.get_conn().await?;
    for statement in [
        "CREATE TABLE stock (item int PRIMARY KEY, pieces int NOT NULL)",
        "INSERT INTO stock VALUES (42, 5)",
    ] {
        connection.query_drop(statement).await?;
    }
    let client = Client::connect(&url).await?;
    let guard = client.lock("stock:42").fenced().acquire().await?;
    assert!(sell(&pool, &guard).await?);
    // As if this process had been frozen past its lease: another one gets the lock, and the seller goes on.
    let other = Client::connect(&url).await?;
    other.lock("stock:42").force_release().await?;
    let next = other.lock("stock:42").fenced().acquire().await?;
    assert!(!sell(&pool, &guard).await?, "a late sale");
    assert!(sell(&pool, &next).await?);
    next.release().await?;
    let pieces: Option<i32> = connection.query_first("SELECT pieces FROM stock").await?;
    assert_eq!(pieces, Some(3));
    println!("sold two of five pieces, and refused a late sale");
    Ok(())
}
