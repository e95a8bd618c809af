//! Acquires, holds and gives back, in every way that the API offers.

use std::future::Future as _;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;
use tidelock::{FencedGuard, Guard, Lock, LockGuard, Permits, Release};

use crate::World;
use crate::record::{Kind, Record, What};

/// What all guards have in common.
pub(crate) trait Held: LockGuard {
    fn hold(&self) -> &Guard;
    /// 0: none.
    fn number(&self) -> u64 {
        0
    }
    fn give_back(self) -> Release;
}

impl Held for Guard {
    fn hold(&self) -> &Guard {
        self
    }
    fn give_back(self) -> Release {
        self.release()
    }
}

impl Held for FencedGuard {
    fn hold(&self) -> &Guard {
        self
    }
    fn number(&self) -> u64 {
        self.token().get()
    }
    fn give_back(self) -> Release {
        self.release()
    }
}

impl Held for Permits {
    fn hold(&self) -> &Guard {
        self
    }
    fn give_back(self) -> Release {
        self.release()
    }
}

/// Waits for the lock. One call in fifty drops the acquire at a random moment instead, and then there may be no guard.
pub(crate) async fn acquire<G: LockGuard>(
    world: &World,
    kind: Kind,
    lock: &Lock<G>,
    rng: &mut Rng,
) -> Result<Option<G>> {
    let asked = Instant::now();
    if rng.u8(..50) == 0 {
        let moment = Duration::from_micros(rng.u64(..20_000));
        if let Ok(result) = tokio::time::timeout(moment, lock.acquire()).await {
            return Ok(Some(result?));
        }
        world.bench.tell(Record::new(What::Drops, kind))?;
        return Ok(None);
    }
    let guard = lock.acquire().await?;
    world.bench.waited(kind, asked);
    Ok(Some(guard))
}

/// Holds for a moment.
pub(crate) async fn briefly(rng: &mut Rng) {
    match rng.u8(..4) {
        0 => tokio::time::sleep(Duration::from_millis(1)).await,
        _ => tokio::task::yield_now().await,
    }
}

/// Releases a guard in one of several ways. We discard the result: an error means that the lock was lost, which the claim
/// has told already.
pub(crate) async fn part_with<G: Held>(guard: G, rng: &mut Rng) {
    match rng.u8(..8) {
        0 => drop(guard),
        1 => drop(guard.give_back()),
        2 => {
            let mut release = pin!(guard.give_back());
            std::future::poll_fn(|cx| {
                let _ = release.as_mut().poll(cx);
                Poll::Ready(())
            })
            .await;
        }
        _ => drop(guard.give_back().await),
    }
}
