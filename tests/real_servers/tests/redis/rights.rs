//! Users, passwords and rights.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use real_servers::secs;
use testkit::servers::RedisServer;
use tidelock::testing::AnyGuard;
use tidelock::{AcquireOptions, Client, Credentials, ErrorKind, Guard};

use crate::{client, eventually, lease};

#[tokio::test]
async fn a_user_with_a_password_is_let_in_and_others_are_told_why_not() -> Result<()> {
    let server = RedisServer::builder()
        .acl("user default off\nuser shop on >secret ~* &* +@all")
        .start()?;
    let address = server.addr();
    client(&format!("redis://shop:secret@{address}"))
        .await?
        .lock("a")
        .acquire()
        .await?
        .release()
        .await?;
    for url in [
        format!("redis://shop:hunter2@{address}"),
        format!("redis://nobody:hunter2@{address}"),
        format!("redis://{address}"),
    ] {
        let error = Client::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(error.to_string().contains("authentication"), "{error}");
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }
    Ok(())
}

/// Also if the URL has a password: the one that is given wins.
#[tokio::test]
async fn a_password_without_a_user_is_for_the_user_of_the_url() -> Result<()> {
    let server = RedisServer::builder()
        .acl("user default off\nuser shop on >secret ~* &* +@all")
        .start()?;
    let url = |login: &str| format!("redis://{login}@{}", server.addr());
    let with = |password: &str| Client::builder().credentials(Credentials::password(password));
    for login in ["shop", "shop:hunter2"] {
        let client = with("secret").connect(&url(login)).await?;
        client.lock("a").acquire().await?.release().await?;
    }
    let wrong = with("hunter2").connect(&url("shop:secret")).await;
    let error = wrong.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    Ok(())
}

#[tokio::test]
async fn t28_without_rights_to_channels_releases_work_and_waiters_poll() -> Result<()> {
    let server = RedisServer::builder()
        .acl("user default off\nuser shop on >secret ~* resetchannels +@all")
        .start()?;
    let url = format!("redis://shop:secret@{}", server.addr());
    let (one, two) = (Client::connect(&url).await?, Client::connect(&url).await?);
    let options = || AcquireOptions::new().expires_after(Duration::from_secs(60));
    let guard = one.lock("a").acquire_with(options()).await?;
    let (before, begun) = (calls(&server, "evalsha", "calls")?, Instant::now());
    let waiter = tokio::spawn(two.lock("a").acquire_with(options()));
    // Two attempts before it sleeps, and then four polls: eight seconds for what takes four. A waiter that does not
    // poll asks again after its lease of 30 s.
    eventually("it polls", Duration::from_secs(8), || {
        Ok(calls(&server, "evalsha", "calls")? >= before + 6)
    })
    .await?;
    // The shortest pause between two polls is 100 ms.
    let least = Duration::from_millis(400);
    ensure!(begun.elapsed() >= least, "it polls too often");
    guard.release().await?;
    tokio::time::timeout(Duration::from_secs(10), waiter)
        .await???
        .release()
        .await?;
    Ok(())
}

/// A waiter has subscribed when its user loses the right to. The server closes the connection or we do, and the next
/// subscription is refused.
#[tokio::test]
async fn a_waiter_that_loses_the_right_to_listen_is_not_kept_asleep() -> Result<()> {
    for fair in [false, true] {
        let acl =
            "user default off\nuser boss on >secret ~* &* +@all\nuser shop on >secret ~* &* +@all";
        let server = RedisServer::builder().acl(acl).start()?;
        let url = |user: &str| format!("redis://{user}:secret@{}", server.addr());
        let (one, two) = (
            Client::connect(&url("boss")).await?,
            Client::connect(&url("shop")).await?,
        );
        let [ours, theirs] = [&one, &two].map(|client| {
            if fair {
                client.fair_lock("a")
            } else {
                client.lock("a")
            }
        });
        let guard = ours.acquire().await?;
        let waiter = tokio::spawn(theirs.acquire());
        eventually("it listens", Duration::from_secs(10), || {
            Ok(calls(&server, "subscribe", "calls")? > 0)
        })
        .await?;
        tokio::time::sleep(Duration::from_millis(300)).await;
        if fair {
            // With the right to publish, its beat finds that it hears nothing, and grants it nothing.
            server.admin(&["ACL", "SETUSER", "shop", "-subscribe"])?;
            server.admin(&["CLIENT", "KILL", "TYPE", "pubsub"])?;
        } else {
            server.admin(&["ACL", "SETUSER", "shop", "resetchannels"])?;
        }
        eventually("it is refused", Duration::from_secs(10), || {
            Ok(calls(&server, "subscribe", "rejected_calls")? > 0)
        })
        .await?;
        // It asks once more, and sleeps again.
        tokio::time::sleep(Duration::from_millis(300)).await;
        guard.release().await?;
        // A beat comes every two seconds, and a poll every second. One that sleeps on would wait for a lease of 30 s.
        let woken = tokio::time::timeout(Duration::from_secs(10), waiter).await;
        woken.context("it sleeps on")???.release().await?;
    }
    Ok(())
}

/// The number of calls of a command that the server has counted in this field.
pub(crate) fn calls(server: &RedisServer, command: &str, what: &str) -> Result<u64> {
    let stats: String = server.query(&["INFO", "commandstats"])?;
    let line = format!("cmdstat_{command}:");
    let Some(line) = stats.lines().find_map(|text| text.strip_prefix(&line)) else {
        return Ok(0);
    };
    let mut fields = line.split(',').filter_map(|field| field.split_once('='));
    let found = fields.find(|(name, _)| *name == what);
    Ok(found.context("a number of that name")?.1.trim().parse()?)
}

/// A server, a client with all rights, and one that may not unsubscribe.
async fn without_unsubscribe() -> Result<(RedisServer, [Client; 2])> {
    let server = RedisServer::builder()
        .acl(
            "user default off\nuser boss on >secret ~* &* +@all\n\
             user shop on >secret ~* &* +@all -unsubscribe",
        )
        .start()?;
    let url = |user: &str| format!("redis://{user}:secret@{}", server.addr());
    let boss = Client::connect(&url("boss")).await?;
    let shop = Client::connect(&url("shop")).await?;
    Ok((server, [boss, shop]))
}

/// A user without the right to unsubscribe keeps the subscription, and its waiters are still woken through it.
#[tokio::test]
async fn t28_without_the_right_to_unsubscribe_waiters_are_woken_every_time() -> Result<()> {
    let (server, [one, mut two]) = without_unsubscribe().await?;
    for round in 1..=2 {
        let guard = one.lock("a").acquire().await?;
        let (before, woken) = (calls(&server, "evalsha", "calls")?, two.stats());
        let waiter = tokio::spawn(async move { (two.lock("a").acquire().await, two) });
        // The waiter makes an attempt, subscribes, and makes a second attempt.
        eventually("it waits", Duration::from_secs(8), || {
            Ok(calls(&server, "evalsha", "calls")? >= before + 2)
        })
        .await?;
        guard.release().await?;
        let had = tokio::time::timeout(Duration::from_secs(10), waiter).await;
        let (had, client) = had.context("it was not woken")??;
        had?.release().await?;
        // A waiter that misses the wake polls a second later.
        let now = client.stats();
        ensure!(
            now.woken_by_message > woken.woken_by_message
                || now.woken_by_timer == woken.woken_by_timer,
            "only its poll found the lock: {now:?}"
        );
        two = client;
        eventually("it wants to leave", Duration::from_secs(8), || {
            Ok(calls(&server, "unsubscribe", "rejected_calls")? >= round)
        })
        .await?;
    }
    Ok(())
}

/// No counting channel goes with that of a latch, so the connection stays, and the server still sends the messages.
#[tokio::test]
async fn t28_without_the_right_to_unsubscribe_latches_open_every_time() -> Result<()> {
    let (server, [boss, shop]) = without_unsubscribe().await?;
    // One that does not hear the messages reads the count after this time.
    let poll = Duration::from_secs(1);
    let gate = boss.latch("gate");
    let mut took = Vec::new();
    for round in 1..=3 {
        ensure!(gate.set_count_if_new(1).await?);
        let waits = shop.latch("gate");
        let waiter = tokio::spawn(async move { waits.wait().await });
        eventually("it waits", Duration::from_secs(8), || {
            Ok(calls(&server, "subscribe", "calls")? >= round)
        })
        .await?;
        let begun = Instant::now();
        gate.count_down().await?;
        let opened = tokio::time::timeout(poll * 10, waiter).await;
        opened.context("it was not woken")???;
        took.push(begun.elapsed());
        eventually("it wants to leave", Duration::from_secs(8), || {
            Ok(calls(&server, "unsubscribe", "rejected_calls")? >= round)
        })
        .await?;
    }
    // The first round is before any refusal. Of the others the fastest counts, because a busy machine may delay one.
    let fastest = took.iter().skip(1).min();
    ensure!(fastest < Some(&(poll * 3 / 4)), "{took:?}");
    Ok(())
}

#[tokio::test]
async fn t27_a_user_without_rights_to_the_key_is_refused() -> Result<()> {
    let server = RedisServer::builder()
        .acl("user default off\nuser shop on >secret ~shop:* ~tidelock:* &* +@all")
        .start()?;
    let client = client(&format!("redis://shop:secret@{}", server.addr())).await?;
    client.lock("shop:1").acquire().await?.release().await?;
    let error = client.lock("other").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(error.lock_name(), Some("other"));
    Ok(())
}

/// Locks, sides of read-write locks and permits are renewed by a script each. The user loses the rights to the keys of one
/// of them while a single hold needs it.
#[tokio::test]
async fn a_renewal_that_is_refused_costs_no_other_kind_its_locks() -> Result<()> {
    for semaphore in [false, true] {
        let server = RedisServer::builder()
            .acl("user default off\nuser shop on >secret ~shop:* ~{shop:* ~tidelock:* &* +@all")
            .start()?;
        let client = client(&format!("redis://shop:secret@{}", server.addr())).await?;
        let refused = if semaphore {
            let permits = client.semaphore("shop:4");
            permits.set_permits(3).await?;
            AnyGuard::from(permits.acquire().await?)
        } else {
            AnyGuard::from(client.read_write_lock("shop:4").read().acquire().await?)
        };
        let locks = ["shop:1", "shop:2", "shop:3"].map(|name| client.lock(name));
        let held = try_join_all(locks.iter().map(|lock| lock.acquire())).await?;
        let fewer = [
            "ACL",
            "SETUSER",
            "shop",
            "resetkeys",
            "~shop:*",
            "~tidelock:*",
        ];
        server.admin(&fewer)?;
        tokio::time::sleep(lease() * 3 / 2).await;
        ensure!(!refused.is_held(), "its renewals were refused");
        ensure!(held.iter().all(Guard::is_held), "{held:?}");
        for lock in locks {
            let left: i64 = server.query(&["PTTL", lock.name()])?;
            ensure!(left > 0, "{} has {left} ms", lock.name());
        }
    }
    Ok(())
}

#[tokio::test]
async fn t30_a_rotated_password_is_taken_up_at_the_next_connect() -> Result<()> {
    let server = RedisServer::builder()
        .acl("user default off\nuser shop on >old ~* &* +@all")
        .start()?;
    let password = Arc::new(Mutex::new("old"));
    let source = Arc::clone(&password);
    let client = Client::builder()
        .lease(secs(3))
        .publish_process_info(false)
        .credentials_from(move || Credentials::new("shop", *source.lock().unwrap()))
        .connect(&server.url())
        .await?;
    let guard = client.lock("a").acquire().await?;
    server.admin(&["ACL", "SETUSER", "shop", "resetpass", ">new"])?;
    server.admin(&["CLIENT", "KILL", "USER", "shop"])?;
    let mut refused = false;
    eventually(
        "a refusal that names authentication",
        Duration::from_secs(1),
        || Ok(true),
    )
    .await?;
    for _ in 0..3 {
        if let Err(error) = client.lock("b").try_acquire().await {
            refused |=
                error.kind() == ErrorKind::Refused && error.to_string().contains("authentication");
        }
    }
    assert!(refused, "the error names authentication");
    *password.lock().unwrap() = "new";
    tokio::time::sleep(secs(4)).await; // longer than the lease
    assert!(guard.is_held(), "renewed with the new password");
    client.lock("b").acquire().await?.release().await?;
    guard.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_user_who_may_write_but_not_limit_leaves_no_lock_without_an_end() -> Result<()> {
    let server = RedisServer::builder()
        .acl("user default off\nuser shop on >secret ~* &* +@all -pexpire")
        .start()?;
    let client = client(&format!("redis://shop:secret@{}", server.addr())).await?;
    let error = client.lock("a").acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(server.keys()?.is_empty(), "{:?}", server.keys()?);
    Ok(())
}

/// A user may change the number of a semaphore, but not the set with the permits that are out. Then an acquisition takes
/// nothing; otherwise nobody could ever give its permits back.
#[tokio::test]
async fn permits_that_cannot_be_noted_are_not_taken() -> Result<()> {
    let server = RedisServer::builder()
        .acl("user default on nopass ~* &* +@all\nuser shop on >secret ~* &* +@all -zadd")
        .start()?;
    let admin = client(&server.url()).await?.semaphore("render");
    admin.set_permits(3).await?;
    let url = format!("redis://shop:secret@{}", server.addr());
    let render = client(&url).await?.semaphore("render");
    let error = render.permits(2).try_acquire().await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    let left: i64 = server.query(&["GET", "render"])?;
    assert_eq!(left, 3);
    Ok(())
}
