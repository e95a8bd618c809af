//! Locks written by others: a Java process that holds three times, and a hash without a time to live.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tidelock::{AcquireOptions, ErrorKind};

use crate::looks::{FAST, asleep, listening, more_scripts, scripts, shortest_pause};
use crate::setup::{Shop, shop};
use real_servers::logs::Logs;
use real_servers::{SOON, builder, ms, secs, within};

/// The owner field of a Java thread, in Redisson's format.
const JAVA: &str = "8a2f3c1e-5b64-4d0a-9c57-1f0e6b7a9d21:7";
const LONG: Duration = Duration::from_secs(20);

/// The state after this thread has called `lock()` three times.
fn java_holds(shop: &Shop, name: &str, lease: Duration) -> Result<()> {
    shop.server.admin(&["HSET", name, JAVA, "3"])?;
    let lease = lease.as_millis().to_string();
    shop.server.admin(&["PEXPIRE", name, &lease])?;
    Ok(())
}

/// T22: the lock counts as held and is shown as it is. An attempt changes neither the count nor the lease, and the
/// waiter gets the lock when that lease ends, not before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t22_a_java_hold_is_respected_and_shown() -> Result<()> {
    let shop = shop(LONG).await?;
    let lease = secs(4);
    let asked = Instant::now();
    java_holds(&shop, "till", lease)?;
    let start = Instant::now();
    let lock = shop.client.lock("till");
    ensure!(lock.try_acquire().await?.is_none());
    ensure!(
        shop.client
            .lock("till")
            .fenced()
            .try_acquire()
            .await?
            .is_none()
    );
    let seen = lock.inspect().await?;
    let holder = seen.holders.first().context("a holder")?;
    ensure!(holder.owner == JAVA && holder.holds == 3, "{seen:?}");
    ensure!(holder.client.is_none(), "Redisson leaves no details");
    ensure!(
        seen.expires_in.is_some_and(|left| left <= lease),
        "{seen:?}"
    );
    ensure!(shop.client.list("*").limit(10).await? == ["till"]);
    let waiting = tokio::spawn(lock.acquire());
    listening(&shop.server, "till").await?;
    // We read the clock first, so that a pause between the two makes the sum no larger.
    let passed = start.elapsed();
    let left = shop.time_left("till")?.context("it is held")?;
    ensure!(
        left + passed <= lease + Duration::from_millis(50),
        "lengthened to {left:?}"
    );
    ensure!(shop.holders("till")? == [(JAVA.to_owned(), 3)]);
    let guard = within(left + FAST, "the end of the Java lease", waiting).await???;
    let took = asked.elapsed() + Duration::from_millis(50);
    ensure!(took >= lease, "taken after {took:?}");
    shop.held_once(&guard)?;
    guard.release().await?;
    shop.nothing_left(vec![]).await
}

/// T22, an operator's remedy: a force release frees the Java hold, whatever its count, and wakes the waiters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t22_a_forced_release_of_a_java_hold_wakes_a_waiter() -> Result<()> {
    let shop = shop(LONG).await?;
    let operator = shop.direct().await?;
    java_holds(&shop, "till", LONG)?;
    // This loads the script into the server, so that later attempts use its hash.
    ensure!(shop.client.lock("till").try_acquire().await?.is_none());
    let waiting = asleep(&shop.proxy, 2, shop.client.lock("till").acquire()).await?;
    ensure!(operator.lock("till").force_release().await?, "it was held");
    let guard = within(FAST, "the wake-up", waiting).await???;
    shop.held_once(&guard)?;
    guard.release().await?;
    ensure!(!operator.lock("till").force_release().await?, "it was free");
    shop.nothing_left(vec![operator]).await
}

/// T23: a hash written by hand, without a time to live. It is respected for as long as it exists. A waiter with a limit
/// times out as usual. A waiter without a limit retries at least once per lease of its own, so it notices when the key
/// is gone even without a message. The log says what is wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t23_a_hold_without_a_limit_is_asked_about_again() -> Result<()> {
    let logs = Logs::gather();
    let mut shop = shop(ms(1200)).await?;
    // A wait that ends blames the server if a poll had no answer for a quarter of this time.
    let settings = builder(shop.lease).response_timeout(shop.lease * 4);
    shop.client = settings
        .connect_within(SOON)
        .connect(&shop.proxy.url())
        .await?;
    shop.server.admin(&["HSET", "till", JAVA, "1"])?;
    let lock = shop.client.lock("till");
    ensure!(lock.try_acquire().await?.is_none());
    let seen = lock.inspect().await?;
    ensure!(seen.is_locked() && seen.expires_in.is_none(), "{seen:?}");
    let (asked, limit) = (Instant::now(), shop.lease * 2);
    let limited = lock.acquire_with(AcquireOptions::new().wait(limit));
    let error = within(SOON, "the limit", limited)
        .await?
        .map(drop)
        .unwrap_err();
    ensure!(error.is_timeout(), "{error}");
    ensure!(asked.elapsed() < limit + FAST / 2, "{:?}", asked.elapsed());
    let before = scripts(&shop.proxy);
    let waiting = tokio::spawn(lock.acquire());
    let again = more_scripts(&shop.proxy, before, 4);
    within(shop.lease * 3 + FAST, "two more questions", again).await?;
    let left: i64 = shop.server.query(&["PTTL", "till"])?;
    ensure!(
        left == -1 && !waiting.is_finished(),
        "it was touched: {left}"
    );
    shop.server.admin(&["DEL", "till"])?;
    let guard = within(shop.lease + FAST, "the next question", waiting).await???;
    // After the question before its subscription.
    let pause = shortest_pause(&shop.proxy, before + 1)?;
    ensure!(pause < shop.lease * 3 / 2, "{pause:?} between questions");
    shop.held_once(&guard)?;
    guard.release().await?;
    let warnings = logs.warnings();
    ensure!(
        warnings.iter().any(|line| line.contains("till")),
        "nothing of it in the log: {warnings:?}"
    );
    shop.nothing_left(vec![]).await
}

/// T65: a lock on the name of a semaphore, a latch or another key is refused, says what stands there, and leaves it as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t65_a_lock_names_what_stands_at_its_name() -> Result<()> {
    let shop = shop(LONG).await?;
    let number = "a semaphore or a latch";
    for (kind, named) in [
        ("semaphore", number),
        ("counting semaphore", number),
        ("latch", number),
        ("list", "a list"),
        ("text", "a string"),
    ] {
        let client = &shop.client;
        match kind {
            "semaphore" => ensure!(client.semaphore("till").set_permits_if_new(2).await?),
            "counting semaphore" => {
                ensure!(
                    client
                        .counting_semaphore("till")
                        .set_permits_if_new(2)
                        .await?
                );
            }
            "latch" => ensure!(client.latch("till").set_count_if_new(2).await?),
            "list" => shop.server.admin(&["RPUSH", "till", "x"]).map(drop)?,
            _ => shop.server.admin(&["SET", "till", "2 apples"]).map(drop)?,
        }
        let before = shop.server.query::<Vec<u8>, _>(&["DUMP", "till"])?;
        let sides = client.read_write_lock("till");
        for lock in [
            client.lock("till"),
            client.fair_lock("till"),
            client.spin_lock("till"),
            client.lock("till").non_reentrant(),
            sides.read(),
            sides.write(),
        ] {
            let error = lock.try_acquire().await.map(drop).unwrap_err();
            ensure!(error.kind() == ErrorKind::WrongType, "{error}");
            ensure!(error.to_string().contains(named), "{kind}: {error}");
        }
        ensure!(shop.server.query::<Vec<u8>, _>(&["DUMP", "till"])? == before);
        shop.server.admin(&["DEL", "till"])?;
    }
    shop.nothing_left(vec![]).await
}
