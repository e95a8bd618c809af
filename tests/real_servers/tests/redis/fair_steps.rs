//! Single steps of a fair lock: requests that are repeated, users without some of the rights, deadlines, and entries of
//! the queue that other clients have left.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::proxy::{Mode, Proxy, Then, When};
use testkit::servers::RedisServer;
use tidelock::{Client, ErrorKind};

use crate::fair::{BEAT, GRANT, LEASE, NAME, QUEUE, client, fields, queue, server_time, wait};
use crate::fair_threads::{GRANTED, JAVA, TIMES};
use crate::{channels, eventually};

#[tokio::test]
async fn a_read_write_lock_under_the_name_is_refused_and_its_remains_are_swept() -> Result<()> {
    let server = RedisServer::start()?;
    let lock = client(&server.url()).await?.fair_lock(NAME);
    server.admin(&["HSET", NAME, "mode", "read", JAVA, "1"])?;
    server.admin(&["PEXPIRE", NAME, "30000"])?;
    let refused = lock.try_acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongType, "{refused}");
    let refused = lock.acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongType, "{refused}");
    server.admin(&["HDEL", NAME, JAVA])?;
    let guard = lock.try_acquire().await?.expect("only remains");
    guard.release().await?;
    Ok(())
}

/// The reply of a grant is lost. The repeated request finds the grant: it takes no second token, and lasts for a whole
/// lease from then on.
#[tokio::test]
async fn a_repeated_request_takes_no_second_token_and_has_its_whole_lease() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let builder = Client::builder().lease(LEASE);
    let builder = builder.response_timeout(Duration::from_secs(1));
    let lock = builder
        .connect(&proxy.url())
        .await?
        .fair_lock(NAME)
        .fenced();
    lock.acquire().await?.release().await?;
    let lost = proxy.on(When::command("EVALSHA", NAME), Then::DropReply);
    let waiting = tokio::spawn(lock.acquire());
    lost.fired().await;
    server.admin(&["PEXPIRE", NAME, "9000"])?;
    let guard = tokio::time::timeout(GRANT, waiting).await???;
    assert_eq!(guard.token().get(), 2);
    let left: i64 = server.query(&["PTTL", NAME])?;
    assert!(left > 20_000, "{left}: shorter than the holder believes");
    guard.release().await?;
    assert_eq!(lock.acquire().await?.token().get(), 3);
    Ok(())
}

/// A note that stays would make a repeated request of the holder take another token.
#[tokio::test]
async fn a_grant_that_was_confirmed_is_noted_no_longer() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let (a, b) = (client(&server.url()).await?, client(&proxy.url()).await?);
    let guard = a.fair_lock(NAME).acquire().await?;
    let waiting = wait(&server, &b, 1).await?;
    let owner = queue(&server)?.remove(0);
    proxy.set_both(Mode::Hold);
    guard.release().await?;
    let noted: Option<String> = server.query(&["GET", GRANTED])?;
    assert_eq!(noted, Some(owner));
    let left: i64 = server.query(&["PTTL", GRANTED])?;
    let grant: i64 = server.query(&["PTTL", NAME])?;
    assert!(
        (grant..=7000).contains(&left),
        "{left}, not longer than the grant: {grant}"
    );
    proxy.set_both(Mode::Pass);
    let guard = waiting.await??;
    assert_eq!(server.keys()?, ["tidelock:alive:{turns}", NAME]);
    guard.release().await?;
    Ok(())
}

/// A server whose user `poor` has all rights but these.
pub(crate) fn poor(without: &str) -> Result<RedisServer> {
    let mut acl = "user default on nopass ~* &* +@all\n".to_owned();
    write!(acl, "user poor on >secret ~* &* +@all {without}")?;
    RedisServer::builder().acl(&acl).start()
}

pub(crate) fn poor_url(server: &RedisServer) -> String {
    format!("redis://poor:secret@{}", server.addr())
}

/// The user who frees the lock may not change the queue. The waiter takes its entry out when it confirms.
#[tokio::test]
async fn a_grant_by_a_user_without_rights_to_the_queue_leaves_no_place() -> Result<()> {
    let server = poor("-lpop -lrem -zrem")?;
    let a = client(&poor_url(&server)).await?;
    let b = client(&server.url()).await?;
    let guard = a.lock(NAME).acquire().await?;
    let waiting = wait(&server, &b, 1).await?;
    guard.release().await?;
    let guard = tokio::time::timeout(BEAT / 2, waiting).await???;
    assert!(queue(&server)?.is_empty());
    assert_eq!(server.keys()?, ["tidelock:alive:{turns}", NAME]);
    guard.release().await?;
    Ok(())
}

/// The user who frees the lock may not publish. It grants the lock all the same, so nobody can overtake the waiter,
/// which finds the grant with its next beat.
#[tokio::test]
async fn a_user_who_may_not_publish_hands_over_all_the_same() -> Result<()> {
    let server = poor("resetchannels")?;
    let proxy = Proxy::start(server.addr())?;
    let (a, b) = (
        client(&poor_url(&server)).await?,
        client(&proxy.url()).await?,
    );
    let guard = a.lock(NAME).acquire().await?;
    let waiting = wait(&server, &b, 1).await?;
    let owner = queue(&server)?.remove(0);
    proxy.set_both(Mode::Hold);
    guard.release().await?;
    assert_eq!(fields(&server)?.into_keys().collect::<Vec<_>>(), [owner]);
    proxy.set_both(Mode::Pass);
    let guard = tokio::time::timeout(GRANT, waiting).await???;
    guard.release().await?;
    Ok(())
}

/// Redisson lowers all deadlines with each of its grants. A later one is left as it is.
#[tokio::test]
async fn a_beat_raises_the_deadline_of_a_waiter_and_never_lowers_it() -> Result<()> {
    let server = RedisServer::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let guard = a.fair_lock(NAME).acquire().await?;
    let waiting = wait(&server, &b, 1).await?;
    let owner = queue(&server)?.remove(0);
    let score = || server.query::<i64, _>(&["ZSCORE", TIMES, &owner]);
    let low = server_time(&server)? + 5000;
    server.admin(&["ZADD", TIMES, &low.to_string(), &owner])?;
    eventually("a beat raises it", GRANT, || Ok(score()? > low + 200_000)).await?;
    let high = server_time(&server)? + 900_000;
    server.admin(&["ZADD", TIMES, &high.to_string(), &owner])?;
    // A beat also gives this key its whole time to live again.
    let beaten = || Ok(server.query::<i64, _>(&["PTTL", "tidelock:alive:{turns}"])? > 59_000);
    eventually("the last beat was a while ago", GRANT, || Ok(!beaten()?)).await?;
    eventually("another beat", GRANT, beaten).await?;
    assert_eq!(score()?, high);
    guard.release().await?;
    waiting.await??.release().await?;
    Ok(())
}

/// A script looks at a thousand entries. The beats of the live waiter behind them go on at once.
#[tokio::test]
async fn thousands_of_dead_waiters_are_gone_after_one_beat() -> Result<()> {
    let server = RedisServer::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let guard = a.fair_lock(NAME).acquire().await?;
    let mut dead = vec!["RPUSH".to_owned(), QUEUE.to_owned()];
    dead.extend((0..6500).map(|n| format!("8a2f3c1e-5b64-8d0a-9c57-1f0e6b7a9d21:{n}")));
    server.admin(&dead)?;
    let waiting = wait(&server, &b, 6501).await?;
    guard.release().await?;
    assert_eq!(queue(&server)?.len(), 5501);
    let guard = tokio::time::timeout(BEAT * 2, waiting).await???;
    assert!(queue(&server)?.is_empty());
    guard.release().await?;
    Ok(())
}

/// The number of messages that were published so far.
pub(crate) fn published(server: &RedisServer) -> Result<u64> {
    let stats: String = server.query(&["INFO", "commandstats"])?;
    let line = stats
        .lines()
        .find(|line| line.starts_with("cmdstat_publish:"));
    let calls = line.and_then(|line| line.split(['=', ',']).nth(1));
    Ok(calls.map_or(Ok(0), str::parse)?)
}

/// A waiter that finds the lock free and nobody alive ahead learns of its grant from the reply. The only message is for
/// the thread that has lost its place.
#[tokio::test]
async fn a_waiter_that_asks_is_not_told_as_well() -> Result<()> {
    let server = RedisServer::start()?;
    let a = client(&server.url()).await?;
    server.admin(&["RPUSH", QUEUE, JAVA])?;
    server.admin(&["ZADD", TIMES, "1", JAVA])?;
    let guard = a.fair_lock(NAME).acquire().await?;
    assert!(queue(&server)?.is_empty() && published(&server)? == 1);
    guard.release().await?;
    Ok(())
}

/// The lock must not stay without an end.
#[tokio::test]
async fn a_fair_lock_without_the_right_to_a_time_to_live_is_not_left_behind() -> Result<()> {
    let server = poor("-pexpire")?;
    let lock = client(&poor_url(&server)).await?.fair_lock(NAME);
    let refused = lock.try_acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    assert!(server.keys()?.is_empty());
    Ok(())
}

/// All waiters of a process listen on one connection, so a hand-over tries only one of them.
#[tokio::test]
async fn a_process_that_hears_nothing_is_told_once_in_a_hand_over() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let (a, b) = (client(&server.url()).await?, client(&proxy.url()).await?);
    let guard = a.fair_lock(NAME).acquire().await?;
    let mut waiting = Vec::new();
    for count in 1..=5 {
        waiting.push(wait(&server, &b, count).await?);
    }
    proxy.refuse(true);
    proxy.cut();
    eventually(
        "nobody listens",
        LEASE,
        || Ok(channels(&server)?.is_empty()),
    )
    .await?;
    let before = published(&server)?;
    guard.release().await?;
    // One message for the process, and one for waiters that have no place in the queue.
    assert_eq!(published(&server)? - before, 2);
    assert_eq!(queue(&server)?.len(), 5, "they keep their places");
    proxy.refuse(false);
    for waiting in waiting {
        waiting.await??.release().await?;
    }
    Ok(())
}

/// The beats show that its process is alive.
#[tokio::test]
async fn a_waiter_that_waits_for_longer_than_one_beat_lasts_is_granted_at_once() -> Result<()> {
    let server = RedisServer::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let guard = a.fair_lock(NAME).acquire().await?;
    let waiting = wait(&server, &b, 1).await?;
    let owner = queue(&server)?.remove(0);
    tokio::time::sleep(GRANT + BEAT / 2).await;
    guard.release().await?;
    assert_eq!(fields(&server)?.into_keys().collect::<Vec<_>>(), [owner]);
    waiting.await??.release().await?;
    Ok(())
}

/// A server without memory lets a script go on that has freed something.
#[tokio::test]
async fn a_server_whose_memory_is_full_hands_over() -> Result<()> {
    let server = RedisServer::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let guard = a.fair_lock(NAME).acquire().await?;
    let waiting = wait(&server, &b, 1).await?;
    let owner = queue(&server)?.remove(0);
    server.admin(&["CONFIG", "SET", "maxmemory", "1"])?;
    guard.release().await?;
    assert_eq!(fields(&server)?.into_keys().collect::<Vec<_>>(), [owner]);
    server.admin(&["CONFIG", "SET", "maxmemory", "0"])?;
    let guard = tokio::time::timeout(GRANT, waiting).await???;
    guard.release().await?;
    Ok(())
}

/// It lets a beat go on too. Otherwise no process would count as alive any more when the lock is released.
#[tokio::test]
async fn waiters_keep_their_places_on_a_server_whose_memory_is_full() -> Result<()> {
    let server = RedisServer::start()?;
    let [a, b, c] = [
        client(&server.url()).await?,
        client(&server.url()).await?,
        client(&server.url()).await?,
    ];
    let guard = a.fair_lock(NAME).acquire().await?;
    let (first, second) = (wait(&server, &b, 1).await?, wait(&server, &c, 2).await?);
    let places = queue(&server)?;
    server.admin(&["CONFIG", "SET", "maxmemory", "1"])?;
    tokio::time::sleep(GRANT + BEAT / 2).await;
    guard.release().await?;
    let holder: Vec<String> = fields(&server)?.into_keys().collect();
    assert_eq!([holder, queue(&server)?].concat(), places);
    server.admin(&["CONFIG", "SET", "maxmemory", "0"])?;
    for waiting in [first, second] {
        let guard = tokio::time::timeout(GRANT, waiting).await???;
        guard.release().await?;
    }
    Ok(())
}

/// It would refuse a confirmation that begins with its token. The grant would end, and the waiter would have no place.
#[tokio::test]
async fn a_server_whose_memory_is_full_counts_a_fenced_grant() -> Result<()> {
    let server = RedisServer::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let guard = a.fair_lock(NAME).fenced().acquire().await?;
    let waiting = tokio::spawn(b.fair_lock(NAME).fenced().acquire());
    let queued = || Ok(queue(&server)?.len() == 1);
    eventually("it has a place", LEASE, queued).await?;
    server.admin(&["CONFIG", "SET", "maxmemory", "1"])?;
    guard.release().await?;
    let guard = tokio::time::timeout(GRANT, waiting).await???;
    assert_eq!(guard.token().get(), 2);
    guard.release().await?;
    Ok(())
}

/// The user who frees the lock cannot note the grant. Nobody has it then, and the waiter that was told takes it.
#[tokio::test]
async fn a_user_who_may_not_grant_leaves_the_waiter_its_place() -> Result<()> {
    let server = poor("-set")?;
    let a = client(&poor_url(&server)).await?;
    let proxy = Proxy::start(server.addr())?;
    let b = client(&proxy.url()).await?;
    let guard = a.lock(NAME).acquire().await?;
    let waiting = wait(&server, &b, 1).await?;
    let places = queue(&server)?;
    proxy.set_both(Mode::Hold);
    guard.release().await?;
    assert_eq!((fields(&server)?.len(), queue(&server)?), (0, places));
    proxy.set_both(Mode::Pass);
    let guard = tokio::time::timeout(GRANT, waiting).await???;
    guard.release().await?;
    Ok(())
}

/// A message may come from anybody who may publish. It costs a request and grants nothing.
#[tokio::test]
async fn a_forged_message_lets_nobody_in() -> Result<()> {
    let server = RedisServer::start()?;
    let proxy = Proxy::start(server.addr())?;
    let (a, b) = (client(&server.url()).await?, client(&proxy.url()).await?);
    let guard = a.fair_lock(NAME).acquire().await?;
    let waiting = wait(&server, &b, 1).await?;
    let owner = queue(&server)?.remove(0);
    let (process, number) = owner.split_at(36);
    let channel = format!("redisson_lock__channel:{{turns}}:{process}");
    let forge = |payload: &str| -> Result<()> {
        let heard: i64 = server.query(&["PUBLISH", &channel, payload])?;
        ensure!(heard == 1, "its process listens");
        Ok(())
    };
    for payload in ["", "00", "99999999999999999999", "no number", "\r\n"] {
        forge(payload)?;
        // A message for the waiter itself wakes it.
        let asked = proxy.on(When::command("EVALSHA", NAME), Then::HoldReply);
        forge(&number[1..])?;
        tokio::time::timeout(BEAT, asked.fired()).await?;
        asked.remove();
        asked.release();
        assert!(!waiting.is_finished() && guard.is_held(), "{payload:?}");
    }
    assert_eq!(queue(&server)?, [owner]);
    guard.release().await?;
    waiting.await??.release().await?;
    Ok(())
}
