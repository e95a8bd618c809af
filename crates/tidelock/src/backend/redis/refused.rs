//! How a waiter hears of the release after a refusal.
//!
//! A fair lock of Redisson is the same hash as any other, but it tells only the thread at the head of its own queue that it was
//! freed, on a channel of that thread, and nobody if none waits. Its spin lock tells nobody at all. So a waiter listens to the
//! head's channel where there is one, and looks every 190 to 250 ms while another client than tidelock holds the lock.

use std::sync::PoisonError;
use std::time::Duration;

use super::answer::Refusal;
use super::plain::Layout;
use super::reply::Reply;
use super::{Redis, keys};
use crate::backend::{Ask, Name, OwnerId, Wait, Wake};

/// Names of locks without a time to live that were warned about; a limit, so that it cannot grow without end.
const MOST_WARNINGS: usize = 1000;

/// The longest pause between two looks at a lock whose release may come without a message: what that costs a waiter at most.
const LOOK: Duration = Duration::from_millis(250);

/// The pause of this client. Not the same for all: those that begin to wait together do not go on asking together.
fn look(owner: &OwnerId) -> Duration {
    let digits = owner.client().get(..2);
    let share = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
    LOOK * 3 / 4 + LOOK / 4 / 256 * u32::from(share.unwrap_or(0))
}

impl Redis {
    /// Listens to what Redisson tells the head of its fair queue. `true`: only from now on, so the caller asks for the
    /// lock again; otherwise a release before the subscription would be missed.
    ///
    /// The subscription is nobody's: it goes a while after the last waiter that has seen this head.
    pub(super) async fn begin_to_hear(&self, ask: &Ask, refusal: Refusal<'_>) -> bool {
        let Some(head) = refusal.head.filter(|_| !ask.patience.is_zero()) else {
            return false;
        };
        let channel = keys::fair_channel(&ask.ticket.name, head);
        let subscriber = &self.shared.subscriber;
        if subscriber.arm_if_live(|| channel.clone()).is_some() {
            return false;
        }
        // A part of the response timeout, because the lock is asked for again afterwards. Behind a pointer: few need it.
        let limit = self.routes.limit() / 4;
        Box::pin(subscriber.arm(&channel, limit)).await.is_some()
    }

    /// For a plain lock, the script answers the holder's owner where the other script answers the head of a fair queue.
    pub(super) fn refusal<'r>(
        &self,
        ask: &Ask,
        reply: &'r Reply,
        refusal: Refusal<'r>,
    ) -> Refusal<'r> {
        if self.layout == Layout::Redisson {
            return refusal;
        }
        if let Some(owner) = reply.list().and_then(|parts| parts.get(2)) {
            self.shared.events.saw(&ask.ticket.name, owner);
        }
        Refusal {
            silent: false,
            head: None,
            ..refusal
        }
    }

    pub(super) fn wait(&self, ask: &Ask, wake: Option<Wake>, refusal: Refusal<'_>) -> Wait {
        let cap = self.shared.lease;
        let mut recheck = if let Ok(left) = u64::try_from(refusal.left) {
            // One more, so that it is over then.
            Duration::from_millis(left.saturating_add(1)).min(cap)
        } else {
            self.warn_of_no_limit(&ask.ticket.name);
            cap
        };
        if self.layout == Layout::Redisson && self.polls(ask, wake.is_some()) {
            let often = (recheck / 20).clamp(Duration::from_millis(100), Duration::from_secs(1));
            recheck = recheck.min(often);
        }
        if refusal.silent {
            recheck = recheck.min(look(&ask.ticket.owner));
        }
        Wait {
            wake,
            recheck: Some(recheck),
        }
    }

    /// A release may not be heard here.
    fn polls(&self, ask: &Ask, armed: bool) -> bool {
        if ask.patience.is_zero() {
            return false;
        }
        let subscriber = &self.shared.subscriber;
        !(armed || ask.armed) || subscriber.is_deaf(|| keys::channel(&ask.ticket.name))
    }

    fn warn_of_no_limit(&self, name: &Name) {
        let mut warned = self
            .shared
            .warned
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if warned.len() < MOST_WARNINGS && warned.insert(name.clone()) {
            tracing::warn!(lock = %name, "its key has no time to live: if its holder has died, only a forced release frees it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::OwnerMint;

    #[test]
    fn clients_do_not_look_at_the_same_moments() {
        let pauses: Vec<Duration> = (0..100).map(|_| look(&OwnerMint::new().fresh())).collect();
        assert!(
            pauses
                .iter()
                .all(|pause| (LOOK * 3 / 4..=LOOK).contains(pause))
        );
        assert!(pauses.iter().any(|pause| *pause != pauses[0]));
    }
}
