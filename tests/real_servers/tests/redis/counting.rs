//! Counting semaphores on a real server: what else may stand at the key, and what stays behind.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use real_servers::secs;
use testkit::servers::RedisServer;
use tidelock::store::redis_scripts;
use tidelock::{Client, CountingSemaphore, ErrorKind};
use tokio::time::timeout;

use crate::listeners;

const CHANNEL: &str = "redisson_sc:{slots}";

/// The bound of a wait that must end: many times longer than it takes.
const LONG: Duration = Duration::from_secs(30);

async fn semaphore(server: &RedisServer) -> Result<CountingSemaphore> {
    let builder = Client::builder().lease(LONG).publish_process_info(false);
    let client = builder.connect(&server.url()).await?;
    Ok(client.counting_semaphore("slots"))
}

fn key(server: &RedisServer) -> Result<Option<String>> {
    server.query(&["GET", "slots"])
}

/// Steady use leaves only the answer to the last change. A semaphore with many users would fill the server otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_the_client_has_got_are_deleted() -> Result<()> {
    let server = RedisServer::start()?;
    let slots = semaphore(&server).await?;
    ensure!(slots.set_permits_if_new(2).await?);
    for _ in 0..50 {
        slots.acquire(2).await?;
        ensure!(!slots.try_acquire(1).await?);
        slots.release(2).await?;
    }
    let mut keys = server.keys()?;
    keys.retain(|key| key.starts_with("tidelock:semaphore:"));
    ensure!(keys.len() == 1, "{keys:?}");
    Ok(())
}

/// What any client may have written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_others_are_used_and_other_text_is_refused() -> Result<()> {
    let server = RedisServer::start()?;
    let slots = semaphore(&server).await?;
    ensure!(slots.set_permits_if_new(0).await?);
    ensure!(key(&server)?.as_deref() == Some("0"));
    ensure!(slots.add_permits(0).await? == 0);
    server.admin(&["SET", "slots", "-3", "EX", "600"])?;
    ensure!(slots.available().await? == -3);
    ensure!(slots.drain().await? == 0 && !slots.try_acquire(1).await?);
    ensure!(slots.release(5).await? == 2);
    ensure!(slots.drain().await? == 2);
    let left: i64 = server.query(&["TTL", "slots"])?;
    ensure!(left > 0, "a time to live that was set in Java stays");
    for (command, what) in [
        (&["SET", "slots", "soon"][..], "the text soon"),
        (&["HSET", "slots", "a", "1"], "a hash"),
        (&["RPUSH", "slots", "1"], "a list"),
    ] {
        server.admin(&["DEL", "slots"])?;
        server.admin(command)?;
        for answer in [
            slots.available().await.map(drop),
            slots.try_acquire(1).await.map(drop),
            slots.acquire(1).await,
            slots.release(1).await.map(drop),
            slots.drain().await.map(drop),
        ] {
            let error = answer.expect_err("no semaphore");
            ensure!(error.kind() == ErrorKind::WrongType, "{error}");
            ensure!(error.to_string().contains(what), "{error}");
        }
    }
    Ok(())
}

/// Full memory refuses a change before it has any effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_changes_nothing() -> Result<()> {
    let server = RedisServer::start()?;
    let slots = semaphore(&server).await?;
    ensure!(slots.set_permits_if_new(3).await?);
    let fresh = semaphore(&server).await?; // it has no answer to delete
    server.admin(&["CONFIG", "SET", "maxmemory", "1"])?;
    fresh.try_acquire(1).await.expect_err("the memory is full");
    fresh.release(1).await.expect_err("the memory is full");
    server.admin(&["CONFIG", "SET", "maxmemory", "0"])?;
    ensure!(key(&server)?.as_deref() == Some("3"));
    ensure!(fresh.try_acquire(3).await?);
    Ok(())
}

/// What a cancelled acquisition has taken would be lost for good: nobody else knows of it.
#[test]
fn a_cancelled_acquisition_is_undone_on_a_server_whose_memory_is_full() -> Result<()> {
    const ANSWER: &str = "tidelock:semaphore:{slots}:1";
    let server = RedisServer::start()?;
    let change = |what: &str| -> Result<Vec<i64>> {
        let keys = [
            "EVAL",
            redis_scripts::change_semaphore(),
            "2",
            "slots",
            ANSWER,
        ];
        let values = [what, "2", CHANNEL, "publish", "60000"];
        server.query(&[&keys[..], &values].concat())
    };
    for was_taken in [true, false] {
        server.admin(&["DEL", ANSWER])?;
        server.admin(&["SET", "slots", "3"])?;
        if was_taken {
            ensure!(change("take")? == [0, 1, 2]);
        }
        server.admin(&["CONFIG", "SET", "maxmemory", "1"])?;
        let undone = change("undo")?;
        ensure!(undone[2] == if was_taken { 2 } else { 0 }, "{undone:?}");
        // A copy of the acquisition that arrives only now.
        ensure!(change("take")? == [0, 0, 0]);
        server.admin(&["CONFIG", "SET", "maxmemory", "0"])?;
        ensure!(key(&server)?.as_deref() == Some("3"));
    }
    Ok(())
}

/// A user may change the number but not note the answer. Then nothing is changed: a repeated request would count twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_cannot_be_noted_is_taken_back() -> Result<()> {
    let server = RedisServer::builder()
        .acl("user default on nopass ~* &* +@all\nuser shop on >secret ~* &* +@all -set")
        .start()?;
    let admin = semaphore(&server).await?;
    ensure!(admin.set_permits_if_new(3).await?);
    let url = format!("redis://shop:secret@{}", server.addr());
    let builder = Client::builder().lease(LONG).publish_process_info(false);
    let slots = builder.connect(&url).await?.counting_semaphore("slots");
    for answer in [
        slots.try_acquire(1).await.map(drop),
        slots.release(1).await.map(drop),
        slots.drain().await.map(drop),
    ] {
        let error = answer.expect_err("not allowed");
        ensure!(error.kind() == ErrorKind::Refused, "{error}");
        ensure!(key(&server)?.as_deref() == Some("3"));
    }
    Ok(())
}

/// Each change that makes permits available tells the waiters. Without a message they would ask again after a third of the
/// lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_wakes_waiters_long_before_they_ask_again() -> Result<()> {
    let server = RedisServer::start()?;
    let slots = semaphore(&server).await?;
    for what in ["set", "release", "add"] {
        let waits = slots.clone();
        let waiter = tokio::spawn(async move { waits.acquire(1).await });
        listeners(&server, CHANNEL, 1).await?;
        tokio::time::sleep(LONG / 60).await; // it asks once more after it has subscribed
        match what {
            "set" => ensure!(slots.set_permits_if_new(1).await?),
            "release" => ensure!(slots.release(1).await? == 1),
            _ => ensure!(slots.add_permits(1).await? == 1),
        }
        timeout(LONG / 4, waiter).await???;
    }
    Ok(())
}

/// The server is replaced by an empty one: a waiter goes on when somebody sets the number again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t51_waiters_go_on_when_an_empty_server_gets_permits() -> Result<()> {
    let server = RedisServer::start()?;
    let slots = semaphore(&server).await?;
    ensure!(slots.set_permits_if_new(0).await?);
    let waits = slots.clone();
    let waiter = tokio::spawn(async move { waits.acquire(1).await });
    listeners(&server, CHANNEL, 1).await?;
    server.kill()?;
    server.restart()?;
    ensure!(slots.set_permits_if_new(1).await?, "it is new");
    timeout(LONG / 4, waiter).await???;
    ensure!(key(&server)?.as_deref() == Some("0"));
    Ok(())
}

/// A waiter that wants more than there is does not keep one that wants less from asking. Each asks again for itself after a
/// third of the lease, as no message tells of a permit that was added by hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_message_delays_each_waiter_by_a_third_of_the_lease() -> Result<()> {
    let server = RedisServer::start()?;
    let lease = secs(3);
    let builder = Client::builder().lease(lease).publish_process_info(false);
    let slots = builder
        .connect(&server.url())
        .await?
        .counting_semaphore("slots");
    ensure!(slots.set_permits_if_new(0).await?);
    let waits = |permits| {
        let slots = slots.clone();
        tokio::spawn(async move { slots.acquire(permits).await })
    };
    let many = waits(5);
    listeners(&server, CHANNEL, 1).await?;
    let one = waits(1);
    tokio::time::sleep(lease / 10).await; // it has asked before it listens, and after that
    let _: i64 = server.query(&["INCRBY", "slots", "1"])?;
    timeout(lease, one).await???;
    ensure!(!many.is_finished() && key(&server)?.as_deref() == Some("0"));
    many.abort();
    Ok(())
}

/// The same for permits that have a holder. Nobody tells of them if their message is lost, or an operator adds some.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_for_many_permits_does_not_keep_others_from_asking() -> Result<()> {
    let server = RedisServer::start()?;
    let lease = secs(3);
    let builder = Client::builder().lease(lease).publish_process_info(false);
    let client = builder.connect(&server.url()).await?;
    let semaphore = client.semaphore("slots");
    semaphore.set_permits(5).await?;
    let all = semaphore.permits(5).acquire().await?;
    let waits = |permits| {
        let wanted = semaphore.permits(permits);
        tokio::spawn(async move { wanted.acquire().await })
    };
    let many = waits(5);
    listeners(&server, CHANNEL, 1).await?;
    let one = waits(1);
    tokio::time::sleep(lease / 10).await; // it has asked before it listens, and after that
    let _: i64 = server.query(&["INCRBY", "slots", "1"])?;
    let one = timeout(lease, one).await???;
    ensure!(!many.is_finished());
    many.abort();
    one.release().await?;
    all.release().await?;
    Ok(())
}

/// The server counts in microseconds, and the end of a lease is kept in milliseconds. If it were rounded down, the permits
/// could go to another client while their holder may still count on them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_end_no_earlier_than_their_lease() -> Result<()> {
    let server = RedisServer::start()?;
    let lease = Duration::from_secs(600);
    let builder = Client::builder().lease(lease).publish_process_info(false);
    let client = builder.connect(&server.url()).await?;
    let semaphore = client.semaphore("slots");
    semaphore.set_permits(1).await?;
    // In milliseconds. When the lease of the only permit ends, and the server's time before.
    let end = || -> Result<f64> {
        let out: Vec<(Vec<u8>, f64)> =
            server.query(&["ZRANGE", "{slots}:timeout", "0", "-1", "WITHSCORES"])?;
        Ok(out.first().context("a permit is out")?.1)
    };
    let now = || -> Result<f64> {
        let (seconds, micros): (f64, f64) = server.query(&["TIME"])?;
        Ok(seconds * 1000.0 + micros / 1000.0)
    };
    for _ in 0..20 {
        let before = now()?;
        let permit = semaphore.acquire().await?;
        ensure!(end()? >= before + lease.as_secs_f64() * 1000.0);
        let (before, longer) = (now()?, lease * 2);
        permit.extend(longer).await?;
        ensure!(end()? >= before + longer.as_secs_f64() * 1000.0);
        permit.release().await?;
    }
    Ok(())
}

/// An acquisition whose lease has ended is repeated. More leases of others have ended before it than one request takes back,
/// so its own permit is still out.
#[test]
fn an_acquisition_repeated_behind_a_thousand_ended_leases_loses_no_permit() -> Result<()> {
    const OUT: &str = "{slots}:timeout";
    const OWNER: &str = "00112233445566778899aabbccdd:1";
    const OTHERS: i64 = 1000;
    let server = RedisServer::start()?;
    let mut ended = vec![b"ZADD".to_vec(), OUT.into()];
    for number in 0..OTHERS {
        ended.extend([b"1".to_vec(), format!("{number:016}").into_bytes()]);
    }
    let own = *b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\x00\x00";
    ended.extend([b"2".to_vec(), own.to_vec()]);
    server.admin(&ended)?;
    server.admin(&["SET", "slots", "1"])?;
    // Those that are available, and those that are out.
    let total = || -> Result<i64> {
        let out: i64 = server.query(&["ZCARD", OUT])?;
        Ok(server.query::<i64, _>(&["GET", "slots"])? + out)
    };
    let all = total()?;
    let (acquire, release) = (
        redis_scripts::acquire_permits(),
        redis_scripts::release_permits(),
    );
    let tombstone = "tidelock:withdrawn:{slots}:1";
    let keys = ["EVAL", acquire, "3", "slots", OUT, tombstone];
    let answer: Vec<i64> = server.query(&[&keys[..], &["30000", OWNER, "publish"]].concat())?;
    ensure!(answer == [1, 0, 0] && total()? == all, "{answer:?}");
    let keys = ["EVAL", release, "2", "slots", OUT];
    let answer: i64 = server.query(&[&keys[..], &[OWNER, "publish"]].concat())?;
    ensure!(answer == 1 && total()? == all, "{answer}");
    Ok(())
}
