//! A slot migrates to another node while its locks are held and waited for.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::servers::{Cluster, Flavour, RedisServer};
use tidelock::{AcquireOptions, ClientBuilder, ErrorKind};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::heard_at;
use real_servers::{History, SOON, boot_time, builder, hammer, listen, ms, secs, within};

fn lease() -> Duration {
    secs(2)
}

/// The settings of clients whose nodes all answer, on a busy machine perhaps late.
fn patient() -> ClientBuilder {
    builder(lease())
        .response_timeout(lease() * 2)
        .connect_within(SOON)
}

/// A primary that does not own the slot of `{shop}`.
fn elsewhere(cluster: &Cluster) -> Result<&RedisServer> {
    let own = cluster.node_of("{shop}")?.port();
    let others = cluster.primaries()?.into_iter();
    let mut others = others.filter(|node| node.port() != own);
    others.next().context("another primary")
}

/// The number of messages that a node was asked to publish.
fn messages(node: &RedisServer) -> Result<u64> {
    let stats: String = node.query(&["INFO", "COMMANDSTATS"])?;
    let calls = stats.lines().filter_map(|line| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        ["publish", "spublish"].contains(&command).then_some(rest)
    });
    let mut sum = 0;
    for rest in calls {
        sum += rest.split(',').next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(sum)
}

/// T35. A slot migrates while its locks are held and waited for. During the migration renewals and releases follow ASK,
/// then MOVED; nothing is lost, and the waiter hears of the release at the new node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t35_a_slot_that_moves_takes_its_locks_along() -> Result<()> {
    let cluster = crate::shared();
    let _alone = crate::alone().await;
    // So long that only a message wakes the waiter in time, once the lock that it waits for lasts as long.
    let long = lease() * 20;
    let (one, two) = (
        patient().connect(&cluster.url()).await?,
        builder(long).connect(&cluster.url()).await?,
    );
    let guard = one.lock("{shop}stock").acquire().await?;
    let told = listen(&guard);
    let other = one.lock("{shop}other").acquire().await?;
    let staying = one.lock("{shop}staying").acquire().await?;
    let waiter = tokio::spawn(two.lock("{shop}stock").acquire());
    let target = elsewhere(&cluster)?;
    let slot = cluster.slot_of("{shop}")?;
    let migration = cluster.migration(slot, target)?;
    heard_at(migration.from(), "{shop}stock", SOON)?;
    migration.begin()?;
    migration.move_key("{shop}stock")?;
    migration.move_key("{shop}other")?;
    // The keys are split between both nodes: a batch of renewals fails with TRYAGAIN, each single renewal succeeds. We
    // wait for longer than one lease, so that the holds need renewals.
    sleep(lease() * 3 / 2).await;
    ensure!(guard.is_held() && told.is_quiet(), "renewed where it went");
    ensure!(staying.is_held(), "renewed where it stayed");
    other.release().await.context("released where it went")?;
    let said = messages(migration.from())?;
    staying
        .release()
        .await
        .context("released where it stayed")?;
    let said = messages(migration.from())? - said;
    ensure!(said > 0, "nobody is told of the release");
    migration.move_keys()?;
    migration.finish()?;
    heard_at(target, "{shop}stock", SOON)?;
    sleep(lease() * 3 / 2).await;
    ensure!(guard.is_held() && told.is_quiet(), "renewed after the move");
    let ttl: i64 = target.query(&["PTTL", "{shop}stock"])?;
    ensure!(ttl > 0, "it is on the new node: {ttl}");
    // The waiter asks once more when the lease ends that it has seen, and then sees this one.
    target.admin(&["PEXPIRE", "{shop}stock", &long.as_millis().to_string()])?;
    sleep(lease() * 3 / 2).await;
    let before = two.stats().woken_by_message;
    guard.release().await?;
    let guard = within(SOON, "the waiter is woken", waiter).await???;
    // A waiter that has no subscription knows it, and polls every second.
    let woken = two.stats().woken_by_message;
    ensure!(woken > before, "only its poll found the lock");
    guard.release().await?;
    Ok(())
}

/// A release declares the lock alone: the other keys of a lock that nobody waits for are missing, and a node refuses a
/// script with several keys of which one is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_each_kind_are_released_while_their_slot_migrates() -> Result<()> {
    let cluster = crate::shared();
    let _alone = crate::alone().await;
    let names = ["{shop}went", "{shop}stayed"];
    for kind in ["a lock", "a fair lock", "a plain lock"] {
        let client = patient().connect(&cluster.url()).await?;
        let locks = names.map(|name| match kind {
            "a fair lock" => client.fair_lock(name),
            "a plain lock" => client.plain_lock(name),
            _ => client.lock(name),
        });
        let (went, stayed) = (locks[0].acquire().await?, locks[1].acquire().await?);
        let target = elsewhere(&cluster)?;
        let migration = cluster.migration(cluster.slot_of("{shop}")?, target)?;
        migration.begin()?;
        migration.move_key(names[0])?;
        went.release()
            .await
            .with_context(|| format!("{kind} that went"))?;
        stayed
            .release()
            .await
            .with_context(|| format!("{kind} that stayed"))?;
        for node in [migration.from(), target] {
            let keys = node.keys()?;
            let left = keys.iter().find(|key| names.contains(&key.as_str()));
            ensure!(left.is_none(), "{kind}: {left:?} is left");
        }
        migration.move_keys()?;
        migration.finish()?;
        // The slot is whole again: it can be acquired.
        for lock in &locks {
            let guard = within(SOON, "a grant", lock.acquire()).await??;
            guard.release().await?;
        }
    }
    Ok(())
}

/// A plain lock whose holder has lost it to another: the release says so, although the node cannot prove by a write to the
/// tombstone, which is missing, that it is a primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_lock_that_was_taken_is_told_while_its_slot_migrates() -> Result<()> {
    let cluster = crate::shared();
    let _alone = crate::alone().await;
    let client = builder(lease() * 10).connect(&cluster.url()).await?;
    let guard = client.plain_lock("{shop}taken").acquire().await?;
    let migration = cluster.migration(cluster.slot_of("{shop}")?, elsewhere(&cluster)?)?;
    migration.begin()?;
    let from = migration.from();
    from.admin(&["SET", "{shop}taken", "theirs", "PX", "60000"])?;
    let error = guard.release().await.unwrap_err();
    ensure!(error.kind() == ErrorKind::Lost, "{error}");
    from.admin(&["DEL", "{shop}taken"])?;
    migration.move_keys()?;
    migration.finish()?;
    Ok(())
}

/// Takes all slots from a primary and gives them to `heir`, so that it looks like a node that has just joined.
fn bare<'a>(
    cluster: &Cluster,
    node: &'a RedisServer,
    heir: &RedisServer,
) -> Result<&'a RedisServer> {
    let nodes: String = node.query(&["CLUSTER", "NODES"])?;
    let own = nodes.lines().find(|line| line.contains("myself"));
    let own = own.and_then(|line| line.split_whitespace().nth(8));
    let (first, last) = own.and_then(|own| own.split_once('-')).context("slots")?;
    let slots: Vec<String> = (first.parse::<u16>()?..=last.parse()?)
        .map(|slot| slot.to_string())
        .collect();
    let with = |what| {
        let words = ["CLUSTER", what].into_iter();
        words
            .chain(slots.iter().map(String::as_str))
            .collect::<Vec<_>>()
    };
    node.admin(&with("DELSLOTS"))?;
    real_servers::eventually(SOON, "the heir has the slots", || {
        for other in cluster.nodes() {
            // An error means that this node never knew of these slots, or has already learned that they are gone.
            let _ = other.admin(&with("DELSLOTS"));
        }
        // A message that the old owner has sent before tells the heir once more of its slots.
        Ok(heir.admin(&with("ADDSLOTS")).is_ok())
    })?;
    cluster.await_ok()?;
    Ok(node)
}

/// T35. A slot goes to a node that owns no slot yet and has replicas. No slot map names the node. A write that reaches
/// it by a redirection is still acknowledged by its replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t35_a_lock_that_goes_to_a_new_node_is_renewed_on_the_way() -> Result<()> {
    let cluster = Cluster::start()?;
    let own = cluster.node_of("{shop}")?;
    let target = bare(&cluster, elsewhere(&cluster)?, own)?;
    let client = builder(lease())
        .connect_within(SOON)
        .connect(&cluster.url())
        .await?;
    let guard = client.lock("{shop}stock").acquire().await?;
    let told = listen(&guard);
    let migration = cluster.migration(cluster.slot_of("{shop}")?, target)?;
    migration.begin()?;
    migration.move_key("{shop}stock")?;
    let replica = cluster.replica_of(target)?;
    let until = boot_time() + lease() * 3 / 2;
    while boot_time() < until {
        // A slow replica, as if far away: it confirms a write only after the thaw.
        replica.freeze()?;
        sleep(ms(100)).await;
        replica.thaw()?;
        sleep(ms(5)).await;
    }
    ensure!(guard.is_held() && told.is_quiet(), "renewed where it went");
    migration.move_keys()?;
    migration.finish()?;
    guard.release().await?;
    Ok(())
}

/// T35. The lock becomes free while its slot migrates, and no message is sent. The server ends the subscription, and
/// that must wake the waiter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t35_a_subscription_that_is_taken_away_wakes() -> Result<()> {
    let cluster = crate::shared();
    let _alone = crate::alone().await;
    if cluster.nodes()[0].flavour() == Flavour::Redis62 {
        return Ok(()); // sharded subscriptions do not exist on this server
    }
    // The lease is so long that the waiter would not retry by itself.
    let long = Duration::from_secs(30);
    let (one, two) = (
        builder(long).connect(&cluster.url()).await?,
        builder(long).connect(&cluster.url()).await?,
    );
    let _holder = one.lock("{shop}quiet").acquire().await?;
    let waiter = tokio::spawn(two.lock("{shop}quiet").acquire());
    let migration = cluster.migration(cluster.slot_of("{shop}")?, elsewhere(&cluster)?)?;
    heard_at(migration.from(), "{shop}quiet", SOON)?;
    migration.from().admin(&["DEL", "{shop}quiet"])?;
    sleep(ms(300)).await;
    ensure!(!waiter.is_finished(), "nobody has told the waiter");
    migration.begin()?;
    migration.move_keys()?;
    let begun = boot_time();
    migration.finish()?;
    let guard = within(long / 10, "the waiter asks again", waiter).await???;
    ensure!(guard.is_held(), "{:?} after", boot_time() - begun);
    guard.release().await?;
    Ok(())
}

/// T35. A slot migrates back and forth under load. There are never two holders at once, and tokens only grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t35_a_slot_that_goes_to_and_fro_harms_nobody() -> Result<()> {
    let cluster = crate::shared();
    let _alone = crate::alone().await;
    let history = History::default();
    let (stop, stopped) = watch::channel(false);
    let mut crowd = Vec::new();
    for _ in 0..4 {
        let client = patient().connect(&cluster.url()).await?;
        let lock = client.lock("{shop}crowd").fenced();
        crowd.push(tokio::spawn(hammer(lock, history.clone(), stopped.clone())));
    }
    let slot = cluster.slot_of("{shop}")?;
    for _ in 0..4 {
        cluster.migrate_slot(slot, elsewhere(&cluster)?)?;
        let so_far = history.len();
        real_servers::eventually(lease(), "it goes on", || Ok(history.len() > so_far + 4))?;
    }
    stop.send(true)?;
    for one in crowd {
        let toll = one.await??;
        ensure!(toll.failed_acquires == 0, "{toll:?}");
    }
    ensure!(history.check()? > 20, "{}", history.len());
    Ok(())
}

/// T36. A request with several keys, of which some have migrated, gets `TRYAGAIN`. It is retried within the wait, and
/// succeeds once the whole slot has arrived. If the wait is shorter, the error names the cause.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t36_a_slot_that_is_torn_is_waited_for() -> Result<()> {
    let cluster = crate::shared();
    let _alone = crate::alone().await;
    let client = patient().connect(&cluster.url()).await?;
    // Its fencing counter does not migrate.
    let first = client.lock("{shop}torn").fenced().acquire().await?;
    let token = first.token();
    let slot = cluster.slot_of("{shop}")?;
    let target = elsewhere(&cluster)?;
    let migration = cluster.migration(slot, target)?;
    migration.begin()?;
    first.release().await?;
    let wait = ms(1000);
    let short = AcquireOptions::new().wait(wait);
    let begun = boot_time();
    let refused = client.lock("{shop}torn").fenced().acquire_with(short).await;
    let took = boot_time() - begun;
    let error = refused.map(drop).unwrap_err();
    ensure!(error.kind() == ErrorKind::Unavailable, "{error}");
    ensure!(error.to_string().contains("TRYAGAIN"), "{error}");
    ensure!(took < wait + lease(), "{took:?}");
    let waiter = tokio::spawn(client.lock("{shop}torn").fenced().acquire());
    sleep(ms(300)).await;
    migration.move_keys()?;
    migration.finish()?;
    let second = within(SOON, "it has arrived", waiter).await???;
    ensure!(second.token() > token, "tokens grow");
    second.release().await?;
    Ok(())
}
