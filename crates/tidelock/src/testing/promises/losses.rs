//! What promises about losses share: a task that waits for the loss while the next one waits for the lock.

use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::testing::fixture::{Fixture, within};
use crate::testing::party::Held;
use crate::types::LostReason;

/// Spawns a task that waits for the loss.
pub(super) fn listening(held: &Arc<Held>) -> JoinHandle<LostReason> {
    let held = Arc::clone(held);
    tokio::spawn(async move { held.lost().await })
}

/// Checks, right after the next holder got the lock, that the former one knows its loss. `told` has waited for it since
/// before. A future of `lost` that is first polled after the loss reads the clock, and is ready even if nothing wakes
/// those that wait.
pub(super) async fn told_before(fixture: &Fixture, held: &Held, told: JoinHandle<LostReason>) {
    // No task is late on a simulated clock. We look at this one before we call `is_held`, which reads the clock and
    // wakes those that wait for a loss that it has found.
    assert!(
        told.is_finished() || !fixture.is_simulated(),
        "told after the next had it"
    );
    // On a busy machine the task may run later than that of the next holder. The clock is not late.
    assert!(!held.is_held().await, "the next had it before that");
    let reason = within("the loss", fixture.lease(), told).await;
    assert_eq!(reason.expect("no panic"), LostReason::Expired);
}
