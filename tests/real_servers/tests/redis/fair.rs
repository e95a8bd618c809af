//! The fair lock: its keys, its hand-over, and waiters that die, freeze or hear nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::proxy::{Mode, Proxy, Then, When};
use testkit::servers::RedisServer;
use tidelock::{Client, Guard};
use tokio::task::JoinHandle;

use crate::eventually;

pub(crate) const LEASE: Duration = Duration::from_secs(30);
/// How long a grant lasts that its owner has not confirmed, and for how long a process counts as alive after a beat.
pub(crate) const GRANT: Duration = Duration::from_secs(6);
/// The time between two beats.
pub(crate) const BEAT: Duration = Duration::from_secs(2);
pub(crate) const NAME: &str = "turns";
pub(crate) const QUEUE: &str = "redisson_lock_queue:{turns}";

pub(crate) async fn client(url: &str) -> Result<Client> {
    let builder = Client::builder().lease(LEASE).publish_process_info(false);
    Ok(builder.connect(url).await?)
}

/// Starts a waiter, and returns when the queue has this many.
pub(crate) async fn wait(
    server: &RedisServer,
    client: &Client,
    count: usize,
) -> Result<JoinHandle<tidelock::Result<Guard>>> {
    let waiting = tokio::spawn(client.fair_lock(NAME).acquire());
    eventually(
        "it has a place",
        LEASE,
        || Ok(queue(server)?.len() == count),
    )
    .await?;
    Ok(waiting)
}

pub(crate) fn queue(server: &RedisServer) -> Result<Vec<String>> {
    server.query(&["LRANGE", QUEUE, "0", "-1"])
}

pub(crate) fn fields(server: &RedisServer) -> Result<BTreeMap<String, String>> {
    server.query(&["HGETALL", NAME])
}

/// The milliseconds since 1970 by the server's clock.
pub(crate) fn server_time(server: &RedisServer) -> Result<i64> {
    let (seconds, micros): (i64, i64) = server.query(&["TIME"])?;
    Ok(seconds * 1000 + micros / 1000)
}

#[tokio::test]
async fn a_fair_lock_has_the_keys_of_redisson_and_leaves_none() -> Result<()> {
    let server = RedisServer::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let guard = a.fair_lock(NAME).acquire().await?;
    assert_eq!(server.keys()?, [NAME]);
    let waiting = wait(&server, &b, 1).await?;
    let times = "redisson_lock_timeout:{turns}";
    assert_eq!(
        server.keys()?,
        [QUEUE, times, "tidelock:alive:{turns}", NAME]
    );
    let owner = queue(&server)?.remove(0);
    let deadline: i64 = server.query(&["ZSCORE", times, &owner])?;
    let ahead = deadline - server_time(&server)?;
    assert!((280_000..=300_000).contains(&ahead), "{ahead}");
    guard.release().await?;
    let guard = waiting.await??;
    assert_eq!(guard.owner_id(), owner);
    let left: i64 = server.query(&["PTTL", NAME])?;
    // Twice as long as a grant that is not confirmed.
    assert!(left > 12_000, "{left}: the grant is confirmed");
    guard.release().await?;
    assert_eq!(server.keys()?, ["tidelock:alive:{turns}"]);
    let left: i64 = server.query(&["PTTL", "tidelock:alive:{turns}"])?;
    assert!((1..=60_000).contains(&left), "{left}");
    Ok(())
}

/// The waiter's requests are held, so only the release can have made the grant.
#[tokio::test]
async fn a_release_grants_the_lock_to_the_next_waiter_in_the_same_request() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let (a, b) = (client(&server.url()).await?, client(&proxy.url()).await?);
    let guard = a.fair_lock(NAME).acquire().await?;
    let waiting = wait(&server, &b, 1).await?;
    let owner = queue(&server)?.remove(0);
    proxy.set_both(Mode::Hold);
    guard.release().await?;
    assert_eq!(fields(&server)?, BTreeMap::from([(owner, "1".to_owned())]));
    let left: i64 = server.query(&["PTTL", NAME])?;
    assert!((2001..=6000).contains(&left), "{left}: not confirmed yet");
    assert!(queue(&server)?.is_empty());
    proxy.set_both(Mode::Pass);
    waiting.await??.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_grant_whose_message_was_lost_is_found_by_the_beat() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let (a, b) = (client(&server.url()).await?, client(&proxy.url()).await?);
    let guard = a.fair_lock(NAME).acquire().await?;
    let waiting = wait(&server, &b, 1).await?;
    let lost = proxy.on(When::push("redisson_lock__channel:{turns}:"), Then::Drop);
    let released = Instant::now();
    guard.release().await?;
    lost.fired().await;
    let guard = tokio::time::timeout(GRANT, waiting).await???;
    println!("found after {:?}", released.elapsed());
    guard.release().await?;
    Ok(())
}

/// Starts 25 waiters behind a proxy, then one that connects directly.
async fn crowd(server: &RedisServer, proxied: &Client, live: &Client) -> Result<Crowd> {
    let mut dead = Vec::new();
    for _ in 0..25 {
        let acquire = proxied.fair_lock(NAME).acquire();
        dead.push(tokio::spawn(async move { acquire.await?.release().await }));
    }
    eventually("they wait", LEASE, || Ok(queue(server)?.len() == 25)).await?;
    let last = wait(server, live, 26).await?;
    Ok(Crowd { dead, last })
}

struct Crowd {
    dead: Vec<JoinHandle<tidelock::Result<()>>>,
    last: JoinHandle<tidelock::Result<Guard>>,
}

/// The kernel closes the connections of a process that is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t49_twenty_five_waiters_that_were_killed_are_passed_over_at_once() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let (a, b, c) = (
        client(&server.url()).await?,
        client(&proxy.url()).await?,
        client(&server.url()).await?,
    );
    let guard = a.fair_lock(NAME).acquire().await?;
    let crowd = crowd(&server, &b, &c).await?;
    proxy.refuse(true);
    proxy.cut();
    eventually("the server has noticed", LEASE, || {
        let heard: Vec<String> = server.query(&["PUBSUB", "CHANNELS", "redisson_*"])?;
        Ok(heard.len() == 1)
    })
    .await?;
    let last = queue(&server)?.pop().context("the live one waits")?;
    let released = Instant::now();
    guard.release().await?;
    // The release itself has passed over all of them.
    assert_eq!(fields(&server)?, BTreeMap::from([(last, "1".to_owned())]));
    let guard = tokio::time::timeout(GRANT, crowd.last).await???;
    println!("passed over in {:?}", released.elapsed());
    // They keep their places for as long as they might only have lost their connections.
    assert_eq!(queue(&server)?.len(), 25);
    proxy.refuse(false);
    guard.release().await?;
    for waiting in crowd.dead {
        waiting.await??;
    }
    Ok(())
}

/// The release passes over the waiter, which may only have lost its connection. Later it counts as dead.
#[tokio::test]
async fn a_try_behind_a_killed_waiter_is_granted_at_once() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let (a, b) = (client(&server.url()).await?, client(&proxy.url()).await?);
    let lock = a.fair_lock(NAME);
    let guard = lock.acquire().await?;
    let killed = wait(&server, &b, 1).await?;
    proxy.refuse(true);
    proxy.cut();
    eventually("the server has noticed", LEASE, || {
        let heard: Vec<String> = server.query(&["PUBSUB", "CHANNELS", "redisson_*"])?;
        Ok(heard.is_empty())
    })
    .await?;
    guard.release().await?;
    assert_eq!(queue(&server)?.len(), 1, "it keeps its place for a while");
    tokio::time::sleep(GRANT + Duration::from_millis(100)).await;
    let guard = lock.try_acquire().await?;
    guard
        .context("nobody holds it, and nobody waits")?
        .release()
        .await?;
    assert!(!killed.is_finished());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t49_twenty_five_frozen_waiters_cost_one_grant_and_come_back() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let (a, b, c) = (
        client(&server.url()).await?,
        client(&proxy.url()).await?,
        client(&server.url()).await?,
    );
    let guard = a.fair_lock(NAME).acquire().await?;
    let crowd = crowd(&server, &b, &c).await?;
    proxy.set_both(Mode::Hold);
    let released = Instant::now();
    guard.release().await?;
    let guard = tokio::time::timeout(GRANT + 2 * BEAT, crowd.last).await???;
    let took = released.elapsed();
    println!("passed over in {took:?}");
    assert!(took + BEAT > GRANT, "{took:?}: the first one had its turn");
    assert!(queue(&server)?.is_empty(), "they are removed");
    proxy.set_both(Mode::Pass);
    eventually("they have places again", LEASE, || {
        Ok(queue(&server)?.len() == 25)
    })
    .await?;
    guard.release().await?;
    for waiting in crowd.dead {
        waiting.await??;
    }
    Ok(())
}

/// A waiter that loses its subscription for a moment stays in front of those that came later.
#[tokio::test]
async fn a_waiter_that_is_deaf_for_a_moment_keeps_its_place() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let (a, b, c) = (
        client(&server.url()).await?,
        client(&proxy.url()).await?,
        client(&server.url()).await?,
    );
    let guard = a.fair_lock(NAME).acquire().await?;
    let first = wait(&server, &b, 1).await?;
    let owner = queue(&server)?.remove(0);
    let second = wait(&server, &c, 2).await?;
    let next = queue(&server)?.remove(1);
    proxy.refuse(true);
    let subscriber = proxy.connection_of("SUBSCRIBE").context("it subscribed")?;
    ensure!(proxy.cut_connection(subscriber));
    let channel = format!("redisson_lock__channel:{{turns}}:{}", &owner[..36]);
    eventually("the server has noticed", LEASE, || {
        let (_, heard): (String, i64) = server.query(&["PUBSUB", "NUMSUB", &channel])?;
        Ok(heard == 0)
    })
    .await?;
    guard.release().await?;
    // The release itself has passed over the first one.
    assert_eq!(fields(&server)?, BTreeMap::from([(next, "1".to_owned())]));
    let guard = tokio::time::timeout(GRANT, second).await???;
    assert_eq!(queue(&server)?, [owner], "it keeps its place");
    let third = wait(&server, &c, 2).await?;
    proxy.refuse(false);
    eventually("it listens again", LEASE, || {
        let (_, heard): (String, i64) = server.query(&["PUBSUB", "NUMSUB", &channel])?;
        Ok(heard == 1)
    })
    .await?;
    guard.release().await?;
    let guard = first.await??;
    assert!(!third.is_finished());
    guard.release().await?;
    third.await??.release().await?;
    Ok(())
}

/// Redisson removes a head whose deadline has passed, and lowers all deadlines with each grant.
#[tokio::test]
async fn a_waiter_that_was_thrown_out_gets_the_first_place_again() -> Result<()> {
    let server = RedisServer::start()?;
    let (a, b, c) = (
        client(&server.url()).await?,
        client(&server.url()).await?,
        client(&server.url()).await?,
    );
    let guard = a.fair_lock(NAME).acquire().await?;
    let first = wait(&server, &b, 1).await?;
    let owner = queue(&server)?.remove(0);
    let second = wait(&server, &c, 2).await?;
    server.admin(&["LPOP", QUEUE])?;
    server.admin(&["ZREM", "redisson_lock_timeout:{turns}", &owner])?;
    eventually("it has the first place", LEASE, || {
        Ok(queue(&server)?.first() == Some(&owner))
    })
    .await?;
    guard.release().await?;
    first.await??.release().await?;
    second.await??.release().await?;
    Ok(())
}

/// Somebody deletes the queue, but not the deadlines, as a hand-over does whose waiters seem dead while their slot migrates. A
/// waiter with a deadline and without an entry would never be granted the lock.
#[tokio::test]
async fn waiters_whose_queue_was_deleted_are_queued_again() -> Result<()> {
    let server = RedisServer::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let guard = a.fair_lock(NAME).acquire().await?;
    let waiter = wait(&server, &b, 1).await?;
    let owners = queue(&server)?;
    server.admin(&["DEL", QUEUE])?;
    eventually("it has a place again", LEASE / 3, || {
        Ok(queue(&server)? == owners)
    })
    .await?;
    guard.release().await?;
    let guard = tokio::time::timeout(LEASE / 3, waiter).await???;
    guard.release().await?;
    let left: i64 = server.query(&["EXISTS", QUEUE, "redisson_lock_timeout:{turns}"])?;
    assert_eq!(left, 0);
    Ok(())
}

/// An entry of Redisson without a deadline is never removed by Redisson.
#[tokio::test]
async fn entries_of_redisson_whose_time_is_over_block_nobody() -> Result<()> {
    let server = RedisServer::start()?;
    let a = client(&server.url()).await?;
    let times = "redisson_lock_timeout:{turns}";
    for (thread, deadline) in [("7", None), ("8", Some("1"))] {
        let owner = format!("8a2f3c1e-5b64-4d0a-9c57-1f0e6b7a9d21:{thread}");
        server.admin(&["RPUSH", QUEUE, &owner])?;
        if let Some(deadline) = deadline {
            server.admin(&["ZADD", times, deadline, &owner])?;
        }
    }
    let guard = tokio::time::timeout(BEAT / 2, a.fair_lock(NAME).acquire()).await??;
    assert!(queue(&server)?.is_empty());
    guard.release().await?;
    Ok(())
}

/// Nobody listens for this thread of Redisson, so its turn is short.
#[tokio::test]
async fn a_dead_thread_of_redisson_has_its_turn_and_no_more() -> Result<()> {
    let server = RedisServer::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let guard = a.fair_lock(NAME).acquire().await?;
    let owner = "8a2f3c1e-5b64-4d0a-9c57-1f0e6b7a9d21:7";
    let deadline = (server_time(&server)? + 300_000).to_string();
    server.admin(&["RPUSH", QUEUE, owner])?;
    server.admin(&["ZADD", "redisson_lock_timeout:{turns}", &deadline, owner])?;
    let waiting = wait(&server, &b, 2).await?;
    guard.release().await?;
    assert!(fields(&server)?.is_empty(), "it is woken and not granted");
    tokio::time::timeout(GRANT, waiting)
        .await???
        .release()
        .await?;
    Ok(())
}

/// The release of a lock without a queue grants the lock to the next waiter of the fair queue, under the same name. The release
/// of the fair lock wakes a waiter of the lock without a queue.
#[tokio::test]
async fn locks_with_and_without_a_queue_wake_each_other() -> Result<()> {
    let server = RedisServer::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let guard = a.lock(NAME).acquire().await?;
    let waiting = wait(&server, &b, 1).await?;
    let owner = queue(&server)?.remove(0);
    guard.release().await?;
    assert_eq!(fields(&server)?, BTreeMap::from([(owner, "1".to_owned())]));
    // It learns of the grant before that ends, by a message or by the next beat.
    let guard = tokio::time::timeout(GRANT, waiting).await???;
    let waiting = tokio::spawn(a.lock(NAME).acquire());
    crate::listeners(&server, "redisson_lock__channel:{turns}", 1).await?;
    // The waiter makes another attempt after its subscription. The release must not come before that attempt.
    tokio::time::sleep(Duration::from_millis(50)).await;
    guard.release().await?;
    // One that sleeps on would wait for the lease of 30 s.
    let guard = tokio::time::timeout(LEASE / 3, waiting).await???;
    guard.release().await?;
    Ok(())
}

/// The microseconds that the server has spent on scripts.
fn spent(server: &RedisServer) -> Result<f64> {
    let info: String = server.query(&["INFO", "commandstats"])?;
    let lines = info.lines().filter_map(|line| {
        let (_, rest) = line.strip_prefix("cmdstat_eval")?.split_once("usec=")?;
        rest.split(',').next()?.parse::<f64>().ok()
    });
    Ok(lines.sum())
}

/// With Redisson's rule each grant changes the deadlines of all waiters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_costs_the_server_no_more_behind_ten_thousand_waiters() -> Result<()> {
    const GRANTS: u32 = 30;
    let mut costs = Vec::new();
    for crowd in [10, 10_000] {
        let server = RedisServer::start()?;
        let client = client(&server.url()).await?;
        let mut guard = client.fair_lock(NAME).acquire().await?;
        let mut waiting = Vec::new();
        for count in 1..=GRANTS {
            waiting.push(wait(&server, &client, count as usize).await?);
        }
        let deadline = (server_time(&server)? + 3_600_000).to_string();
        let (mut list, mut times) = (vec!["RPUSH".to_owned(), QUEUE.to_owned()], Vec::new());
        times.extend(["ZADD", "redisson_lock_timeout:{turns}"].map(str::to_owned));
        for thread in 0..crowd {
            let owner = format!("8a2f3c1e-5b64-4d0a-9c57-1f0e6b7a9d21:{thread}");
            list.push(owner.clone());
            times.extend([deadline.clone(), owner]);
        }
        server.admin(&list)?;
        server.admin(&times)?;
        // The cheapest turn: the server counts the time during which it had no processor, too.
        let mut cost = f64::INFINITY;
        for waiting in waiting {
            let before = spent(&server)?;
            guard.release().await?;
            guard = waiting.await??;
            cost = cost.min(spent(&server)? - before);
        }
        guard.release().await?;
        println!("{crowd} behind: {cost:.0} µs of the server for a turn");
        costs.push(cost);
    }
    ensure!(costs[1] < costs[0] * 2.0, "{costs:?}");
    Ok(())
}
