//! Threads of Redisson in the queue of a fair lock, without Redisson: their turns, and their places.

use std::time::Duration;

use anyhow::{Context as _, Result};
use testkit::servers::RedisServer;

use crate::eventually;
use crate::fair::{GRANT, NAME, QUEUE, client, fields, queue, server_time, wait};

pub(crate) const TIMES: &str = "redisson_lock_timeout:{turns}";
/// The owner of a grant that is not confirmed, or the thread of Redisson that has its turn.
pub(crate) const GRANTED: &str = "tidelock:granted:{turns}";
/// A thread of Redisson that does not exist.
pub(crate) const JAVA: &str = "8a2f3c1e-5b64-4d0a-9c57-1f0e6b7a9d21:7";
/// Another one, without a deadline.
const OTHER: &str = "8a2f3c1e-5b64-4d0a-9c57-1f0e6b7a9d21:8";
const CHANNEL: &str = "redisson_lock__channel:{turns}:8a2f3c1e-5b64-4d0a-9c57-1f0e6b7a9d21:7";
/// A waiter of a process that does not exist.
const DEAD: &str = "8a2f3c1e-5b64-8d0a-9c57-1f0e6b7a9d21:7";

/// Queues a thread of Redisson that must have had its turn within this time. Returns its deadline.
fn queue_java(server: &RedisServer, within: Duration) -> Result<i64> {
    let deadline = server_time(server)? + i64::try_from(within.as_millis())?;
    server.admin(&["RPUSH", QUEUE, JAVA])?;
    server.admin(&["ZADD", TIMES, &deadline.to_string(), JAVA])?;
    Ok(deadline)
}

/// When the turn of the thread of Redisson began.
fn turn(server: &RedisServer) -> Result<Option<i64>> {
    let noted: Option<String> = server.query(&["GET", GRANTED])?;
    let turn = noted.filter(|noted| noted.starts_with(JAVA));
    let begin = turn.as_deref().and_then(|turn| turn.rsplit(' ').next());
    Ok(begin.map(str::parse).transpose()?)
}

/// With a shorter one, Redisson would remove it without a message, and the deadline of the next thread is counted from
/// it.
#[tokio::test]
async fn the_turn_of_a_thread_of_redisson_leaves_its_deadline() -> Result<()> {
    let server = RedisServer::start()?;
    let a = client(&server.url()).await?;
    let guard = a.fair_lock(NAME).acquire().await?;
    let deadline = queue_java(&server, GRANT * 50)?;
    let before = server_time(&server)?;
    guard.release().await?;
    let begin = turn(&server)?.context("it has its turn")?;
    assert!((before..=server_time(&server)?).contains(&begin), "{begin}");
    assert_eq!(server.query::<i64, _>(&["ZSCORE", TIMES, JAVA])?, deadline);
    let left: i64 = server.query(&["PTTL", GRANTED])?;
    assert!((6001..=12_000).contains(&left), "{left}");
    assert!(fields(&server)?.is_empty(), "it is woken and not granted");
    Ok(())
}

/// A thread that listens has the time of a grant, any other a second.
#[tokio::test]
async fn a_thread_of_redisson_that_listens_has_a_longer_turn() -> Result<()> {
    let server = RedisServer::start()?;
    let lock = client(&server.url()).await?.fair_lock(NAME);
    let mut thread = redis::Client::open(server.url())?.get_connection()?;
    let mut thread = thread.as_pubsub();
    for (listens, [stays, goes]) in [(false, [0, 1000]), (true, [1000, 6000])] {
        if listens {
            thread.subscribe(CHANNEL)?;
        }
        let deadline = queue_java(&server, GRANT * 50)?;
        for (began, has_turn) in [(stays, true), (goes, false)] {
            let began = server_time(&server)? - began;
            server.admin(&["SET", GRANTED, &format!("{JAVA} {deadline} {began}")])?;
            let guard = lock.try_acquire().await?;
            assert_eq!(!queue(&server)?.is_empty(), has_turn, "{listens} {began}");
            // A try takes the lock if nobody is left in the queue.
            assert_eq!(guard.is_none(), has_turn, "{listens} {began}");
            if let Some(guard) = guard {
                guard.release().await?;
            }
        }
        if listens {
            assert_eq!(thread.get_message()?.get_payload::<String>()?, "0");
        }
        assert!(fields(&server)?.is_empty(), "it is woken and not granted");
    }
    Ok(())
}

/// Puts a process that was killed a moment ago in front of all others.
fn put_dead_first(server: &RedisServer) -> Result<()> {
    let alive = (server_time(server)? + 60_000).to_string();
    server.admin(&["LPUSH", QUEUE, DEAD])?;
    server.admin(&["ZADD", "tidelock:alive:{turns}", &alive, &DEAD[..36]])?;
    Ok(())
}

/// A waiter for a lock without a queue listens to the channel of the head while Redisson holds the lock. A head that was
/// killed must not count as listening.
#[tokio::test]
async fn a_killed_head_has_no_turn_although_another_process_listens_to_its_channel() -> Result<()> {
    let server = RedisServer::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    server.admin(&["HSET", NAME, OTHER, "1"])?;
    server.admin(&["PEXPIRE", NAME, "30000"])?;
    put_dead_first(&server)?;
    let plain = tokio::spawn(b.lock(NAME).acquire());
    let channel = format!("redisson_lock__channel:{{turns}}:{DEAD}");
    eventually("it listens", GRANT * 5, || {
        let (_, heard): (String, i64) = server.query(&["PUBSUB", "NUMSUB", &channel])?;
        Ok(heard == 1)
    })
    .await?;
    let waiting = wait(&server, &a, 2).await?;
    let owner = queue(&server)?.remove(1);
    assert!(a.lock(NAME).force_release().await?);
    assert_eq!(fields(&server)?.into_keys().collect::<Vec<_>>(), [owner]);
    assert_eq!(queue(&server)?, [DEAD], "it keeps its place");
    waiting.await??.release().await?;
    plain.await??.release().await?;
    Ok(())
}

/// Redisson grants the lock only to the head. A thread that is told and is not the head is refused, and sleeps.
#[tokio::test]
async fn a_thread_of_redisson_that_has_its_turn_is_the_head() -> Result<()> {
    let server = RedisServer::start()?;
    let a = client(&server.url()).await?;
    for kind in ["fair", "other"] {
        let guard = match kind {
            "fair" => a.fair_lock(NAME).acquire().await?,
            _ => a.lock(NAME).acquire().await?,
        };
        queue_java(&server, GRANT * 50)?;
        server.admin(&["RPUSH", QUEUE, OTHER])?;
        put_dead_first(&server)?;
        guard.release().await?;
        assert_eq!(queue(&server)?, [JAVA, DEAD, OTHER], "{kind}");
        assert_eq!(turn(&server)?.is_some(), kind == "fair");
        server.admin(&["DEL", QUEUE, TIMES, GRANTED])?;
    }
    Ok(())
}

/// Before Redisson 3.32 a thread that nobody tells sleeps without end.
#[tokio::test]
async fn a_thread_of_redisson_that_loses_its_place_is_told() -> Result<()> {
    let server = RedisServer::start()?;
    let a = client(&server.url()).await?;
    let mut thread = redis::Client::open(server.url())?.get_connection()?;
    let mut thread = thread.as_pubsub();
    thread.subscribe(CHANNEL)?;
    thread.set_read_timeout(Some(GRANT))?;
    for over in ["deadline", "turn"] {
        let deadline = queue_java(&server, GRANT * 50)?;
        if over == "turn" {
            server.admin(&["SET", GRANTED, &format!("{JAVA} {deadline} 1")])?;
        } else {
            server.admin(&["ZADD", TIMES, "1", JAVA])?;
        }
        let guard = a.fair_lock(NAME).acquire().await?;
        thread.get_message().context(over)?;
        assert!(queue(&server)?.is_empty(), "{over}");
        guard.release().await?;
    }
    Ok(())
}

/// A waiter of tidelock comes back to the first place, or a lock without a queue is taken, while a thread of Redisson
/// has its turn. The thread keeps its place, and its next turn has the whole length.
#[tokio::test]
async fn a_turn_of_redisson_that_is_cut_short_is_given_back() -> Result<()> {
    let server = RedisServer::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let mut thread = redis::Client::open(server.url())?.get_connection()?;
    let mut thread = thread.as_pubsub();
    thread.subscribe(CHANNEL)?;
    for comes_back in [true, false] {
        let guard = a.fair_lock(NAME).acquire().await?;
        let deadline = queue_java(&server, GRANT * 50)?;
        let waiting = wait(&server, &b, 2).await?;
        let owner = queue(&server)?.remove(1);
        put_dead_first(&server)?;
        guard.release().await?;
        assert!(turn(&server)?.is_some());
        let plain = if comes_back {
            server.admin(&["LREM", QUEUE, "1", &owner])?;
            server.admin(&["ZREM", TIMES, &owner])?;
            None
        } else {
            a.lock(NAME).try_acquire().await?
        };
        eventually("the turn is over", GRANT, || Ok(turn(&server)?.is_none())).await?;
        assert_eq!(queue(&server)?[..2], [JAVA, DEAD]);
        assert_eq!(server.query::<i64, _>(&["ZSCORE", TIMES, JAVA])?, deadline);
        server.admin(&["LTRIM", QUEUE, "2", "-1"])?;
        server.admin(&["ZREM", TIMES, JAVA])?;
        if let Some(plain) = plain {
            plain.release().await?;
        }
        waiting.await??.release().await?;
    }
    Ok(())
}
