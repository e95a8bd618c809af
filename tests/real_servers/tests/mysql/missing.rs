//! A table is missing that only a grant needs. What somebody holds, or waits with, is in the others and ends all the same, also
//! if the user may not create tables.

use std::time::Duration;

use anyhow::{Context, Result};
use testkit::servers::MariaDb;
use tidelock::{Client, Lock};

use super::{client, rights, soon};

const SIDES_THAT_WAIT: &str = "SELECT COUNT(*) FROM tidelock_sides WHERE held_as IS NULL";

/// A server, a client that may create tables, and one that may not.
struct Ground {
    server: MariaDb,
    admin: Client,
    clerk: Client,
}

impl Ground {
    async fn new() -> Result<Self> {
        let server = MariaDb::start()?;
        let admin = client(&server.url()).await?;
        let queues = rights(Some("fair and read-write locks"))?;
        server.user("clerk", &format!("{};{queues}", rights(None)?))?;
        let clerk = client(&server.url_at(server.addr(), "clerk")).await?;
        Ok(Self {
            server,
            admin,
            clerk,
        })
    }

    fn drop_table(&self, table: &str) -> Result<()> {
        self.server.query(&format!("DROP TABLE {table}")).map(drop)
    }

    async fn until(&self, statement: &str, answer: &str) -> Result<()> {
        let answered = async {
            while self.server.query(statement)? != answer {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            anyhow::Ok(())
        };
        soon(statement, answered).await
    }

    /// Waits for a lock that is held, and leaves after a table was dropped. `places`: counts the places of its waiters.
    async fn wait_and_leave(&self, lock: &Lock, table: &str, places: &str) -> Result<()> {
        let waiting = tokio::spawn(lock.acquire());
        self.until(places, "1").await?;
        self.drop_table(table)?;
        waiting.abort();
        self.until(places, "0").await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_released_although_a_table_is_missing_that_only_a_grant_needs() -> Result<()> {
    let ground = Ground::new().await?;
    let sides = ground.clerk.read_write_lock("ledger");
    let held = "SELECT (SELECT COUNT(*) FROM tidelock_sides) \
        + (SELECT COUNT(*) FROM tidelock_locks WHERE owner <> '')";
    for missing in ["tidelock_counter", "tidelock_waiters"] {
        let turn = ground.clerk.fair_lock("stock").acquire().await?;
        let reads = [sides.read().acquire().await?, sides.read().acquire().await?];
        ground.drop_table(missing)?;
        for guard in reads.into_iter().chain([turn]) {
            let released = guard.release().await;
            released.with_context(|| format!("without {missing}"))?;
        }
        assert_eq!(ground.server.query(held)?, "0", "without {missing}");
        // This makes the table again.
        let next = ground.admin.fair_lock("stock").acquire().await?;
        next.release().await?;
    }
    Ok(())
}

/// The release lets nobody in. The waiter finds the lock free with its next look, and its attempt makes the table.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_has_its_turn_after_a_release_that_could_let_nobody_in() -> Result<()> {
    let ground = Ground::new().await?;
    let writer = ground.clerk.read_write_lock("ledger").write();
    let writer = writer.acquire().await?;
    let waiting = tokio::spawn(ground.admin.read_write_lock("ledger").read().acquire());
    ground.until(SIDES_THAT_WAIT, "1").await?;
    ground.drop_table("tidelock_counter")?;
    writer.release().await?;
    soon("its turn", waiting).await??.release().await?;
    Ok(())
}

/// The looks and attempts of the waiter, which would make the table again, are refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_for_a_side_leaves_no_place_although_the_table_of_the_waiters_is_missing()
-> Result<()> {
    let ground = Ground::new().await?;
    let writer = ground.admin.read_write_lock("ledger").write();
    let writer = writer.acquire().await?;
    let reads = ground.clerk.read_write_lock("ledger").read();
    ground
        .wait_and_leave(&reads, "tidelock_waiters", SIDES_THAT_WAIT)
        .await?;
    writer.release().await?;
    Ok(())
}

/// As [`a_waiter_for_a_side_leaves_no_place_although_the_table_of_the_waiters_is_missing`], with the two tables exchanged.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_for_a_fair_lock_leaves_no_place_although_the_table_of_the_sides_is_missing()
-> Result<()> {
    let ground = Ground::new().await?;
    let turn = ground.admin.fair_lock("stock").acquire().await?;
    let places = "SELECT COUNT(*) FROM tidelock_waiters";
    ground
        .wait_and_leave(&ground.clerk.fair_lock("stock"), "tidelock_sides", places)
        .await?;
    turn.release().await?;
    Ok(())
}
