//! The number of round trips that a lock costs. A proxy counts every single command. An extra round trip delays every
//! user of the lock, and nobody notices when a change adds one.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use futures_util::poll;
use testkit::proxy::{Logged, Proxy, Then, When};
use testkit::servers::RedisServer;
use tidelock::store::redis_scripts;
use tidelock::testing::AnyLock;
use tidelock::{AcquireOptions, Client, Guard, HandOff, Owner};
use tokio::task::JoinSet;

/// Longer than any of these tests takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server, a client whose every command is counted, and an uncounted client that holds what the first one waits for.
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
            let client = Client::builder().publish_process_info(false).lease(lease);
            let client = client.connect(url).await?;
            // Opens two connections and loads the scripts first, so that they are not counted.
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
        // Opens the third connection, for messages, as well: from here on only the steady-state cost is counted.
        let held = shop.other.lock("warmer").acquire().await?;
        let waiting = shop.wait_for("warmer", 2).await?;
        held.release().await?;
        waiting.await??.release().await?;
        shop.proxy.reset_counts();
        Ok(shop)
    }

    /// The counts of all commands except those for which nobody waits: the heartbeats of a subscription, and its end, some
    /// time after its last waiter has left. On a busy machine that time is over before the test is.
    fn spent(&self) -> BTreeMap<String, u64> {
        let mut counts = self.proxy.counts();
        counts.remove("PING");
        counts.remove("UNSUBSCRIBE");
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
            // A subscribed waiter makes a second subscription, by which others count tidelock's waiters. The waiter
            // does not wait for it, so we do.
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

/// Acquiring a free lock takes one round trip, and releasing it takes one, for every kind of lock and every verb.
#[tokio::test]
async fn an_uncontended_lock_costs_one_and_one() -> Result<()> {
    in_time(async {
        let shop = Shop::open(LEASE).await?;
        for lock in [
            AnyLock::from(shop.counted.lock("a")),
            AnyLock::from(shop.counted.lock("b").fenced()),
        ] {
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

/// The commands that the server ran since its counts were reset, without those that read or reset them.
fn commands(server: &RedisServer) -> Result<BTreeMap<String, u64>> {
    let stats: String = server.query(&["INFO", "COMMANDSTATS"])?;
    let lines = stats
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_"));
    let mut commands = BTreeMap::new();
    for line in lines {
        let (command, rest) = line.split_once(":calls=").context("a count")?;
        let calls = rest.split(',').next().context("a number")?;
        commands.insert(command.to_owned(), calls.parse()?);
    }
    commands.retain(|command, _| !["info", "config|resetstat", "config"].contains(&&**command));
    Ok(commands)
}

/// Inside the scripts of a pair that nobody waits for the server runs seven commands, where Redisson's two scripts run
/// nine. Each costs the server about as much as the rest of a script.
#[tokio::test]
async fn the_scripts_of_an_uncontended_lock_run_seven_commands() -> Result<()> {
    const PAIRS: u64 = 20;
    in_time(async {
        let shop = Shop::open(LEASE).await?;
        let lock = shop.counted.lock("a");
        lock.acquire().await?.release().await?;
        shop.server.admin(&["CONFIG", "RESETSTAT"])?;
        for _ in 0..PAIRS {
            lock.acquire().await?.release().await?;
        }
        let mut spent = commands(&shop.server)?;
        assert_eq!(spent.remove("evalsha"), Some(2 * PAIRS));
        // The heartbeats and the end of a subscription that is left over.
        spent.retain(|command, _| !["ping", "unsubscribe"].contains(&&**command));
        let all: u64 = spent.values().sum();
        assert!(all <= 7 * PAIRS, "{spent:?} for {PAIRS} pairs");
        Ok(())
    })
    .await
}

/// The first waiter of a name makes an attempt, subscribes, and makes a second attempt. Then it sleeps, and the wake
/// costs one more attempt. A second subscription lets others count it among tidelock's waiters; it does not wait for
/// that one.
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

/// Further waiters of the same name in the process cost nothing: they wait in the local queue, and hand the lock to
/// each other.
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
        // The subscription lingers for the next waiter.
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

fn about(logged: &Logged, what: &str) -> bool {
    let mut args = logged.args.iter();
    args.any(|arg| String::from_utf8_lossy(arg).contains(what))
}

/// A request for this lock. A beat within a hold tells of the lock too, but the record of the process is another key.
fn is_for(logged: &Logged, lock: &str) -> bool {
    about(logged, lock) && !about(logged, "process1")
}

/// A process tells operators what it does on a beat of its own. Its acquisitions send not one command more.
#[tokio::test]
async fn records_of_the_process_cost_an_acquisition_nothing() -> Result<()> {
    const PAIRS: usize = 50;
    in_time(async {
        let server = RedisServer::start()?;
        let proxy = Proxy::start(server.addr())?;
        let client = Client::builder().connect(&proxy.url()).await?;
        let lock = client.lock("counted");
        lock.acquire().await?.release().await?; // the scripts are loaded now
        proxy.wait_until(PATIENCE, |proxy| {
            proxy.log().iter().any(|one| about(one, "process1"))
        })?;
        let before = proxy.log().len();
        for _ in 0..PAIRS {
            lock.acquire().await?.release().await?;
        }
        let log = proxy.log().split_off(before);
        let (own, other): (Vec<_>, Vec<_>) = log.iter().partition(|one| is_for(one, "counted"));
        assert_eq!(own.len(), 2 * PAIRS);
        // The next beat, and the look at the server's replicas that a client repeats.
        assert!(other.len() < PAIRS, "{other:?}");
        client.close(Duration::ZERO).await;
        assert_eq!(
            server.keys()?,
            Vec::<String>::new(),
            "it has told, and is gone"
        );
        Ok(())
    })
    .await
}

/// Somebody watches, and the client tells every second what it leads and which job it has run. A lock costs what it did before.
#[tokio::test]
async fn all_that_a_viewer_sees_costs_an_acquisition_nothing() -> Result<()> {
    const PAIRS: usize = 200;
    in_time(async {
        let server = RedisServer::start()?;
        let proxy = Proxy::start(server.addr())?;
        let viewer = Client::connect(&server.url()).await?;
        viewer.watch_processes().await?;
        let client = Client::connect(&proxy.url()).await?;
        let lock = client.lock("counted");
        lock.acquire().await?.release().await?; // the scripts are loaded now
        let leadership = client.election("billing").campaign().await?;
        let report = client.once("report");
        let ran = report.run(async |_| Ok::<_, std::io::Error>(())).await;
        ran.context("the job ran")?;
        loop {
            viewer.watch_processes().await?;
            let all = viewer.processes().await?;
            let told = |one: &tidelock::Process| {
                (one.elections.len(), one.jobs.len(), one.beat) == (1, 1, Duration::from_secs(1))
            };
            if all.iter().any(told) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let before = proxy.log().len();
        for _ in 0..PAIRS {
            lock.acquire().await?.release().await?;
        }
        let log = proxy.log().split_off(before);
        let (own, other): (Vec<_>, Vec<_>) = log.iter().partition(|one| is_for(one, "counted"));
        assert_eq!(own.len(), 2 * PAIRS);
        // A beat, the renewal of the leadership and its mark, and the look at the server's replicas.
        assert!(other.len() < PAIRS / 2, "{other:?}");
        leadership.resign().await?;
        Ok(())
    })
    .await
}

/// Without hand-off each hold costs one attempt and one release: only one waiter of the process is woken and makes an
/// attempt.
#[tokio::test]
async fn without_hand_off_a_turn_costs_one_and_one() -> Result<()> {
    const TASKS: u64 = 5;
    in_time(async {
        let shop = Shop::open(LEASE).await?;
        let strict = Client::builder()
            .publish_process_info(false)
            .hand_off(HandOff::OFF);
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
        // The client's own wake messages can reach one of its waiters while another of its tasks has the lock. That
        // costs an extra attempt.
        assert!(spent <= 2 + 3 * TASKS, "{spent}");
        Ok(())
    })
    .await
}

/// A waiter that times out sends nothing to the server.
#[tokio::test]
async fn giving_up_costs_nothing_more() -> Result<()> {
    in_time(async {
        let shop = Shop::open(LEASE).await?;
        let held = shop.other.lock("a").acquire().await?;
        let waiting = shop.wait_for("a", 2).await?;
        waiting.abort();
        assert!(waiting.await.is_err_and(|left| left.is_cancelled()));
        // A round trip for another name on the same connection: an earlier command would be counted by now.
        shop.counted.lock("b").acquire().await?.release().await?;
        shop.assert_spent(4, 2);
        held.release().await?;
        Ok(())
    })
    .await
}

/// Re-entry into a held lock is counted in the process.
#[tokio::test]
async fn a_reentry_costs_nothing() -> Result<()> {
    in_time(async {
        let shop = Shop::open(LEASE).await?;
        let me = Owner::new();
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

/// A dropped guard is released with one round trip, and its holder does not wait for that.
#[tokio::test]
async fn a_dropped_guard_costs_one() -> Result<()> {
    in_time(async {
        let shop = Shop::open(LEASE).await?;
        let guard = shop.counted.lock("a").acquire().await?;
        drop(guard);
        // We do not wait for the release as another client that wants the lock: on a busy machine it would wait for the
        // lock before the release, and a client whose lock is awaited subscribes to hear of the turns of others.
        while shop.server.query::<u64, _>(&["EXISTS", "a"])? > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        shop.other.lock("a").acquire().await?.release().await?;
        shop.assert_spent(2, 0);
        Ok(())
    })
    .await
}

/// The number of locks in a renewal, which is the number of its keys.
fn locks_in(renewal: &Logged) -> usize {
    let keys = std::str::from_utf8(&renewal.args[1]).unwrap();
    keys.parse().unwrap()
}

/// Holds so many locks for some periods, and fails unless the scripts of each period renew so many of them each.
async fn renews_in_batches(locks: usize, batches: &[usize]) -> Result<()> {
    const PERIODS: u32 = 2;
    // Locks that were acquired within a ninth of the lease are renewed together, on a busy machine too.
    let lease = Duration::from_millis(5400);
    let shop = Shop::open(lease).await?;
    // Otherwise the first renewal would load the script, which happens once per server and does not belong to
    // the steady-state cost.
    shop.server
        .admin(&["SCRIPT", "LOAD", redis_scripts::renew()])?;
    let names = (0..locks).map(|n| shop.counted.lock(&format!("lock {n}")));
    let begun = Instant::now();
    let guards = try_join_all(names.map(|lock| lock.acquire())).await?;
    shop.proxy.reset_counts();
    let scripts = batches.len() * PERIODS as usize;
    let reached = |proxy: &Proxy| proxy.count("EVALSHA") >= scripts as u64;
    shop.proxy.until(reached).await;
    let mut log = shop.proxy.log();
    // Nobody waits for the heartbeats of a subscription, nor for its end.
    log.retain(|logged| logged.name != "PING" && logged.name != "UNSUBSCRIBE");
    // A renewal looks at the server's replicas if the last look was five seconds ago. That is longer than two periods, but not
    // much.
    let infos = log.len();
    log.retain(|logged| logged.name != "INFO");
    assert!(infos - log.len() <= 1, "{log:?}");
    assert!(log.iter().all(|logged| logged.name == "EVALSHA"), "{log:?}");
    for period in log[..scripts].chunks(batches.len()) {
        let mut sizes: Vec<usize> = period.iter().map(locks_in).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, batches);
    }
    // We count from the acquisition: a busy machine may send the first renewal late.
    let took = log[scripts - 1].at - begun;
    assert!(took >= (lease / 3 * PERIODS).mul_f64(0.95), "{took:?}");
    assert!(guards.iter().all(Guard::is_held));
    Ok(())
}

/// All due locks are renewed by scripts of at most a hundred names, once every third of the lease.
#[tokio::test]
async fn a_batch_of_renewals_costs_one() -> Result<()> {
    let cases: [(usize, &[usize]); 3] = [(1, &[1]), (100, &[100]), (150, &[50, 100])];
    // All at the same time, because each of them mostly waits for the next period.
    let all = cases.map(|(locks, batches)| renews_in_batches(locks, batches));
    in_time(try_join_all(all)).await.map(drop)
}
