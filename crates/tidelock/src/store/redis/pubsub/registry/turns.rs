//! The channel on which a process hears of its turns in the queue of a fair lock. All its waiters for the lock share the
//! subscription, and a message on it is for one of them. The wake of each waiter is armed on the waiter's own channel, on
//! which Redisson publishes a release; few waiters subscribe to that one.
//!
//! Invariant: while a waiter has a wake, the channel of its turns counts as watched. So it stays subscribed, also after a
//! reconnect, and ends a while after the last waiter, as any other channel.

use std::sync::Arc;

use crate::store::redis::keys;
use crate::store::redis::pubsub::registry::SubscriptionRegistry;
use crate::store::redis::pubsub::registry::state::{ChannelPhase, RegistryState};
use crate::store::{BootInstant, Wake};

impl SubscriptionRegistry {
    /// A wake for a waiter, if at least one form of the channel of its turns is live.
    pub(crate) fn arm_for_turn(&self, turns: &str, waiter: &str) -> Option<Wake> {
        let mut state = self.lock();
        if !self.use_channel(&mut state, turns) {
            return None;
        }
        let sharing = state.turns.entry(turns.into()).or_default();
        sharing.insert(waiter.into());
        // Under the lock, as in `arm`.
        Some(self.signals.arm(waiter))
    }

    /// Whether every form of the channel is live, so that a waiter needs no SUBSCRIBE.
    pub(crate) fn is_live(&self, channel: &str) -> bool {
        let state = self.lock();
        self.forms.iter().all(|form| {
            let entry = state.channels.get(*form, channel);
            entry.is_some_and(|entry| entry.phase == ChannelPhase::Live)
        })
    }

    /// Whether somebody waits for messages on the channel.
    pub(crate) fn is_watched(&self, state: &RegistryState, channel: &str) -> bool {
        state.turns.contains_key(channel) || self.signals.is_watched(channel)
    }

    /// The last wake on the channel of this waiter is gone. If it was the last waiter of its channel of turns, that
    /// channel is idle too.
    pub(crate) fn leaves_turns(&self, state: &mut RegistryState, waiter: &str, now: BootInstant) {
        let Some(turns) = keys::turns::turns_of(waiter) else {
            return;
        };
        // Another wake may have been armed before we had the lock.
        let Some(sharing) = state
            .turns
            .get_mut(turns)
            .filter(|_| !self.signals.is_watched(waiter))
        else {
            return;
        };
        sharing.remove(waiter);
        if sharing.is_empty() {
            state.turns.remove(turns);
            self.note_idle(state, turns, now);
        }
    }

    /// The waiters that share a channel of turns. Empty: it is another channel, or nobody waits.
    pub(crate) fn sharing(&self, channel: &str) -> Vec<Arc<str>> {
        let state = self.lock();
        let sharing = state.turns.get(channel).into_iter().flatten();
        sharing.cloned().collect()
    }

    /// Wakes the waiter whose turn a message announces. False: it is not a channel of turns.
    pub(crate) fn announce_turn(&self, channel: &str, payload: &[u8]) -> bool {
        if !self.lock().turns.contains_key(channel) {
            return false;
        }
        // Anybody may publish. A waiter that is woken asks, and other bytes wake nobody.
        if let Ok(number) = std::str::from_utf8(payload) {
            self.signals
                .wake_one(&keys::turns::has_turn(channel, number));
        }
        true
    }
}
