//! Clients that hold locks under faults: their settings, and the report of a loss.

use std::time::{Duration, Instant};

use anyhow::Result;
use testkit::process::boot_time;
use tidelock::{Client, ClientBuilder, Guard, Lock, LockGuard, LostReason};
use tokio::task::JoinHandle;

use crate::timing::within;

/// The client settings of most rows: the response timeout is a quarter of the lease, so that a request without an answer is
/// repeated while its row runs.
pub fn builder(lease: Duration) -> ClientBuilder {
    Client::builder().lease(lease).response_timeout(lease / 4)
}

/// Waits for the loss of a guard and records when it was reported.
#[derive(Debug)]
pub struct Told(JoinHandle<(Duration, LostReason)>);

/// Waits for the loss of a hold that is not renewed any more. `since`: when its last renewal had been sent.
///
/// # Panics
/// If the guard claims the lock when its lease has ended. The claim is read by the clock, so a thread that runs late does not
/// matter.
pub async fn lost_in_time(guard: &Guard, since: Instant, lease: Duration) -> LostReason {
    let lost = guard.lost();
    tokio::pin!(lost);
    loop {
        tokio::select! {
            reason = &mut lost => return reason,
            () = tokio::time::sleep(lease / 100) => {}
        }
        // We read the clock first, so that a pause between the two makes the claim no later.
        let held_for = since.elapsed();
        if guard.is_held() {
            assert!(held_for < lease, "held after {held_for:?}");
        }
    }
}

/// Acquires a lock, and retries if an outage lasts longer than one acquire waits.
pub async fn insist<G: LockGuard>(lock: Lock<G>) -> Result<G> {
    loop {
        match lock.acquire().await {
            Err(error) if error.is_retryable() => {}
            answer => return Ok(answer?),
        }
    }
}

/// Starts to wait for the loss.
pub fn listen(guard: &Guard) -> Told {
    let lost = guard.lost();
    Told(tokio::spawn(async move {
        let reason = lost.await;
        (boot_time(), reason)
    }))
}

impl Told {
    /// True if no loss has been reported.
    pub fn is_quiet(&self) -> bool {
        !self.0.is_finished()
    }

    /// The time of the report, on the boot clock, and the reason.
    pub async fn told(self, limit: Duration) -> Result<(Duration, LostReason)> {
        Ok(within(limit, "the holder is told", self.0).await??)
    }
}
