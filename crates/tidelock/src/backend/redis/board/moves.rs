//! What becomes of subscriptions with time: given up, lost with their connection, or to be had elsewhere.

use std::sync::Arc;
use std::time::Duration;

use super::{Board, Channel, Order, Phase, Session, State};
use crate::backend::Moment;

/// How long a subscription is kept after its last waiter, for the next one.
const LINGER: Duration = Duration::from_millis(2500);

impl Board {
    /// Subscribes anew to what has not stood or does not stand any more on this server, where it is to be heard now.
    pub(in super::super) fn again(self: &Arc<Self>, session: &Arc<Session>, channel: &str) {
        let mut state = self.lock();
        let Some((channel, entry)) = state.channels.remove_entry(channel) else {
            return;
        };
        let entry = if entry.is_on(session) {
            self.moved(&mut state, &channel, entry)
        } else {
            Some(entry)
        };
        if let Some(entry) = entry {
            state.channels.insert(channel, entry);
        }
        self.count(&state);
    }

    /// As [`again`](Self::again), for one that was refused; unless it stands meanwhile.
    pub(in super::super) fn retry(self: &Arc<Self>, session: &Arc<Session>, channel: &str) {
        let pending = {
            let state = self.lock();
            let entry = state.channels.get(channel);
            entry.is_some_and(|entry| entry.phase == Phase::Pending)
        };
        if pending {
            self.again(session, channel);
        }
    }

    /// `None`: nobody needs it.
    fn moved(
        self: &Arc<Self>,
        state: &mut State,
        channel: &Arc<str>,
        mut entry: Channel,
    ) -> Option<Channel> {
        entry.callers.retain(|caller| !caller.is_closed());
        entry.leaving = 0;
        if matches!(entry.phase, Phase::Refused(_)) {
            return Some(entry);
        }
        if !self.signals.is_watched(channel) && entry.callers.is_empty() {
            return None;
        }
        entry.missed |= entry.phase == Phase::Live;
        entry.phase = Phase::Pending;
        // Where nobody has it, it stays where it was and is looked at again.
        if let Some(session) = self.session_for(state, channel) {
            entry.session = session;
        }
        entry.session.order(Order::Subscribe(Arc::clone(channel)));
        Some(entry)
    }

    /// Gives up channels nobody has waited for in a while, and moves those that are to be heard elsewhere. False: none is left here.
    pub(in super::super) fn sweep(self: &Arc<Self>, session: &Arc<Session>) -> bool {
        let now = self.timers().now();
        let mut state = self.lock();
        let mut astray = Vec::new();
        let mut left = false;
        state.channels.retain(|channel, entry| {
            if !entry.is_on(session) {
                return true;
            }
            let stays = self.look_at(channel, entry, now, &mut astray);
            left |= stays;
            stays
        });
        self.count(&state);
        drop(state);
        for channel in astray {
            if !self.sharded {
                // A sharded subscription ends by itself with its slot.
                session.order(Order::Unsubscribe(Arc::clone(&channel)));
            }
            self.again(session, &channel);
            self.signals.wake_one(&channel);
        }
        left
    }

    fn look_at(
        &self,
        channel: &Arc<str>,
        entry: &mut Channel,
        now: Moment,
        astray: &mut Vec<Arc<str>>,
    ) -> bool {
        if self.signals.is_watched(channel) {
            entry.idle_since = None;
            if matches!(entry.phase, Phase::Refused(until) if now >= until) {
                // Whoever waits was armed before the refusal, and nobody else would ask again for it.
                entry.phase = Phase::Pending;
                entry.missed = true;
                entry.session.order(Order::Subscribe(Arc::clone(channel)));
            }
            let here = self.stations.of(channel);
            if here.is_some_and(|gate| !Arc::ptr_eq(&gate, &entry.session.gate)) {
                astray.push(Arc::clone(channel));
            }
            return true;
        }
        match entry.phase {
            Phase::Live => {
                if now.since(*entry.idle_since.get_or_insert(now)) >= LINGER {
                    entry.phase = Phase::Leaving;
                    entry.leaving += 1;
                    entry.session.order(Order::Unsubscribe(Arc::clone(channel)));
                }
                true
            }
            Phase::Refused(until) => now < until,
            Phase::Pending | Phase::Leaving => true,
        }
    }

    /// The server does not let a channel be given up, or does not know of it any more. No confirmation will come, and one
    /// that is waited for would keep every later subscription from standing. What the server goes on telling wakes nobody.
    pub(in super::super) fn stuck(&self, session: &Arc<Session>, channel: &str) {
        let mut state = self.lock();
        let Some(entry) = state.channels.get_mut(channel) else {
            return;
        };
        if !entry.is_on(session) {
            return;
        }
        entry.leaving = entry.leaving.saturating_sub(1);
        match entry.phase {
            Phase::Leaving if entry.leaving == 0 => {
                state.channels.remove(channel);
                self.count(&state);
            }
            // Wanted again meanwhile: a confirmation may have been taken for an older one, so there must be another.
            Phase::Pending => entry.session.order(Order::Subscribe(channel.into())),
            _ => {}
        }
    }

    /// The connection is gone: nothing stands, and messages may have been missed. What is still wanted is ordered anew.
    pub(in super::super) fn disconnected(self: &Arc<Self>, session: &Arc<Session>) {
        session.orders();
        let mut state = self.lock();
        let mine = state
            .channels
            .iter()
            .filter(|(_, entry)| entry.is_on(session));
        let mine: Vec<Arc<str>> = mine.map(|(channel, _)| Arc::clone(channel)).collect();
        for channel in mine {
            if let Some((channel, entry)) = state.channels.remove_entry(&channel)
                && let Some(entry) = self.moved(&mut state, &channel, entry)
            {
                state.channels.insert(channel, entry);
            }
        }
        self.count(&state);
    }

    /// No connection can be made: whoever waits for one polls instead.
    pub(in super::super) fn unreachable(
        self: &Arc<Self>,
        session: &Arc<Session>,
        why: &crate::Error,
    ) {
        let mut state = self.lock();
        let channels = state
            .channels
            .values_mut()
            .filter(|entry| entry.is_on(session));
        let callers: Vec<_> = channels
            .map(|entry| std::mem::take(&mut entry.callers))
            .collect();
        drop(state);
        drop(callers); // not under the lock: it wakes them
        self.complain(why);
        self.stations.doubt();
        self.disconnected(session);
        if !why.is_retryable() {
            self.wake_all_of(session);
        }
    }

    /// The server does not let us in, and trying again does not help. Who was armed before asks now and hears the reason;
    /// else they would sleep until the holder's lease ends.
    fn wake_all_of(&self, session: &Arc<Session>) {
        let state = self.lock();
        let mine = state
            .channels
            .iter()
            .filter(|(_, entry)| entry.is_on(session));
        let mine: Vec<Arc<str>> = mine.map(|(channel, _)| Arc::clone(channel)).collect();
        drop(state);
        for channel in mine {
            self.signals.wake_one(&channel);
        }
    }

    /// Whether the connection's task should go on. If not, it has ended with this answer.
    pub(in super::super) fn goes_on(&self, session: &Arc<Session>) -> bool {
        let mut state = self.lock();
        let needed = !state.closed
            && (state.channels.values().any(|entry| entry.is_on(session))
                || !session.todo().is_empty());
        if !needed {
            state.sessions.retain(|own| !Arc::ptr_eq(own, session));
        }
        needed
    }
}
