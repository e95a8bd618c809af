//! State after a planned failover, and after a crash.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use testkit::process::boot_time;
use testkit::servers::RedisServer;
use tidelock::ReplicaAck::{self, All, Any, Majority, Off};
use tidelock::{AcquireOptions, FencedGuard, FencingToken, LostReason, RedLock};

use crate::world::{SOON, World, brief, eventually, listen, once, patient, within};
use real_servers::secs;

fn lease() -> Duration {
    secs(3)
}

async fn insist(world: &World, name: &str, policy: ReplicaAck) -> Result<FencedGuard> {
    let client = world.client(policy).await?;
    let lock = client.lock(name).fenced();
    let asking = async {
        loop {
            match lock.acquire_with(patient(policy)).await {
                Err(error) if error.is_retryable() => {}
                answer => return answer,
            }
        }
    };
    Ok(within(SOON * 2, "a grant", asking).await??)
}

/// T31: `FAILOVER TO`. The same owner holds the lock on the new primary without a gap, and the tokens continue. A
/// client that writes to the demoted primary is refused, and follows the refusal to the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t31_a_planned_failover_loses_nothing() -> Result<()> {
    let world = World::new(lease())?;
    let client = world.client(Any).await?;
    let held = client.lock("till").fenced().acquire().await?;
    let told = listen(&held);
    let mut last = 0;
    for _ in 0..5 {
        let guard = client.lock("busy").fenced().acquire().await?;
        last = guard.token().get();
        guard.release().await?;
    }
    let (old, new) = (world.all.primary(), &world.all.nodes()[1]);
    old.admin(&["FAILOVER", "TO", "127.0.0.1", &new.port().to_string()])?;
    eventually("the places changed", || {
        let info: String = new.query(&["INFO", "replication"])?;
        Ok(info.contains("role:master"))
    })?;
    // The proxy does not cut connections: they lead to the old primary until that refuses a write because it is a
    // replica.
    world.proxy.set_upstream(new.addr());
    for _ in 0..5 {
        let lock = client.lock("busy").fenced();
        let guard = within(SOON, "a grant", lock.acquire_with(patient(Any))).await??;
        ensure!(
            guard.token().get() > last,
            "{} after {last}",
            guard.token().get()
        );
        last = guard.token().get();
        guard.release().await?;
    }
    tokio::time::sleep(lease() * 2).await;
    ensure!(told.is_quiet() && held.is_held());
    ensure!(World::holder(new, "till")? == Some(held.owner_id()));
    held.release().await?;
    ensure!(World::holder(new, "till")?.is_none());
    Ok(())
}

/// T31: a planned failover behind one address, as that of a proxy. The demoted server runs on and gets nothing from the
/// new primary, as with a wrong `masterauth`. Nothing on a connection for subscriptions shows that to a client, so they
/// follow its requests. With `Off` these are on the connection that all requests share, with `Any` on that for `WAIT`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t31_waiters_hear_of_the_release_at_the_new_primary() -> Result<()> {
    for policy in [Off, Any] {
        let world = World::of(1, SOON * 3)?;
        let (one, two) = (world.client(policy).await?, world.client(policy).await?);
        let (old, new) = (world.all.primary(), &world.all.nodes()[1]);
        let held = one.fair_lock("till").acquire().await?;
        let waiting = tokio::spawn(two.fair_lock("till").acquire());
        eventually("it waits", || {
            let queue = "redisson_lock_queue:{till}";
            Ok(old.query::<u64, _>(&["LLEN", queue])? == 1)
        })?;
        old.admin(&["FAILOVER", "TO", "127.0.0.1", &new.port().to_string()])?;
        eventually("the places changed", || {
            let is_done = old.info("master_failover_state")? == "no-failover";
            Ok(is_done && new.info("role")? == "master" && old.info("role")? == "slave")
        })?;
        old.admin(&["REPLICAOF", "127.0.0.1", "1"])?; // where nobody listens
        eventually("it has gone", || Ok(new.info("connected_slaves")? == "0"))?;
        // As long as the address leads to the old server, a subscription that was ended would be there again.
        let before = world.proxy.count("SUBSCRIBE");
        for _ in 0..5 {
            let refused = two.lock("busy").acquire_with(once(policy)).await;
            ensure!(refused.is_err(), "granted by a replica");
        }
        ensure!(world.proxy.count("SUBSCRIBE") == before, "it reconnected");
        world.proxy.set_upstream(new.addr());
        for client in [&one, &two] {
            let busy = client.lock("busy").acquire_with(patient(policy));
            within(SOON, "a grant", busy).await??.release().await?;
        }
        held.release().await?;
        let next = within(SOON, "its turn", waiting).await???;
        ensure!(World::holder(new, "till")? == Some(next.owner_id()));
        next.release().await?;
    }
    Ok(())
}

/// T32: the primary crashes before a replica has received the lock. A client that asked for no acknowledgement had a
/// grant, and learns of its loss. The tokens continue from the replicated value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t32_a_lock_that_was_not_replicated_is_told_lost() -> Result<()> {
    let world = World::new(lease())?;
    let client = world.client(Any).await?;
    let lock = client.lock("till").fenced();
    let mut replicated = 0;
    for _ in 0..3 {
        let guard = lock.acquire_with(patient(All)).await?;
        replicated = guard.token().get();
        guard.release().await?;
    }
    world.in_sync(1)?;
    for i in [1, 2] {
        world.all.stall(i);
    }
    let careless = lock.acquire_with(once(Off)).await?;
    let told = listen(&careless);
    crash(&world)?;
    let (_, _reason) = told.told().await?;
    ensure!(!careless.is_held());
    let next = insist(&world, "till", Any).await?;
    ensure!(
        next.token().get() > replicated,
        "{} after {replicated}",
        next.token().get()
    );
    Ok(())
}

/// A holder of "till" whose grant under `Off` reached no replica. Its primary has crashed, and node 1, promoted, has
/// neither the lock nor the count of its token.
async fn unreplicated(world: &World) -> Result<FencedGuard> {
    let client = world.client(Off).await?;
    let lock = client.lock("till").fenced();
    lock.acquire_with(patient(All)).await?.release().await?;
    world.in_sync(1)?;
    for i in [1, 2] {
        world.all.stall(i);
    }
    let held = lock.acquire_with(once(Off)).await?;
    crash(world)?;
    Ok(held)
}

/// T32: under `Off` a lagging replica is promoted. A second client is granted the lock while the lease of the first still
/// runs. The first is told at its next renewal. The token cannot tell them apart: its counter lags with the lock, so the
/// second holder gets the token of the first again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t32_a_lagging_replica_promoted_under_off_loses_a_lock_and_repeats_its_token() -> Result<()>
{
    let world = World::new(lease())?;
    let first = unreplicated(&world).await?;
    let (told, proved) = (listen(&first), boot_time() + first.valid_for());
    let second = insist(&world, "till", Any).await?;
    let granted = boot_time();
    ensure!(granted < proved, "the lease of the first had ended");
    let (at, reason) = told.told().await?;
    ensure!(reason == LostReason::Taken && !first.is_held(), "{reason}");
    // The first is renewed after a third of its lease. After two thirds, which is later than this bound, it would be renewed
    // once more.
    ensure!(
        at < proved - lease() / 3,
        "told {:?} after the next grant",
        at.saturating_sub(granted)
    );
    ensure!(
        second.token() == first.token(),
        "{} after {}",
        second.token(),
        first.token()
    );
    Ok(())
}

/// T32: as above, but the counter of tokens is raised before the promoted server grants the lock. The token of the first
/// holder is then the smaller one, and a resource that compares tokens refuses it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t32_a_counter_raised_after_a_failover_under_off_makes_a_lost_token_refusable() -> Result<()>
{
    let world = World::new(lease())?;
    let first = unreplicated(&world).await?;
    let seen = first.token().get();
    let operator = world.client(Any).await?;
    let raised = FencingToken::new(seen + 1);
    let lock = operator.lock("till").fenced();
    let raising = async {
        loop {
            match lock.raise_token(raised).await {
                Err(error) if error.is_retryable() => {}
                answer => return answer,
            }
        }
    };
    within(SOON, "the counter", raising).await??;
    let second = insist(&world, "till", Any).await?;
    ensure!(
        first.token() < second.token(),
        "{} after {}",
        second.token(),
        first.token()
    );
    Ok(())
}

/// T32: a client that asked for acknowledgement was never granted the lock that the failover loses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t32_a_grant_without_acknowledgements_was_never_given() -> Result<()> {
    for policy in [Any, Majority, All] {
        let world = World::new(lease())?;
        let client = world.client(policy).await?;
        client
            .lock("till")
            .fenced()
            .acquire()
            .await?
            .release()
            .await?;
        world.in_sync(1)?;
        for i in [1, 2] {
            world.all.stall(i);
        }
        let asking = tokio::spawn(client.lock("till").fenced().acquire());
        let moment = AcquireOptions::new().wait(lease() / 4);
        let error = client.lock("brief").acquire_with(moment).await.unwrap_err();
        ensure!(error.is_retryable(), "{error}");
        ensure!(
            !asking.is_finished(),
            "{policy}: granted, and nobody has it"
        );
        crash(&world)?;
        let guard = match within(SOON, "an answer", asking).await?? {
            Ok(guard) => guard,
            Err(error) if error.is_retryable() => insist(&world, "till", policy).await?,
            Err(error) => return Err(error.into()),
        };
        let held_by = World::holder(world.all.primary(), "till")?;
        ensure!(held_by == Some(guard.owner_id()), "{policy}: {held_by:?}");
    }
    Ok(())
}

/// A grant that every replica acknowledged survives the crash of the primary: the same holder continues, whichever
/// replica is promoted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_all_acknowledged_survives_a_crash() -> Result<()> {
    for promoted in [1, 2] {
        let world = World::new(lease())?;
        let client = world.client(All).await?;
        let guard = client.lock("till").fenced().acquire().await?;
        let told = listen(&guard);
        world.all.primary().kill()?;
        let new = world.all.promote(promoted)?;
        world.lead_to(new);
        tokio::time::sleep(lease() * 2).await;
        ensure!(
            told.is_quiet() && guard.is_held(),
            "lost by a single failover"
        );
        ensure!(World::holder(new, "till")? == Some(guard.owner_id()));
        guard.release().await?;
    }
    Ok(())
}

/// The only replica is promoted and has no replica itself. No replica is left to acknowledge, and the holder continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_server_goes_on_alone() -> Result<()> {
    let world = World::of(1, lease())?;
    for policy in [Any, All] {
        let client = world.client(policy).await?;
        let guard = client.lock("till").acquire().await?;
        ensure!(guard.acknowledged().is_some_and(|seen| seen.reached == 1));
        let told = listen(&guard);
        let (old, new) = (world.all.primary_index(), 1 - world.all.primary_index());
        world.all.primary().kill()?;
        world.lead_to(world.all.promote(new)?);
        tokio::time::sleep(lease() * 2).await;
        ensure!(told.is_quiet() && guard.is_held());
        guard.release().await?;
        world.all.nodes()[old].restart()?;
        world.all.demote(old)?;
        world.all.await_ok()?;
    }
    Ok(())
}

/// Kills the primary together with the data that its stalled replication connections still held. Promotes node 1.
fn crash(world: &World) -> Result<()> {
    world.all.primary().kill()?;
    let new = world.all.promote(1)?;
    for i in [1, 2] {
        world.all.resume(i);
    }
    world.lead_to(new);
    Ok(())
}

/// A server of a RedLock is replaced by one that has just started and has forgotten its locks. The connection for `WAIT` is at
/// the new server at once. The one for other requests does not notice yet, and knows the run of the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_server_does_not_vote_with_the_age_of_the_old_one() -> Result<()> {
    let world = World::of(1, secs(4))?;
    let client = world.client(Any).await?;
    let settings = RedLock::builder([client]).node_timeout(brief() * 2);
    let lock = settings.build()?.lock("till");
    // The old server votes when it has been up for a lease.
    let long = AcquireOptions::new().wait(SOON * 2);
    let guard = within(SOON * 2, "a grant", lock.acquire_with(long)).await??;
    guard.release().await?;
    let new = RedisServer::start()?;
    world.all.primary().freeze()?;
    world.proxy.set_upstream(new.addr());
    let waits = world.proxy.connection_of("WAIT");
    ensure!(
        world
            .proxy
            .cut_connection(waits.context("it asks for acknowledgements")?)
    );
    let short = AcquireOptions::new().wait(secs(1));
    let granted = lock.acquire_with(short).await;
    world.all.primary().thaw()?;
    ensure!(granted.is_err(), "by a server that has just started");
    Ok(())
}
