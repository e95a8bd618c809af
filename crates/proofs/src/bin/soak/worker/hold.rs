//! What is done with a lock while it is there.

use std::future::Future as _;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use tidelock::Guard;

use super::World;
use crate::plan::LEASE;
use crate::witness::{Claim, now};

/// How often a long hold looks around.
const LOOK: Duration = Duration::from_millis(100);

/// How late a loss may be told on a busy machine. Whoever asks the guard hears of it in time.
const BUSY: Duration = Duration::from_millis(500);

pub(crate) async fn hold(world: &World, guard: Guard, fast: bool, rng: &mut Rng) -> Result<()> {
    let mut claim = Claim::of(&guard);
    world.bad.token(&mut claim);
    world.desk.enter(&claim).await?;
    let late = if fast {
        briefly(rng).await;
        Duration::ZERO
    } else {
        long(world, &guard, &mut claim, rng).await?
    };
    // Before the release: whoever comes next is to find nobody.
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

/// Up to two leases, or until the loss is told. How late that was.
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

/// Gives it back in one of the ways there are. What comes of it was counted before; an error says that it was lost, or
/// that the store did not answer, and then the lease ends it.
async fn part_with(guard: Guard, rng: &mut Rng) {
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
