//! Sells a piece from a stock in PostgreSQL with tokio-postgres, under a lock in the same database.
//! Run it with `DATABASE_URL=postgres://… cargo run`, on a database without a table `stock`.

use tidelock::{Client, FencedGuard, SqlFence};
use tokio_postgres::NoTls;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Sells one piece. Returns `false` if another client has got the lock since, and then changes nothing.
async fn sell(session: &mut tokio_postgres::Client, guard: &FencedGuard) -> Result<bool> {
    let fence = guard.sql_fence()?;
    let transaction = session.transaction().await?; // a drop rolls it back
    let fenced = transaction
        .execute(&fence.statement, &[&fence.name, &fence.token])
        .await;
    if let Err(error) = fenced {
        let refusal = error
            .as_db_error()
            .is_some_and(|error| SqlFence::is_refusal(Some(error.code().code()), error.message()));
        return if refusal {
            Ok(false)
        } else {
            Err(error.into())
        };
    }
    transaction
        .execute("UPDATE stock SET pieces = pieces - 1 WHERE item = 42", &[])
        .await?;
    transaction.commit().await?; // before the lock is released
    Ok(true)
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("DATABASE_URL")?;
    let (mut session, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    session
        .batch_execute(
            "CREATE TABLE stock (item int PRIMARY KEY, pieces int NOT NULL); INSERT INTO stock VALUES (42, 5)",
        )
        .await?;
    let client = Client::connect(&url).await?;
    let guard = client.lock("stock:42").fenced().acquire().await?;
    assert!(sell(&mut session, &guard).await?);
    // As if this process had been frozen past its lease: another one gets the lock, and the seller goes on.
    let other = Client::connect(&url).await?;
    other.lock("stock:42").force_release().await?;
    let next = other.lock("stock:42").fenced().acquire().await?;
    assert!(!sell(&mut session, &guard).await?, "a late sale");
    assert!(sell(&mut session, &next).await?);
    next.release().await?;
    let pieces: i32 = session
        .query_one("SELECT pieces FROM stock", &[])
        .await?
        .get(0);
    assert_eq!(pieces, 3);
    println!("sold two of five pieces, and refused a late sale");
    Ok(())
}
