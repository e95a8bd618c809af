//! The push handler of a pub/sub connection: messages and confirmations.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::store::redis::keys;
use crate::store::redis::pubsub::keyspace_events;
use crate::store::redis::pubsub::registry::SubscriptionRegistry;
use crate::store::redis::pubsub::registry::state::{ChannelPhase, PubSubConnection};
use crate::store::redis::wire::reply::{MessageForm, Push};

/// The payload that scripts publish in the sharded form if they have just published the same message in the plain form.
/// Redisson parses it as the number 0 or 1.
const TOLD_IN_BOTH: [&[u8]; 2] = [b"00", b"01"];

/// The second message of a release of a read-write lock. Only Redisson needs it.
const FOR_REDISSON: &[u8] = b"00";

impl SubscriptionRegistry {
    pub(crate) fn on_push(self: &Arc<Self>, session: &Arc<PubSubConnection>, push: Push) {
        match push {
            Push::Message {
                form,
                channel,
                payload,
            } => self.message(session, form, &channel, &payload),
            Push::Subscribed(form, channel) => match keys::channel_of_own(&channel) {
                Some(channel) => self.joined(session, form, &channel),
                None => self.subscribed(session, form, &channel),
            },
            Push::Unsubscribed(form, channel) => match keys::channel_of_own(&channel) {
                Some(channel) => self.parted(session, form, &channel),
                None => self.unsubscribed(session, form, &channel),
            },
        }
    }

    fn message(
        &self,
        session: &Arc<PubSubConnection>,
        form: MessageForm,
        channel: &str,
        payload: &[u8],
    ) {
        let is_event = keys::of_events(channel).is_some();
        if is_event && !keyspace_events::frees(payload)
            || self.was_heard(session, form, channel, payload)
            || keys::is_of_sides(channel) && payload == FOR_REDISSON
        {
            return;
        }
        if self.announce_turn(channel, payload) {
            return;
        }
        // A message may be addressed to the head of a fair queue. If that is no waiter of ours, we map it to the lock's
        // channel: our waiters there hear of the release in this way.
        let channel = match keys::of_fair_channel(channel) {
            Some(locks) if !self.signals.is_watched(channel) => locks,
            _ => channel,
        };
        self.note(form, channel);
        self.wake(channel);
    }

    /// Wakes the oldest waiter of a channel, or all if only the store knows which of them is next.
    pub(crate) fn wake(&self, channel: &str) {
        // Which of them has missed its message, only the store knows.
        for waiter in self.sharing(channel) {
            self.signals.wake_one(&waiter);
        }
        if keys::wakes_all(channel) {
            self.signals.wake_all(channel);
        } else {
            self.signals.wake_one(channel);
        }
    }

    /// Whether this message is the sharded duplicate of a plain message. Without this check one release would wake two
    /// waiters. It counts as a duplicate only if the plain message arrived just before on the same connection:
    /// otherwise we would discard the only message, and a waiter would go on sleeping.
    fn was_heard(
        &self,
        session: &Arc<PubSubConnection>,
        form: MessageForm,
        channel: &str,
        payload: &[u8],
    ) -> bool {
        if self.forms.len() < 2 {
            return false;
        }
        let mut state = self.lock();
        let Some(plain) = state.channels.get_mut(MessageForm::Plain, channel) else {
            return false;
        };
        if !plain.is_on(session) {
            return false; // the plain message comes from another server, so the order is unknown
        }
        match form {
            MessageForm::Plain => {
                plain.twin = true;
                false
            }
            MessageForm::Sharded => {
                std::mem::take(&mut plain.twin) && TOLD_IN_BOTH.contains(&payload)
            }
        }
    }

    fn note(&self, form: MessageForm, channel: &str) {
        let now = self.timers().now();
        if let Some(entry) = self.lock().channels.get_mut(form, channel) {
            entry.releases_seen += 1;
            entry.last = now;
        }
    }

    fn subscribed(&self, session: &Arc<PubSubConnection>, form: MessageForm, channel: &str) {
        let now = self.timers().now();
        let mut state = self.lock();
        let Some(entry) = state.channels.get_mut(form, channel) else {
            return;
        };
        if entry.phase != ChannelPhase::Pending || entry.leaving > 0 || !entry.is_on(session) {
            return; // confirms an older subscription; another confirmation follows
        }
        entry.phase = ChannelPhase::Live;
        entry.idle_since = Some(now);
        (entry.twin, entry.told) = (false, false);
        self.complained.store(false, Ordering::SeqCst);
        let missed = std::mem::take(&mut entry.missed);
        let callers = std::mem::take(&mut entry.callers);
        self.join(&mut state, channel, now);
        drop(state);
        for caller in callers {
            // An error means that the caller has left. The sweep ends an unused subscription later.
            let _ = caller.send(());
        }
        if missed {
            self.wake(channel);
        }
    }

    fn unsubscribed(
        self: &Arc<Self>,
        session: &Arc<PubSubConnection>,
        form: MessageForm,
        channel: &str,
    ) {
        let mut state = self.lock();
        let Some(entry) = state.channels.get_mut(form, channel) else {
            return;
        };
        if !entry.is_on(session) {
            return; // another connection serves it now
        }
        if entry.leaving > 0 {
            entry.leaving -= 1;
            if entry.phase == ChannelPhase::Leaving && entry.leaving == 0 {
                state.channels.of_mut(form).remove(channel);
                self.count(&state);
            }
            return;
        }
        drop(state);
        // The server ended the subscription unasked, because the slot has moved. We subscribe at the new owner. A
        // message may be lost in between, so we wake a waiter.
        self.channel_router.doubt();
        self.again(session, form, channel);
        self.wake(channel);
    }
}
