//! The sides of a read-write lock: lost replies, other kinds at the key, dead readers and dead waiters.

use anyhow::{Context, Result, ensure};
use testkit::proxy::{Then, When};
use tidelock::{AcquireOptions, ErrorKind, Lock, LostReason};

use crate::looks::until;
use crate::setup::{Shop, patient, shop};
use real_servers::{SOON, builder, listen, ms, within};

/// An owner field in Redisson's format, and one of tidelock's, which has a UUID of version 8.
const JAVA: &str = "8a2f3c1e-5b64-4d0a-9c57-1f0e6b7a9d21:7";
const DEAD: &str = "8a2f3c1e-5b64-8d0a-9c57-1f0e6b7a9d21:7";
const QUEUE: &str = "tidelock:rw_queue:{till}";
const DEADLINES: &str = "tidelock:rw_deadlines:{till}";

fn sides(shop: &Shop) -> [Lock; 2] {
    let sides = shop.client.read_write_lock("till");
    [sides.read(), sides.write()]
}

/// Loads the scripts of the sides into the server, so that each request below is one call.
async fn warm_up(shop: &Shop) -> Result<()> {
    let lock = shop.client.read_write_lock("warm").read();
    let guard = lock.acquire().await?;
    guard.extend(shop.lease).await?;
    Ok(guard.release().await?)
}

/// T10 and T11: a grant or a release without a reply is repeated, and counts once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t10_a_side_whose_replies_were_swallowed_is_held_and_released_once() -> Result<()> {
    let shop = shop(ms(4000)).await?;
    warm_up(&shop).await?;
    for lock in sides(&shop) {
        let swallowed = shop
            .proxy
            .on(When::command("EVALSHA", "till"), Then::DropReply);
        let guard = within(shop.lease, "it asks again", lock.acquire()).await??;
        ensure!(swallowed.count() == 1);
        let fields = shop
            .server
            .query::<Vec<(String, String)>, _>(&["HGETALL", "till"])?;
        ensure!(
            fields.len() == 2 && fields.iter().any(|(_, value)| value == "1"),
            "{fields:?}"
        );
        let swallowed = shop
            .proxy
            .on(When::command("EVALSHA", "till"), Then::DropReply);
        within(shop.lease * 2, "it is confirmed", guard.release()).await??;
        ensure!(swallowed.count() == 1 && shop.is_free("till")?);
    }
    shop.nothing_left(vec![]).await
}

/// T10: a caller leaves while its grant is on its way. Both the hold and its place in the queue go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t10_a_side_whose_caller_left_is_withdrawn() -> Result<()> {
    let shop = shop(ms(3000)).await?;
    warm_up(&shop).await?;
    for lock in sides(&shop) {
        let held_up = shop
            .proxy
            .on(When::command("EVALSHA", "till"), Then::HoldReply);
        let waiting = tokio::spawn(lock.acquire());
        within(SOON, "the grant", held_up.fired()).await?;
        ensure!(!shop.is_free("till")?);
        waiting.abort();
        until("it is withdrawn", || shop.is_free("till")).await?;
        held_up.release();
    }
    shop.nothing_left(vec![]).await
}

/// T10 and T11: a downgrade whose replies are lost, of the read hold and of the release of the write hold, leaves one read
/// hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t10_a_downgrade_whose_replies_were_swallowed_leaves_one_reader() -> Result<()> {
    let shop = shop(ms(4000)).await?;
    warm_up(&shop).await?;
    let till = shop.client.read_write_lock("till");
    for skipped in [0, 1] {
        let writer = till.write().acquire().await?;
        let request = When::command("EVALSHA", "till").skip(skipped);
        let swallowed = shop.proxy.on(request, Then::DropReply);
        let reader = within(shop.lease * 2, "it asks again", till.downgrade(writer)).await??;
        ensure!(swallowed.count() == 1);
        let mut fields = shop
            .server
            .query::<Vec<(String, String)>, _>(&["HGETALL", "till"])?;
        fields.sort();
        let expected = [
            (reader.owner_id(), "1".to_owned()),
            ("mode".to_owned(), "read".to_owned()),
        ];
        ensure!(fields == expected, "{fields:?}");
        ensure!(reader.is_held());
        reader.release().await?;
        ensure!(shop.is_free("till")?);
    }
    shop.nothing_left(vec![]).await
}

/// The store does not answer the release of the write hold until the lease of the writer is over. The renewals of the reader
/// would keep the write hold too, and with it all other readers out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_ends_the_write_hold_however_late_the_store_answers() -> Result<()> {
    let mut shop = shop(ms(60_000)).await?;
    let builder = builder(shop.lease).response_timeout(ms(250));
    let builder = builder.publish_process_info(false).connect_within(SOON);
    shop.client = builder.connect(&shop.proxy.url()).await?;
    warm_up(&shop).await?;
    let other = shop.direct().await?;
    let till = shop.client.read_write_lock("till");
    let short = AcquireOptions::new().expires_after(ms(1500));
    let writer = till.write().acquire_with(short).await?;
    let release = When::command("EVALSHA", "till").skip(1);
    let swallowed = shop.proxy.on_each(release, Then::Drop);
    let reader = within(SOON, "the read hold", till.downgrade(writer)).await??;
    // The pauses between the first ten requests alone are longer than the lease of the writer.
    within(SOON * 2, "it goes on", swallowed.fired_times(14)).await?;
    swallowed.remove();
    until("only the reader is left", || {
        let fields: Vec<String> = shop.server.query(&["HKEYS", "till"])?;
        Ok(fields.len() == 2 && fields.contains(&reader.owner_id()))
    })
    .await?;
    let joins = other.read_write_lock("till").read().try_acquire().await?;
    joins.context("it shares the lock")?.release().await?;
    reader.release().await?;
    ensure!(shop.is_free("till")?);
    shop.nothing_left(vec![other]).await
}

/// T10: the caller leaves a downgrade when the store has granted the read hold and the write hold lasts. Both go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t10_a_downgrade_whose_caller_left_leaves_neither_hold() -> Result<()> {
    let shop = shop(ms(3000)).await?;
    warm_up(&shop).await?;
    let till = shop.client.read_write_lock("till");
    let writer = till.write().acquire().await?;
    let request = When::command("EVALSHA", "till");
    let held_up = shop.proxy.on(request, Then::HoldReply);
    let waiting = tokio::spawn(till.downgrade(writer));
    within(SOON, "the read hold", held_up.fired()).await?;
    ensure!(shop.server.query::<i64, _>(&["HLEN", "till"])? == 3);
    waiting.abort();
    until("both are gone", || shop.is_free("till")).await?;
    held_up.release();
    shop.nothing_left(vec![]).await
}

/// T50: a writer with a long lease becomes a reader with a short one. If that reader dies, it costs its own lease, not
/// that of the writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t50_a_downgraded_reader_keeps_the_lock_for_its_own_lease() -> Result<()> {
    let shop = patient(ms(6000)).await?;
    let till = shop.client.read_write_lock("till");
    let long = AcquireOptions::new().expires_after(ms(60_000));
    let writer = till.write().acquire_with(long).await?;
    let reader = till.downgrade(writer).await?;
    let left = shop.time_left("till")?.context("it is held")?;
    ensure!(left <= shop.lease, "{left:?}");
    reader.release().await?;
    ensure!(shop.is_free("till")?);
    shop.nothing_left(vec![]).await
}

/// The watchdog of a Java reader gives the lock its own lease, whatever the holds of others last. If its process then died,
/// the lock would end before the extension of the reader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_gives_the_lock_the_extended_lease_of_its_reader_again() -> Result<()> {
    let shop = patient(ms(1500)).await?;
    let reader = shop.client.read_write_lock("till").read().acquire().await?;
    reader.extend(ms(60_000)).await?;
    shop.server.admin(&["PEXPIRE", "till", "3000"])?;
    until("a renewal gives it back", || {
        let left = shop.time_left("till")?.context("it is held")?;
        Ok(left > ms(30_000))
    })
    .await?;
    reader.release().await?;
    ensure!(shop.is_free("till")?);
    shop.nothing_left(vec![]).await
}

/// T20: the lock is taken away while the reply to the read hold is on its way. The caller is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t20_a_downgrade_whose_lock_is_taken_away_is_told() -> Result<()> {
    let shop = patient(ms(3000)).await?;
    warm_up(&shop).await?;
    let till = shop.client.read_write_lock("till");
    let writer = till.write().acquire().await?;
    let request = When::command("EVALSHA", "till");
    let held_up = shop.proxy.on(request, Then::HoldReply);
    let waiting = tokio::spawn(till.downgrade(writer));
    within(SOON, "the read hold", held_up.fired()).await?;
    let other = shop.direct().await?;
    ensure!(other.lock("till").force_release().await?);
    held_up.release();
    match within(SOON, "an answer", waiting).await?? {
        Ok(reader) => {
            let (_, reason) = listen(&reader).told(SOON).await?;
            ensure!(reason == LostReason::Taken, "{reason}");
        }
        Err(error) => ensure!(error.kind() == ErrorKind::Lost, "{error}"),
    }
    shop.nothing_left(vec![other]).await
}

/// T65: what is no read-write lock is refused by its name and left as it is, and a lock refuses the sides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t65_sides_refuse_what_is_no_read_write_lock() -> Result<()> {
    let shop = patient(ms(3000)).await?;
    let put: [(&[&str], &str); 4] = [
        (&["HSET", "till", JAVA, "1"], "RLock"),
        (&["SET", "till", "3"], "WRONGTYPE"),
        (&["HSET", "till", "mode", "dark"], "dark"),
        (&["HSET", "till", "mode", "read", JAVA, "1"], "mode read"),
    ];
    for (command, named) in put {
        shop.server.admin(command)?;
        let before = shop.server.query::<Vec<u8>, _>(&["DUMP", "till"])?;
        for side in sides(&shop) {
            let error = side.try_acquire().await.map(drop).unwrap_err();
            ensure!(error.kind() == ErrorKind::WrongType, "{error}");
            ensure!(error.to_string().contains(named), "{error}");
        }
        ensure!(shop.server.query::<Vec<u8>, _>(&["DUMP", "till"])? == before);
        shop.server.admin(&["DEL", "till"])?;
    }
    shop.nothing_left(vec![]).await
}

/// T20 and T21: a side whose key is deleted or overwritten is lost at its next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t20_a_side_whose_key_is_taken_away_is_told() -> Result<()> {
    let shop = patient(ms(3000)).await?;
    let harms: [(&[&str], LostReason); 2] = [
        (&["DEL", "till"], LostReason::Taken),
        (&["SET", "till", "x"], LostReason::WrongType),
    ];
    for (harm, expected) in harms {
        for side in sides(&shop) {
            let guard = side.acquire().await?;
            shop.server.admin(harm)?;
            let (_, reason) = listen(&guard).told(SOON).await?;
            ensure!(reason == expected, "{reason}");
            ensure!(guard.release().await.unwrap_err().kind() == ErrorKind::Lost);
            shop.server.admin(&["DEL", "till"])?;
        }
    }
    shop.nothing_left(vec![]).await
}

/// T50: a reader whose own key has gone holds nothing, although others keep the lock; they are not disturbed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t50_a_read_hold_ends_with_its_own_key() -> Result<()> {
    let shop = patient(ms(3000)).await?;
    let [read, write] = sides(&shop);
    let (one, other) = (read.acquire().await?, read.acquire().await?);
    let hold = format!("{{till}}:{}:rwlock_timeout:1", one.owner_id());
    ensure!(shop.server.query::<i64, _>(&["DEL", &hold])? == 1);
    let (_, reason) = listen(&one).told(SOON).await?;
    ensure!(reason == LostReason::Taken, "{reason}");
    let fields = shop
        .server
        .query::<Vec<(String, String)>, _>(&["HGETALL", "till"])?;
    ensure!(fields.len() == 2, "{fields:?}");
    ensure!(other.is_held() && write.try_acquire().await?.is_none());
    other.release().await?;
    ensure!(shop.is_free("till")?);
    shop.nothing_left(vec![]).await
}

/// T50: a reader of a process that has died, beside one that lives. When that one leaves, the key lives only as long as
/// the dead reader's lease, and a waiting writer gets in then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t50_a_dead_reader_costs_the_rest_of_its_lease() -> Result<()> {
    let shop = patient(ms(6000)).await?;
    let [read, write] = sides(&shop);
    let alive = read.acquire().await?;
    shop.server.admin(&["HSET", "till", DEAD, "1"])?;
    let hold = format!("{{till}}:{DEAD}:rwlock_timeout:1");
    let dead = shop.lease / 2;
    let millis = dead.as_millis().to_string();
    shop.server.admin(&["SET", &hold, "1", "PX", &millis])?;
    let waiting = tokio::spawn(write.acquire());
    until("it waits", || {
        Ok(shop.server.query::<i64, _>(&["ZCARD", QUEUE])? == 1)
    })
    .await?;
    alive.release().await?;
    let left = shop
        .time_left("till")?
        .context("the dead reader holds it")?;
    ensure!(left <= dead && !waiting.is_finished(), "{left:?}");
    let guard = within(shop.lease, "the writer", waiting).await???;
    guard.release().await?;
    shop.nothing_left(vec![]).await
}

/// T50: a waiter that died keeps its place for a lease at most. Then those behind it get in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t50_a_dead_waiter_costs_at_most_a_lease() -> Result<()> {
    let shop = patient(ms(3000)).await?;
    let [read, _] = sides(&shop);
    let held = read.acquire().await?;
    let (seconds, micros): (u64, u64) = shop.server.query(&["TIME"])?;
    let ends = seconds * 1000 + micros / 1000 + u64::try_from(ms(2000).as_millis())?;
    let dead = format!("w{DEAD}");
    shop.server.admin(&["ZADD", QUEUE, "1", &dead])?;
    shop.server
        .admin(&["HSET", DEADLINES, &dead, &ends.to_string()])?;
    ensure!(read.try_acquire().await?.is_none(), "a writer waits");
    let limit = AcquireOptions::new().wait(ms(5000));
    let readers = [read.acquire_with(limit.clone()), read.acquire_with(limit)];
    let readers = readers.map(tokio::spawn);
    for reader in readers {
        reader.await??.release().await?;
    }
    held.release().await?;
    ensure!(shop.server.query::<i64, _>(&["EXISTS", QUEUE, DEADLINES])? == 0);
    shop.nothing_left(vec![]).await
}

/// T50: a reader that gets in because it has removed a dead writer wakes the readers behind that writer. Otherwise they
/// would sleep for a third of their lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t50_a_reader_that_removes_a_dead_writer_wakes_the_others() -> Result<()> {
    let shop = shop(ms(60_000)).await?;
    let other = shop.direct().await?;
    let [read, _] = sides(&shop);
    let held = read.acquire().await?;
    let (seconds, micros): (u64, u64) = shop.server.query(&["TIME"])?;
    let now = seconds * 1000 + micros / 1000;
    let dead = format!("w{DEAD}");
    let ends = |at: u64| {
        shop.server
            .admin(&["HSET", DEADLINES, &dead, &at.to_string()])
    };
    shop.server.admin(&["ZADD", QUEUE, "1", &dead])?;
    ends(now + 120_000)?;
    let readers = [read.acquire(), read.acquire()].map(tokio::spawn);
    until("both are in the queue", || {
        Ok(shop.server.query::<i64, _>(&["ZCARD", QUEUE])? == 3)
    })
    .await?;
    ends(now)?;
    let late = other.read_write_lock("till").read().try_acquire().await?;
    let late = late.context("nobody alive is ahead of it")?;
    for reader in readers {
        let reader = within(shop.lease / 10, "a reader", reader).await???;
        reader.release().await?;
    }
    late.release().await?;
    held.release().await?;
    shop.nothing_left(vec![other]).await
}

/// T50: a waiter is in the queue before it sleeps, also if its process listens to the channel already. Otherwise those
/// that come later overtake it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t50_each_waiter_is_in_the_queue_at_once() -> Result<()> {
    let shop = shop(ms(20_000)).await?;
    let [read, write] = sides(&shop);
    let held = write.acquire().await?;
    let mut waiting = Vec::new();
    for (side, count) in [(&read, 1), (&write, 2), (&read, 3)] {
        waiting.push(tokio::spawn(side.acquire()));
        until("it is in the queue", || {
            Ok(shop.server.query::<i64, _>(&["ZCARD", QUEUE])? == count)
        })
        .await?;
    }
    held.release().await?;
    for waiter in waiting {
        within(SOON, "its turn", waiter).await???.release().await?;
    }
    shop.nothing_left(vec![]).await
}

/// A force release ends the holds of both sides, and leaves no key of theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_force_release_frees_both_sides() -> Result<()> {
    let shop = patient(ms(3000)).await?;
    for side in sides(&shop) {
        let guard = side.acquire().await?;
        ensure!(shop.client.lock("till").force_release().await?);
        ensure!(
            shop.leftovers()?.iter().all(|left| !left.contains("till")),
            "{:?}",
            shop.leftovers()
        );
        let (_, reason) = listen(&guard).told(SOON).await?;
        ensure!(reason == LostReason::Taken, "{reason}");
        ensure!(!side.force_release().await?);
    }
    shop.nothing_left(vec![]).await
}
