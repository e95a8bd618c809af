//! What the registry knows: the entry of each channel, and the pub/sub connection of each server.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::sync::{Notify, oneshot};

use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::store::BootInstant;
use crate::store::redis::topology::endpoint::Endpoint;
use crate::store::redis::wire::pipeline::Subscription;
use crate::store::redis::wire::reply::MessageForm;

#[derive(Default)]
pub(crate) struct RegistryState {
    pub(crate) channels: ChannelTable,
    /// One pub/sub connection per server.
    pub(crate) sessions: Vec<Arc<PubSubConnection>>,
    /// The channels of turns with a waiter, and the channels of these waiters. Changed in `turns.rs`.
    pub(crate) turns: HashMap<Arc<str>, HashSet<Arc<str>>>,
    pub(crate) closed: bool,
    /// The server refused the subscription by which it counts us. We do not retry before this moment.
    pub(crate) uncounted_until: Option<BootInstant>,
}

/// The entries of each form, by channel.
#[derive(Default)]
pub(crate) struct ChannelTable([HashMap<Arc<str>, Channel>; 2]);

/// The pub/sub connection to one server, as the registry sees it.
pub(crate) struct PubSubConnection {
    pub(crate) endpoint: Arc<Endpoint>,
    /// The commands to send, oldest first.
    todo: Mutex<Vec<SubscribeCommand>>,
    /// Notified when a command is queued, and on close.
    pub(crate) notify: Notify,
}

/// A SUBSCRIBE or UNSUBSCRIBE command to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SubscribeCommand {
    pub(crate) of: Subscription,
    pub(crate) channel: Arc<str>,
    /// The channel is the one by which the server counts tidelock's waiters, see `own.rs`.
    pub(crate) own: bool,
}

pub(crate) struct Channel {
    pub(crate) phase: ChannelPhase,
    pub(crate) session: Arc<PubSubConnection>,
    /// Callers that wait for the confirmation. Invariant: empty unless the phase is pending.
    pub(crate) callers: Vec<oneshot::Sender<()>>,
    /// Since when the channel has had no waiter. `None`: it has one, as far as we know.
    pub(crate) idle_since: Option<BootInstant>,
    /// UNSUBSCRIBE commands of ours on this connection without a confirmation.
    pub(crate) leaving: u32,
    /// Messages may have been missed. The next confirmation wakes one waiter, which asks the store.
    pub(crate) missed: bool,
    /// A waiter was woken because the lost subscription could not be had again at once. It polls until the next
    /// confirmation.
    pub(crate) told: bool,
    pub(crate) own: OwnChannel,
    /// Plain form only: we have received a plain message, and its duplicate in the sharded form may follow.
    pub(crate) twin: bool,
    /// How many release messages arrived on this channel, and when the last one did.
    pub(crate) releases_seen: u64,
    pub(crate) last: BootInstant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChannelPhase {
    /// SUBSCRIBE is queued or sent.
    Pending,
    /// SUBSCRIBE is confirmed: every message arrives.
    Live,
    /// UNSUBSCRIBE is queued or sent.
    Leaving,
    /// The server refused SUBSCRIBE. We do not retry before this moment.
    Refused(BootInstant),
}

impl ChannelTable {
    pub(crate) fn of(&self, form: MessageForm) -> &HashMap<Arc<str>, Channel> {
        &self.0[form as usize]
    }

    pub(crate) fn of_mut(&mut self, form: MessageForm) -> &mut HashMap<Arc<str>, Channel> {
        &mut self.0[form as usize]
    }

    pub(crate) fn get(&self, form: MessageForm, channel: &str) -> Option<&Channel> {
        self.of(form).get(channel)
    }

    pub(crate) fn get_mut(&mut self, form: MessageForm, channel: &str) -> Option<&mut Channel> {
        self.of_mut(form).get_mut(channel)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.iter().map(HashMap::len).sum()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Channel> {
        self.0.iter().flat_map(HashMap::values)
    }

    /// The channels that this connection serves.
    pub(crate) fn on(&self, form: MessageForm, session: &Arc<PubSubConnection>) -> Vec<Arc<str>> {
        let mine = self.of(form).iter().filter(|(_, one)| one.is_on(session));
        mine.map(|(channel, _)| Arc::clone(channel)).collect()
    }
}

impl Channel {
    pub(crate) fn is_on(&self, session: &Arc<PubSubConnection>) -> bool {
        Arc::ptr_eq(&self.session, session)
    }

    pub(crate) fn queue_command(&self, form: MessageForm, ends: bool, channel: &Arc<str>) {
        self.session.queue_command(SubscribeCommand {
            of: Subscription { form, ends },
            channel: Arc::clone(channel),
            own: false,
        });
    }
}

impl PubSubConnection {
    pub(crate) fn new(endpoint: Arc<Endpoint>) -> Self {
        Self {
            endpoint,
            todo: Mutex::default(),
            notify: Notify::new(),
        }
    }

    pub(crate) fn queue_command(&self, queue_command: SubscribeCommand) {
        self.todo().push(queue_command);
        self.notify.notify_one();
    }

    pub(crate) fn todo(&self) -> MutexGuard<'_, Vec<SubscribeCommand>> {
        self.todo.lock()
    }

    /// Takes the commands to send.
    pub(crate) fn orders(&self) -> Vec<SubscribeCommand> {
        std::mem::take(&mut *self.todo())
    }
}

/// Whether the server counts this process among tidelock's waiters for a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnChannel {
    Out,
    Joining,
    In,
}

/// The part of this process in the server's counts, as far as we know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListenerCount {
    /// In how many forms it is subscribed.
    pub(crate) forms: i64,
    /// Whether it is on the counting channel. `None`: unknown, because it is not confirmed yet.
    pub(crate) own: Option<bool>,
}

impl ListenerCount {
    /// This process is not subscribed.
    pub(crate) const NOWHERE: Self = Self {
        forms: 0,
        own: Some(false),
    };
}
