//! The critical section: claims, holds and releases a lock.

use std::future::Future as _;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use tidelock::Guard;
use tidelock::testing::AnyGuard;

use super::World;
use crate::plan::LEASE;
use crate::witness::{Claim, now};

/// The interval at which a long hold updates its claim.
const LOOK: Duration = Duration::from_millis(100);

/// A loss may be reported this late on a busy machine without being counted. A check of the guard itself is never late.
const BUSY: Duration = Duration::from_millis(500);

pub(crate) async fn hold(world: &World, guard: AnyGuard, fast: bool, rng: &mut Rng) -> Result<()> {
    let mut claim = Claim::of(&guard);
    world.bad.token(&mut claim);
    world.desk.enter(&claim).await?;
    let late = if fast {
        briefly(rng).await;
        Duration::ZERO
    } else {
        long(world, &guard, &mut claim, rng).await?
    };
    // We end the claim before we release. Otherwise the next holder could claim the lock while this claim still stands.
    if guard.is_held() {
        world
            .desk
            .leave(&claim, "given back", Duration::ZERO)
            .await?;
    } else {
        world.desk.leave(&claim, "told lost", late).await?;
    }
    part_with(guard, rng).await;
    Ok(())
}

async fn briefly(rng: &mut Rng) {
    match rng.u8(..4) {
        0 => tokio::time::sleep(Duration::from_millis(1)).await,
        _ => tokio::task::yield_now().await,
    }
}

/// Holds for up to two leases, or until the loss is reported. Returns how late the report was.
async fn long(world: &World, guard: &Guard, claim: &mut Claim, rng: &mut Rng) -> Result<Duration> {
    let end = tokio::time::Instant::now() + LEASE.mul_f64(rng.f64() * 2.0);
    let mut lost = guard.lost();
    while tokio::time::Instant::now() < end && !world.stopping() {
        tokio::select! {
            _ = &mut lost => {
                let late = Duration::from_micros(now().saturating_sub(claim.until));
                return Ok(if late > BUSY { late } else { Duration::ZERO });
            }
            () = tokio::time::sleep(LOOK) => {
                claim.renew(guard);
                world.desk.keep(claim).await?;
            }
        }
    }
    Ok(Duration::ZERO)
}

/// Releases the guard in one of several ways. We discard the result, because the outcome is counted already: an error
/// means that the lock was lost, or that the store did not answer and the lease ends the hold.
async fn part_with(guard: AnyGuard, rng: &mut Rng) {
    match rng.u8(..8) {
        0 => drop(guard),
        1 => drop(guard.release()),
        2 => {
            let mut release = pin!(guard.release());
            std::future::poll_fn(|cx| {
                let _ = release.as_mut().poll(cx);
                Poll::Ready(())
            })
            .await;
        }
        _ => drop(guard.release().await),
    }
}
