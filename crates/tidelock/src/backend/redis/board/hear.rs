//! What a server says on the connection of its subscriptions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::reply::{Form, Push};
use super::super::{events, keys};
use super::{Board, Phase, Session};

/// What the scripts publish in the sharded form when they have published the same in the plain form just before. Redisson
/// reads a number, for which this is as good a zero as any.
const TOLD_IN_BOTH: &[u8] = b"00";

impl Board {
    pub(in super::super) fn hear(self: &Arc<Self>, session: &Arc<Session>, push: Push) {
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

    fn message(&self, session: &Arc<Session>, form: Form, channel: &str, payload: &[u8]) {
        let is_event = keys::of_events(channel).is_some();
        if is_event && !events::frees(payload) || self.was_heard(session, form, channel, payload) {
            return;
        }
        // A message to the head of Redisson's fair queue concerns all waiters of that lock.
        let channel = keys::of_fair_channel(channel).unwrap_or(channel);
        self.note(form, channel);
        if is_event {
            return self.signals.wake_one(channel);
        }
        // Redisson: 1 after the last reader or a writer has gone, when all may try.
        if payload == b"1" {
            self.signals.wake_all(channel);
        } else {
            self.signals.wake_one(channel);
        }
    }

    /// It is the second message about one release: whoever takes it for another asks the store once too often. Only what
    /// was heard counts, on this connection and just before; else a waiter would go on sleeping.
    fn was_heard(&self, session: &Arc<Session>, form: Form, channel: &str, payload: &[u8]) -> bool {
        if self.forms.len() < 2 {
            return false;
        }
        let mut state = self.lock();
        let Some(plain) = state.books.get_mut(Form::Plain, channel) else {
            return false;
        };
        if !plain.is_on(session) {
            return false; // the other one comes from another server, before or after this one
        }
        match form {
            Form::Plain => {
                plain.twin = true;
                false
            }
            Form::Sharded => std::mem::take(&mut plain.twin) && payload == TOLD_IN_BOTH,
        }
    }

    fn note(&self, form: Form, channel: &str) {
        let now = self.timers().now();
        if let Some(entry) = self.lock().books.get_mut(form, channel) {
            entry.heard += 1;
            entry.last = now;
        }
    }

    fn subscribed(&self, session: &Arc<Session>, form: Form, channel: &str) {
        let now = self.timers().now();
        let mut state = self.lock();
        let Some(entry) = state.books.get_mut(form, channel) else {
            return;
        };
        if entry.phase != Phase::Pending || entry.leaving > 0 || !entry.is_on(session) {
            return; // an older subscription, given up meanwhile; another confirmation will come
        }
        entry.phase = Phase::Live;
        entry.idle_since = Some(now);
        entry.twin = false;
        self.complained.store(false, Ordering::SeqCst);
        let missed = std::mem::take(&mut entry.missed);
        let callers = std::mem::take(&mut entry.callers);
        self.join(&mut state, channel, now);
        drop(state);
        for caller in callers {
            // An error means that the caller has left; the subscription lingers and goes.
            let _ = caller.send(());
        }
        if missed {
            self.signals.wake_one(channel);
        }
    }

    fn unsubscribed(self: &Arc<Self>, session: &Arc<Session>, form: Form, channel: &str) {
        let mut state = self.lock();
        let Some(entry) = state.books.get_mut(form, channel) else {
            return;
        };
        if !entry.is_on(session) {
            return; // it has been moved to another server
        }
        if entry.leaving > 0 {
            entry.leaving -= 1;
            if entry.phase == Phase::Leaving && entry.leaving == 0 {
                state.books.of_mut(form).remove(channel);
                self.count(&state);
            }
            return;
        }
        drop(state);
        // Nobody asked for that: the slot has gone elsewhere. It counts as a wake-up, and the channel is subscribed anew.
        self.stations.doubt();
        self.again(session, form, channel);
        self.signals.wake_one(channel);
    }
}
