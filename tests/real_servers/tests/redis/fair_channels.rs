//! The channels of waiters for a fair lock: a process has one for the turns of all its waiters. Only a waiter right behind
//! Redisson has one of its own, which ends with its wait.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use real_servers::leavers::waits_among_leavers;
use testkit::proxy::{Mode, Proxy, Then, When};
use testkit::servers::RedisServer;
use tidelock::Client;

use crate::eventually;
use crate::fair::{BEAT, GRANT, LEASE, NAME, QUEUE, client, fields, queue, server_time, wait};
use crate::fair_threads::{JAVA, TIMES};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_stays_has_its_turns_among_many_that_leave() -> Result<()> {
    let server = RedisServer::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    waits_among_leavers(&a, &b, 8).await?;
    Ok(())
}

/// The channels of turns to which somebody is subscribed, and of single waiters.
fn channels(server: &RedisServer) -> Result<(usize, usize)> {
    let channels: Vec<String> = server.query(&["PUBSUB", "CHANNELS", "redisson_*:{turns}:*"])?;
    let own = "redisson_lock__channel:{turns}:".len() + 36;
    let of_turns = channels.iter().filter(|one| one.len() == own).count();
    Ok((of_turns, channels.len() - of_turns))
}

#[tokio::test]
async fn a_process_that_waits_often_keeps_one_channel() -> Result<()> {
    let server = RedisServer::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    for _ in 0..50 {
        let guard = a.fair_lock(NAME).acquire().await?;
        let waiting = wait(&server, &b, 1).await?;
        assert_eq!(channels(&server)?, (1, 0));
        guard.release().await?;
        waiting.await??.release().await?;
    }
    eventually("the last one ends too", LEASE, || {
        Ok(channels(&server)? == (0, 0))
    })
    .await
}

#[tokio::test]
async fn waiters_that_leave_leave_no_channel() -> Result<()> {
    let server = RedisServer::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let guard = a.fair_lock(NAME).acquire().await?;
    for _ in 0..50 {
        let waiting = wait(&server, &b, 1).await?;
        waiting.abort();
        eventually("it has left", LEASE, || Ok(queue(&server)?.is_empty())).await?;
        assert_eq!(channels(&server)?, (1, 0));
    }
    eventually("nobody waits", LEASE, || Ok(channels(&server)? == (0, 0))).await?;
    let stays = wait(&server, &b, 1).await?;
    tokio::time::sleep(BEAT * 2).await;
    assert_eq!(channels(&server)?, (1, 0), "somebody waits");
    guard.release().await?;
    stays.await??.release().await?;
    Ok(())
}

/// The lock is held by a thread of Redisson.
fn java_holds(server: &RedisServer) -> Result<()> {
    server.admin(&["HSET", NAME, JAVA, "1"])?;
    server.admin(&["PEXPIRE", NAME, "30000"])?;
    Ok(())
}

/// As `RFairLock.unlock`: it tells the head of the queue, which has to hear it.
fn java_releases(server: &RedisServer) -> Result<()> {
    let heard = java_ends_its_hold(server)?;
    ensure!(heard == 1, "{heard} heard it");
    Ok(())
}

/// One script, as Redisson's: between two commands a beat could hand the lock over. Returns how many heard the message.
fn java_ends_its_hold(server: &RedisServer) -> Result<i64> {
    let script = "redis.call('del', KEYS[1]) \
        return redis.call('publish', ARGV[1] .. redis.call('lindex', KEYS[2], 0), '0')";
    server.query(&["EVAL", script, "2", NAME, QUEUE, &own_channel("")])
}

/// Whether the waiter hears Redisson.
fn listens(server: &RedisServer, owner: &str) -> Result<bool> {
    let (_, heard): (String, i64) = server.query(&["PUBSUB", "NUMSUB", &own_channel(owner)])?;
    Ok(heard == 1)
}

/// Whether the head of the queue hears Redisson.
fn head_listens(server: &RedisServer) -> Result<bool> {
    match queue(server)?.first() {
        Some(head) => listens(server, head),
        None => Ok(false),
    }
}

fn own_channel(owner: &str) -> String {
    format!("redisson_lock__channel:{{turns}}:{owner}")
}

#[tokio::test]
async fn the_channels_of_waiters_behind_redisson_end_with_them() -> Result<()> {
    let server = RedisServer::start()?;
    let a = client(&server.url()).await?;
    java_holds(&server)?;
    for _ in 0..20 {
        let waiting = wait(&server, &a, 1).await?;
        eventually("it listens", LEASE, || head_listens(&server)).await?;
        waiting.abort();
        eventually("it has left", LEASE, || Ok(queue(&server)?.is_empty())).await?;
    }
    let (of_turns, own) = channels(&server)?;
    ensure!(
        of_turns == 1 && own <= 5,
        "{own}: those of the last ones may be about to end"
    );
    let stays = wait(&server, &a, 1).await?;
    eventually("it listens", LEASE, || head_listens(&server)).await?;
    java_releases(&server)?;
    stays.await??.release().await?;
    eventually("nobody waits", LEASE, || Ok(channels(&server)? == (0, 0))).await
}

/// A busy machine may delay some of them until the next beat, but not all.
#[tokio::test]
async fn a_waiter_behind_redisson_hears_its_release() -> Result<()> {
    let server = RedisServer::start()?;
    let a = client(&server.url()).await?;
    let mut fastest = LEASE;
    for _ in 0..5 {
        java_holds(&server)?;
        let first = wait(&server, &a, 1).await?;
        let second = wait(&server, &a, 2).await?;
        eventually("it listens", LEASE, || head_listens(&server)).await?;
        eventually("it alone", LEASE, || Ok(channels(&server)? == (1, 1))).await?;
        java_releases(&server)?;
        let released = Instant::now();
        let guard = tokio::time::timeout(LEASE, first).await???;
        fastest = fastest.min(released.elapsed());
        assert!(!second.is_finished());
        guard.release().await?;
        second.await??.release().await?;
    }
    ensure!(fastest < BEAT / 4, "{fastest:?}: the beats found it");
    Ok(())
}

/// The waiter between it and Redisson leaves.
#[tokio::test]
async fn a_waiter_that_comes_to_stand_behind_redisson_hears_its_release() -> Result<()> {
    let server = RedisServer::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    for holds in [true, false] {
        let guard = if holds {
            java_holds(&server)?;
            None
        } else {
            let guard = a.fair_lock(NAME).acquire().await?;
            let deadline = (server_time(&server)? + 300_000).to_string();
            server.admin(&["RPUSH", QUEUE, JAVA])?;
            server.admin(&["ZADD", TIMES, &deadline, JAVA])?;
            Some(guard)
        };
        let ahead = queue(&server)?.len();
        let between = wait(&server, &a, ahead + 1).await?;
        let last = wait(&server, &b, ahead + 2).await?;
        let [.., first, second] = &queue(&server)?[..] else {
            panic!("two wait");
        };
        eventually("the first one listens", LEASE, || listens(&server, first)).await?;
        assert!(
            !listens(&server, second)?,
            "the release before its own is ours"
        );
        between.abort();
        eventually("the last one listens", LEASE, || listens(&server, second)).await?;
        if let Some(guard) = guard {
            guard.release().await?;
            assert!(fields(&server)?.is_empty(), "it is the turn of Redisson");
            let takes = "redis.call('lrem', KEYS[2], 1, ARGV[1]) redis.call('zrem', KEYS[3], ARGV[1]) \
                redis.call('hset', KEYS[1], ARGV[1], 1) return redis.call('pexpire', KEYS[1], 30000)";
            server.admin(&["EVAL", takes, "3", NAME, QUEUE, TIMES, JAVA])?;
        }
        java_releases(&server)?; // it is heard
        last.await??.release().await?;
    }
    Ok(())
}

/// Redisson tells the head of the queue. That waiter did not expect a release of Redisson.
#[tokio::test]
async fn a_hold_that_redisson_ends_by_force_is_followed_after_a_beat() -> Result<()> {
    let server = RedisServer::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let guard = a.fair_lock(NAME).acquire().await?;
    let waiting = wait(&server, &b, 1).await?;
    assert_eq!(
        java_ends_its_hold(&server)?,
        0,
        "it listens only behind Redisson"
    );
    let next = tokio::time::timeout(LEASE / 2, waiting).await???;
    assert!(guard.release().await.is_err(), "it was lost");
    next.release().await?;
    Ok(())
}

const TURNS: u64 = 20;

/// Counts the requests of one of two processes that have the lock by turns, and its commands to subscribe.
async fn turns(server: &RedisServer, proxy: &Proxy, a: &Client, b: &Client) -> Result<(u64, u64)> {
    let mut guard = a.fair_lock(NAME).acquire().await?;
    for turn in 0..=TURNS {
        if turn == 1 {
            proxy.reset_counts(); // the first one subscribes
        }
        let waiting = wait(server, b, 1).await?;
        guard.release().await?;
        guard = waiting.await??;
        let waiting = wait(server, a, 1).await?;
        guard.release().await?;
        guard = waiting.await??;
    }
    let each = |command| proxy.count(command);
    let counts = (each("EVALSHA"), each("SUBSCRIBE") + each("UNSUBSCRIBE"));
    guard.release().await?;
    Ok(counts)
}

/// A place in the queue, the confirmation and the release. On a busy machine turns are so long that beats come too, or so
/// far apart that the subscription ends meanwhile.
#[tokio::test]
async fn a_turn_in_a_process_that_hears_of_its_turns_costs_three_requests() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let (a, b) = (client(&server.url()).await?, client(&proxy.url()).await?);
    let began = Instant::now();
    let (asked, subscribed) = turns(&server, &proxy, &a, &b).await?;
    let beats = began.elapsed().as_secs() / BEAT.as_secs() * 2;
    println!("{asked} requests in {TURNS} turns, {subscribed} to subscribe, {beats} beats");
    ensure!((3 * TURNS..=3 * TURNS + beats).contains(&asked));
    // The channel and that by which the process is counted, each subscribed and unsubscribed.
    ensure!(subscribed <= 4 * beats);
    Ok(())
}

/// Whatever happens to the request and its reply, no place in the queue is left behind.
#[tokio::test]
async fn a_first_attempt_that_takes_a_place_is_withdrawn_when_its_caller_leaves() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let (a, b) = (client(&server.url()).await?, client(&proxy.url()).await?);
    let guard = a.fair_lock(NAME).acquire().await?;
    let stays = wait(&server, &b, 1).await?;
    for then in [Then::DropReply, Then::HoldReply, Then::Drop] {
        let asked = proxy.on(When::command("EVALSHA", NAME), then);
        let leaves = tokio::spawn(b.fair_lock(NAME).acquire());
        tokio::time::timeout(GRANT, asked.fired()).await?;
        leaves.abort();
        asked.release();
        asked.remove();
        eventually("it has left", LEASE, || Ok(queue(&server)?.len() == 1)).await?;
    }
    guard.release().await?;
    stays.await??.release().await?;
    Ok(())
}

/// A process whose subscription was lost has no turn before it has subscribed again, and then asks for all its waiters.
#[tokio::test]
async fn waiters_of_a_process_that_reconnects_have_their_turns() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let (a, b) = (client(&server.url()).await?, client(&proxy.url()).await?);
    let guard = a.fair_lock(NAME).acquire().await?;
    let first = wait(&server, &b, 1).await?;
    let second = wait(&server, &b, 2).await?;
    // The grant is on its way when the connection is lost.
    proxy.set_both(Mode::Hold);
    guard.release().await?;
    assert_eq!(fields(&server)?.len(), 1);
    proxy.cut();
    proxy.set_both(Mode::Pass);
    let guard = tokio::time::timeout(GRANT, first).await???;
    guard.release().await.context("it was confirmed")?;
    let guard = tokio::time::timeout(GRANT, second).await???;
    guard.release().await?;
    eventually("nobody waits", Duration::from_secs(30), || {
        Ok(channels(&server)? == (0, 0))
    })
    .await
}
