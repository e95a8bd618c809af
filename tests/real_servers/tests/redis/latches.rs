//! Latches on a real server: what wakes a waiter if no message comes, and how an operator tells a latch from a semaphore.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use real_servers::secs;
use testkit::servers::RedisServer;
use tidelock::{Client, ErrorKind, Latch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::{eventually, listeners};

const CHANNEL: &str = "redisson_countdownlatch__channel__{imported}";

/// The bound of a wait that must end: many times longer than it takes.
const LONG: Duration = Duration::from_secs(30);

async fn latch(server: &RedisServer, lease: Duration) -> Result<Latch> {
    let builder = Client::builder().lease(lease).publish_process_info(false);
    let client = builder.connect(&server.url()).await?;
    let latch = client.latch("imported");
    ensure!(latch.set_count_if_new(2).await?);
    Ok(latch)
}

async fn waiting(server: &RedisServer, latch: &Latch) -> Result<JoinHandle<tidelock::Result<()>>> {
    let latch = latch.clone();
    let waiter = tokio::spawn(async move { latch.wait().await });
    listeners(server, CHANNEL, 1).await?;
    Ok(waiter)
}

/// T52. The server is replaced by an empty one: its latches are open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t52_waiters_go_on_when_the_server_has_lost_its_latches() -> Result<()> {
    let server = RedisServer::start()?;
    let latch = latch(&server, LONG * 10).await?;
    let waiters = [
        waiting(&server, &latch).await?,
        waiting(&server, &latch).await?,
    ];
    server.kill()?;
    server.restart()?;
    for waiter in waiters {
        timeout(LONG, waiter).await???; // long before the next read of a third of the lease
    }
    Ok(())
}

/// `DEL` publishes no message, so the waiters notice it when they read the count again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_that_is_deleted_by_hand_is_noticed() -> Result<()> {
    let server = RedisServer::start()?;
    let latch = latch(&server, secs(3)).await?;
    let waiters = [
        waiting(&server, &latch).await?,
        waiting(&server, &latch).await?,
    ];
    server.admin(&["DEL", "imported"])?;
    for waiter in waiters {
        timeout(LONG, waiter).await???;
    }
    Ok(())
}

/// The first waiter of a process may be a future that is kept and not polled. The others ask again without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_a_latch_that_is_not_polled_keeps_no_other_from_asking() -> Result<()> {
    let server = RedisServer::start()?;
    let lease = secs(3);
    let latch = latch(&server, lease).await?;
    let mut kept = std::pin::pin!(latch.wait());
    tokio::select! {
        ended = &mut kept => bail!("the latch is open: {ended:?}"),
        listens = listeners(&server, CHANNEL, 1) => listens?,
    }
    // It asks once more and then sleeps. From there on it is the one that asks again after a lost message.
    let ended = timeout(lease / 10, &mut kept).await;
    ensure!(ended.is_err(), "the latch is open: {ended:?}");
    let other = waiting(&server, &latch).await?;
    tokio::time::sleep(lease / 10).await; // it has asked before it listens, and after that
    server.admin(&["DEL", "imported"])?;
    timeout(LONG, other).await???;
    Ok(())
}

/// A number without permits and without waiters may be either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_is_shown_as_what_it_may_be() -> Result<()> {
    let server = RedisServer::start()?;
    let latch = latch(&server, LONG).await?;
    let client = Client::connect(&server.url()).await?;
    let seen = client.lock("imported").inspect().await?;
    ensure!(seen.latch == Some(2) && seen.permits.is_some(), "{seen:?}");
    ensure!(
        seen.to_string()
            .contains("2 of 2 permits available, or a latch with the count 2"),
        "{seen}"
    );
    let waiter = waiting(&server, &latch).await?;
    let seen = client.lock("imported").inspect().await?;
    ensure!(seen.latch == Some(2) && seen.permits.is_none(), "{seen:?}");
    ensure!(
        seen.to_string() == "imported: not open, a latch with the count 2, 1 waiting",
        "{seen}"
    );
    latch.delete().await?;
    timeout(LONG, waiter).await???;
    let render = client.semaphore("render");
    render.set_permits(3).await?;
    let permit = render.acquire().await?;
    let seen = render.inspect().await?;
    ensure!(seen.latch.is_none() && seen.permits.is_some(), "{seen:?}");
    permit.release().await?;
    Ok(())
}

/// A user may note the answer to a request, and not change the number. Then nothing is remembered: a repeated request would
/// be told that it took effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_that_is_refused_leaves_no_answer() -> Result<()> {
    let server = RedisServer::builder()
        .acl("user default on nopass ~* &* +@all\nuser shop on >secret ~* &* +@all -decr -del")
        .start()?;
    let admin = latch(&server, LONG).await?;
    ensure!(admin.count().await? == 2);
    let builder = Client::builder().publish_process_info(false);
    let url = format!("redis://shop:secret@{}", server.addr());
    let shop = builder.connect(&url).await?.latch("imported");
    let refused = |error: tidelock::Error| {
        ensure!(error.kind() == ErrorKind::Refused, "{error}");
        anyhow::Ok(())
    };
    refused(shop.count_down().await.unwrap_err())?;
    refused(shop.delete().await.unwrap_err())?;
    ensure!(admin.count().await? == 2, "it was changed");
    ensure!(admin.count_down().await? == 1);
    refused(shop.count_down().await.unwrap_err())?;
    ensure!(admin.count().await? == 1, "it was opened");
    eventually("no answer of a refused request", LONG, || {
        let keys = server.keys()?;
        let mut answers = 0;
        for key in keys.iter().filter(|key| key.starts_with("tidelock:latch:")) {
            let answer: Option<String> = server.query(&["GET", key])?;
            answers += usize::from(answer.is_some());
        }
        Ok(answers == 1) // that of the admin's last count
    })
    .await
}

/// What any client may have written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_others_are_open_or_refused() -> Result<()> {
    let server = RedisServer::start()?;
    let client = Client::connect(&server.url()).await?;
    let latch = client.latch("imported");
    for open in ["0", "-3"] {
        server.admin(&["SET", "imported", open])?;
        ensure!(latch.count().await? == 0);
        latch.wait().await?;
        ensure!(!latch.set_count_if_new(2).await?, "the key is there");
        ensure!(latch.count_down().await? == 0);
        ensure!(latch.set_count_if_new(2).await?, "the key is gone");
        ensure!(latch.delete().await?);
    }
    server.admin(&["SET", "imported", "soon"])?;
    let error = latch.count_down().await.unwrap_err();
    ensure!(error.kind() == ErrorKind::WrongType, "{error}");
    ensure!(error.to_string().contains("the text soon"), "{error}");
    let kept: String = server.query(&["GET", "imported"])?;
    ensure!(kept == "soon");
    Ok(())
}

/// A request that was held up for minutes still finds its answer.
/// What lets waiters go on needs no memory for long. Only a new latch is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_is_counted_down_on_a_server_whose_memory_is_full() -> Result<()> {
    let server = RedisServer::start()?;
    let first = latch(&server, LONG).await?;
    let wait = waiting(&server, &first).await?;
    let mut fresh = Vec::new(); // they have no answers to delete
    for _ in 0..3 {
        let builder = Client::builder().lease(LONG).publish_process_info(false);
        let client = builder.connect(&server.url()).await?;
        fresh.push(client.latch("imported"));
    }
    server.admin(&["CONFIG", "SET", "maxmemory", "1"])?;
    ensure!(fresh[0].count_down().await? == 1);
    ensure!(fresh[1].count_down().await? == 0);
    wait.await??;
    let refused = tokio::time::timeout(LONG / 10, fresh[2].set_count_if_new(1)).await;
    ensure!(!matches!(refused, Ok(Ok(_))), "the memory is full");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_to_changes_stay_for_minutes() -> Result<()> {
    let server = RedisServer::start()?;
    let latch = latch(&server, LONG).await?;
    let slots = Client::connect(&server.url()).await?;
    let slots = slots.counting_semaphore("slots");
    ensure!(slots.set_permits_if_new(2).await?);
    ensure!(latch.count_down().await? == 1);
    for kind in ["latch", "semaphore"] {
        let mut keys = server.keys()?;
        keys.retain(|key| key.starts_with(&format!("tidelock:{kind}:")));
        ensure!(!keys.is_empty());
        for key in keys {
            let left: i64 = server.query(&["TTL", &key])?;
            ensure!((60..=300).contains(&left), "{key}: {left} s");
        }
    }
    Ok(())
}
