//! Checks for the rows about waiters and about the server's own state, in addition to the common ones.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::proxy::{Proxy, Then, When};
use testkit::servers::RedisServer;
use tidelock::store::redis_scripts;
use tidelock::{Acquire, Client, ClientBuilder, Guard, LostReason};
use tokio::task::JoinHandle;

use crate::setup::{Shop, shop};
use real_servers::{SOON, Told, builder, within};

/// The limit for a wake-up on a working connection. Where a wake-up must not be taken for the end of a lease, the lease is four
/// times as long. Where the lease is shorter, this only shows that something happens, and not how soon.
pub(crate) const FAST: Duration = Duration::from_secs(5);

/// Settings for the rows in which the holder must be told before the lease ends. The drift allowance is four tenths of the
/// lease instead of a hundredth: many tests share two cores, so the task that is told may run late. A renewal is due after
/// a third of the lease, and has little more than a quarter of it to be answered.
pub(crate) fn wary_builder(lease: Duration) -> ClientBuilder {
    builder(lease)
        .drift(0.4, Duration::from_millis(2))
        .connect_within(SOON)
}

/// A shop whose client has these settings.
pub(crate) async fn wary(lease: Duration) -> Result<Shop> {
    let mut shop = shop(lease).await?;
    shop.client = wary_builder(lease).connect(&shop.proxy.url()).await?;
    Ok(shop)
}

/// The channel of the release messages of a lock.
pub(crate) fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

/// Polls until the condition holds. Unlike [`eventually`](real_servers::eventually) it lets the other tasks of the
/// test run.
pub(crate) async fn until(what: &str, mut reached: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !reached()? {
        ensure!(start.elapsed() < SOON, "not within {SOON:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

/// The number of connections subscribed to a lock's releases.
pub(crate) fn listeners(server: &RedisServer, name: &str) -> Result<u64> {
    let (_, count): (String, u64) = server.query(&["PUBSUB", "NUMSUB", &channel(name)])?;
    Ok(count)
}

/// Returns once one connection is subscribed to the lock's releases.
pub(crate) async fn listening(server: &RedisServer, name: &str) -> Result<()> {
    until("a waiter listens", || Ok(listeners(server, name)? == 1)).await
}

/// Starts a wait through the proxy, and returns when the waiter sleeps: after this number of refused attempts only a
/// wake-up or the end of a lease makes it retry. The first waiter of a name attempts twice, before and after it
/// subscribes.
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

/// The number of scripts that went through the proxy so far: attempts, renewals and releases.
pub(crate) fn scripts(proxy: &Proxy) -> u64 {
    proxy.count("EVALSHA") + proxy.count("EVAL")
}

/// Returns once `more` scripts beyond `before` have gone through the proxy.
pub(crate) async fn more_scripts(proxy: &Proxy, before: u64, more: u64) {
    proxy.until(|proxy| scripts(proxy) >= before + more).await;
}

/// The shortest pause between two scripts that went through the proxy, beginning with the one before which there were
/// `before`. A busy machine may make some of the pauses longer, and hardly all of them.
pub(crate) fn shortest_pause(proxy: &Proxy, before: u64) -> Result<Duration> {
    let log = proxy.log().into_iter();
    let asked = log.filter(|asked| asked.name == "EVALSHA" || asked.name == "EVAL");
    let asked = asked.skip(usize::try_from(before)?);
    let times: Vec<Instant> = asked.map(|asked| asked.at).collect();
    let pauses = times.windows(2);
    let pauses = pauses.map(|two| two[1].saturating_duration_since(two[0]));
    pauses.min().context("fewer than two scripts")
}

impl Shop {
    /// Another client that connects through the proxy.
    pub(crate) async fn another(&self) -> Result<Client> {
        let settings = self.settings.clone();
        Ok(settings.connect(&self.proxy.url()).await?)
    }

    /// Fails unless the server shows this guard as the only holder, with a count of one.
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

    /// Fails unless the next renewal tells the holder that its lock was taken. Its client must be the only one that renews
    /// through the proxy. The proxy holds back the replies to all renewals after the next one. If that one misses the loss, no
    /// other can tell it, and the hold ends as expired. A bound on the time would depend on how busy the machine is.
    pub(crate) async fn told_by_the_next_renewal(&self, told: Told) -> Result<()> {
        // With the script in the server, each renewal is one request.
        let load = ["SCRIPT", "LOAD", redis_scripts::renew()];
        let script: String = self.server.query(&load)?;
        let later = When::command("EVALSHA", script).skip(1);
        let later = self.proxy.on_each(later, Then::HoldReply);
        let (_, reason) = told.told(SOON + self.lease).await?;
        later.remove();
        later.release();
        ensure!(reason == LostReason::Taken, "{reason}");
        Ok(())
    }

    /// True if the lock has no holder.
    pub(crate) fn is_free(&self, name: &str) -> Result<bool> {
        Ok(self.time_left(name)?.is_none())
    }
}
