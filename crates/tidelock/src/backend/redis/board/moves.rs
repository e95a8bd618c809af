//! What becomes of subscriptions with time: given up, lost with their connection, or to be had elsewhere.

use std::sync::Arc;
use std::time::Duration;

use super::super::reply::Form;
use super::own::Own;
use super::{Board, Phase, Session, State};
use crate::backend::Moment;

/// How long a subscription is kept after its last waiter, for the next one.
const LINGER: Duration = Duration::from_millis(2500);

/// What a look at a channel has come to.
enum Look {
    Stays,
    Gone,
    /// It is to be heard elsewhere.
    Astray,
}

impl Board {
    /// Subscribes anew to what has not stood or does not stand any more on this server, where it is to be heard now.
    pub(in super::super) fn again(
        self: &Arc<Self>,
        session: &Arc<Session>,
        form: Form,
        channel: &str,
    ) {
        let mut state = self.lock();
        if state
            .books
            .get(form, channel)
            .is_some_and(|entry| entry.is_on(session))
        {
            self.part(&mut state, channel);
            self.moved(&mut state, form, channel);
            self.count(&state);
        }
    }

    /// As [`again`](Self::again), for one that was refused; unless it stands meanwhile.
    pub(in super::super) fn retry(
        self: &Arc<Self>,
        session: &Arc<Session>,
        form: Form,
        channel: &str,
    ) {
        let pending = {
            let state = self.lock();
            let entry = state.books.get(form, channel);
            entry.is_some_and(|entry| entry.phase == Phase::Pending)
        };
        if pending {
            self.again(session, form, channel);
        }
    }

    /// Orders a channel where it is to be heard now. One that nobody needs goes.
    fn moved(self: &Arc<Self>, state: &mut State, form: Form, channel: &str) {
        let Some((channel, mut entry)) = state.books.of_mut(form).remove_entry(channel) else {
            return;
        };
        entry.callers.retain(|caller| !caller.is_closed());
        entry.leaving = 0;
        (entry.own, entry.twin) = (Own::Out, false);
        if !matches!(entry.phase, Phase::Refused(_)) {
            if !self.signals.is_watched(&channel) && entry.callers.is_empty() {
                return;
            }
            entry.missed |= entry.phase == Phase::Live;
            entry.phase = Phase::Pending;
            // Where nobody has it, it stays where it was and is looked at again.
            if let Some(session) = self.session_for(state, &channel) {
                entry.session = session;
            }
            entry.order(form, false, &channel);
        }
        state.books.of_mut(form).insert(channel, entry);
    }

    /// Gives up channels nobody has waited for in a while, and moves those that are to be heard elsewhere. False: none is left here.
    pub(in super::super) fn sweep(self: &Arc<Self>, session: &Arc<Session>) -> bool {
        let now = self.timers().now();
        let mut state = self.lock();
        let (mut astray, mut left) = (Vec::new(), false);
        for &form in self.forms {
            for channel in state.books.on(form, session) {
                match self.look_at(&mut state, form, &channel, now) {
                    Look::Stays => left = true,
                    Look::Gone => drop(state.books.of_mut(form).remove(&channel)),
                    Look::Astray => {
                        left = true;
                        astray.push((form, channel));
                    }
                }
            }
        }
        self.count(&state);
        drop(state);
        for (form, channel) in astray {
            self.follow(session, form, &channel);
        }
        left
    }

    /// Moves a channel to where it is to be heard now.
    fn follow(self: &Arc<Self>, session: &Arc<Session>, form: Form, channel: &Arc<str>) {
        let mut state = self.lock();
        self.part(&mut state, channel);
        if form == Form::Plain
            && let Some(entry) = state.books.get(form, channel)
            && entry.is_on(session)
        {
            // A sharded subscription ends by itself with its slot.
            entry.order(form, true, channel);
        }
        drop(state);
        self.again(session, form, channel);
        self.signals.wake_one(channel);
    }

    fn look_at(&self, state: &mut State, form: Form, channel: &Arc<str>, now: Moment) -> Look {
        let watched = self.signals.is_watched(channel);
        let Some(entry) = state.books.get_mut(form, channel) else {
            return Look::Gone;
        };
        if watched {
            entry.idle_since = None;
            if matches!(entry.phase, Phase::Refused(until) if now >= until) {
                // Whoever waits was armed before the refusal, and nobody else would ask again for it.
                entry.phase = Phase::Pending;
                entry.missed = true;
                entry.order(form, false, channel);
            }
            let here = self.stations.of(channel);
            return match here {
                Some(gate) if !Arc::ptr_eq(&gate, &entry.session.gate) => Look::Astray,
                _ => {
                    // It may have been refused until now.
                    self.join(state, channel, now);
                    Look::Stays
                }
            };
        }
        match entry.phase {
            Phase::Live if now.since(*entry.idle_since.get_or_insert(now)) >= LINGER => {
                self.part(state, channel);
                if let Some(entry) = state.books.get_mut(form, channel) {
                    entry.phase = Phase::Leaving;
                    entry.leaving += 1;
                    entry.order(form, true, channel);
                }
                Look::Stays
            }
            Phase::Refused(until) if now >= until => Look::Gone,
            _ => Look::Stays,
        }
    }

    /// The server does not let a channel be given up, or does not know of it any more. No confirmation will come, and one
    /// that is waited for would keep every later subscription from standing. What the server goes on telling wakes nobody.
    pub(in super::super) fn stuck(&self, session: &Arc<Session>, form: Form, channel: &Arc<str>) {
        let mut state = self.lock();
        let Some(entry) = state.books.get_mut(form, channel) else {
            return;
        };
        if !entry.is_on(session) {
            return;
        }
        entry.leaving = entry.leaving.saturating_sub(1);
        match entry.phase {
            Phase::Leaving if entry.leaving == 0 => {
                state.books.of_mut(form).remove(channel);
                self.count(&state);
            }
            // Wanted again meanwhile: a confirmation may have been taken for an older one, so there must be another.
            Phase::Pending => entry.order(form, false, channel),
            _ => {}
        }
    }

    /// The connection is gone: nothing stands, and messages may have been missed. What is still wanted is ordered anew.
    pub(in super::super) fn disconnected(self: &Arc<Self>, session: &Arc<Session>) {
        session.orders();
        let mut state = self.lock();
        for &form in self.forms {
            for channel in state.books.on(form, session) {
                self.moved(&mut state, form, &channel);
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
        let channels: Vec<Arc<str>> = self
            .forms
            .iter()
            .flat_map(|form| state.books.on(*form, session))
            .collect();
        let mut callers = Vec::new();
        for form in self.forms {
            for entry in state.books.of_mut(*form).values_mut() {
                if entry.is_on(session) {
                    callers.append(&mut entry.callers);
                }
            }
        }
        drop(state);
        drop(callers); // not under the lock: it wakes them
        self.complain(why);
        self.stations.doubt();
        self.disconnected(session);
        if !why.is_retryable() {
            // The server does not let us in, and trying again does not help. Who was armed before asks now and hears the
            // reason; else they would sleep until the holder's lease ends.
            for channel in channels {
                self.signals.wake_one(&channel);
            }
        }
    }

    /// Whether the connection's task should go on. If not, it has ended with this answer.
    pub(in super::super) fn goes_on(&self, session: &Arc<Session>) -> bool {
        let mut state = self.lock();
        let needed = !state.closed
            && (state.books.all().any(|entry| entry.is_on(session)) || !session.todo().is_empty());
        if !needed {
            state.sessions.retain(|own| !Arc::ptr_eq(own, session));
        }
        needed
    }
}
