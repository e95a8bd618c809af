//! The decisions of the scripts of fair locks: what each of them answers, and what it leaves. docs/mutants.md lists the
//! changes of the scripts that these tests notice.

use std::collections::BTreeMap;

use anyhow::Result;
use redis::{Connection, FromRedisValue};
use testkit::servers::RedisServer;
use tidelock::store::redis_scripts;

use crate::fair::{GRANT, NAME, QUEUE, fields, queue, server_time};
use crate::fair_steps::{poor, poor_url, published};
use crate::fair_threads::{GRANTED, JAVA, TIMES};

const ALIVE: &str = "tidelock:alive:{turns}";
const CHANNEL: &str = "redisson_lock__channel:{turns}";
/// A holder, and waiters of another process of tidelock.
const HOLDER: &str = "0b7d1c52-6a3e-8f14-9c57-1f0e6b7a9d21:1";
const PROCESS: &str = "8a2f3c1e-5b64-8d0a-9c57-1f0e6b7a9d21";
const FIRST: &str = "8a2f3c1e-5b64-8d0a-9c57-1f0e6b7a9d21:1";
const SECOND: &str = "8a2f3c1e-5b64-8d0a-9c57-1f0e6b7a9d21:2";
/// A waiter of a third process.
const LIVE: &str = "5d1e9b70-22c4-8a6f-9c57-1f0e6b7a9d21:1";
/// Stands for a part of an answer that is no number.
const TEXT: i64 = i64::MIN;
/// The time by which a deadline grows with each waiter ahead, in milliseconds.
const WAIT: i64 = 300_000;
const LEASE: i64 = 30_000;

fn connect(url: String) -> Result<Connection> {
    Ok(redis::Client::open(url)?.get_connection()?)
}

fn run<T: FromRedisValue>(
    db: &mut Connection,
    script: &str,
    keys: &[&str],
    args: &[&str],
) -> Result<T> {
    let mut eval = redis::cmd("EVAL");
    eval.arg(script).arg(keys.len()).arg(keys).arg(args);
    Ok(eval.query(db)?)
}

/// Releases a lock without a queue.
fn release<T: FromRedisValue>(db: &mut Connection) -> Result<T> {
    let args = [HOLDER, "publish"];
    run(db, redis_scripts::release(), &[NAME], &args)
}

fn fair_release(db: &mut Connection) -> Result<i64> {
    let args = [HOLDER, CHANNEL, "publish"];
    let keys = [NAME, QUEUE, TIMES, GRANTED];
    run(db, redis_scripts::fair_release(), &keys, &args)
}

/// `waits`: "queues" if the owner takes a place. A part of the answer that is no number becomes [`TEXT`].
fn fair_acquire(db: &mut Connection, owner: &str, waits: &str) -> Result<Vec<i64>> {
    let tombstone = format!("tidelock:withdrawn:{{turns}}:{owner}");
    let keys = [NAME, &tombstone, QUEUE, TIMES, ALIVE, GRANTED];
    let args = [&LEASE.to_string(), owner, waits, "", "publish"];
    let answer: Vec<redis::Value> = run(db, redis_scripts::fair_acquire(), &keys, &args)?;
    let number = |part| match part {
        redis::Value::Int(number) => number,
        _ => TEXT,
    };
    Ok(answer.into_iter().map(number).collect())
}

fn hold(server: &RedisServer) -> Result<()> {
    server.admin(&["HSET", NAME, HOLDER, "1"])?;
    server.admin(&["PEXPIRE", NAME, "30000"]).map(drop)
}

/// Puts a waiter at the end of the queue. Returns its deadline.
fn put(server: &RedisServer, owner: &str, millis: i64) -> Result<i64> {
    let deadline = server_time(server)? + millis;
    server.admin(&["RPUSH", QUEUE, owner])?;
    server.admin(&["ZADD", TIMES, &deadline.to_string(), owner])?;
    Ok(deadline)
}

/// Its process counts as alive.
fn show_alive(server: &RedisServer) -> Result<()> {
    let till = (server_time(server)? + 60_000).to_string();
    server.admin(&["ZADD", ALIVE, &till, PROCESS]).map(drop)
}

/// Waiters of tidelock listen to the head of the queue too. They do not hold the releaser back.
#[test]
fn a_release_counts_the_threads_of_redisson_that_it_told() -> Result<()> {
    let server = RedisServer::start()?;
    let mut db = connect(server.url())?;
    let (mut java, mut ours) = (connect(server.url())?, connect(server.url())?);
    let (mut java, mut ours) = (java.as_pubsub(), ours.as_pubsub());
    let channel = format!("{CHANNEL}:{JAVA}");
    java.subscribe(&channel)?;
    ours.subscribe(&channel)?;
    ours.subscribe(format!("tidelock:waiting:{{turns}}:{JAVA}"))?;
    hold(&server)?;
    put(&server, JAVA, WAIT)?;
    assert_eq!(release::<Vec<i64>>(&mut db)?, [1, 0]);
    Ok(())
}

#[test]
fn a_release_of_another_kind_gives_a_turn_back() -> Result<()> {
    let server = RedisServer::start()?;
    let mut db = connect(server.url())?;
    hold(&server)?;
    let deadline = put(&server, JAVA, WAIT)?;
    let began = server_time(&server)?;
    server.admin(&["SET", GRANTED, &format!("{JAVA} {deadline} {began}")])?;
    assert_eq!(release::<i64>(&mut db)?, 1);
    assert_eq!(server.query::<Option<String>, _>(&["GET", GRANTED])?, None);
    assert_eq!(queue(&server)?, [JAVA]);
    Ok(())
}

/// A live waiter must not lose its place because the user who releases cannot see that it is alive.
#[test]
fn a_user_who_may_not_read_the_deadlines_releases_and_removes_nobody() -> Result<()> {
    for waiter in [JAVA, FIRST] {
        let server = poor("-zscore")?;
        let mut db = connect(poor_url(&server))?;
        hold(&server)?;
        put(&server, waiter, WAIT)?;
        show_alive(&server)?;
        assert_eq!(release::<i64>(&mut db)?, 1);
        assert_eq!(queue(&server)?, [waiter]);
        assert!(fields(&server)?.is_empty(), "nobody has it");
    }
    Ok(())
}

/// `RReadWriteLock` has added its fields to the hash of a fair lock, and has left one of them.
#[test]
fn a_fair_release_sweeps_the_remains_of_another_kind_and_hands_over() -> Result<()> {
    let server = RedisServer::start()?;
    let mut db = connect(server.url())?;
    let mut first = connect(server.url())?;
    let mut first = first.as_pubsub();
    first.subscribe(format!("{CHANNEL}:{PROCESS}"))?;
    hold(&server)?;
    server.admin(&["HSET", NAME, "mode", "read"])?;
    put(&server, FIRST, WAIT)?;
    show_alive(&server)?;
    assert_eq!(fair_release(&mut db)?, 4, "another kind was taken");
    let granted = BTreeMap::from([(FIRST.to_owned(), "1".to_owned())]);
    assert_eq!(fields(&server)?, granted);
    // All waiters of the process hear the message, which is for one of them.
    first.set_read_timeout(Some(GRANT))?;
    assert_eq!(first.get_message()?.get_payload::<String>()?, FIRST[37..]);
    Ok(())
}

/// Waiters of another process for a lock without a queue listen to the channel of the head, because Redisson publishes its
/// releases there. They must not make a waiter count as listening whose process was killed.
#[test]
fn a_head_whose_process_was_killed_is_passed_over_although_others_listen_to_its_channel()
-> Result<()> {
    let server = RedisServer::start()?;
    let mut db = connect(server.url())?;
    let mut other = connect(server.url())?;
    let mut other = other.as_pubsub();
    other.subscribe(format!("{CHANNEL}:{FIRST}"))?;
    other.subscribe(format!("tidelock:waiting:{{turns}}:{FIRST}"))?;
    let mut live = connect(server.url())?;
    let mut live = live.as_pubsub();
    live.subscribe(format!("{CHANNEL}:{}", &LIVE[..36]))?;
    for owner in [FIRST, LIVE] {
        hold(&server)?;
        put(&server, owner, WAIT)?;
    }
    show_alive(&server)?;
    let till = (server_time(&server)? + 60_000).to_string();
    server.admin(&["ZADD", ALIVE, &till, &LIVE[..36]])?;
    assert_eq!(fair_release(&mut db)?, 1);
    let granted = BTreeMap::from([(LIVE.to_owned(), "1".to_owned())]);
    assert_eq!(
        (fields(&server)?, queue(&server)?),
        (granted, vec![FIRST.to_owned()])
    );
    Ok(())
}

/// Redisson publishes its release on the channel of the waiter behind it. Nobody else's release comes that way.
#[test]
fn a_waiter_right_behind_redisson_is_told_so() -> Result<()> {
    let server = RedisServer::start()?;
    let mut db = connect(server.url())?;
    let mut ask = |owner: &str| -> Result<bool> {
        let answer = fair_acquire(&mut db, owner, "queues")?;
        Ok(answer[2..] == [TEXT])
    };
    hold(&server)?;
    assert!(!ask(FIRST)?, "behind a holder of tidelock");
    assert!(!ask(SECOND)?, "behind a waiter of tidelock");
    assert!(!ask(SECOND)?, "it has a place");
    put(&server, JAVA, WAIT)?;
    assert!(ask(LIVE)?, "behind a waiter of Redisson");
    assert!(ask(LIVE)?, "it has a place");
    assert!(!ask(FIRST)?);
    server.admin(&["DEL", NAME])?;
    server.admin(&["HSET", NAME, JAVA, "1"])?;
    server.admin(&["PEXPIRE", NAME, "30000"])?;
    assert!(ask(FIRST)?, "behind a holder of Redisson");
    assert!(!ask(SECOND)?);
    server.admin(&["DEL", QUEUE, TIMES])?;
    assert!(ask(FIRST)?, "the first one behind a holder of Redisson");
    assert_eq!(
        fair_acquire(&mut db, SECOND, "")?.len(),
        2,
        "it takes no place"
    );
    Ok(())
}

#[test]
fn a_release_of_a_fair_lock_that_is_not_held_tells_nobody() -> Result<()> {
    let server = RedisServer::start()?;
    let mut db = connect(server.url())?;
    assert_eq!(fair_release(&mut db)?, 0);
    assert_eq!(published(&server)?, 0);
    Ok(())
}

/// It learns of its grant from the reply. The only message is for the thread that has lost its place.
#[test]
fn a_waiter_that_finds_nobody_ahead_is_granted_without_a_message() -> Result<()> {
    let server = RedisServer::start()?;
    let mut db = connect(server.url())?;
    put(&server, JAVA, -1)?;
    assert_eq!(fair_acquire(&mut db, FIRST, "queues")?, [1, 0, 0]);
    assert_eq!(published(&server)?, 1);
    assert!(queue(&server)?.is_empty());
    Ok(())
}

#[test]
fn a_try_takes_no_place_and_overtakes_nobody() -> Result<()> {
    let server = RedisServer::start()?;
    let mut db = connect(server.url())?;
    hold(&server)?;
    assert_eq!(fair_acquire(&mut db, FIRST, "")?[0], 0);
    assert!(queue(&server)?.is_empty());
    server.admin(&["DEL", NAME])?;
    put(&server, JAVA, WAIT)?;
    assert_eq!(fair_acquire(&mut db, FIRST, "")?[0], 0);
    assert_eq!(queue(&server)?, [JAVA]);
    Ok(())
}

/// The lock is free, and the only waiters are dead.
#[test]
fn a_try_behind_dead_waiters_only_takes_the_lock() -> Result<()> {
    let server = RedisServer::start()?;
    let mut db = connect(server.url())?;
    for owner in [FIRST, JAVA] {
        put(&server, owner, -1)?;
    }
    assert_eq!(fair_acquire(&mut db, LIVE, "")?, [1, 0, 0]);
    let granted = BTreeMap::from([(LIVE.to_owned(), "1".to_owned())]);
    assert_eq!(fields(&server)?, granted);
    assert_eq!(server.keys()?, [NAME], "nothing is left of the dead");
    let left: i64 = server.query(&["PTTL", NAME])?;
    assert!((1..=LEASE).contains(&left), "{left}");
    Ok(())
}

/// A deadline allows a wait of Redisson for each waiter ahead, and one for the waiter itself.
#[test]
fn a_deadline_grows_with_the_queue() -> Result<()> {
    let server = RedisServer::start()?;
    let mut db = connect(server.url())?;
    let ahead = |owner: &str| -> Result<i64> {
        let deadline: i64 = server.query(&["ZSCORE", TIMES, owner])?;
        Ok((deadline - server_time(&server)? + WAIT - 1) / WAIT)
    };
    hold(&server)?;
    put(&server, JAVA, WAIT)?;
    for (owner, waits) in [(FIRST, 2), (SECOND, 3)] {
        assert_eq!(fair_acquire(&mut db, owner, "queues")?[0], 0);
        assert_eq!(ahead(owner)?, waits);
    }
    server.admin(&["ZADD", TIMES, &server_time(&server)?.to_string(), FIRST])?;
    let keys = [NAME, QUEUE, TIMES, ALIVE];
    let beat = redis_scripts::fair_beat();
    let answer: Vec<i64> = run(&mut db, beat, &keys, &["publish", PROCESS, FIRST])?;
    assert_eq!(answer[1..], [0], "nothing is left to do");
    assert_eq!(ahead(FIRST)?, 4);
    Ok(())
}

/// Otherwise a release before the first beat would remove it.
#[test]
fn a_waiter_is_alive_from_its_first_request() -> Result<()> {
    let server = RedisServer::start()?;
    let mut db = connect(server.url())?;
    hold(&server)?;
    let before = server_time(&server)?;
    fair_acquire(&mut db, FIRST, "queues")?;
    let till: i64 = server.query(&["ZSCORE", ALIVE, PROCESS])?;
    assert!(till >= before + 6000, "{}", till - before);
    let left: i64 = server.query(&["PTTL", ALIVE])?;
    assert!((6001..=60_000).contains(&left), "{left}");
    Ok(())
}

/// Otherwise each process that has ever waited would be listed for as long as anybody waits.
#[test]
fn beats_remove_the_processes_whose_time_is_over() -> Result<()> {
    let server = RedisServer::start()?;
    let mut db = connect(server.url())?;
    hold(&server)?;
    let mut over = vec!["ZADD".to_owned(), ALIVE.to_owned()];
    over.extend((1..=25).flat_map(|n| [n.to_string(), format!("8a2f3c1e-5b64-8d0a-9c57-{n:012}")]));
    server.admin(&over)?;
    show_alive(&server)?;
    let (keys, process) = ([NAME, QUEUE, TIMES, ALIVE], &LIVE[..36]);
    for _ in 0..3 {
        let beat = redis_scripts::fair_beat();
        let _: Vec<i64> = run(&mut db, beat, &keys, &["publish", process])?;
    }
    let listed: Vec<String> = server.query(&["ZRANGE", ALIVE, "0", "-1"])?;
    assert_eq!(listed, [process, PROCESS]);
    Ok(())
}

#[test]
fn a_repeated_request_of_the_holder_does_not_shorten_its_lease() -> Result<()> {
    let server = RedisServer::start()?;
    let mut db = connect(server.url())?;
    hold(&server)?;
    server.admin(&["PEXPIRE", NAME, "90000"])?;
    assert_eq!(fair_acquire(&mut db, HOLDER, "queues")?, [1, 0, 0]);
    let left: i64 = server.query(&["PTTL", NAME])?;
    assert!(left > LEASE * 2, "{left}");
    assert!(queue(&server)?.is_empty());
    Ok(())
}
