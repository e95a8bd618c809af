//! The PostgreSQL store on a real server: its promises, the rows it writes, its costs, and the faults it survives.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod behind;
mod connecting;
mod costs;
mod every_await;
mod fair;
mod faults;
mod fence;
mod notifications;
mod permits;
mod prepared;
mod promises;
mod raised;
mod session;
mod sides;
mod tables;
mod tls;
mod upgrades;

use std::future::Future;
use std::time::Duration;

use testkit::servers::PostgresServer;
use tidelock::testing::Fixture;
use tidelock::{Client, Guard};

/// A short lease, but longer than a restart of the server. As those of the promises, it is longer on a busy machine.
fn lease() -> Duration {
    Fixture::memory().lease_of(Duration::from_secs(3)).lease()
}

async fn client(url: &str) -> Client {
    Client::builder()
        .lease(lease())
        .response_timeout(lease() / 3)
        .connect(url)
        .await
        .unwrap()
}

/// A client that loses nothing while something does not run for a moment, and whose waiters look by themselves only after
/// more than a [`lease`].
async fn steady_client(url: &str) -> Client {
    Client::builder()
        .lease(lease() * 4)
        .response_timeout(lease())
        .connect(url)
        .await
        .unwrap()
}

/// Waits for the next renewal: what is proved grows.
async fn until_renewed(guard: &Guard) {
    soon("a renewal", async {
        let mut last = guard.valid_for();
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let now = guard.valid_for();
            if now > last {
                break;
            }
            last = now;
        }
    })
    .await;
}

/// What `docs/stores/postgres.md` grants to `clerk`, for every lock or only for something.
fn grants(only_for: Option<&str>) -> String {
    let words = "After that these rights are enough";
    let grants = testkit::pages::statements("stores/postgres.md", words, only_for);
    grants.unwrap().join("; ")
}

/// A user `clerk` who may not make tables, with these rights.
fn clerk(grants: &str) -> String {
    format!("REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE ROLE clerk LOGIN; {grants}")
}

fn server() -> PostgresServer {
    PostgresServer::start().unwrap()
}

async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    tokio::time::timeout(lease() * 4, event)
        .await
        .unwrap_or_else(|_| panic!("in vain: {what}"))
}

/// Waits until a statement returns this result.
async fn until(server: &PostgresServer, statement: &str, answer: &str) {
    soon(statement, async {
        while server.query(statement).unwrap() != answer {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}
