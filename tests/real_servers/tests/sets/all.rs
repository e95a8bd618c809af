//! Sets of locks that overlap, in every order, and foreign clients that hold single parts.

use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::servers::{Independents, RedisServer};
use tidelock::{AcquireOptions, Client, ErrorKind, Lock, LostReason};
use tokio::task::JoinSet;

use real_servers::{History, SOON, Span, boot_time, builder, eventually, secs, within};

fn lease() -> Duration {
    secs(3)
}

async fn client(server: &RedisServer) -> Result<Client> {
    Ok(builder(lease())
        .publish_process_info(false)
        .connect_within(SOON)
        .connect(&server.url())
        .await?)
}

/// T53. Eight clients take overlapping sets: half of them through one server's addresses, half through two names of the
/// same server, which sort in the opposite order. Nobody deadlocks, and nobody holds a part that another client holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn t53_overlapping_sets_in_opposite_order_all_get_through() -> Result<()> {
    const ROUNDS: usize = 40;
    let (server, other) = (RedisServer::start()?, RedisServer::start()?);
    let histories: Vec<History> = (0..3).map(|_| History::default()).collect();
    let mut tasks = JoinSet::new();
    for number in 0..8 {
        let (one, two) = (client(&server).await?, client(&other).await?);
        let histories = histories.clone();
        tasks.spawn(async move {
            let parts = |part: usize| -> Lock {
                // The third part is on another server, so no single script can acquire the whole set.
                let home = if part == 2 { &two } else { &one };
                home.lock(&format!("part {part}"))
            };
            for round in 0..ROUNDS {
                let which = [[0, 1], [1, 2], [2, 0]][(number + round) % 3];
                let [a, b] = if number % 2 == 0 {
                    which
                } else {
                    [which[1], which[0]]
                };
                // A set chooses its own acquisition order, so it cannot provoke a deadlock. This client acquires one
                // part after the other, as Redisson does, and gives up after a moment.
                if number % 4 == 3 {
                    take_as_java(&parts(a), &parts(b)).await?;
                    continue;
                }
                let set = one.multi_lock([parts(a), parts(b)])?;
                let guard = set.acquire().await?;
                let begin = boot_time();
                tokio::task::yield_now().await;
                let end = boot_time();
                guard.release().await?;
                for part in [a, b] {
                    histories[part].add(Span {
                        begin,
                        end,
                        token: 0,
                    });
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(task) = within(SOON * 3, "everybody gets through", tasks.join_next()).await? {
        task??;
    }
    for history in histories {
        ensure!(history.len() > ROUNDS);
        history.check()?;
    }
    for server in [&server, &other] {
        eventually(lease(), "nothing is left", || Ok(server.keys()?.is_empty()))?;
    }
    Ok(())
}

/// Holds the first lock while it waits a moment for the second, as Redisson's `RMultiLock` does.
async fn take_as_java(first: &Lock, second: &Lock) -> Result<()> {
    loop {
        let held = first.acquire().await?;
        let moment = AcquireOptions::new().wait(Duration::from_millis(50));
        match second.acquire_with(moment).await {
            Ok(both) => {
                both.release().await?;
                return Ok(held.release().await?);
            }
            // A busy machine may not answer within the moment at all.
            Err(error) if error.is_retryable() => held.release().await?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// T53. A Java process holds a part: the set holds nothing meanwhile, and acquires all parts when Java releases its
/// part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t53_a_part_that_java_holds_is_waited_for_with_empty_hands() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server).await?;
    let owner = "0123abcd-0123-4123-8123-0123456789ab:42";
    server.admin(&["HSET", "b", owner, "1"])?;
    server.admin(&["PEXPIRE", "b", "60000"])?;
    let set = client.multi_lock(["a", "b", "c"].map(|name| client.lock(name)))?;
    ensure!(set.try_acquire().await?.is_none());
    let waiting = tokio::spawn(set.acquire());
    eventually(SOON, "it waits", || {
        let channels: Vec<String> = server.query(&["PUBSUB", "CHANNELS", "redisson_*"])?;
        Ok(channels.len() == 1 && server.keys()? == ["b"])
    })?;
    // Redisson unlocks with the same command.
    server.admin(&["DEL", "b"])?;
    server.admin(&["PUBLISH", "redisson_lock__channel:{b}", "0"])?;
    let guard = within(lease(), "it is woken", waiting).await???;
    let mut keys = server.keys()?;
    keys.sort();
    ensure!(keys == ["a", "b", "c"], "{keys:?}");
    guard.release().await?;
    ensure!(server.keys()?.is_empty());
    Ok(())
}

/// T53. One of two servers hangs: the set returns an error that names the part, in time, and leaves nothing on the
/// other server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t53_a_server_that_hangs_leaves_nothing_behind() -> Result<()> {
    let servers = Independents::start(2)?;
    let (one, two) = (
        client(&servers.nodes()[0]).await?,
        client(&servers.nodes()[1]).await?,
    );
    let set = one.multi_lock([one.lock("a"), two.lock("b")])?;
    set.acquire().await?.release().await?;
    servers.nodes()[1].freeze()?;
    let patient = AcquireOptions::new().wait(lease());
    let error = within(lease() * 2, "an error", set.acquire_with(patient)).await?;
    let error = error.unwrap_err();
    ensure!(
        matches!(
            error.kind(),
            ErrorKind::Unavailable | ErrorKind::OutcomeUnknown | ErrorKind::TimedOut
        ),
        "{error}"
    );
    ensure!(error.to_string().contains('b'), "{error}");
    eventually(lease() * 2, "nothing is left", || {
        let left: i64 = servers.nodes()[0].query(&["EXISTS", "a"])?;
        Ok(left == 0)
    })?;
    servers.nodes()[1].thaw()?;
    let guard = within(lease() * 4, "the set", set.acquire()).await??;
    servers.nodes()[1].admin(&["DEL", "b"])?;
    let told = within(lease(), "the loss of a part is told", guard.lost()).await?;
    ensure!(told == LostReason::Taken, "{told}");
    ensure!(guard.release().await.is_err());
    eventually(
        lease() / 2,
        "the other part is released all the same",
        || Ok(servers.nodes()[0].keys()?.is_empty()),
    )?;
    Ok(())
}

/// T65. Redisson's read-write lock acquires the key of a part, because Redisson considers the key free for it. The
/// whole set is lost, the holder learns the reason, and no part keeps anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t65_a_set_is_told_that_another_kind_was_taken_at_a_part() -> Result<()> {
    let server = RedisServer::start()?;
    let client = client(&server).await?;
    let set = client.multi_lock(["a", "b"].map(|name| client.lock(name)))?;
    let writer = "8a2f3c1e-5b64-4d0a-9c57-1f0e6b7a9d21:7:write";
    for renewed in [true, false] {
        let guard = set.acquire().await?;
        server.admin(&["HSET", "b", "mode", "write", writer, "1"])?;
        if renewed {
            let told = within(lease(), "the loss of a part is told", guard.lost()).await?;
            ensure!(told == LostReason::WrongType, "{told}");
        }
        let error = guard.release().await.unwrap_err();
        ensure!(error.kind() == ErrorKind::Lost, "{error}");
        let reason = error.lost_reason();
        ensure!(reason == Some(LostReason::WrongType), "{error}");
        eventually(lease() / 2, "both parts are given up", || {
            let fields: Vec<String> = server.query(&["HKEYS", "b"])?;
            Ok(server.keys()? == ["b"] && fields.len() == 2)
        })?;
        server.admin(&["DEL", "b"])?;
    }
    Ok(())
}
