//! The subscriber beside a server that confirms each command at once, in simulated time.

use futures_util::FutureExt;
use tokio::task::yield_now;

use super::*;
use crate::store::redis::keys::fair_channel;
use crate::store::redis::keys::turns::turn_channel;
use crate::store::redis::pubsub::registry::{PubSubConnection, PubSubTask};
use crate::store::redis::topology::tests::endpoint_to;
use crate::store::redis::wire::reply::Push;
use crate::store::redis::wire::tests::loopback;
use crate::store::{BoxFuture, Name, ready};
use crate::types::OwnerMint;

const LIMIT: Duration = Duration::from_secs(1);

/// The server begins to count a process so long after it was asked to.
const COUNTS_AFTER: Duration = Duration::from_millis(50);

/// The channel of a lock.
const LOCK: &str = "redisson_lock__channel:{stock}";

/// The task of a connection whose server confirms each command.
fn confirming(
    registry: Arc<SubscriptionRegistry>,
    session: Arc<PubSubConnection>,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        while !registry.is_closed() {
            for command in session.orders() {
                if command.own {
                    registry.timers().after(COUNTS_AFTER).await;
                }
                let (form, channel) = (command.of.form, command.channel.to_string());
                let push = if command.of.ends {
                    Push::Unsubscribed(form, channel)
                } else {
                    Push::Subscribed(form, channel)
                };
                registry.on_push(&session, push);
            }
            session.notify.notified().await;
        }
    })
}

/// The task of a connection whose server does not answer.
fn silent(_: Arc<SubscriptionRegistry>, _: Arc<PubSubConnection>) -> BoxFuture<'static, ()> {
    ready(())
}

fn subscriber(modes: PublishModes, task: PubSubTask) -> Subscriber {
    let (endpoint, background) = endpoint_to(loopback(1), LIMIT);
    let signals = WakeChannels::new(endpoint.timers.clone(), |_| {});
    let router = ChannelRouter::One(endpoint);
    let of_registry = signals.clone();
    let registry = SubscriptionRegistry::new(modes.forms(), router, of_registry, background, task);
    Subscriber {
        registry: Arc::new(registry),
        signals,
    }
}

/// Lets the tasks of the connections run.
async fn settle() {
    for _ in 0..4 {
        yield_now().await;
    }
}

/// The time that a future takes, and its output.
async fn timed<T>(subscriber: &Subscriber, future: impl Future<Output = T>) -> (Duration, T) {
    let timers = subscriber.registry.timers();
    let begun = timers.now();
    let output = future.await;
    (timers.now().since(begun), output)
}

#[test]
fn the_scripts_are_told_how_to_publish() {
    for (modes, settled, word) in [
        (PublishModes::Plain, false, "publish"),
        (PublishModes::Sharded, false, "spublish"),
        (PublishModes::Auto, false, "settling"),
        (PublishModes::Auto, true, "auto"),
        (PublishModes::Both, true, "both"),
    ] {
        assert_eq!(modes.word(settled), word);
    }
    for (form, words) in [
        (MessageForm::Plain, ["CHANNELS", "PUBLISH", "numsub"]),
        (
            MessageForm::Sharded,
            ["SHARDCHANNELS", "SPUBLISH", "shardnumsub"],
        ),
    ] {
        assert_eq!([form.lists(), form.command(), form.counts()], words);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wake_is_armed_once_the_server_has_confirmed_the_subscription() {
    let on = subscriber(PublishModes::Auto, confirming);
    let (x, y) = (|| "x".to_owned(), || "y".to_owned());
    assert!(on.arm_if_live(x).is_none() && on.releases_seen(x).is_none());
    assert!(!on.is_live(x) && !on.listens("x") && on.is_deaf(x));
    let mut wake = on.arm("x", LIMIT).await.unwrap();
    assert!(on.is_live(x) && on.listens("x") && !on.is_deaf(x));
    assert!(!on.is_live(y) && !on.listens("y") && on.is_deaf(y));
    assert_eq!(on.releases_seen(x).map(|seen| seen.count), Some(0));
    assert!(on.arm_if_live(x).is_some());
    on.wake("x");
    assert!(wake.woken().now_or_never().is_some());
    // It waits only if there is something to wait for.
    assert!(on.subscribe("y", LIMIT).await && !on.subscribe("y", LIMIT).await);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_confirms_nothing_is_waited_for_until_the_limit() {
    let on = subscriber(PublishModes::Plain, silent);
    let (waited, wake) = timed(&on, on.arm("x", LIMIT)).await;
    assert!(wake.is_none());
    assert!((LIMIT..LIMIT * 2).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_process_without_a_waiter_can_listen_until_it_needs_it_no_more() {
    let on = subscriber(PublishModes::Plain, confirming);
    on.listen("x");
    settle().await;
    assert!(on.listens("x"));
    on.end("x");
    settle().await;
    assert!(!on.listens("x") && on.registry.is_empty());
}

#[tokio::test(start_paused = true)]
async fn waiters_for_a_fair_lock_share_the_channel_of_their_turns() {
    let on = subscriber(PublishModes::Plain, confirming);
    let (mint, name) = (OwnerMint::new(), Name::new("stock").unwrap());
    let owners = [mint.fresh(), mint.fresh()];
    let turns = turn_channel(&name, owners[0].client());
    let mut wakes = Vec::new();
    for owner in &owners {
        let waiter = fair_channel(&name, owner.text());
        wakes.extend(on.arm_for_turn(&turns, &waiter, LIMIT).await);
    }
    assert_eq!(wakes.len(), 2);
    assert_eq!(on.registry.sharing(&turns).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_doctor_learns_whether_the_server_counts_its_subscription() {
    let on = subscriber(PublishModes::Plain, confirming);
    let (waited, is_counted) = timed(&on, on.is_counted(LOCK, LIMIT)).await;
    assert!(is_counted && waited >= COUNTS_AFTER && waited < LIMIT);
    // It is no channel of a lock.
    let (waited, is_counted) = timed(&on, on.is_counted("x", LIMIT)).await;
    assert!(!is_counted && waited < LIMIT);
    let on = subscriber(PublishModes::Plain, silent);
    assert!(!on.is_counted(LOCK, LIMIT).await);
}

/// The outcome of a release with so many listeners, of which so many are of tidelock.
fn freed(on: &Subscriber, channel: &str, all: i64, ours: Option<i64>, heard: u64) -> Released {
    let last = on.registry.timers().now();
    let before = (heard > 0).then_some(ReleasesSeen { count: heard, last });
    on.freed(channel, Listeners { all, ours }, before)
}

fn awaited(others: u32, foreign: u32, releases_seen: u64) -> Released {
    Released::Awaited(Awaited {
        others,
        foreign,
        polled: false,
        releases_seen,
    })
}

#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_listen_counts_all_listeners_as_others() {
    let on = subscriber(PublishModes::Auto, silent);
    assert_eq!(freed(&on, LOCK, 0, Some(0), 0), Released::Freed);
    assert_eq!(freed(&on, LOCK, 2, Some(2), 0), awaited(2, 0, 0));
    assert!(on.registry.is_empty(), "tidelock's waiters need no help");
    assert_eq!(freed(&on, LOCK, 3, Some(1), 0), awaited(3, 2, 0));
    // Foreign clients take the lock before its next waiter comes.
    assert!(!on.registry.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_process_that_listens_does_not_count_itself_among_the_others() {
    let on = subscriber(PublishModes::Auto, confirming);
    let _wake = on.arm(LOCK, LIMIT).await.unwrap();
    // It hears both forms and is not among those of tidelock yet, so nobody is taken for a foreign client.
    assert_eq!(freed(&on, LOCK, 6, Some(3), 7), awaited(4, 0, 8));
    assert!(on.is_counted(LOCK, LIMIT).await);
    for (all, ours, expected) in [
        (6, Some(3), awaited(5, 3, 8)),
        (3, Some(3), awaited(2, 0, 8)),
        (1, Some(1), Released::Freed),
        (0, Some(0), Released::Freed),
        // An old server counts the subscribers of the plain form only.
        (6, None, awaited(5, 0, 8)),
    ] {
        assert_eq!(freed(&on, LOCK, all, ours, 7), expected, "{all} {ours:?}");
    }
}

#[tokio::test]
async fn a_subscriber_that_is_closed_or_dropped_subscribes_to_nothing() {
    let on = subscriber(PublishModes::Plain, silent);
    on.close();
    assert!(on.registry.is_closed() && !on.subscribe("x", LIMIT).await);
    let on = subscriber(PublishModes::Plain, silent);
    let registry = Arc::clone(&on.registry);
    drop(on);
    assert!(registry.is_closed());
}
