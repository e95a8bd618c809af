//! The counting channel: a channel without messages, to which only tidelock's waiters subscribe, so that the server can
//! count them.
//!
//! A waiting process subscribes to a lock's channel in every form. The number of subscribers alone does not show
//! whether one of them, such as a Java service with Redisson, receives the plain form only; the number on the counting
//! channel does. Invariant: a process on the counting channel is subscribed in every form. Otherwise it would hide a
//! Java service, which would not get the plain message and would go on sleeping. So we subscribe to the counting
//! channel last and unsubscribe from it first, on the same connection.

use std::sync::Arc;

use crate::store::BootInstant;
use crate::store::redis::keys;
use crate::store::redis::pubsub::registry::state::{
    ChannelPhase, ListenerCount, OwnChannel, PubSubConnection, RegistryState, SubscribeCommand,
};
use crate::store::redis::pubsub::registry::{REFUSED_FOR, SubscriptionRegistry};
use crate::store::redis::wire::pipeline::Subscription;
use crate::store::redis::wire::reply::MessageForm;

impl SubscriptionRegistry {
    /// The form of the counting channel: the last one, which in a cluster is the form that moves with the slot.
    fn own_form(&self) -> MessageForm {
        self.forms.last().copied().unwrap_or(MessageForm::Plain)
    }

    fn order_own(session: &PubSubConnection, form: MessageForm, ends: bool, channel: &str) {
        if let Some(own) = keys::own_channel(channel) {
            session.queue_command(SubscribeCommand {
                of: Subscription { form, ends },
                channel: own.into(),
                own: true,
            });
        }
    }

    /// Whether this process may join. A process that is subscribed in the sharded form only must not: it would hide a
    /// client that receives only the plain form.
    fn may_be_counted(&self, state: &RegistryState, now: BootInstant) -> bool {
        let refused = state.uncounted_until.is_some_and(|until| now < until);
        self.forms.contains(&MessageForm::Plain) && !refused
    }

    /// Whether we may assume that other tidelock processes are counted. We assume that they have our settings and
    /// rights.
    pub(crate) fn counts_its_kind(&self) -> bool {
        self.may_be_counted(&self.lock(), self.timers().now())
    }

    /// Subscribes to the counting channel, if every form is live on one connection.
    pub(crate) fn join(&self, state: &mut RegistryState, channel: &str, now: BootInstant) {
        if !self.may_be_counted(state, now) || keys::own_channel(channel).is_none() {
            return;
        }
        let form = self.own_form();
        let Some(entry) = state.channels.get(form, channel) else {
            return;
        };
        let session = Arc::clone(&entry.session);
        let is_live = |form: &MessageForm| {
            let entry = state.channels.get(*form, channel);
            entry.is_some_and(|entry| entry.phase == ChannelPhase::Live && entry.is_on(&session))
        };
        if !self.forms.iter().all(is_live) {
            return;
        }
        if let Some(entry) = state.channels.get_mut(form, channel)
            && entry.own == OwnChannel::Out
        {
            entry.own = OwnChannel::Joining;
            Self::order_own(&session, form, false, channel);
        }
    }

    /// Unsubscribes from the counting channel. Callers must do this before they end or move any subscription to the
    /// lock's channel.
    pub(crate) fn part(&self, state: &mut RegistryState, channel: &str) {
        let form = self.own_form();
        if let Some(entry) = state.channels.get_mut(form, channel)
            && entry.own != OwnChannel::Out
        {
            entry.own = OwnChannel::Out;
            let session = Arc::clone(&entry.session);
            Self::order_own(&session, form, true, channel);
        }
    }

    /// Records the confirmation: the server counts this process.
    pub(crate) fn joined(&self, session: &Arc<PubSubConnection>, form: MessageForm, channel: &str) {
        if let Some(entry) = self.lock().channels.get_mut(form, channel)
            && entry.is_on(session)
            && entry.own == OwnChannel::Joining
        {
            entry.own = OwnChannel::In;
        }
    }

    /// Records that the server no longer counts this process. If we did not ask for this, the slot has moved; the
    /// lock's channel is then subscribed again at the new owner, and this channel after it.
    pub(crate) fn parted(&self, session: &Arc<PubSubConnection>, form: MessageForm, channel: &str) {
        if let Some(entry) = self.lock().channels.get_mut(form, channel)
            && entry.is_on(session)
            && entry.own == OwnChannel::In
        {
            entry.own = OwnChannel::Out;
        }
    }

    /// Records that the server does not count this process on a channel. Others then treat it as a foreign client, which
    /// costs one extra message per release. A later sweep tries it again.
    pub(crate) fn uncounted(&self, session: &Arc<PubSubConnection>, form: MessageForm, own: &str) {
        let mut state = self.lock();
        let channel = keys::channel_of_own(own);
        if let Some(entry) = channel.and_then(|channel| state.channels.get_mut(form, &channel))
            && entry.is_on(session)
        {
            entry.own = OwnChannel::Out;
        }
    }

    /// Joins no counting channel for a while: the user lacks the right, on all of them.
    pub(crate) fn pause_counting(&self) {
        let until = self.timers().now() + REFUSED_FOR;
        self.lock().uncounted_until = Some(until);
    }

    /// The part of this process in the server's counts for a channel.
    pub(crate) fn counted(&self, channel: &str) -> ListenerCount {
        let state = self.lock();
        let releases_seen = self.forms.iter().filter(|form| {
            let phase = state.channels.get(**form, channel).map(|entry| entry.phase);
            matches!(phase, Some(ChannelPhase::Live | ChannelPhase::Leaving))
        });
        let forms = i64::try_from(releases_seen.count()).unwrap_or(0);
        let own = state
            .channels
            .get(self.own_form(), channel)
            .map(|one| one.own);
        ListenerCount {
            forms,
            own: match own {
                Some(OwnChannel::In) => Some(true),
                Some(OwnChannel::Joining) => None,
                Some(OwnChannel::Out) | None => Some(false),
            },
        }
    }
}
