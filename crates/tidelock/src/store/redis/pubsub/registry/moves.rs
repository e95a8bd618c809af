//! Changes of subscriptions over time: unused ones end, and others move to another connection or are lost with theirs.

use std::sync::Arc;
use std::time::Duration;

use crate::store::BootInstant;
use crate::store::redis::keys::turns::is_of_turns;
use crate::store::redis::pubsub::registry::SubscriptionRegistry;
use crate::store::redis::pubsub::registry::state::{
    ChannelPhase, OwnChannel, PubSubConnection, RegistryState,
};
use crate::store::redis::wire::reply::MessageForm;

/// How long a subscription stays live after its last waiter has left, for the next waiter.
pub(super) const IDLE_SUBSCRIPTION_LIFETIME: Duration = Duration::from_millis(2500);

/// The result of the sweep for one channel.
enum ChannelCheck {
    Stays,
    Gone,
    /// Another server serves it now.
    Astray,
}

impl SubscriptionRegistry {
    /// Subscribes again, at the server that serves the channel now, if this connection has served it until now.
    pub(crate) fn again(
        self: &Arc<Self>,
        session: &Arc<PubSubConnection>,
        form: MessageForm,
        channel: &str,
    ) {
        let mut state = self.lock();
        if state
            .channels
            .get(form, channel)
            .is_some_and(|entry| entry.is_on(session))
        {
            self.part(&mut state, channel);
            self.moved(&mut state, form, channel);
            self.count(&state);
        }
    }

    /// As [`again`](Self::again), after a temporary refusal, if the channel is still pending.
    pub(crate) fn retry(
        self: &Arc<Self>,
        session: &Arc<PubSubConnection>,
        form: MessageForm,
        channel: &str,
    ) {
        let pending = {
            let state = self.lock();
            let entry = state.channels.get(form, channel);
            entry.is_some_and(|entry| entry.phase == ChannelPhase::Pending)
        };
        if pending {
            self.again(session, form, channel);
        }
    }

    /// Moves the entry to the server that serves the channel now, and queues a SUBSCRIBE there, unless the last one was
    /// refused a short while ago. Removes the entry if it has no waiter and no caller.
    ///
    /// A refused one must not stay behind: if its server is gone for good, no sweep removes it, and for its sake the task
    /// of the connection would try to connect as long as the client lives.
    fn moved(self: &Arc<Self>, state: &mut RegistryState, form: MessageForm, channel: &str) {
        let Some((channel, mut entry)) = state.channels.of_mut(form).remove_entry(channel) else {
            return;
        };
        entry.callers.retain(|caller| !caller.is_closed());
        if !self.is_watched(state, &channel) && entry.callers.is_empty() {
            return;
        }
        entry.leaving = 0;
        (entry.own, entry.twin) = (OwnChannel::Out, false);
        // If no server has the slot, the entry stays on its old connection until a sweep finds the new server.
        if let Some(session) = self.session_for(state, &channel) {
            entry.session = session;
        }
        if !matches!(entry.phase, ChannelPhase::Refused(_)) {
            entry.missed |= entry.phase == ChannelPhase::Live;
            entry.phase = ChannelPhase::Pending;
            entry.queue_command(form, false, &channel);
        }
        state.channels.of_mut(form).insert(channel, entry);
    }

    /// Unsubscribes channels that have had no waiter for a while, and moves channels that another server serves now.
    /// Returns `false` if this connection has no channel left.
    pub(crate) fn sweep(self: &Arc<Self>, session: &Arc<PubSubConnection>) -> bool {
        let now = self.timers().now();
        let mut state = self.lock();
        let (mut astray, mut left) = (Vec::new(), false);
        for &form in self.forms {
            for channel in state.channels.on(form, session) {
                match self.look_at(&mut state, form, &channel, now) {
                    ChannelCheck::Stays => left = true,
                    ChannelCheck::Gone => drop(state.channels.of_mut(form).remove(&channel)),
                    ChannelCheck::Astray => {
                        left = true;
                        astray.push((form, channel));
                    }
                }
            }
        }
        self.count(&state);
        drop(state);
        // After the lock, because `follow` takes it.
        for (form, channel) in astray {
            self.follow(session, form, &channel);
        }
        left
    }

    /// Moves a channel to the server that serves it now.
    fn follow(
        self: &Arc<Self>,
        session: &Arc<PubSubConnection>,
        form: MessageForm,
        channel: &Arc<str>,
    ) {
        let mut state = self.lock();
        self.part(&mut state, channel);
        if form == MessageForm::Plain
            && let Some(entry) = state.channels.get(form, channel)
            && entry.is_on(session)
        {
            // The server ends a sharded subscription itself when the slot leaves. A plain one must be unsubscribed.
            entry.queue_command(form, true, channel);
        }
        drop(state);
        self.again(session, form, channel);
        self.wake(channel);
    }

    fn look_at(
        &self,
        state: &mut RegistryState,
        form: MessageForm,
        channel: &Arc<str>,
        now: BootInstant,
    ) -> ChannelCheck {
        let watched = self.is_watched(state, channel);
        let Some(entry) = state.channels.get_mut(form, channel) else {
            return ChannelCheck::Gone;
        };
        if watched {
            entry.idle_since = None;
            if matches!(entry.phase, ChannelPhase::Refused(until) if now >= until) {
                // The waiter armed its wake before the refusal and does not call `subscribe` again, so we retry for it.
                entry.phase = ChannelPhase::Pending;
                entry.missed = true;
                entry.queue_command(form, false, channel);
            }
            let here = self.channel_router.of(channel);
            return match here {
                Some(endpoint) if !Arc::ptr_eq(&endpoint, &entry.session.endpoint) => {
                    ChannelCheck::Astray
                }
                _ => {
                    // The server may have refused to count us until now, so we try again.
                    self.join(state, channel, now);
                    ChannelCheck::Stays
                }
            };
        }
        match entry.phase {
            ChannelPhase::Live
                if now.since(*entry.idle_since.get_or_insert(now))
                    >= IDLE_SUBSCRIPTION_LIFETIME =>
            {
                self.leave(state, form, channel);
                ChannelCheck::Stays
            }
            ChannelPhase::Refused(until) if now >= until => ChannelCheck::Gone,
            _ => ChannelCheck::Stays,
        }
    }

    /// Ends a live subscription.
    fn leave(&self, state: &mut RegistryState, form: MessageForm, channel: &Arc<str>) {
        self.part(state, channel);
        if let Some(entry) = state.channels.get_mut(form, channel) {
            entry.phase = ChannelPhase::Leaving;
            entry.leaving += 1;
            entry.queue_command(form, true, channel);
        }
    }

    /// Ends the subscription to a channel that nobody will wait on again. The sweep ends one that is not live yet.
    pub(crate) fn end(&self, channel: &str) {
        if self.is_empty() {
            return;
        }
        let mut state = self.lock();
        for &form in self.forms {
            let known = state.channels.of(form).get_key_value(channel);
            let live = known.filter(|(_, entry)| entry.phase == ChannelPhase::Live);
            if let Some(channel) = live.map(|(channel, _)| Arc::clone(channel))
                && !self.is_watched(&state, &channel)
            {
                self.leave(&mut state, form, &channel);
            }
        }
    }

    /// Records that the server refused an UNSUBSCRIBE. No confirmation follows; if we kept waiting for it, no later
    /// SUBSCRIBE would count as confirmed. Messages that still arrive wake nobody.
    pub(crate) fn stuck(
        &self,
        session: &Arc<PubSubConnection>,
        form: MessageForm,
        channel: &Arc<str>,
    ) {
        let mut state = self.lock();
        let Some(entry) = state.channels.get_mut(form, channel) else {
            return;
        };
        if !entry.is_on(session) {
            return;
        }
        entry.leaving = entry.leaving.saturating_sub(1);
        match entry.phase {
            ChannelPhase::Leaving if entry.leaving == 0 => {
                state.channels.of_mut(form).remove(channel);
                self.count(&state);
            }
            // The channel is wanted again, and we may have ignored the confirmation of the new SUBSCRIBE as an older
            // one. We send SUBSCRIBE once more to get another confirmation.
            ChannelPhase::Pending => entry.queue_command(form, false, channel),
            _ => {}
        }
    }

    /// Whether the server has confirmed a subscription on this connection.
    pub(crate) fn was_served(&self, session: &Arc<PubSubConnection>) -> bool {
        let state = self.lock();
        let mut own = state.channels.all().filter(|entry| entry.is_on(session));
        own.any(|entry| matches!(entry.phase, ChannelPhase::Live | ChannelPhase::Leaving))
    }

    /// Records that the connection is lost: no subscription is live and messages may have been missed. Subscribes again
    /// to the channels that still have a waiter or a caller.
    ///
    /// The waiters of a channel whose last subscription was lost too, before the server had confirmed it, do not know that
    /// they hear nothing: they were armed before. We wake one of them, once, and it polls.
    pub(crate) fn disconnected(self: &Arc<Self>, session: &Arc<PubSubConnection>) {
        let (mut state, mut untold) = (self.lock(), Vec::new());
        for &form in self.forms {
            for channel in state.channels.on(form, session) {
                if let Some(entry) = state.channels.get_mut(form, &channel)
                    && entry.phase == ChannelPhase::Pending
                    && entry.missed
                    && !std::mem::replace(&mut entry.told, true)
                {
                    untold.push(channel);
                }
            }
        }
        drop(state);
        self.subscribe_again(session);
        // The beat wakes the waiters for fair locks, in their order, and only when the lock is free.
        for channel in untold.iter().filter(|channel| !is_of_turns(channel)) {
            self.wake(channel);
        }
    }

    /// Queues a SUBSCRIBE for each channel of a lost connection, at the server that serves it now.
    pub(crate) fn subscribe_again(self: &Arc<Self>, session: &Arc<PubSubConnection>) {
        // Discard the commands for the lost connection. `moved` queues new ones.
        session.orders();
        let mut state = self.lock();
        for &form in self.forms {
            for channel in state.channels.on(form, session) {
                self.moved(&mut state, form, &channel);
            }
        }
        self.count(&state);
    }

    /// Records that no connection can be opened. The callers stop waiting and poll.
    pub(crate) fn unreachable(
        self: &Arc<Self>,
        session: &Arc<PubSubConnection>,
        why: &crate::Error,
    ) {
        let mut state = self.lock();
        let channels: Vec<Arc<str>> = self
            .forms
            .iter()
            .flat_map(|form| state.channels.on(*form, session))
            .collect();
        let mut callers = Vec::new();
        for form in self.forms {
            for entry in state.channels.of_mut(*form).values_mut() {
                if entry.is_on(session) {
                    callers.append(&mut entry.callers);
                }
            }
        }
        drop(state);
        drop(callers); // after the lock, because it wakes them
        self.complain(why);
        self.channel_router.doubt();
        self.disconnected(session);
        if !why.is_retryable() {
            // The server rejects us, and a retry does not help. We wake one waiter per channel: its attempt returns the
            // reason. Otherwise it would sleep until the holder's lease expires.
            for channel in channels {
                self.wake(&channel);
            }
        }
    }

    /// Whether the connection's task continues. On `false` the connection is already removed, and the task must end.
    pub(crate) fn goes_on(&self, session: &Arc<PubSubConnection>) -> bool {
        let mut state = self.lock();
        let needed = !state.closed
            && (state.channels.all().any(|entry| entry.is_on(session))
                || !session.todo().is_empty());
        if !needed {
            // Under the lock of the check above. Otherwise a channel that is added in between would have no task.
            state.sessions.retain(|own| !Arc::ptr_eq(own, session));
        }
        needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, ErrorKind};
    use crate::store::redis::pubsub::channel_router::ChannelRouter;
    use crate::store::redis::pubsub::subscriber::PublishModes;
    use crate::store::redis::topology::cluster::Cluster;
    use crate::store::redis::topology::endpoint::EndpointLogin;
    use crate::store::redis::wire::reply::Push;
    use crate::store::redis::wire::tests::loopback;
    use crate::store::{Background, Clock, Timers, WakeChannels};

    #[test]
    fn a_refused_subscription_does_not_stay_at_a_node_that_is_gone() {
        let (background, _stop) = Background::start(Clock::Boot).unwrap();
        let (timers, limit) = (Timers::new(Clock::Boot), Duration::from_secs(1));
        let signals = WakeChannels::new(timers.clone(), |_| {});
        let (seeds, entry) = (vec![loopback(1)], EndpointLogin::default());
        let cluster = Cluster::new(seeds, entry, background.clone(), timers, limit, limit);
        let cluster = Arc::new(cluster);
        let channel_router = ChannelRouter::Cluster(Arc::clone(&cluster));
        let forms = PublishModes::Auto.forms();
        let registry =
            SubscriptionRegistry::new(forms, channel_router, signals, background, |_, _| {
                Box::pin(std::future::ready(()))
            });
        let registry = Arc::new(registry);

        // `watched` has a waiter, and is refused in the sharded form only. `idle` is refused in both, and nobody waits.
        cluster.give_all_slots(&loopback(1));
        for channel in ["watched", "idle"] {
            for &form in forms {
                drop(registry.subscribe(form, channel));
            }
        }
        let old = Arc::clone(registry.lock().sessions.first().unwrap());
        let refusal = Error::new(ErrorKind::Refused);
        registry.on_push(
            &old,
            Push::Subscribed(MessageForm::Plain, "watched".to_owned()),
        );
        registry.refused(&old, MessageForm::Sharded, "watched", &refusal);
        for &form in forms {
            registry.refused(&old, form, "idle", &refusal);
        }
        let _wake = registry.arm_if_any("watched").unwrap();

        cluster.give_all_slots(&loopback(2));
        registry.disconnected(&old);
        assert!(!registry.goes_on(&old), "nothing needs the old node");
        let state = registry.lock();
        let phase = |form| {
            let entry = state.channels.get(form, "watched").unwrap();
            assert!(!entry.is_on(&old));
            entry.phase
        };
        assert!(phase(MessageForm::Plain) == ChannelPhase::Pending);
        assert!(matches!(
            phase(MessageForm::Sharded),
            ChannelPhase::Refused(_)
        ));
        let idle = forms
            .iter()
            .filter_map(|form| state.channels.get(*form, "idle"));
        assert_eq!(idle.count(), 0);
    }
}
