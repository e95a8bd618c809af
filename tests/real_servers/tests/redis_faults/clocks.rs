//! Faults in the clocks of a client's machine: the wall clock is changed, the machine is suspended. Each test runs the
//! client in a process of its own, so that the clocks of the test do not change.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use testkit::process::FakeClock;

use crate::looks::{FAST, listening};
use crate::peer::Peer;
use crate::setup::{Shop, shop};
use crate::suspend::Suspended;
use real_servers::{SOON, ms, secs, within};

const HOUR: i64 = 3600;

/// The command line of a peer, for tests that change its environment before they start it.
pub(crate) fn peer(shop: &Shop) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peer"));
    command
        .arg(shop.server.url())
        .arg(shop.lease.as_millis().to_string());
    command
}

/// Fails unless the peer's wall clock is `seconds` ahead of the true one. Otherwise the test would pass without its
/// fault.
pub(crate) fn wall_is_ahead(peer: &mut Peer, seconds: i64) -> Result<()> {
    let shown: i64 = peer.ask("clocks", "clocks")?.get("wall")?.parse()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let ahead = shown - i64::try_from(now)?;
    ensure!(ahead.abs_diff(seconds) <= 2, "it is {ahead} s ahead");
    Ok(())
}

/// T42: the wall clock of a holder and of a waiter jumps an hour ahead, then two hours back. The holder keeps renewing
/// and reports no loss; a time limit keeps its length; the waiter sleeps on, and the release wakes it.
#[test]
fn t42_setting_the_wall_clock_has_no_effect() -> Result<()> {
    let lease = ms(2400);
    let shop = tokio::runtime::Runtime::new()?.block_on(shop(lease))?;
    let dir = tempfile::tempdir()?;
    let clock = FakeClock::new(dir.path())?;
    let start = || {
        let mut command = peer(&shop);
        // The server answers each request, on a busy machine perhaps late.
        command.arg(lease.as_millis().to_string());
        clock.apply(&mut command);
        Peer::run(command)
    };
    let (mut holder, mut waiter) = (start()?, start()?);
    holder.ask("acquire till", "acquired till")?;
    for ahead in [HOUR, -HOUR] {
        let asked = testkit::process::boot_time();
        let limit = lease / 4;
        waiter.tell(&format!("acquire till wait={}", limit.as_millis()))?;
        clock.shift(ahead)?;
        wall_is_ahead(&mut holder, ahead)?;
        let failed = waiter.hear("failed till kind=TimedOut")?;
        let took = failed.at.saturating_sub(asked);
        ensure!(took >= limit && took < limit + lease / 2, "{took:?}");
        wall_is_ahead(&mut waiter, ahead)?;
        // The first of these renewals was planned before the jump, perhaps; the second was not.
        for _ in 0..2 {
            shop.next_renewal("till")?;
        }
        let status = holder.ask("status till", "status till")?;
        ensure!(status.get("held")? == "true");
        ensure!(shop.holders("till")?.len() == 1);
    }
    waiter.tell("acquire till")?;
    let asks = || Ok(crate::looks::listeners(&shop.server, "till")? == 1);
    real_servers::eventually(SOON, "the waiter listens", asks)?;
    clock.shift(HOUR)?;
    wall_is_ahead(&mut waiter, HOUR)?;
    let released = testkit::process::boot_time();
    holder.ask("release till", "released till")?;
    let acquired = waiter.hear("acquired till")?;
    let took = acquired.at.saturating_sub(released);
    ensure!(took < lease / 2, "woken after {took:?}");
    waiter.ask("release till", "released till")?;
    ensure!(shop.is_free("till")?);
    Ok(())
}

/// T44: the holder's machine is suspended past the lease, and its monotonic clock does not advance. After the resume
/// the loss is the first thing the holder sees: its work, which writes every few milliseconds, writes no more, and a
/// late release does not affect the next holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t44_a_suspended_holder_is_told_before_it_works_on() -> Result<()> {
    let shop = shop(secs(2)).await?;
    let machine = Suspended::machine()?;
    let mut holder = machine.start(peer(&shop))?;
    let resource = shop.server.dir().join("resource");
    let first = holder.ask("acquire till fenced", "acquired till")?;
    let work = format!("work till {} 5", resource.display());
    holder.ask(&work, "written till")?;
    machine.suspend(&holder)?;
    let since = testkit::process::boot_time();
    let lock = shop.client.lock("till").fenced();
    let next = within(shop.lease + FAST, "the next holder", lock.acquire()).await??;
    let token = next.token().get();
    ensure!(token > first.number("token")?, "token {token}");
    // With the wait before, the suspension lasts two leases on the clocks that advance.
    tokio::time::sleep(shop.lease).await;
    machine.resume(&holder)?;
    let mut told = Vec::new();
    while told.len() < 2 {
        let line = holder.hear("")?;
        if line.at > since {
            told.push(line.text);
        }
    }
    told.sort();
    ensure!(
        told == ["lost till reason=Expired", "stopped till reason=Expired"],
        "{told:?}"
    );
    machine.stood_still(&mut holder, shop.lease)?;
    let status = holder.ask("status till", "status till")?;
    ensure!(status.get("held")? == "false" && status.number("valid_ms")? == 0);
    holder.ask("release till", "failed till kind=Lost")?;
    shop.held_once(&next)?;
    next.release().await?;
    drop(holder);
    shop.nothing_left(vec![]).await
}

/// T44, with a suspension shorter than the rest of the lease: nothing is lost, and a renewal that was due meanwhile is
/// sent on resume.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t44_a_short_nap_loses_nothing() -> Result<()> {
    // On resume a sixth of the lease is left. A busy machine may need a part of it for the renewal.
    let lease = secs(6);
    let shop = shop(lease).await?;
    let machine = Suspended::machine()?;
    let mut holder = machine.start(peer(&shop))?;
    holder.ask("acquire till", "acquired till")?;
    let waiting = tokio::spawn(shop.client.lock("till").acquire());
    listening(&shop.server, "till").await?;
    for _ in 0..2 {
        machine.suspend(&holder)?;
        tokio::time::sleep(shop.lease / 2).await;
        machine.resume(&holder)?;
        // The renewal comes at once, not a third of the lease after the resume.
        let renewed = || {
            Ok(shop
                .time_left("till")?
                .is_some_and(|left| left > shop.lease * 2 / 3))
        };
        real_servers::eventually(shop.lease / 6, "a renewal", renewed)?;
        // The holder must have read the reply before the next nap. Otherwise it knows after that nap only of the grant,
        // whose lease has ended, and reports the loss.
        let proved = || {
            let status = holder.ask("status till", "status till")?;
            Ok(u128::from(status.number("valid_ms")?) > (shop.lease * 2 / 3).as_millis())
        };
        real_servers::eventually(shop.lease / 6, "its reply", proved)?;
    }
    machine.stood_still(&mut holder, shop.lease / 2)?;
    let status = holder.ask("status till", "status till")?;
    ensure!(status.get("held")? == "true" && !waiting.is_finished());
    holder.ask("release till", "released till")?;
    let next = within(shop.lease / 2, "the wake-up", waiting).await???;
    next.release().await?;
    drop(holder);
    shop.nothing_left(vec![]).await
}

/// T44, the clock of the client's deadlines: if the monotonic clock stands still, renewals are still sent, a time limit
/// still ends a wait, and a holder whose server is frozen is told before its lease ends.
#[test]
fn t44_no_deadline_hangs_on_the_monotonic_clock() -> Result<()> {
    let lease = ms(2400);
    let shop = tokio::runtime::Runtime::new()?.block_on(shop(lease))?;
    let machine = Suspended::machine()?;
    let start = || {
        let mut command = peer(&shop);
        // By this drift allowance the holder has four tenths of the lease to report the loss, instead of a hundredth.
        command.args([&*lease.as_millis().to_string(), "0.4"]);
        machine.start(command)
    };
    let (mut holder, mut waiter) = (start()?, start()?);
    holder.ask("acquire till", "acquired till")?;
    machine.hold_back()?;
    let asked = testkit::process::boot_time();
    let wait = format!("acquire till wait={}", ms(2600).as_millis());
    let failed = waiter.ask(&wait, "failed till kind=TimedOut")?;
    let took = failed.at.saturating_sub(asked);
    ensure!(took < lease * 3 / 2, "{took:?}");
    let status = holder.ask("status till", "status till")?;
    ensure!(status.get("held")? == "true", "not renewed");
    machine.stood_still(&mut holder, lease)?;
    let ends_at = shop.ends_at("till")?;
    shop.server.freeze()?;
    let lost = holder.hear("lost till reason=Expired")?;
    ensure!(
        lost.at < ends_at,
        "told {:?} late",
        lost.at.saturating_sub(ends_at)
    );
    shop.server.thaw()?;
    Ok(())
}
