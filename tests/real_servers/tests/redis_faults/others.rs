//! Redisson's other kinds of lock under a name of ours. These tests write Redisson's data by hand; `interop` tests real
//! Redisson.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use redis::{Connection, PubSub};
use testkit::proxy::{Proxy, Then, When};
use testkit::servers::RedisServer;
use tidelock::{ErrorKind, LostReason, Mode};

use crate::looks::{FAST, listening, more_scripts, scripts, until};
use crate::setup::{Shop, patient, shop};
use real_servers::{SOON, listen, ms, within};

/// Owner fields of two Java threads, in Redisson's format.
const JAVA: &str = "8a2f3c1e-5b64-4d0a-9c57-1f0e6b7a9d21:7";
const OTHER: &str = "8a2f3c1e-5b64-4d0a-9c57-1f0e6b7a9d21:8";
const DEAD: &str = "8a2f3c1e-5b64-4d0a-9c57-1f0e6b7a9d21:9";
const LONG: Duration = Duration::from_secs(20);

/// The effect of a Java thread that takes the write lock of the name. [`write_unlock`] has the effect of its unlock.
fn write_lock(shop: &Shop) -> Result<()> {
    let field = format!("{JAVA}:write");
    shop.server
        .admin(&["HSET", "till", "mode", "write", &field, "1"])?;
    Ok(())
}

fn write_unlock(shop: &Shop) -> Result<()> {
    shop.server
        .admin(&["HDEL", "till", &format!("{JAVA}:write")])?;
    shop.server.admin(&["HSET", "till", "mode", "read"])?;
    Ok(())
}

/// A connection to receive messages.
fn connect(server: &RedisServer) -> Result<Connection> {
    let connection = redis::Client::open(server.url())?.get_connection()?;
    connection.set_read_timeout(Some(SOON))?;
    Ok(connection)
}

fn heard(ears: &mut PubSub<'_>) -> Result<(String, String)> {
    let message = ears.get_message()?;
    let channel = message.get_channel_name().to_owned();
    Ok((channel, message.get_payload()?))
}

/// The state after the last holder of a read-write lock has released it.
fn leave_mode(shop: &Shop) -> Result<()> {
    shop.server.admin(&["HSET", "till", "mode", "read"])?;
    shop.server.admin(&["PEXPIRE", "till", "20000"])?;
    Ok(())
}

/// T65: a hash that has only a `mode` field has no holder. It is free for an acquire and for a force release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t65_the_remains_of_read_write_holders_are_free() -> Result<()> {
    let shop = patient(ms(6000)).await?;
    let lock = shop.client.lock("till");
    leave_mode(&shop)?;
    ensure!(!lock.inspect().await?.is_locked());
    let guard = lock.try_acquire().await?.context("it is free")?;
    shop.held_once(&guard)?;
    guard.release().await?;
    let channels = ["redisson_lock__channel:{till}", "redisson_rwlock:{till}"];
    let mut connection = connect(&shop.server)?;
    let mut ears = connection.as_pubsub();
    ears.subscribe(&channels)?;
    leave_mode(&shop)?;
    ensure!(!lock.force_release().await?, "nobody held it");
    let told = [heard(&mut ears)?, heard(&mut ears)?, heard(&mut ears)?];
    ensure!(
        told[0] == (channels[0].to_owned(), "0".to_owned()),
        "{told:?}"
    );
    ensure!(
        told[1] == (channels[1].to_owned(), "1".to_owned()),
        "{told:?}"
    );
    // For threads of Redisson that are about to sleep.
    ensure!(
        told[2] == (channels[1].to_owned(), "00".to_owned()),
        "{told:?}"
    );
    drop(ears);
    drop(connection);
    shop.nothing_left(vec![]).await
}

/// T65: a foreign hash whose only field happens to be `mode` is not a lock, because the mode is unknown or there is no
/// time to live. It is not changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t65_a_hash_of_somebody_else_is_left_as_it_is() -> Result<()> {
    let shop = patient(ms(6000)).await?;
    let lock = shop.client.lock("till");
    for (mode, lease) in [("dark", true), ("read", false)] {
        shop.server.admin(&["HSET", "till", "mode", mode])?;
        if lease {
            shop.server.admin(&["PEXPIRE", "till", "20000"])?;
        }
        for error in [
            lock.try_acquire().await.map(drop).unwrap_err(),
            lock.force_release().await.map(drop).unwrap_err(),
        ] {
            ensure!(error.kind() == ErrorKind::WrongType, "{mode}: {error}");
        }
        ensure!(shop.server.query::<String, _>(&["HGET", "till", "mode"])? == mode);
        shop.server.admin(&["DEL", "till"])?;
    }
    shop.nothing_left(vec![]).await
}

/// T65: a renewal that finds only another kind's remains removes them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t65_a_renewal_leaves_nothing_of_what_others_left() -> Result<()> {
    let shop = patient(ms(6000)).await?;
    let guard = shop.client.lock("till").acquire().await?;
    write_lock(&shop)?;
    shop.server.admin(&["HDEL", "till", &guard.owner_id()])?;
    write_unlock(&shop)?;
    let (_, reason) = listen(&guard).told(SOON).await?;
    ensure!(reason == LostReason::Taken, "{reason}");
    ensure!(shop.is_free("till")?);
    drop(guard);
    shop.nothing_left(vec![]).await
}

/// T65: an extension detects the loss too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t65_an_extension_says_that_another_kind_was_taken() -> Result<()> {
    let shop = shop(LONG).await?;
    let guard = shop.client.lock("till").acquire().await?;
    write_lock(&shop)?;
    let error = guard.extend(LONG * 2).await.unwrap_err();
    ensure!(
        error.lost_reason() == Some(LostReason::WrongType),
        "{error}"
    );
    ensure!(!guard.is_held());
    write_unlock(&shop)?;
    let error = guard.release().await.unwrap_err();
    ensure!(
        error.lost_reason() == Some(LostReason::WrongType),
        "{error}"
    );
    shop.nothing_left(vec![]).await
}

/// T65: a caller is dropped before its answer arrives, and meanwhile another kind of lock was taken and released. The
/// withdrawal removes those remains too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t65_a_withdrawal_leaves_nothing_of_what_others_left() -> Result<()> {
    let shop = shop(ms(3000)).await?;
    shop.warm_up().await?;
    let held_up = shop
        .proxy
        .on(When::command("EVALSHA", "till"), Then::HoldReply);
    let waiting = tokio::spawn(shop.client.lock("till").acquire());
    within(SOON, "the grant", held_up.fired()).await?;
    write_lock(&shop)?;
    write_unlock(&shop)?;
    waiting.abort();
    until("it is withdrawn", || shop.is_free("till")).await?;
    held_up.release();
    shop.nothing_left(vec![]).await
}

/// T65 and T11: the lock was freed, but the reply was lost. Another kind of lock taken since then does not make this
/// release a loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t65_a_release_whose_reply_was_lost_is_a_release_whatever_stands_there_now() -> Result<()> {
    for then in [write_lock as fn(&Shop) -> Result<()>, |shop| {
        shop.server.admin(&["SET", "till", "x"])?;
        Ok(())
    }] {
        let shop = shop(ms(3000)).await?;
        shop.warm_up().await?;
        let guard = shop.client.lock("till").acquire().await?;
        shop.next_renewal("till")?;
        let lost = shop
            .proxy
            .on(When::command("EVALSHA", "till"), Then::DropReply);
        let releasing = tokio::spawn(async move { guard.release().await });
        within(SOON, "the release", lost.fired()).await?;
        until("it is free", || shop.is_free("till")).await?;
        then(&shop)?;
        within(SOON, "it is confirmed", releasing).await???;
        shop.server.admin(&["DEL", "till"])?;
        shop.nothing_left(vec![]).await?;
    }
    Ok(())
}

/// T65: a key that was overwritten under a holder is the same kind of loss, also before the next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t65_a_release_of_a_key_that_was_overwritten_is_a_loss() -> Result<()> {
    let shop = shop(LONG).await?;
    let guard = shop.client.lock("till").acquire().await?;
    shop.server.admin(&["SET", "till", "x"])?;
    let error = guard.release().await.unwrap_err();
    ensure!(error.kind() == ErrorKind::Lost, "{error}");
    ensure!(
        error.lost_reason() == Some(LostReason::WrongType),
        "{error}"
    );
    ensure!(shop.server.query::<String, _>(&["GET", "till"])? == "x");
    shop.server.admin(&["DEL", "till"])?;
    shop.nothing_left(vec![]).await
}

/// T65: `inspect` shows two kinds of lock in one key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t65_two_kinds_at_one_key_are_shown_as_two() -> Result<()> {
    let shop = shop(LONG).await?;
    let lock = shop.client.lock("till");
    let guard = lock.acquire().await?;
    write_lock(&shop)?;
    let seen = lock.inspect().await?;
    let modes: Vec<_> = seen
        .holders
        .iter()
        .map(|one| (&*one.owner, one.mode))
        .collect();
    let own = guard.owner_id();
    ensure!(
        modes == [(&*own, Mode::Exclusive), (JAVA, Mode::Write)],
        "{modes:?}"
    );
    drop(guard);
    shop.server.admin(&["DEL", "till"])?;
    shop.nothing_left(vec![]).await
}

/// A fair queue in Redisson's format: each waiter with the seconds until its deadline, negative for a missed one.
fn fair_queue(shop: &Shop, waiting: &[(&str, i64)]) -> Result<()> {
    let time: (i64, i64) = shop.server.query(&["TIME"])?;
    for (owner, in_seconds) in waiting {
        let ends = ((time.0 + in_seconds) * 1000).to_string();
        shop.server
            .admin(&["RPUSH", "redisson_lock_queue:{till}", owner])?;
        shop.server
            .admin(&["ZADD", "redisson_lock_timeout:{till}", &ends, owner])?;
    }
    Ok(())
}

/// The command that removes the queue.
const FAIR_KEYS: [&str; 3] = [
    "DEL",
    "redisson_lock_queue:{till}",
    "redisson_lock_timeout:{till}",
];

fn own_channel(owner: &str) -> String {
    format!("redisson_lock__channel:{{till}}:{owner}")
}

/// T73: a release, also a forced one, notifies the first waiter of Redisson's fair queue whose deadline has not passed.
/// Otherwise a dead waiter would block the live ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t73_the_first_of_a_fair_queue_is_told_whose_time_has_not_passed() -> Result<()> {
    let shop = shop(LONG).await?;
    let lock = shop.client.lock("till");
    fair_queue(&shop, &[(DEAD, -1), (JAVA, 300), (OTHER, 600)])?;
    let channels = [DEAD, JAVA, OTHER].map(own_channel);
    let mut connection = connect(&shop.server)?;
    let mut ears = connection.as_pubsub();
    ears.subscribe(&channels)?;
    for forced in [false, true] {
        let guard = lock.acquire().await?;
        if forced {
            ensure!(lock.force_release().await?);
            drop(guard);
        } else {
            guard.release().await?;
        }
        if !forced {
            // The dead waiter has lost its place: it would hear that.
            ensure!(heard(&mut ears)?.0 == channels[0]);
        }
        let (channel, payload) = heard(&mut ears)?;
        ensure!(channel == channels[1] && payload == "0", "{channel}");
    }
    // No other message precedes this marker, so only one waiter was notified each time.
    shop.server.admin(&["PUBLISH", &channels[2], "mark"])?;
    ensure!(heard(&mut ears)? == (channels[2].clone(), "mark".to_owned()));
    drop(ears);
    drop(connection);
    ensure!(shop.server.query::<i64, _>(&FAIR_KEYS)? == 2, "not ours");
    shop.nothing_left(vec![]).await
}

/// The times between the last three attempts through the proxy, the last one first.
fn last_pauses(proxy: &Proxy) -> Result<(Duration, Duration)> {
    let log = proxy.log();
    let asked = log.iter().rev().filter(|asked| asked.name == "EVALSHA");
    let asked: Vec<_> = asked.take(3).map(|asked| asked.at).collect();
    ensure!(asked.len() == 3, "{asked:?}");
    Ok((asked[0] - asked[1], asked[1] - asked[2]))
}

/// T73: a message from Redisson to the head of its queue wakes our waiter too. Each message comes right after a poll. By
/// polling alone the next attempt would come no earlier than a poll comes after a poll, however busy the machine is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t73_a_waiter_hears_what_the_head_of_a_fair_queue_is_told() -> Result<()> {
    let shop = shop(LONG).await?;
    let (mut woken, mut polled) = (Vec::new(), Vec::new());
    for round in 0..5 {
        shop.server.admin(&["HSET", "till", JAVA, "1"])?;
        // A different thread in each round, because each thread has a channel of its own.
        let head = format!("{OTHER}{round}");
        fair_queue(&shop, &[(&head, 300)])?;
        let waiting = tokio::spawn(shop.client.lock("till").acquire());
        let channel = own_channel(&head);
        until("it hears the head", || {
            let numsub = ["PUBSUB", "NUMSUB", &channel];
            let (_, count): (String, u64) = shop.server.query(&numsub)?;
            Ok(count == 1)
        })
        .await?;
        // The first one may be the attempt after the subscription.
        let subscribed = scripts(&shop.proxy);
        let polls = more_scripts(&shop.proxy, subscribed, 2);
        within(SOON, "a poll", polls).await?;
        let freed: [&[&str]; 3] = [&["DEL", "till"], &FAIR_KEYS, &["PUBLISH", &channel, "0"]];
        shop.server.admin_each(&freed)?;
        let guard = within(SOON, "the message", waiting).await???;
        // On a busy machine the poll that we have seen may reach the server after the lock is free, and get it. Such a
        // round tells nothing of the message.
        if scripts(&shop.proxy) - subscribed > 2 {
            let (last, before) = last_pauses(&shop.proxy)?;
            woken.push(last);
            polled.push(before);
        }
        guard.release().await?;
    }
    // One of them is on time, also on a busy machine. By polling alone each would take a whole pause, and the shortest
    // time between two polls is a whole pause too. A busy machine makes the others longer: their median would say less.
    let fastest = woken.iter().min().context("a round with a message")?;
    let shortest = polled.iter().min().context("a poll")?;
    ensure!(
        *fastest < *shortest / 2,
        "{woken:?} beside polls after {polled:?}"
    );
    shop.nothing_left(vec![]).await
}

/// T73: a waiter polls for a foreign hold, because a Redisson spin lock releases without a message. It does not poll
/// while a client of ours holds the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t73_a_lock_freed_without_a_message_is_found_soon() -> Result<()> {
    let shop = shop(LONG).await?;
    let other = shop.direct().await?;
    let lock = shop.client.lock("till");
    lock.acquire().await?.release().await?;
    for ours in [false, true] {
        let held = if ours {
            Some(other.lock("till").acquire().await?)
        } else {
            shop.server.admin(&["HSET", "till", JAVA, "1"])?;
            shop.server.admin(&["PEXPIRE", "till", "20000"])?;
            None
        };
        let waiting = tokio::spawn(lock.acquire());
        listening(&shop.server, "till").await?;
        // By then the waiter has made its second attempt, and sleeps.
        tokio::time::sleep(ms(1000)).await;
        let (since, before) = (Instant::now(), scripts(&shop.proxy));
        tokio::time::sleep(Duration::from_secs(1)).await;
        if !ours {
            let polls = more_scripts(&shop.proxy, before, 1);
            within(SOON, "it polls", polls).await?;
        }
        let looks = scripts(&shop.proxy) - before;
        // Fewer than eight in a second. A busy machine may make this one longer.
        let most = u64::try_from(since.elapsed().as_millis())? * 8 / 1000;
        let expected = if ours { 0..1 } else { 1..most };
        ensure!(expected.contains(&looks), "{looks} looks");
        match held {
            Some(held) => held.release().await?,
            None => drop(shop.server.admin(&["DEL", "till"])?),
        }
        within(FAST, "the end", waiting).await???.release().await?;
    }
    shop.nothing_left(vec![other]).await
}
