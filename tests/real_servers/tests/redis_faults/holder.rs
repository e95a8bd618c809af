//! Faults of the holder's own process.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::sleep;

use crate::peer::Peer;
use crate::setup::{patient, shop};
use real_servers::{SOON, boot_time, eventually, ms, within};

/// T01. The holder is killed (SIGKILL) while another process waits. Its key does not outlive the lease. The waiter gets
/// the lock after the lease ends, at most a lease later, with a larger token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t01_a_killed_holder_blocks_for_its_lease_only() -> Result<()> {
    let shop = shop(ms(2000)).await?;
    let mut peer = shop.peer()?;
    let first = peer
        .ask("acquire till fenced", "acquired till")?
        .number("token")?;
    let lock = shop.client.lock("till").fenced();
    let waiter = tokio::spawn(async move {
        let guard = lock.acquire().await?;
        anyhow::Ok((guard, boot_time()))
    });
    eventually(SOON, "somebody waits", || {
        Ok(!shop
            .server
            .query::<Vec<String>, _>(&["PUBSUB", "CHANNELS"])?
            .is_empty())
    })?;
    peer.0.kill()?;
    let killed = boot_time();
    let ends = shop.ends_at("till")?;
    ensure!(ends <= killed + shop.lease, "the key outlives the lease");
    let (guard, begun) = within(SOON, "the waiter gets it", waiter).await???;
    ensure!(
        begun + ms(1) >= ends,
        "granted {:?} before the lease had ended",
        ends - begun
    );
    ensure!(
        begun <= ends + shop.lease,
        "woken {:?} after the lease had ended",
        begun - ends
    );
    ensure!(guard.token().get() > first);
    guard.release().await?;
    shop.nothing_left(vec![]).await
}

/// The first two lines of a peer after this time, sorted.
pub(crate) fn the_next_two(peer: &mut Peer, since: Duration) -> Result<Vec<String>> {
    let mut told = Vec::new();
    while told.len() < 2 {
        let line = peer.hear("")?;
        if line.at > since {
            told.push(line.text);
        }
    }
    told.sort();
    Ok(told)
}

/// T02. The holder is frozen (SIGSTOP) for three leases, while another process takes the lock and writes. After the
/// thaw its next await reports the loss before its work takes another step; an unchecked late write is refused by the
/// token; its release returns `Lost` and does not affect the new holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t02_a_frozen_holder_wakes_up_without_the_lock() -> Result<()> {
    let shop = shop(ms(1500)).await?;
    let file = shop.server.dir().join("ledger");
    let file = file.display();
    let (mut frozen, mut next) = (shop.peer()?, shop.peer()?);
    let stale = frozen
        .ask("acquire ledger fenced", "acquired ledger")?
        .number("token")?;
    // We freeze it while it sleeps between two writes, so that the next write is due as soon as it thaws.
    frozen.ask(&format!("work ledger {file} 200"), "written ledger")?;
    frozen.0.freeze()?;
    let since = boot_time();
    let ends = shop.ends_at("ledger")?;

    let taken = next.ask("acquire ledger fenced", "acquired ledger")?;
    ensure!(
        taken.at + ms(1) >= ends && taken.at <= ends + shop.lease,
        "woken at {taken:?}, due at {ends:?}"
    );
    ensure!(taken.number("token")? > stale, "{taken:?} after {stale}");
    let owner = taken.get("owner")?.to_owned();
    next.ask(&format!("write ledger {file}"), "written ledger")?;
    sleep((since + 3 * shop.lease).saturating_sub(boot_time())).await;
    frozen.0.thaw()?;

    let told = the_next_two(&mut frozen, since)?;
    ensure!(
        told == [
            "lost ledger reason=Expired",
            "stopped ledger reason=Expired"
        ],
        "{told:?}"
    );
    let status = frozen.ask("status ledger", "status ledger")?;
    ensure!(
        status.get("held")? == "false" && status.number("valid_ms")? == 0,
        "{status:?}"
    );
    frozen.ask(&format!("write ledger {file}"), "refused ledger")?;
    let release = frozen.ask("release ledger", "failed ledger")?;
    ensure!(release.get("kind")? == "Lost", "{release:?}");
    // Its background work is done when the process has ended.
    frozen.0.close_stdin();
    ensure!(frozen.0.wait(SOON)?.success());

    ensure!(
        shop.holders("ledger")? == [(owner, 1)],
        "the new holder was touched"
    );
    let status = next.ask("status ledger", "status ledger")?;
    ensure!(status.get("held")? == "true", "{status:?}");
    next.ask("release ledger", "released ledger")?;
    drop(next);
    shop.nothing_left(vec![]).await
}

/// T03. The holder's only executor thread is blocked for longer than the lease. Renewals run on a thread of their own,
/// so the lock is not lost and no other client gets it. If the server is down as well, the lock is lost, and the holder
/// is told as soon as its executor runs again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t03_a_blocked_executor_does_not_lose_the_lock() -> Result<()> {
    let shop = patient(ms(1500)).await?;
    let mut peer = shop.peer()?;
    peer.ask("acquire desk", "acquired desk")?;
    let block = shop.lease * 5 / 2;
    let until = boot_time() + block;
    peer.tell(&format!("block {}", block.as_millis()))?;
    let desk = shop.client.lock("desk");
    while boot_time() < until {
        ensure!(desk.try_acquire().await?.is_none(), "another got the lock");
        sleep(ms(20)).await;
    }
    peer.hear("unblocked")?;
    let status = peer.ask("status desk", "status desk")?;
    ensure!(status.get("held")? == "true", "{status:?}");

    peer.tell(&format!("block {}", block.as_millis()))?;
    shop.server.freeze()?;
    // In this order: the executor runs again, then the holder is told.
    let unblocked = peer.hear("unblocked")?;
    let lost = peer.hear("lost desk")?;
    ensure!(lost.get("reason")? == "Expired", "{lost:?}");
    ensure!(
        lost.at <= unblocked.at + shop.lease,
        "told {:?} after it ran again",
        lost.at - unblocked.at
    );
    let status = peer.ask("status desk", "status desk")?;
    ensure!(status.get("held")? == "false", "{status:?}");
    shop.server.thaw()?;
    drop(peer);
    shop.nothing_left(vec![]).await
}
