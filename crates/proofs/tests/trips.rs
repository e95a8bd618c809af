//! What a lock costs in trips to the server, counted by a proxy to the last command. A trip too many is a wait for every
//! user of the lock, and it creeps in unseen.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use futures_util::poll;
use testkit::proxy::{Logged, Proxy, Then, When};
use testkit::servers::RedisServer;
use tidelock::{AcquireOptions, Client, Guard, HandOff};
use tokio::task::JoinSet;

/// Longer than any of these tests takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server, and a client whose every command is counted. A second one, uncounted, to hold what the first waits for.
struct Shop {
    server: RedisServer,
    proxy: Proxy,
    counted: Client,
    other: Client,
}

impl Shop {
    async fn open(lease: Duration) -> Result<Self> {
        let server = RedisServer::start()?;
        let proxy = Proxy::start(server.addr())?;
        let client = async |url: &str| {
            let client = Client::builder().details(false).lease(lease);
            let client = client.connect(url).await?;
            // Two connections stand and the server knows the scripts.
            let warm = client.lock("warm");
            warm.acquire().await?.release().await?;
            drop(warm.try_acquire().await?);
            warm.acquire().await?.release().await?;
            anyhow::Ok(client)
        };
        let (counted, other) = (client(&proxy.url()).await?, client(&server.url()).await?);
        let shop = Self {
            server,
            proxy,
            counted,
            other,
        };
        // So does the third, for messages: what comes now is the daily cost.
        let held = shop.other.lock("warmer").acquire().await?;
        let waiting = shop.wait_for("warmer", 2).await?;
        held.release().await?;
        waiting.await??.release().await?;
        shop.proxy.reset_counts();
        Ok(shop)
    }

    /// Every command but the signs of life of a subscription, which cost nobody a wait.
    fn spent(&self) -> BTreeMap<String, u64> {
        let mut counts = self.proxy.counts();
        counts.remove("PING");
        counts
    }

    #[track_caller]
    fn assert_spent(&self, scripts: u64, subscriptions: u64) {
        let mut expected = BTreeMap::from([("EVALSHA".to_owned(), scripts)]);
        if subscriptions > 0 {
            expected.insert("SUBSCRIBE".to_owned(), subscriptions);
        }
        expected.retain(|_, count| *count > 0);
        assert_eq!(self.spent(), expected);
    }

    /// Starts a wait, and returns once the server has refused it for the `asks`-th time.
    async fn wait_for(&self, name: &str, asks: u64) -> Result<tokio::task::JoinHandle<Waited>> {
        let refused = self.proxy.on(
            When::command("EVALSHA", name).skip(asks - 1),
            Then::HoldReply,
        );
        let waiting = tokio::spawn(self.counted.lock(name).acquire());
        refused.fired().await;
        if asks == 2 {
            // Once it listens it is counted among tidelock's waiters too, which nobody waits for.
            let counted = |proxy: &Proxy| proxy.count("SUBSCRIBE") >= 2;
            self.proxy.wait_until(PATIENCE, counted)?;
        }
        refused.release();
        Ok(waiting)
    }
}

type Waited = tidelock::Result<Guard>;

async fn in_time<T>(test: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(PATIENCE, test)
        .await
        .context("it hangs")?
}

const LEASE: Duration = Duration::from_secs(30);

/// One trip to take a free lock, one to give it back, whatever its kind and verb.
#[tokio::test]
async fn an_uncontended_lock_costs_one_and_one() -> Result<()> {
    in_time(async {
        let shop = Shop::open(LEASE).await?;
        for lock in [shop.counted.lock("a"), shop.counted.fenced_lock("b")] {
            shop.proxy.reset_counts();
            let guard = lock.acquire().await?;
            shop.assert_spent(1, 0);
            guard.release().await?;
            shop.assert_spent(2, 0);
            let guard = lock.try_acquire().await?.context("it is free")?;
            shop.assert_spent(3, 0);
            assert!(lock.try_acquire().await?.is_none());
            shop.assert_spent(4, 0);
            guard.release().await?;
            let with = AcquireOptions::new().wait(PATIENCE).expires_after(LEASE);
            lock.acquire_with(with).await?.release().await?;
            shop.assert_spent(7, 0);
        }
        Ok(())
    })
    .await
}

/// The first waiter of a name asks, subscribes, and asks again; then it sleeps, and the wake costs one. That it is counted
/// as one of tidelock's is one subscription more, which it does not wait for.
#[tokio::test]
async fn the_first_waiter_costs_two_and_a_subscribe_then_one() -> Result<()> {
    in_time(async {
        let shop = Shop::open(LEASE).await?;
        let held = shop.other.lock("a").acquire().await?;
        let waiting = shop.wait_for("a", 2).await?;
        shop.assert_spent(2, 2);
        held.release().await?;
        let guard = waiting.await??;
        shop.assert_spent(3, 2);
        guard.release().await?;
        shop.assert_spent(4, 2);
        Ok(())
    })
    .await
}

/// The next waiters of the same name in the process cost nothing: they stand in line, and get the lock from one another.
#[tokio::test]
async fn the_next_waiters_cost_nothing() -> Result<()> {
    in_time(async {
        let shop = Shop::open(LEASE).await?;
        let held = shop.other.lock("a").acquire().await?;
        let first = shop.wait_for("a", 2).await?;
        let (second, third) = (shop.counted.lock("a"), shop.counted.lock("a"));
        let (mut second, mut third) = (second.acquire(), third.acquire());
        assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
        shop.assert_spent(2, 2);
        held.release().await?;
        first.await??.release().await?;
        second.await?.release().await?;
        shop.assert_spent(3, 2);
        third.await?.release().await?;
        shop.assert_spent(4, 2);
        // The subscription lingers for whoever waits next.
        let held = shop.other.lock("a").acquire().await?;
        shop.proxy.reset_counts();
        let late = shop.wait_for("a", 1).await?;
        held.release().await?;
        late.await??.release().await?;
        shop.assert_spent(3, 0);
        Ok(())
    })
    .await
}

/// Without hand-off each turn costs one to ask and one to release: one of the process is woken, and it alone asks.
#[tokio::test]
async fn without_hand_off_a_turn_costs_one_and_one() -> Result<()> {
    const TASKS: u64 = 5;
    in_time(async {
        let shop = Shop::open(LEASE).await?;
        let strict = Client::builder().details(false).hand_off(HandOff::OFF);
        let strict = strict.connect(&shop.proxy.url()).await?;
        let held = shop.other.lock("a").acquire().await?;
        shop.proxy.reset_counts();
        let refused = shop
            .proxy
            .on(When::command("EVALSHA", "a").skip(1), Then::HoldReply);
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let lock = strict.lock("a");
            tasks.spawn(async move { lock.acquire().await?.release().await });
        }
        refused.fired().await;
        refused.release();
        held.release().await?;
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        let spent = shop.spent()["EVALSHA"];
        assert!(spent >= 2 + 2 * TASKS, "{spent}");
        // Its own messages may reach a waiter of its own when another of its tasks has the lock.
        assert!(spent <= 2 + 3 * TASKS, "{spent}");
        Ok(())
    })
    .await
}

/// A waiter whose time is up leaves without a word to the server.
#[tokio::test]
async fn giving_up_costs_nothing_more() -> Result<()> {
    in_time(async {
        let shop = Shop::open(LEASE).await?;
        let held = shop.other.lock("a").acquire().await?;
        let waiting = shop.wait_for("a", 2).await?;
        waiting.abort();
        assert!(waiting.await.is_err_and(|left| left.is_cancelled()));
        // Another name's round trip on the same connection: anything that had been sent would be counted by now.
        shop.counted.lock("b").acquire().await?.release().await?;
        shop.assert_spent(4, 2);
        held.release().await?;
        Ok(())
    })
    .await
}

/// What is held already is counted in the process.
#[tokio::test]
async fn a_reentry_costs_nothing() -> Result<()> {
    in_time(async {
        let shop = Shop::open(LEASE).await?;
        let me = shop.counted.owner();
        let (lock, mine) = (shop.counted.lock("a"), AcquireOptions::new().owner(&me));
        let outer = lock.acquire_with(mine.clone()).await?;
        shop.assert_spent(1, 0);
        let inner = lock.acquire_with(mine.clone()).await?;
        let innermost = inner.reenter();
        let tried = lock.try_acquire_with(mine).await?.context("it is mine")?;
        for guard in [outer, inner, tried] {
            guard.release().await?;
        }
        shop.assert_spent(1, 0);
        innermost.release().await?;
        shop.assert_spent(2, 0);
        Ok(())
    })
    .await
}

/// A guard that is dropped releases with one trip, which its holder does not wait for.
#[tokio::test]
async fn a_dropped_guard_costs_one() -> Result<()> {
    in_time(async {
        let shop = Shop::open(LEASE).await?;
        let guard = shop.counted.lock("a").acquire().await?;
        drop(guard);
        // Comes back once the release has been done; its messages do not pass the counting proxy.
        shop.other.lock("a").acquire().await?.release().await?;
        shop.assert_spent(2, 0);
        Ok(())
    })
    .await
}

const RENEW: &str = concat!(
    include_str!("../../tidelock/src/store/redis/layouts/lua/listeners.lua"),
    include_str!("../../tidelock/src/store/redis/layouts/lua/tell.lua"),
    include_str!("../../tidelock/src/store/redis/layouts/lua/names.lua"),
    include_str!("../../tidelock/src/store/redis/layouts/lua/sweep.lua"),
    include_str!("../../tidelock/src/store/redis/layouts/lua/others.lua"),
    include_str!("../../tidelock/src/store/redis/layouts/lua/renew.lua")
);

/// Number of locks in a renewal, which is the number of its keys.
fn locks_in(renewal: &Logged) -> usize {
    let keys = std::str::from_utf8(&renewal.args[1]).unwrap();
    keys.parse().unwrap()
}

/// All that is due goes in scripts of at most a hundred names, once every third of the lease.
#[tokio::test]
async fn a_batch_of_renewals_costs_one() -> Result<()> {
    const PERIODS: u32 = 3;
    let lease = Duration::from_millis(2400);
    for (locks, batches) in [(1, vec![1]), (100, vec![100]), (150, vec![50, 100])] {
        in_time(async {
            let shop = Shop::open(lease).await?;
            // The server would learn it from the first renewal, which is a matter of once per server.
            shop.server.admin(&["SCRIPT", "LOAD", RENEW])?;
            let names = (0..locks).map(|n| shop.counted.lock(&format!("lock {n}")));
            let guards = try_join_all(names.map(|lock| lock.acquire())).await?;
            shop.proxy.reset_counts();
            let scripts = batches.len() * PERIODS as usize;
            let reached = |proxy: &Proxy| proxy.count("EVALSHA") >= scripts as u64;
            shop.proxy.until(reached).await;
            let mut log = shop.proxy.log();
            // The signs of life of a subscription cost nobody a wait.
            log.retain(|logged| logged.name != "PING");
            assert!(log.iter().all(|logged| logged.name == "EVALSHA"), "{log:?}");
            for period in log[..scripts].chunks(batches.len()) {
                let mut sizes: Vec<usize> = period.iter().map(locks_in).collect();
                sizes.sort_unstable();
                assert_eq!(sizes, batches);
            }
            let took = log[scripts - 1].at - log[0].at;
            assert!(
                took >= (lease / 3 * (PERIODS - 1)).mul_f64(0.95),
                "{took:?}"
            );
            assert!(guards.iter().all(Guard::is_held));
            Ok(())
        })
        .await?;
    }
    Ok(())
}
