//! Waiters of plain locks on servers that publish keyspace events, that do not, and that change the setting.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::proxy::Proxy;
use testkit::servers::{Cluster, RedisBuilder, RedisServer};
use tidelock::{Client, Finding, Guard, Severity};
use tokio::task::JoinHandle;

/// Longer than any step of these tests, unless it hangs.
const SOON: Duration = Duration::from_secs(20);

/// The time over which the polls of a slow poller are counted: it makes two or three, any other at least thirty.
const WINDOW: Duration = Duration::from_secs(2);

const TELLS: [&str; 2] = ["--notify-keyspace-events", "Kgx"];

/// A server, a direct client that holds the lock, and a client behind a proxy that waits for it.
struct Shop {
    server: RedisServer,
    proxy: Proxy,
    holder: Client,
    waiter: Client,
}

impl Shop {
    async fn open(server: RedisBuilder, login: &str) -> Result<Self> {
        let server = server.start()?;
        let proxy = Proxy::start(server.addr())?;
        let client = async |port| client(&format!("redis://{login}127.0.0.1:{port}")).await;
        let (holder, waiter) = (client(server.port()).await?, client(proxy.port()).await?);
        Ok(Self {
            server,
            proxy,
            holder,
            waiter,
        })
    }

    /// The number of attempts that went through the proxy.
    fn looks(&self) -> u64 {
        self.proxy.count("EVALSHA") + self.proxy.count("EVAL")
    }

    /// The times of these attempts.
    fn look_times(&self) -> Vec<Instant> {
        let log = self.proxy.log().into_iter();
        let looks = log.filter(|asked| asked.name == "EVALSHA" || asked.name == "EVAL");
        looks.map(|look| look.at).collect()
    }

    async fn until_heard(&self) -> Result<()> {
        until("a waiter listens", || Ok(listeners(&self.server)? == 1)).await
    }

    /// Fails unless a waiter that has already waited for a while polls about once a second.
    async fn looks_seldom(&self) -> Result<()> {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let (begun, before) = (Instant::now(), self.looks());
        tokio::time::sleep(WINDOW).await;
        until("it looks twice", || Ok(self.looks() >= before + 2)).await?;
        let looks = self.looks() - before;
        // Four in the window, which may last longer on a busy machine.
        let most = 2 + u64::try_from(begun.elapsed().as_millis())? / 750;
        ensure!(looks <= most, "{looks} looks, at most {most}");
        // Those looks and the one before them. A busy machine may make some of the pauses longer, and hardly all.
        let times = self.look_times();
        let last = times.get(usize::try_from(before)?.saturating_sub(1)..);
        let pauses = last.context("some looks")?.windows(2);
        let pauses = pauses.map(|two| two[1].saturating_duration_since(two[0]));
        let shortest = pauses.min().context("two looks")?;
        ensure!(shortest < Duration::from_millis(1500), "{shortest:?}");
        Ok(())
    }

    /// Fails unless a waiter that has already waited for a while polls more often than once a second. Some of its pauses
    /// are short, on a busy machine too.
    async fn looks_often(&self) -> Result<()> {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let before = self.looks();
        until("it looks ten times", || Ok(self.looks() >= before + 10)).await?;
        let looks = self.look_times();
        let last = looks.get(looks.len().saturating_sub(10)..);
        let pauses = last.context("ten looks")?.windows(2);
        let mut pauses: Vec<Duration> = pauses
            .map(|two| two[1].saturating_duration_since(two[0]))
            .collect();
        pauses.sort_unstable();
        let short = pauses.get(2).context("ten looks")?;
        ensure!(*short < Duration::from_millis(250), "{pauses:?}");
        Ok(())
    }

    /// Releases the guard and returns the waiter's guard, with the time that the hand-off took.
    async fn hand_over(&self, held: Guard, waiting: JoinHandle<Had>) -> Result<(Guard, Duration)> {
        let begun = Instant::now();
        held.release().await?;
        let (guard, at) = tokio::time::timeout(SOON, waiting).await???;
        Ok((guard, at.saturating_duration_since(begun)))
    }
}

type Had = Result<(Guard, Instant), tidelock::Error>;

async fn client(url: &str) -> Result<Client> {
    let builder = Client::builder()
        .lease(Duration::from_secs(60))
        .publish_process_info(false);
    Ok(builder.connect(url).await?)
}

fn waits(client: &Client) -> JoinHandle<Had> {
    let lock = client.plain_lock("stock");
    tokio::spawn(async move { Ok((lock.acquire().await?, Instant::now())) })
}

fn listeners(server: &RedisServer) -> Result<u64> {
    let channel = "__keyspace@0__:stock";
    let (_, count): (String, u64) = server.query(&["PUBSUB", "NUMSUB", channel])?;
    Ok(count)
}

async fn until(what: &str, mut reached: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + SOON;
    while !reached()? {
        ensure!(Instant::now() < end, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Checks that an event ended most waits, and not a poll, and that a wait then ends at once: the fastest one, because a busy
/// machine may delay the others. A poll comes at least 750 ms after the refusal.
fn told(woken: u64, mut took: Vec<Duration>) -> Result<()> {
    took.sort_unstable();
    println!("handed over in {took:?}, {woken} times by an event");
    let most = took.len() / 2 + 1;
    ensure!(woken >= u64::try_from(most)?, "{woken} times: {took:?}");
    ensure!(took[0] <= Duration::from_millis(250), "{took:?}");
    Ok(())
}

/// Each hand-off costs the one attempt that follows the event, and rarely one more poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_server_tells_a_waiter_is_woken() -> Result<()> {
    let shop = Shop::open(RedisServer::builder().args(TELLS), "").await?;
    let (mut took, mut questions) = (Vec::new(), Vec::new());
    for _ in 0..11 {
        let held = shop.holder.plain_lock("stock").acquire().await?;
        let waiting = waits(&shop.waiter);
        shop.until_heard().await?;
        // The waiter has been refused and sleeps.
        let before = shop.looks();
        tokio::time::sleep(Duration::from_millis(150)).await;
        let asleep = shop.looks();
        let (guard, time) = shop.hand_over(held, waiting).await?;
        took.push(time);
        questions.push((asleep - before, shop.looks() - asleep));
        guard.release().await?;
    }
    told(shop.waiter.stats().woken_by_message, took)?;
    let asked: u64 = questions.iter().map(|(asleep, woken)| asleep + woken).sum();
    ensure!(asked <= 3 * 11, "{questions:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_server_tells_a_waiter_looks_once_a_second() -> Result<()> {
    let shop = Shop::open(RedisServer::builder().args(TELLS), "").await?;
    let held = shop.holder.plain_lock("stock").acquire().await?;
    let waiting = waits(&shop.waiter);
    shop.until_heard().await?;
    shop.looks_seldom().await?;
    // The server publishes events for renewals and foreign writes too. They must wake no waiter.
    let (before, begun) = (shop.looks(), Instant::now());
    for _ in 0..50 {
        shop.server.admin(&["PEXPIRE", "stock", "60000"])?;
    }
    // On a busy machine these take some seconds, and it looks once in each.
    let looks = shop.looks() - before;
    ensure!(
        looks <= 4 + begun.elapsed().as_secs() * 2,
        "woken by a renewal"
    );
    let (guard, _) = shop.hand_over(held, waiting).await?;
    guard.release().await?;
    // No waiter is left, so nobody is subscribed.
    until("the last waiter has left", || {
        Ok(listeners(&shop.server)? == 0)
    })
    .await
}

/// The server also publishes what foreign clients do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_expire_or_are_deleted_by_hand_are_told() -> Result<()> {
    let shop = Shop::open(RedisServer::builder().args(TELLS), "").await?;
    for end in [["PEXPIRE", "stock", "1"].as_slice(), &["DEL", "stock"]] {
        let (mut took, before) = (Vec::new(), shop.waiter.stats());
        for _ in 0..7 {
            shop.server
                .admin(&["SET", "stock", "theirs", "PX", "60000"])?;
            let waiting = waits(&shop.waiter);
            shop.until_heard().await?;
            tokio::time::sleep(Duration::from_millis(150)).await;
            let begun = Instant::now();
            shop.server.admin(end)?;
            let (guard, at) = tokio::time::timeout(SOON, waiting).await???;
            took.push(at.saturating_duration_since(begun));
            guard.release().await?;
        }
        let woken = shop.waiter.stats().woken_by_message - before.woken_by_message;
        told(woken, took).with_context(|| format!("{end:?}"))?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_it_does_not_tell_a_waiter_looks() -> Result<()> {
    for flags in ["", "AE", "Kg"] {
        let args = ["--notify-keyspace-events", flags];
        let shop = Shop::open(RedisServer::builder().args(args), "").await?;
        let held = shop.holder.plain_lock("stock").acquire().await?;
        let waiting = waits(&shop.waiter);
        let looks = shop.looks_often().await;
        looks.with_context(|| format!("{flags:?}"))?;
        ensure!(shop.proxy.count("SUBSCRIBE") == 0, "{flags:?}");
        ensure!(shop.proxy.count("CONFIG") == 1, "{flags:?}");
        let (guard, _) = shop.hand_over(held, waiting).await?;
        guard.release().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_config_is_forbidden_a_waiter_looks() -> Result<()> {
    let server = RedisServer::builder()
        .args(TELLS)
        .acl("user default off\nuser app on >secret ~* &* +@all -config");
    let shop = Shop::open(server, "app:secret@").await?;
    let held = shop.holder.plain_lock("stock").acquire().await?;
    let waiting = waits(&shop.waiter);
    shop.looks_often().await?;
    ensure!(shop.proxy.count("CONFIG") == 1, "asked again");
    let (guard, _) = shop.hand_over(held, waiting).await?;
    guard.release().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_channels_are_forbidden_a_waiter_looks() -> Result<()> {
    let server = RedisServer::builder()
        .args(TELLS)
        .acl("user default off\nuser app on >secret ~* resetchannels +@all");
    let shop = Shop::open(server, "app:secret@").await?;
    let held = shop.holder.plain_lock("stock").acquire().await?;
    let waiting = waits(&shop.waiter);
    shop.looks_often().await?;
    ensure!(shop.proxy.count("SUBSCRIBE") == 1, "asked again");
    let (guard, _) = shop.hand_over(held, waiting).await?;
    guard.release().await?;
    Ok(())
}

/// The lock survives the restart, the server's event setting does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_without_events_a_waiter_looks() -> Result<()> {
    let shop = Shop::open(RedisServer::builder().appendonly(true), "").await?;
    shop.server
        .admin(&["CONFIG", "SET", TELLS[0].trim_start_matches('-'), TELLS[1]])?;
    shop.server
        .admin(&["SET", "stock", "theirs", "PX", "90000"])?;
    let waiting = waits(&shop.waiter);
    shop.until_heard().await?;
    shop.server.restart()?;
    shop.until_heard().await?;
    shop.looks_often().await?;
    shop.server.admin(&["DEL", "stock"])?;
    let (guard, _) = tokio::time::timeout(SOON, waiting).await???;
    guard.release().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_that_is_killed_stands_again() -> Result<()> {
    let shop = Shop::open(RedisServer::builder().args(TELLS), "").await?;
    let held = shop.holder.plain_lock("stock").acquire().await?;
    let waiting = waits(&shop.waiter);
    shop.until_heard().await?;
    let before = shop.proxy.count("SUBSCRIBE");
    let killed: u64 = shop.server.query(&["CLIENT", "KILL", "TYPE", "pubsub"])?;
    ensure!(killed == 1, "{killed} had subscribed");
    shop.proxy
        .wait_until(SOON, |proxy| proxy.count("SUBSCRIBE") > before)?;
    shop.until_heard().await?;
    shop.looks_seldom().await?;
    let (guard, time) = shop.hand_over(held, waiting).await?;
    println!("handed over after {time:?}");
    guard.release().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_wait_causes_no_traffic() -> Result<()> {
    let shop = Shop::open(RedisServer::builder().args(TELLS), "").await?;
    let held = shop.holder.plain_lock("stock").acquire().await?;
    for _ in 0..3 {
        ensure!(
            shop.waiter
                .plain_lock("stock")
                .try_acquire()
                .await?
                .is_none()
        );
    }
    held.release().await?;
    shop.waiter
        .plain_lock("stock")
        .acquire()
        .await?
        .release()
        .await?;
    let counts = shop.proxy.counts();
    for command in ["CONFIG", "SUBSCRIBE"] {
        ensure!(!counts.contains_key(command), "{counts:?}");
    }
    Ok(())
}

/// Each cluster node publishes events for its own keys only, so the waiter subscribes at the node of its key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_the_node_of_the_key_tells() -> Result<()> {
    let server = RedisServer::builder().args(TELLS);
    let cluster = Cluster::builder().server(server).replicas(0).start()?;
    let (one, two) = (client(&cluster.url()).await?, client(&cluster.url()).await?);
    let mut took = Vec::new();
    for n in 0..9 {
        let name = format!("stock:{n}");
        let held = one.plain_lock(&name).acquire().await?;
        let lock = two.plain_lock(&name);
        let waiting = tokio::spawn(async move {
            let guard = lock.acquire().await?;
            let at = Instant::now();
            guard.release().await.map(|()| at)
        });
        let channel = format!("__keyspace@0__:{name}");
        let node = cluster.node_of(&name)?;
        until("a waiter listens at that node", || {
            let (_, count): (String, u64) = node.query(&["PUBSUB", "NUMSUB", &channel])?;
            Ok(count == 1)
        })
        .await?;
        tokio::time::sleep(Duration::from_millis(150)).await;
        let begun = Instant::now();
        held.release().await?;
        let at = tokio::time::timeout(SOON, waiting).await???;
        took.push(at.saturating_duration_since(begun));
    }
    told(two.stats().woken_by_message, took)
}

async fn said(client: &Client) -> Result<Finding> {
    let found = client.diagnose().await?.into_iter();
    let mut found = found.filter(|finding| finding.subject == "keyspace events");
    found.next().context("nothing about events")
}

#[tokio::test]
async fn the_doctor_says_whether_the_server_tells() -> Result<()> {
    let acl = "user default off\nuser seer on >secret ~* &* +@all\nuser deaf on >secret ~* resetchannels +@all\n\
               user blind on >secret ~* &* +@all -config";
    let server = RedisServer::builder().acl(acl).start()?;
    let login = async |user| {
        client(&format!(
            "redis://{user}:secret@{}?locks=plain",
            server.addr()
        ))
        .await
    };
    let (seer, deaf, blind) = (
        login("seer").await?,
        login("deaf").await?,
        login("blind").await?,
    );
    for (flags, words, severity) in [
        ("", "off", Severity::Advice),
        ("Kg", "not all", Severity::Advice),
        ("KA", "K", Severity::Good),
    ] {
        server.admin(&["CONFIG", "SET", "notify-keyspace-events", flags])?;
        let finding = said(&seer).await?;
        ensure!(finding.severity == severity, "{finding:?}");
        ensure!(finding.found.contains(words), "{finding:?}");
    }
    for (client, words) in [(deaf, "not to be heard"), (blind, "CONFIG is not allowed")] {
        let finding = said(&client).await?;
        ensure!(finding.severity == Severity::Advice, "{finding:?}");
        ensure!(finding.found.contains(words), "{finding:?}");
    }
    Ok(())
}
