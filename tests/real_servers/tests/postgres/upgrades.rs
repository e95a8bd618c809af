//! Upgrades of a reader whose answers are lost, come late or come twice, and in a database that loses its tables.

use anyhow::Result;
use real_servers::upgrades;
use testkit::proxy::Proxy;

use super::server;

const HOLDERS: &str = "SELECT count(*) FROM tidelock_locks_sides WHERE held_as IS NOT NULL";

/// As if the server had been replaced by an empty one: the tables and the counter of tokens are gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_that_waits_is_lost_with_the_data_of_its_store() -> Result<()> {
    let server = server();
    let empty = || {
        let made = server.query("DROP SCHEMA public CASCADE; CREATE SCHEMA public");
        made.map(drop)
    };
    upgrades::lost_with_the_data_of_its_store(&server.url(), empty).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t10_an_upgrade_that_is_answered_late_and_twice_has_one_writer() -> Result<()> {
    let server = server();
    let proxy = Proxy::start(server.addr())?;
    let holders = || Ok(server.query(HOLDERS)?.parse()?);
    let far = server.url_at(proxy.addr());
    upgrades::answered_late_and_twice(&server.url(), &far, &proxy, holders).await
}
