//! Wakes waiters through subscriptions, on connections of the steward's runtime. A connection for scripts never
//! subscribes, because a push message could be mistaken for the reply to a script.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::store::redis::pubsub::channel_router::ChannelRouter;
use crate::store::redis::pubsub::connection;
use crate::store::redis::pubsub::registry::{
    ListenerCount, SubscribeOutcome, SubscriptionRegistry,
};
use crate::store::redis::wire::reply::MessageForm;
use crate::store::{Awaited, Background, Released, ReleasesSeen, Wake, WakeChannels};

/// How a release is published. A single server has only the plain form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PublishModes {
    Plain,
    Sharded,
    /// Sharded, and also plain while a client listens that hears only plain messages.
    Auto,
    /// Every release in both forms.
    Both,
}

/// The option for the scripts: in the sharded form, and in the plain form too if a client of that server hears only that.
pub(crate) const AUTO: &str = "auto";

/// The option for the scripts: in both forms, because listeners may be at another server, where they are not counted.
pub(crate) const SETTLING: &str = "settling";

impl PublishModes {
    /// The option for the scripts. `settled`: subscribers have had time to follow the slot map.
    pub(crate) fn word(self, settled: bool) -> &'static str {
        match self {
            Self::Plain => "publish",
            Self::Sharded => "spublish",
            Self::Auto if settled => AUTO,
            Self::Auto => SETTLING,
            Self::Both => "both",
        }
    }

    /// The forms to which we subscribe, and in which a release may be published.
    pub(crate) fn forms(self) -> &'static [MessageForm] {
        match self {
            Self::Plain => &[MessageForm::Plain],
            Self::Sharded => &[MessageForm::Sharded],
            Self::Auto | Self::Both => &[MessageForm::Plain, MessageForm::Sharded],
        }
    }
}

impl MessageForm {
    /// The subcommand of `PUBSUB` that lists channels with subscribers.
    pub(crate) fn lists(self) -> &'static str {
        match self {
            Self::Plain => "CHANNELS",
            Self::Sharded => "SHARDCHANNELS",
        }
    }

    pub(crate) fn command(self) -> &'static str {
        match self {
            Self::Plain => "PUBLISH",
            Self::Sharded => "SPUBLISH",
        }
    }

    /// The subcommand of `PUBSUB` that counts the subscribers.
    pub(crate) fn counts(self) -> &'static str {
        match self {
            Self::Plain => "numsub",
            Self::Sharded => "shardnumsub",
        }
    }
}

/// The polling interval of the doctor while it waits for a subscription.
const DOCTOR_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Creates wakes for channels of the server.
pub(crate) struct Subscriber {
    registry: Arc<SubscriptionRegistry>,
    signals: WakeChannels,
}

/// The number of waiters, as the server counted them at the release.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listeners {
    pub(crate) all: i64,
    /// The waiters of tidelock. `None`: the server did not count them.
    pub(crate) ours: Option<i64>,
}

impl Subscriber {
    pub(crate) fn new(
        channel_router: &ChannelRouter,
        ways: PublishModes,
        background: &Background,
    ) -> Self {
        let registry: Arc<std::sync::OnceLock<std::sync::Weak<SubscriptionRegistry>>> =
            Arc::default();
        let idle = Arc::clone(&registry);
        let signals = WakeChannels::new(channel_router.timers().clone(), move |channel| {
            if let Some(registry) = idle.get().and_then(std::sync::Weak::upgrade) {
                registry.idle(channel);
            }
        });
        let (channel_router, background) = (channel_router.clone(), background.clone());
        let made = SubscriptionRegistry::new(
            ways.forms(),
            channel_router,
            signals.clone(),
            background,
            |registry, session| Box::pin(connection::run(registry, session)),
        );
        let made = Arc::new(made);
        registry.get_or_init(|| Arc::downgrade(&made));
        Self {
            registry: made,
            signals,
        }
    }

    /// A wake on a channel that is subscribed already; sends nothing.
    pub(crate) fn arm_if_live(&self, channel: impl FnOnce() -> String) -> Option<Wake> {
        if self.registry.is_empty() {
            return None;
        }
        self.registry.arm_if_settled(&channel())
    }

    /// A wake on a channel; subscribes first if necessary. `None`: there is no subscription, so the caller polls.
    pub(crate) async fn arm(&self, channel: &str, limit: Duration) -> Option<Wake> {
        self.subscribe(channel, limit).await;
        self.registry.arm_if_any(channel)
    }

    /// A wake for a waiter for a fair lock. It is woken by messages on the channel of its turns, to which we subscribe
    /// first if necessary, and on its own channel, if that is subscribed. `None`: there is no subscription.
    pub(crate) async fn arm_for_turn(
        &self,
        turns: &str,
        waiter: &str,
        limit: Duration,
    ) -> Option<Wake> {
        // The subscription may end after the look at it.
        if self.is_live(|| turns.to_owned())
            && let Some(wake) = self.registry.arm_for_turn(turns, waiter)
        {
            return Some(wake);
        }
        // Boxed, because most waiters find the subscription of others.
        Box::pin(self.subscribe(turns, limit)).await;
        self.registry.arm_for_turn(turns, waiter)
    }

    /// Subscribes to a channel, unless it is live. Waits until the server has confirmed it or has refused. `false`: there
    /// was nothing to wait for.
    pub(crate) async fn subscribe(&self, channel: &str, limit: Duration) -> bool {
        let mut pending = Vec::new();
        for &form in self.registry.forms() {
            if let SubscribeOutcome::Pending(subscribed) = self.registry.subscribe(form, channel) {
                pending.push(subscribed);
            }
        }
        let waits = !pending.is_empty();
        if waits {
            // We ignore errors here: a subscription was refused, or the connect failed. Then there is no wake.
            self.registry.timers().limit(limit, join_all(pending)).await;
        }
        waits
    }

    /// Whether a wake on the channel needs no SUBSCRIBE. Sends nothing.
    pub(crate) fn is_live(&self, channel: impl FnOnce() -> String) -> bool {
        !self.registry.is_empty() && self.registry.is_live(&channel())
    }

    /// Subscribes for a while even if no task of this process waits. Other clients take the lock before its next
    /// waiter comes, and this process must notice that.
    pub(crate) fn listen(&self, channel: &str) {
        for &form in self.registry.forms() {
            drop(self.registry.subscribe(form, channel));
        }
    }

    /// Ends the subscription to a channel that nobody will wait on again.
    pub(crate) fn end(&self, channel: &str) {
        self.registry.end(channel);
    }

    /// Wakes the waiter of a channel, as a message would.
    pub(crate) fn wake(&self, channel: &str) {
        self.signals.wake_one(channel);
    }

    /// Whether a release may come in a form that we cannot hear at the moment. The waiter must then poll. A wake that was
    /// armed while the subscription was live tells nothing: the server may have ended it since, and refused the next one.
    pub(crate) fn is_deaf(&self, channel: impl FnOnce() -> String) -> bool {
        !self.listens(&channel())
    }

    /// Whether the server would count this process as a tidelock waiter.
    pub(crate) async fn is_counted(&self, channel: &str, limit: Duration) -> bool {
        let Some(_wake) = self.arm(channel, limit).await else {
            return false;
        };
        let timers = self.registry.timers();
        let end = timers.now() + limit;
        while self.registry.counted(channel).own.is_none() && timers.now() < end {
            timers.after(DOCTOR_POLL_INTERVAL).await;
        }
        self.registry.counted(channel).own == Some(true)
    }

    /// Whether waiters on the channel hear all its messages.
    pub(crate) fn listens(&self, channel: &str) -> bool {
        !self.registry.is_empty() && self.registry.hears_all(channel)
    }

    /// The releases heard on a channel so far.
    pub(crate) fn releases_seen(&self, channel: impl FnOnce() -> String) -> Option<ReleasesSeen> {
        if self.registry.is_empty() {
            return None;
        }
        self.registry.releases_seen(&channel())
    }

    /// The outcome of a release with these listeners. `before`: the releases this process had heard before it.
    pub(crate) fn freed(
        &self,
        channel: &str,
        listeners: Listeners,
        before: Option<ReleasesSeen>,
    ) -> Released {
        let ListenerCount { forms, own } = if self.registry.is_empty() {
            ListenerCount::NOWHERE
        } else {
            self.registry.counted(channel)
        };
        let counts_us = i64::from(own == Some(true));
        // The script counts a process that listens in both forms, and on the counting channel, as one.
        let us = match listeners.ours {
            Some(_) => forms - counts_us * (forms - 1).max(0),
            None => forms.min(1),
        };
        let others = (listeners.all - us).max(0);
        // Without a reliable count of tidelock's waiters, we treat all as tidelock's. Otherwise tidelock processes
        // would take each other for foreign clients and delay their attempts without need.
        let counted = self.registry.counts_its_kind() && own == Some(forms > 0);
        let peers = match listeners.ours {
            Some(ours) if counted => (ours - counts_us).clamp(0, others),
            _ => others,
        };
        let awaited = Awaited {
            others: u32::try_from(others).unwrap_or(u32::MAX),
            foreign: u32::try_from(others - peers).unwrap_or(u32::MAX),
            polled: false,
            // If this process listens, it hears the message of this release too.
            releases_seen: before.map_or(0, |before| before.count) + u64::from(forms > 0),
        };
        if awaited.foreign > 0 {
            self.listen(channel);
        }
        released(awaited)
    }

    pub(crate) fn close(&self) {
        self.registry.close();
    }
}

pub(crate) fn released(awaited: Awaited) -> Released {
    if awaited.is_anybody() {
        Released::Awaited(awaited)
    } else {
        Released::Freed
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber")
            .field("signals", &self.signals)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
