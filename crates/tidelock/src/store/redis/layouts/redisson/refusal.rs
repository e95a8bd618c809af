//! How a waiter learns of the release after a failed attempt.
//!
//! Redisson's fair lock uses the same hash as any other lock. But it publishes a release only to the thread at the
//! head of its queue, on that thread's own channel; if the queue is empty, it publishes nothing. Redisson's spin lock
//! never publishes. So a waiter subscribes to the head's channel if there is one, and polls every 190 to 250 ms while
//! a client other than tidelock holds the lock.

use std::time::Duration;

use crate::store::redis::Redis;
use crate::store::redis::keys;
use crate::store::redis::layouts::answer::HeldByOther;
use crate::store::{AttemptRequest, OwnerId, Wait, Wake};

/// The longest interval at which we poll a lock whose release may come without a message: a waiter notices the
/// release at most this late.
const MAX_RECHECK: Duration = Duration::from_millis(250);

/// The poll interval of this client. It depends on the client's id, so that clients that start together do not poll
/// in step.
fn look(owner: &OwnerId) -> Duration {
    let digits = owner.client().get(..2);
    let share = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
    MAX_RECHECK * 3 / 4 + MAX_RECHECK / 4 / 256 * u32::from(share.unwrap_or(0))
}

impl Redis {
    /// Subscribes to the channel of the head of Redisson's fair queue. `true`: the subscription is new, so the caller
    /// must attempt the lock again. Otherwise it would miss a release before the subscription.
    ///
    /// No waiter owns the subscription. It ends a while after the last waiter that has seen this head.
    pub(crate) async fn begin_to_hear(
        &self,
        ask: &AttemptRequest,
        refusal: HeldByOther<'_>,
    ) -> bool {
        let Some(head) = refusal.head.filter(|_| !ask.patience.is_zero()) else {
            return false;
        };
        let channel = keys::fair_channel(&ask.ticket.name, head);
        let subscriber = &self.shared.subscriber;
        if subscriber.arm_if_live(|| channel.clone()).is_some() {
            return false;
        }
        // A quarter of the timeout: the second attempt needs the rest. The future is boxed because few requests need
        // it.
        let limit = ask.time_to_arm(self.router.limit() / 2) / 2;
        Box::pin(subscriber.arm(&channel, limit)).await.is_some()
    }

    pub(crate) fn wait_redisson(
        &self,
        ask: &AttemptRequest,
        wake: Option<Wake>,
        refusal: HeldByOther<'_>,
    ) -> Wait {
        let mut recheck = if ask.ticket.kind.is_permits() && refusal.left < 0 {
            self.shared.lease // no permit is out, or one of them never ends
        } else {
            self.recheck(&ask.ticket.name, refusal.left)
        };
        if ask.ticket.kind.is_read_write() {
            recheck = recheck.min(self.position_kept() / 3);
        }
        if self.polls(ask, wake.is_some()) {
            let often = (recheck / 20).clamp(Duration::from_millis(100), Duration::from_secs(1));
            recheck = recheck.min(often);
        }
        if refusal.silent {
            recheck = recheck.min(look(&ask.ticket.owner));
        }
        Wait {
            wake,
            recheck: Some(recheck),
            ahead: None,
        }
    }

    /// Whether the waiter must poll, because it may not hear the release.
    fn polls(&self, ask: &AttemptRequest, armed: bool) -> bool {
        if !armed && ask.armed_by.is_none() {
            // Without patience the caller asks again at once, or gives up.
            return !ask.patience.is_zero();
        }
        let subscriber = &self.shared.subscriber;
        subscriber.is_deaf(|| keys::wake_channel(&ask.ticket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::OwnerMint;

    #[test]
    fn clients_do_not_look_at_the_same_moments() {
        let pauses: Vec<Duration> = (0..100).map(|_| look(&OwnerMint::new().fresh())).collect();
        assert!(
            pauses
                .iter()
                .all(|pause| (MAX_RECHECK * 3 / 4..=MAX_RECHECK).contains(pause))
        );
        assert!(pauses.iter().any(|pause| *pause != pauses[0]));
    }

    /// The first two digits of the client's id divide a quarter of the pause into 256 parts.
    #[test]
    fn the_looks_of_all_clients_are_spread_evenly() {
        for _ in 0..20 {
            let owner = OwnerMint::new().fresh();
            let share = u32::from_str_radix(&owner.text()[..2], 16).unwrap();
            let pause = Duration::from_nanos(187_500_000 + 244_140 * u64::from(share));
            assert_eq!(look(&owner), pause, "{owner}");
        }
    }
}
