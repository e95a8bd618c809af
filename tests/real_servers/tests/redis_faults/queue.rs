//! Faults of the processes in the queue of a fair lock. Each waiter is a process of its own.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use real_servers::{History, SOON, Span, boot_time, eventually, ms, within};
use testkit::process::FakeClock;
use tidelock::Guard;
use tokio::task::JoinHandle;

use crate::clocks::{peer, wall_is_ahead};
use crate::peer::Peer;
use crate::setup::{Shop, shop};

const QUEUE: &str = "redisson_lock_queue:{till}";
const HEADS: usize = 25;
/// For how long a process counts as alive after a beat, and how long a grant lasts that its owner has not confirmed.
const ALIVE: Duration = Duration::from_secs(6);
/// The hour by which a wall clock is wrong, in seconds.
const HOUR: i64 = 3600;

fn queue(shop: &Shop) -> Result<Vec<String>> {
    shop.server.query(&["LRANGE", QUEUE, "0", "-1"])
}

/// Returns when this many wait.
fn queued(shop: &Shop, count: usize) -> Result<()> {
    eventually(SOON, "a place", || Ok(queue(shop)?.len() == count)).map(drop)
}

/// Starts processes that wait for the lock one behind the other, and take it once.
fn heads(shop: &Shop) -> Result<Vec<Peer>> {
    let mut heads = Vec::new();
    for count in 1..=HEADS {
        let mut head = shop.peer()?;
        head.tell("hammer till 1 fair")?;
        queued(shop, count)?;
        heads.push(head);
    }
    Ok(heads)
}

/// A waiter of the test's own process, behind `ahead` others.
fn wait(shop: &Shop, ahead: usize) -> Result<JoinHandle<Result<(Guard, Duration)>>> {
    let waiting = shop.client.fair_lock("till").acquire();
    let waiting = tokio::spawn(async move { Ok((waiting.await?, boot_time())) });
    queued(shop, ahead + 1)?;
    Ok(waiting)
}

/// T49, killed. The kernel closes the connections of a process that it kills. A release passes over all of them within
/// its own script, again and again, until they no longer count as alive and leave the queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t49_twenty_five_heads_that_were_killed_cost_a_live_waiter_next_to_nothing() -> Result<()> {
    let shop = shop(Duration::from_secs(30)).await?;
    let mut held = shop.client.fair_lock("till").acquire().await?;
    let mut heads = heads(&shop)?;
    let mut waiting = Vec::new();
    for place in 0..3 {
        waiting.push(wait(&shop, HEADS + place)?);
    }
    for head in &mut heads {
        head.0.kill()?;
    }
    eventually(SOON, "the server has noticed", || {
        let pattern = "redisson_lock__channel:{till}:*";
        let heard: Vec<String> = shop.server.query(&["PUBSUB", "CHANNELS", pattern])?;
        Ok(heard.len() == 1) // that of the live waiters' process
    })?;
    let mut took = Vec::new();
    for waiting in waiting {
        let released = boot_time();
        held.release().await?;
        let (guard, got) = within(shop.lease / 2, "a live waiter", waiting).await???;
        took.push(got.saturating_sub(released));
        held = guard;
    }
    println!("passed over in {took:?}");
    // One of them may be late on a busy machine. A grant to a dead head would cost each of them six times as much.
    let fastest = took.iter().min().context("three")?;
    ensure!(*fastest < ALIVE / 6, "{took:?}");
    ensure!(
        queue(&shop)?.len() == HEADS,
        "they might only have lost their connections"
    );
    tokio::time::sleep(ALIVE).await;
    held.release().await?;
    ensure!(queue(&shop)?.is_empty(), "they no longer count as alive");
    Ok(())
}

/// T49, frozen. The first one is granted the lock and does not come. When its grant ends, all that froze with it no
/// longer count as alive. They come back, and each has its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t49_twenty_five_heads_that_are_frozen_cost_one_grant_and_have_their_turns_later()
-> Result<()> {
    let shop = shop(Duration::from_secs(30)).await?;
    let held = shop.client.fair_lock("till").acquire().await?;
    let mut heads = heads(&shop)?;
    let waiting = wait(&shop, HEADS)?;
    for head in &heads {
        head.0.freeze()?;
    }
    let released = boot_time();
    held.release().await?;
    let (guard, got) = within(shop.lease, "the live waiter", waiting).await???;
    let took = got.saturating_sub(released);
    println!("passed over in {took:?}");
    ensure!(took < shop.lease / 3, "{took:?}");
    for head in &heads {
        head.0.thaw()?;
    }
    queued(&shop, HEADS)?;
    let history = History::default();
    history.add(Span {
        begin: got,
        end: boot_time(),
        token: 0,
    });
    guard.release().await?;
    for head in &mut heads {
        let span = head.hear("span till")?;
        history.add(Span {
            begin: Duration::from_nanos(span.number("begin")?),
            end: Duration::from_nanos(span.number("end")?),
            token: 0,
        });
        head.hear("done till")?;
    }
    ensure!(history.check()? == HEADS + 1);
    ensure!(queue(&shop)?.is_empty() && shop.is_free("till")?);
    Ok(())
}

/// T49, the holder is killed. Its lease ends, and the two that wait follow in their order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t49_a_killed_holder_of_a_fair_lock_is_followed_in_order_when_its_lease_ends() -> Result<()>
{
    let shop = shop(ms(3000)).await?;
    let [mut holder, mut first, mut second] = [shop.peer()?, shop.peer()?, shop.peer()?];
    holder.ask("acquire till fair", "acquired till")?;
    first.tell("acquire till fair")?;
    queued(&shop, 1)?;
    second.tell("acquire till fair")?;
    queued(&shop, 2)?;
    holder.0.kill()?;
    let ends = shop.ends_at("till")?;
    let got = first.hear("acquired till")?;
    ensure!(got.at + ms(1) >= ends, "{got:?} before {ends:?}");
    // The beat of a waiter comes when the holder's lease ends.
    ensure!(got.at <= ends + shop.lease / 2, "{got:?} after {ends:?}");
    ensure!(queue(&shop)?.len() == 1, "the second one waits");
    first.ask("release till", "released till")?;
    second.hear("acquired till")?;
    second.ask("release till", "released till")?;
    Ok(())
}

/// T49, the holder is frozen past its lease. It is told before its work takes another step, its late release harms
/// nobody, and its next turn comes behind those that wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t49_a_frozen_holder_of_a_fair_lock_wakes_up_without_it_and_queues_at_the_end() -> Result<()>
{
    let shop = shop(ms(2000)).await?;
    let file = shop.server.dir().join("ledger");
    let [mut frozen, mut next, mut last] = [shop.peer()?, shop.peer()?, shop.peer()?];
    let stale = frozen.ask("acquire till fair fenced", "acquired till")?;
    let work = format!("work till {} 200", file.display());
    frozen.ask(&work, "written till")?;
    next.tell("acquire till fair fenced")?;
    queued(&shop, 1)?;
    last.tell("acquire till fair fenced")?;
    queued(&shop, 2)?;
    frozen.0.freeze()?;
    let since = boot_time();
    let ends = shop.ends_at("till")?;
    let taken = next.hear("acquired till")?;
    ensure!(
        taken.at + ms(1) >= ends && taken.at <= ends + shop.lease,
        "{taken:?}"
    );
    ensure!(
        taken.number("token")? > stale.number("token")?,
        "{taken:?} {stale:?}"
    );
    let owner = taken.get("owner")?.to_owned();
    frozen.0.thaw()?;
    let told = crate::holder::the_next_two(&mut frozen, since)?;
    ensure!(
        told == ["lost till reason=Expired", "stopped till reason=Expired"],
        "{told:?}"
    );
    let release = frozen.ask("release till", "failed till")?;
    ensure!(release.get("kind")? == "Lost", "{release:?}");
    ensure!(
        shop.holders("till")? == [(owner, 1)],
        "the next one was touched"
    );
    frozen.tell("acquire till fair fenced")?;
    queued(&shop, 2)?;
    next.ask("release till", "released till")?;
    last.hear("acquired till")?;
    last.ask("release till", "released till")?;
    frozen.hear("acquired till")?;
    frozen.ask("release till", "released till")?;
    Ok(())
}

/// T43: an hour between the wall clocks of two waiters, and between them and the server. Their order is that of their
/// arrival, and nobody loses a place.
#[test]
fn t43_clients_whose_clocks_differ_keep_the_order_of_a_fair_queue() -> Result<()> {
    let shop = tokio::runtime::Runtime::new()?.block_on(shop(ms(2000)))?;
    let dirs = [tempfile::tempdir()?, tempfile::tempdir()?];
    let mut peers = Vec::new();
    for (dir, ahead) in dirs.iter().zip([HOUR, -HOUR]) {
        let clock = FakeClock::new(dir.path())?;
        clock.shift(ahead)?;
        let mut command = peer(&shop);
        clock.apply(&mut command);
        let mut peer = Peer::run(command)?;
        wall_is_ahead(&mut peer, ahead)?;
        peers.push(peer);
    }
    for round in 0..2 {
        let mut holder = shop.peer()?;
        holder.ask("acquire till fair", "acquired till")?;
        for (count, peer) in peers.iter_mut().enumerate() {
            peer.tell("acquire till fair")?;
            queued(&shop, count + 1)?;
        }
        let order = queue(&shop)?;
        // Two beats, and more than a lease.
        std::thread::sleep(ALIVE * 3 / 4);
        ensure!(queue(&shop)? == order, "round {round}");
        holder.ask("release till", "released till")?;
        for (peer, owner) in peers.iter_mut().zip(order) {
            let got = peer.hear("acquired till")?;
            ensure!(got.get("owner")? == owner, "{got:?} before {owner}");
            peer.ask("release till", "released till")?;
        }
        peers.reverse();
    }
    Ok(())
}
