//! What the rows about waiters and about the server's own state look at, beside what all rows share.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testkit::proxy::{Proxy, Then, When};
use testkit::servers::RedisServer;
use tidelock::{Acquire, Client, ClientBuilder, Guard};
use tokio::task::JoinHandle;

use crate::common::{SOON, Shop, builder, shop, within};

/// A wake-up on a link that works, and what comes on top of a wait that ends by itself.
pub(crate) const FAST: Duration = Duration::from_secs(1);

/// Settings for the rows in which a loss must be told before the lease ends: a twentieth of it is kept back for that
/// instead of a hundredth, because many tests share two cores, and whoever is to hear it may have to wait for its turn.
pub(crate) fn wary_builder(lease: Duration) -> ClientBuilder {
    builder(lease).drift(0.05, Duration::from_millis(2))
}

/// A shop whose client has these settings.
pub(crate) async fn wary(lease: Duration) -> Result<Shop> {
    let mut shop = shop(lease).await?;
    shop.client = wary_builder(lease).connect(&shop.proxy.url()).await?;
    Ok(shop)
}

/// The channel on which releases of a lock are told.
pub(crate) fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

/// Asks until it is so, while the tasks of the test go on.
pub(crate) async fn until(what: &str, mut reached: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !reached()? {
        ensure!(start.elapsed() < SOON, "not within {SOON:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

/// How many connections listen for releases of a lock.
pub(crate) fn listeners(server: &RedisServer, name: &str) -> Result<u64> {
    let (_, count): (String, u64) = server.query(&["PUBSUB", "NUMSUB", &channel(name)])?;
    Ok(count)
}

/// Ready when one connection listens for releases of the lock.
pub(crate) async fn listening(server: &RedisServer, name: &str) -> Result<()> {
    until("a waiter listens", || Ok(listeners(server, name)? == 1)).await
}

/// Starts a wait through the proxy, and returns when it sleeps: the server has refused it so many times, and only a
/// wake-up or the end of a lease makes it ask again. The first waiter of a name asks twice, before and after it subscribes.
pub(crate) async fn asleep(
    proxy: &Proxy,
    questions: u64,
    wait: Acquire,
) -> Result<JoinHandle<tidelock::Result<Guard>>> {
    let asking = When::command("EVALSHA", "till").skip(questions - 1);
    let asked = proxy.on(asking, Then::HoldReply);
    let waiting = tokio::spawn(wait);
    within(SOON, "the last question", asked.fired()).await?;
    asked.release();
    Ok(waiting)
}

/// Questions, renewals and releases that went through the proxy so far.
pub(crate) fn scripts(proxy: &Proxy) -> u64 {
    proxy.count("EVALSHA") + proxy.count("EVAL")
}

/// Ready when so many more scripts than `before` have gone through the proxy.
pub(crate) async fn more_scripts(proxy: &Proxy, before: u64, more: u64) {
    proxy.until(|proxy| scripts(proxy) >= before + more).await;
}

impl Shop {
    /// One more client whose every byte goes through the proxy.
    pub(crate) async fn another(&self) -> Result<Client> {
        Ok(builder(self.lease).connect(&self.proxy.url()).await?)
    }

    /// Fails unless the server shows this guard as the only holder, counted once.
    pub(crate) fn held_once(&self, guard: &Guard) -> Result<()> {
        let holders = self.holders(guard.name())?;
        ensure!(holders == [(guard.owner_id(), 1)], "{holders:?}");
        ensure!(
            guard.is_held(),
            "the holder of {} does not know",
            guard.name()
        );
        Ok(())
    }

    /// Nobody holds it.
    pub(crate) fn is_free(&self, name: &str) -> Result<bool> {
        Ok(self.time_left(name)?.is_none())
    }
}
