//! The task of the subscriptions on one server: it connects, sends the queued commands, pings the server, and
//! reconnects if the connection is lost.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::engine::runtime::backoff::RECONNECT;
use crate::store::BoxFuture;
use crate::store::redis::pubsub::registry::{
    PubSubConnection, SubscribeCommand, SubscriptionRegistry,
};
use crate::store::redis::topology::live_connection::LiveConnection;
use crate::store::redis::wire::errors::forbids;
use crate::store::redis::wire::reply::{MessageForm, Reply, RequestError};
use crate::store::redis::wire::request::Request;

/// How often the task drops unneeded channels and checks the connection.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// After this many checks, we send a PING.
const PING_EVERY: u32 = 6;

/// For how many checks an idle connection stays open for the next waiter.
const KEPT_IDLE: u32 = 60;

/// The pause before a subscription that failed for a temporary reason is retried.
const RESUBSCRIBE_PAUSE: Duration = Duration::from_millis(30);

/// A connection that lasts for so long is not one of many that the server closes at once.
const STEADY: Duration = Duration::from_secs(1);

/// Runs until no channel on this server is needed any more.
pub(crate) async fn run(registry: Arc<SubscriptionRegistry>, session: Arc<PubSubConnection>) {
    let mut failures = 0;
    while registry.goes_on(&session) {
        let (push_handler, own) = (Arc::clone(&registry), Arc::clone(&session));
        let push_handler = Arc::new(move |push| push_handler.on_push(&own, push));
        let end = session.endpoint.deadline();
        match session.endpoint.enter(Some(push_handler), end).await {
            Ok(conn) => {
                let opened = registry.timers().now();
                let is_lost = serve(&registry, &session, Arc::new(conn)).await.is_lost();
                let lasted = registry.timers().now().since(opened);
                let was_served = registry.was_served(&session);
                if is_lost {
                    registry.channel_router.doubt();
                }
                registry.disconnected(&session);
                let (counted, at_once) = after_connection(failures, lasted, was_served, is_lost);
                failures = counted;
                if at_once {
                    continue;
                }
            }
            Err(error) => registry.unreachable(&session, &error),
        }
        // Also after a connection that was opened: a server or a proxy may close each of them at its first SUBSCRIBE.
        let pause = RECONNECT.pause(failures);
        registry.channel_router.change(pause).await;
        failures += 1;
        // The slot map may have changed, so the channels may belong to another server now.
        registry.subscribe_again(&session);
    }
}

/// After a connection has ended: how many failures count from now on, and whether the next one is opened at once.
fn after_connection(
    failures: u32,
    lasted: Duration,
    was_served: bool,
    is_lost: bool,
) -> (u32, bool) {
    let is_steady = lasted >= STEADY;
    let failures = if is_steady || was_served { 0 } else { failures };
    (failures, is_steady || !is_lost)
}

/// The outcome of a command.
enum Sent {
    Done,
    Refused(MessageForm, Arc<str>, crate::Error),
    /// The server rejects the UNSUBSCRIBE and still sends messages of this channel.
    Stuck(MessageForm, Arc<str>),
    /// The failure is temporary: subscribe again, here or on another server.
    Passing(MessageForm, Arc<str>),
    /// The server rejects the subscription by which tidelock's waiters are counted.
    Uncounted(MessageForm, Arc<str>),
    /// As [`Passing`](Self::Passing), for that subscription.
    NotYetCounted(MessageForm, Arc<str>),
    /// No reply: the connection can no longer be trusted.
    Lost,
}

/// Why a connection is closed.
enum End {
    Lost,
    Idle,
}

impl End {
    fn is_lost(&self) -> bool {
        matches!(self, Self::Lost)
    }
}

/// Serves one connection until it is lost or no longer needed.
async fn serve(
    registry: &Arc<SubscriptionRegistry>,
    session: &Arc<PubSubConnection>,
    conn: Arc<LiveConnection>,
) -> End {
    let timers = registry.timers();
    let mut calls: FuturesUnordered<BoxFuture<'_, Sent>> = FuturesUnordered::new();
    let mut look = timers.after(CHECK_INTERVAL);
    let (mut idle, mut looks) = (0, 0_u32);
    while !registry.is_closed() && conn.alive() {
        for command in session.orders() {
            calls.push(Box::pin(send(
                registry,
                session,
                Arc::clone(&conn),
                command,
            )));
        }
        tokio::select! {
            () = session.notify.notified() => {}
            () = conn.pipeline.end.notified() => return End::Lost,
            Some(sent) = calls.next(), if !calls.is_empty() => match sent {
                Sent::Done => {}
                Sent::Refused(form, channel, error) => {
                    registry.refused(session, form, &channel, &error);
                }
                Sent::Stuck(form, channel) => registry.stuck(session, form, &channel),
                Sent::Passing(form, channel) => registry.retry(session, form, &channel),
                Sent::Uncounted(form, own) => {
                    registry.pause_counting();
                    registry.uncounted(session, form, &own);
                }
                Sent::NotYetCounted(form, own) => registry.uncounted(session, form, &own),
                Sent::Lost => return End::Lost,
            },
            () = &mut look => {
                look = timers.after(CHECK_INTERVAL);
                idle = if registry.sweep(session) { 0 } else { idle + 1 };
                if idle > KEPT_IDLE {
                    return End::Idle;
                }
                looks = looks.wrapping_add(1);
                // We skip the PING while a command is in flight: its reply proves the same.
                if calls.is_empty() && looks % PING_EVERY == 0 {
                    calls.push(Box::pin(ping(session, Arc::clone(&conn))));
                }
            }
        }
    }
    if registry.is_closed() {
        End::Idle
    } else {
        End::Lost
    }
}

async fn send(
    registry: &SubscriptionRegistry,
    session: &PubSubConnection,
    conn: Arc<LiveConnection>,
    command: SubscribeCommand,
) -> Sent {
    let SubscribeCommand { of, channel, own } = command;
    let form = of.form;
    let sent = conn.subscription(of, &channel);
    let endpoint = &session.endpoint;
    let server_error = match endpoint.timers.limit(endpoint.limit, sent).await {
        Some(Ok(())) => return Sent::Done,
        Some(Err(RequestError::Server(server_error))) => server_error,
        Some(Err(RequestError::Broken(_))) | None => return Sent::Lost,
    };
    match (own, of.ends) {
        // We drop the connection, which ends the subscription. Otherwise we would still be counted, and other clients
        // would not get the message.
        (true, true) if forbids(&server_error).is_some() => Sent::Lost,
        // The slot has moved, and all counted subscriptions with it.
        (true, true) => Sent::Done,
        // One slot that moves, or a server that loads, must not make this process foreign on all other channels.
        (true, false) if registry.channel_router.learn(endpoint, &server_error) => {
            Sent::NotYetCounted(form, channel)
        }
        (true, false) => Sent::Uncounted(form, channel),
        (false, true) => Sent::Stuck(form, channel),
        (false, false) => {
            if registry.channel_router.learn(endpoint, &server_error) {
                endpoint.timers.after(RESUBSCRIBE_PAUSE).await;
                return Sent::Passing(form, channel);
            }
            Sent::Refused(form, channel, server_error.error())
        }
    }
}

/// Sends a PING: a half-open connection looks alive until we send something.
async fn ping(session: &PubSubConnection, conn: Arc<LiveConnection>) -> Sent {
    let endpoint = &session.endpoint;
    match endpoint
        .timers
        .limit(endpoint.limit, conn.ask(&Request::new("PING")))
        .await
    {
        Some(Ok(Reply::Text(_)) | Err(RequestError::Server(_))) => Sent::Done,
        Some(Ok(_) | Err(RequestError::Broken(_))) | None => Sent::Lost,
    }
}

#[cfg(test)]
mod tests;
