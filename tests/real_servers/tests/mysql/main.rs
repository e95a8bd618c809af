//! The MySQL store on a real server: its promises, its costs, and the faults it survives.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod clock;
mod connecting;
mod costs;
mod defaults;
mod every_await;
mod fair;
mod faults;
mod fence;
mod missing;
mod pollers;
mod promises;
mod session;
mod sides;
mod tables;
mod tls;
mod upgrades;

use std::time::Duration;

use anyhow::Context;
use real_servers::secs;
use testkit::servers::MariaDb;
use tidelock::Client;

/// A short lease. It is longer on a busy machine.
fn lease() -> Duration {
    secs(2)
}

/// What `docs/stores/mysql.md` grants, for every lock or only for something.
fn rights(only_for: Option<&str>) -> anyhow::Result<String> {
    let grants = testkit::pages::statements("stores/mysql.md", "no account needs\n", only_for)?;
    let rights = grants.iter().map(|grant| {
        let right = grant.strip_prefix("GRANT ");
        let right = right.and_then(|right| right.strip_suffix(" TO tidelock@'%'"));
        right.with_context(|| grant.clone())
    });
    Ok(rights.collect::<anyhow::Result<Vec<_>>>()?.join(";"))
}

/// A client with a short lease.
async fn client(url: &str) -> tidelock::Result<Client> {
    Client::builder()
        .lease(lease())
        .response_timeout(secs(3))
        .publish_process_info(false)
        .connect(url)
        .await
}

/// Fails unless a statement waits for a row within ten leases.
async fn a_statement_waits(server: &MariaDb) -> anyhow::Result<()> {
    let waiting =
        "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
    let seen = async {
        while server.query(waiting)? == "0" {
            // The server refreshes this table only if nobody has read it for 100 ms. If we read it more often, we would never
            // see a statement that began to wait after our first read.
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        Ok(())
    };
    soon("a statement waits for a row", seen).await
}

/// Fails unless the event happens within ten leases.
async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    let event = tokio::time::timeout(lease() * 10, event).await;
    event.unwrap_or_else(|_| panic!("it takes too long: {what}"))
}
