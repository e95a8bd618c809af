//! Sells a piece from a stock in PostgreSQL with diesel, under a lock in the same database.
//! Run it with `DATABASE_URL=postgres://… cargo run`, on a database without a table `stock`.

use diesel::prelude::*;
use diesel::result::Error;
use diesel::sql_query;
use diesel::sql_types::{BigInt, Integer, Text};
use tidelock::SqlFence;
use tidelock::blocking::{Client, FencedGuard};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Sells one piece. Returns `false` if another client has got the lock since, and then changes nothing.
fn sell(connection: &mut PgConnection, guard: &FencedGuard) -> Result<bool> {
    let fence = guard.sql_fence()?;
    let sold = connection.transaction(|transaction| {
        sql_query(&fence.statement)
            .bind::<Text, _>(&fence.name)
            .bind::<BigInt, _>(fence.token)
            .execute(transaction)?;
        sql_query("UPDATE stock SET pieces = pieces - 1 WHERE item = 42").execute(transaction)
    });
    match sold {
        // diesel shows no SQLSTATE; the message is enough.
        Err(Error::DatabaseError(_, error)) if SqlFence::is_refusal(None, error.message()) => {
            Ok(false)
        }
        sold => {
            sold?;
            Ok(true)
        }
    }
}

fn main() -> Result<()> {
    let url = std::env::var("DATABASE_URL")?;
    let mut connection = PgConnection::establish(&url)?;
    for statement in [
        "CREATE TABLE stock (item int PRIMARY KEY, pieces int NOT NULL)",
        "INSERT INTO stock VALUES (42, 5)",
    ] {
        sql_query(statement).execute(&mut connection)?;
    }
    let client = Client::connect(&url)?;
    let guard = client.lock("stock:42").fenced().acquire()?;
    assert!(sell(&mut connection, &guard)?);
    // As if this process had been frozen past its lease: another one gets the lock, and the seller goes on.
    let other = Client::connect(&url)?;
    other.lock("stock:42").force_release()?;
    let next = other.lock("stock:42").fenced().acquire()?;
    assert!(!sell(&mut connection, &guard)?, "a late sale");
    assert!(sell(&mut connection, &next)?);
    next.release()?;
    let pieces: i32 = diesel::select(diesel::dsl::sql::<Integer>("(SELECT pieces FROM stock)"))
        .get_result(&mut connection)?;
    assert_eq!(pieces, 3);
    println!("sold two of five pieces, and refused a late sale");
    Ok(())
}
