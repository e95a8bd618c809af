//! The registry beside connections that the test plays: it takes their commands, and says what their servers send.

mod counted;
mod lost;
mod messages;
mod turns;
mod unused;

use futures_util::FutureExt;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::advance;

use super::moves::IDLE_SUBSCRIPTION_LIFETIME;
use super::*;
use crate::error::{Error, ErrorKind};
use crate::store::redis::pubsub::subscriber::PublishModes;
use crate::store::redis::topology::cluster::Cluster;
use crate::store::redis::topology::endpoint::EndpointLogin;
use crate::store::redis::wire::reply::MessageForm::{Plain, Sharded};
use crate::store::redis::wire::reply::Push;
use crate::store::redis::wire::tests::{loopback, simulated};

/// The channel of a lock, and the one on which its waiters are counted.
const LOCK: &str = "redisson_lock__channel:{stock}";
const OWN: &str = "tidelock:waiting:{stock}";

const NANOSECOND: Duration = Duration::from_nanos(1);

/// A registry whose connections the test plays.
struct Played {
    registry: Arc<SubscriptionRegistry>,
    cluster: Arc<Cluster>,
}

impl Played {
    /// In a cluster of which one node has all slots, in simulated time.
    fn start(modes: PublishModes) -> Self {
        let ((background, timers), limit) = (simulated(), Duration::from_secs(1));
        let signals = WakeChannels::new(timers.clone(), |_| {});
        let (seeds, entry) = (vec![loopback(1)], EndpointLogin::default());
        let cluster = Cluster::new(seeds, entry, background.clone(), timers, limit, limit);
        let cluster = Arc::new(cluster);
        cluster.give_all_slots(&loopback(1));
        let router = ChannelRouter::Cluster(Arc::clone(&cluster));
        let registry =
            SubscriptionRegistry::new(modes.forms(), router, signals, background, |_, _| {
                Box::pin(std::future::ready(()))
            });
        Self {
            registry: Arc::new(registry),
            cluster,
        }
    }

    /// The connection that was opened last.
    fn connection(&self) -> Arc<PubSubConnection> {
        Arc::clone(self.registry.lock().sessions.last().unwrap())
    }

    /// A connection to the same server that serves no channel.
    fn stranger(&self) -> Arc<PubSubConnection> {
        let endpoint = Arc::clone(&self.connection().endpoint);
        Arc::new(PubSubConnection::new(endpoint))
    }

    /// Subscribes in every form. What waits for the confirmations.
    fn wants(&self, channel: &str) -> Vec<oneshot::Receiver<()>> {
        let forms = self.registry.forms().iter();
        let outcomes = forms.map(|form| self.registry.subscribe(*form, channel));
        let pending = outcomes.filter_map(|outcome| match outcome {
            SubscribeOutcome::Pending(subscribed) => Some(subscribed),
            SubscribeOutcome::Settled => None,
        });
        pending.collect()
    }

    /// The server confirms a SUBSCRIBE.
    fn confirms(&self, form: MessageForm, channel: &str) {
        let push = Push::Subscribed(form, channel.to_owned());
        self.registry.on_push(&self.connection(), push);
    }

    /// The server ends a subscription.
    fn ends(&self, form: MessageForm, channel: &str) {
        let push = Push::Unsubscribed(form, channel.to_owned());
        self.registry.on_push(&self.connection(), push);
    }

    /// The server sends a message.
    fn publishes(&self, form: MessageForm, channel: &str, payload: impl AsRef<[u8]>) {
        publishes_on(&self.registry, &self.connection(), form, channel, payload);
    }

    /// The channel is live in every form, and nobody waits for it yet.
    fn subscribed(&self, channel: &str) {
        drop(self.wants(channel));
        for &form in self.registry.forms() {
            self.confirms(form, channel);
        }
        self.connection().orders();
    }
}

fn publishes_on(
    registry: &Arc<SubscriptionRegistry>,
    connection: &Arc<PubSubConnection>,
    form: MessageForm,
    channel: &str,
    payload: impl AsRef<[u8]>,
) {
    let push = Push::Message {
        form,
        channel: channel.to_owned(),
        payload: payload.as_ref().to_vec(),
    };
    registry.on_push(connection, push);
}

/// The commands that a connection sends now.
fn sends(connection: &PubSubConnection) -> Vec<String> {
    let commands = connection.orders().into_iter();
    let texts = commands.map(|command| {
        let sharded = if command.of.form == Sharded { "S" } else { "" };
        let ends = if command.of.ends { "UN" } else { "" };
        format!("{sharded}{ends}SUBSCRIBE {}", command.channel)
    });
    texts.collect()
}

/// Whether the waiter was woken since the last look.
fn is_woken(wake: &mut Wake) -> bool {
    let is_woken = wake.woken().now_or_never().is_some();
    wake.answered();
    is_woken
}

#[tokio::test]
async fn a_channel_is_subscribed_to_once_and_wakes_once_it_is_live() {
    let on = Played::start(PublishModes::Auto);
    let registry = &on.registry;
    assert!(registry.is_empty());
    let mut first = on.wants("x");
    assert!(!registry.is_empty());
    let connection = on.connection();
    assert_eq!(sends(&connection), ["SUBSCRIBE x", "SSUBSCRIBE x"]);
    let mut second = on.wants("x");
    assert_eq!(second.len(), 2, "they wait for the same confirmations");
    assert!(sends(&connection).is_empty());
    assert!(registry.arm_if_any("x").is_none() && !registry.hears_all("x"));

    on.confirms(Plain, "x");
    assert!(registry.arm_if_any("x").is_some());
    assert!(registry.arm_if_settled("x").is_none());
    assert!(!registry.is_live("x") && !registry.hears_all("x"));
    assert!(registry.releases_seen("x").is_none());

    on.confirms(Sharded, "x");
    assert!(registry.arm_if_settled("x").is_some());
    assert!(registry.is_live("x") && registry.hears_all("x"));
    for waiting in first.iter_mut().chain(&mut second) {
        assert_eq!(waiting.try_recv(), Ok(()));
    }
    assert!(on.wants("x").is_empty() && sends(&connection).is_empty());
    drop(on.wants("y"));
    assert_eq!(registry.lock().sessions.len(), 1, "one for each server");
}

#[tokio::test(start_paused = true)]
async fn a_refused_subscription_is_tried_again_later_and_its_waiters_poll() {
    let on = Played::start(PublishModes::Plain);
    let refusal = Error::new(ErrorKind::Refused);
    let mut waiting = on.wants("x").remove(0);
    let connection = on.connection();
    connection.orders();
    let mut wake = on.registry.signals.arm("x");
    on.registry.refused(&on.stranger(), Plain, "x", &refusal);
    assert_eq!(waiting.try_recv(), Err(TryRecvError::Empty));
    on.registry.refused(&connection, Plain, "x", &refusal);
    assert_eq!(waiting.try_recv(), Err(TryRecvError::Closed));
    assert!(is_woken(&mut wake), "it may have missed a message");
    advance(REFUSED_FOR.saturating_sub(NANOSECOND)).await;
    assert!(on.wants("x").is_empty() && sends(&connection).is_empty());
    advance(NANOSECOND).await;
    assert_eq!(on.wants("x").len(), 1);
    assert_eq!(sends(&connection), ["SUBSCRIBE x"]);
}

#[tokio::test]
async fn a_connection_goes_on_as_long_as_it_has_a_channel_or_a_command() {
    let on = Played::start(PublishModes::Plain);
    on.subscribed("x");
    let (registry, connection) = (&on.registry, on.connection());
    assert!(registry.goes_on(&connection));
    registry.end("x");
    on.ends(Plain, "x");
    assert!(registry.is_empty() && registry.goes_on(&connection));
    assert_eq!(sends(&connection), ["UNSUBSCRIBE x"]);
    assert!(!registry.goes_on(&connection));
    drop(on.wants("x"));
    let next = on.connection();
    assert!(!Arc::ptr_eq(&connection, &next), "the old one has no task");
    assert_eq!(sends(&next), ["SUBSCRIBE x"]);
}

#[tokio::test]
async fn a_closed_registry_lets_its_callers_go_and_subscribes_to_nothing() {
    let on = Played::start(PublishModes::Plain);
    let (registry, mut waiting) = (&on.registry, on.wants("x").remove(0));
    let connection = on.connection();
    assert!(connection.notify.notified().now_or_never().is_some());
    assert!(!registry.is_closed());
    registry.close();
    assert!(registry.is_closed() && registry.is_empty());
    assert_eq!(waiting.try_recv(), Err(TryRecvError::Closed));
    assert!(on.wants("x").is_empty());
    let is_told = connection.notify.notified().now_or_never().is_some();
    assert!(is_told, "its task must end");
    assert!(!registry.goes_on(&connection), "although it has a command");
}
