//! Sells a piece from a stock in MySQL or MariaDB with sqlx 0.9, under a lock in the same database.
//! Run it with `DATABASE_URL=mysql://… cargo run`, on a database without a table `stock`.

use sqlx::{AssertSqlSafe, Connection, MySqlPool};
use tidelock::{Client, FencedGuard, SqlFence};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Sells one piece. Returns `false` if another client has got the lock since, and then changes nothing.
async fn sell(pool: &MySqlPool, guard: &FencedGuard) -> Result<bool> {
    let fence = guard.sql_fence()?;
    let mut connection = pool.acquire().await?;
    // With REPEATABLE READ, the default, the fence would keep others from acquiring some of the other locks.
    sqlx::raw_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        .execute(&mut *connection)
        .await?;
    let mut transaction = connection.begin().await?; // a drop rolls it back
    let fenced = sqlx::query(AssertSqlSafe(fence.statement))
        .bind(&fence.name)
        .bind(fence.token)
        .execute(&mut *transaction)
        .await;
    match fenced {
        Err(sqlx::Error::Database(error))
            if SqlFence::is_refusal(error.code().as_deref(), error.message()) =>
        {
            return Ok(false);
        }
        fenced => fenced?,
    };
    sqlx::query("UPDATE stock SET pieces = pieces - 1 WHERE item = 42")
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?; // before the lock is released
    Ok(true)
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("DATABASE_URL")?;
    let pool = MySqlPool::connect(&url).await?;
    for statement in [
        "CREATE TABLE stock (item int PRIMARY KEY, pieces int NOT NULL)",
        "INSERT INTO stock VALUES (42, 5)",
    ] {
        sqlx::query(statement).execute(&pool).await?;
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
    let pieces: i32 = sqlx::query_scalar("SELECT pieces FROM stock")
        .fetch_one(&pool)
        .await?;
    assert_eq!(pieces, 3);
    println!("sold two of five pieces, and refused a late sale");
    Ok(())
}
