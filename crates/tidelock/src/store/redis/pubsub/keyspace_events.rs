//! Keyspace events: they wake the waiters of a plain lock when its key is deleted or expires.
//!
//! Events are off by default, and the server may lose them. So a waiter that is subscribed to them also polls, less
//! often. We ask the server for its setting, cache the reply for a while, and ask again after each reconnect.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::error::Result;
use crate::store::redis::keys;
use crate::store::redis::pubsub::channel_router::ChannelRouter;
use crate::store::redis::pubsub::subscriber::{Subscriber, released};
use crate::store::redis::recent_holders::RecentHolders;
use crate::store::redis::topology::connection::Connection;
use crate::store::redis::topology::endpoint::Endpoint;
use crate::store::redis::topology::router::Router;
use crate::store::redis::wire::errors::allowed;
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::wire::request::Request;
use crate::store::{AttemptRequest, Awaited, BootInstant, Name, Released, ReleasesSeen, Wake};

/// The poll interval of a waiter with a subscription. It bounds the delay after a lost message.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long we trust the cached setting. An operator may change it at any time.
const BELIEVED: Duration = Duration::from_secs(30);

/// How long a release trusts that events are off. Until it asks again, it counts no listeners, and a process that releases
/// in a loop leaves no turn to them.
const BELIEVED_OFF: Duration = Duration::from_secs(1);

/// After how many releases a process asks for the setting. One that releases rarely and never waits does not.
const RELEASES: u32 = 100;

/// The name of the server's setting.
const SETTING: &str = "notify-keyspace-events";

/// The wakes of waiters for plain locks, by keyspace events.
pub(crate) struct KeyspaceEvents {
    db: i64,
    channel_router: ChannelRouter,
    subscriber: Arc<Subscriber>,
    /// The names that a foreign client held recently, and when. More such clients may poll for a name, and no server
    /// counts them.
    foreign_holders: RecentHolders,
}

impl KeyspaceEvents {
    pub(crate) fn new(db: i64, channel_router: ChannelRouter, subscriber: Arc<Subscriber>) -> Self {
        Self {
            db,
            foreign_holders: RecentHolders::new(channel_router.timers().clone()),
            channel_router,
            subscriber,
        }
    }

    /// Records the holder that a request has seen, if it is a foreign client.
    pub(crate) fn saw(&self, name: &Name, owner: &Reply) {
        if owner.text().and_then(keys::owner_client).is_none() {
            self.foreign_holders.saw(name);
        }
    }

    /// The channel of a lock's events for a release, unless we know that the server does not publish them. A process that
    /// never waits may not know the setting. Other processes may wait all the same, and it must count them; otherwise
    /// they starve.
    pub(crate) fn channel(&self, name: &Name) -> Option<String> {
        let channel = keys::events(self.db, name);
        let now = self.channel_router.timers().now();
        let endpoint = self.channel_router.of(&channel)?;
        let may_be_on = settings(&endpoint).count_release(endpoint.connects(), now);
        may_be_on.then_some(channel)
    }

    /// Whether this process does not know the setting, and has released so many locks that it should ask for it.
    pub(crate) fn should_ask(&self, name: &Name) -> bool {
        let endpoint = self.channel_router.of(&keys::events(self.db, name));
        let now = self.channel_router.timers().now();
        endpoint.is_some_and(|endpoint| settings(&endpoint).should_ask(endpoint.connects(), now))
    }

    /// Reads the setting of the server that has the lock, for later releases.
    pub(crate) async fn ask_setting(&self, name: &Name, router: &Router) {
        let channel = keys::events(self.db, name);
        if let Some(endpoint) = self.channel_router.of(&channel) {
            let (settings, now) = (settings(&endpoint), self.channel_router.timers().now());
            settings.doubt(endpoint.connects(), now);
            self.find_out(&endpoint, name, router, router.limit() / 4)
                .await;
        }
    }

    /// The release messages of a lock that have arrived.
    pub(crate) fn releases_seen(&self, name: &Name) -> Option<ReleasesSeen> {
        self.subscriber
            .releases_seen(|| keys::events(self.db, name))
    }

    /// The outcome of a release that reached this many listeners. `before`: the messages that had arrived before it, or
    /// `None` if this process is not subscribed.
    pub(crate) fn freed(
        &self,
        name: &Name,
        listeners: i64,
        before: Option<ReleasesSeen>,
    ) -> Released {
        let us = i64::from(before.is_some());
        released(Awaited {
            others: u32::try_from((listeners - us).max(0)).unwrap_or(u32::MAX),
            foreign: 0,
            polled: self.foreign_holders.is_recent(name),
            releases_seen: before.map_or(0, |before| before.count + 1),
        })
    }

    /// Subscribes to a lock's events, if the server publishes them. A process that leaves turns to polling clients
    /// learns in this way when they release.
    pub(crate) async fn listen(&self, name: &Name, router: &Router) {
        let channel = keys::events(self.db, name);
        let Some(endpoint) = self.channel_router.of(&channel) else {
            return;
        };
        let limit = router.limit() / 4;
        self.find_out(&endpoint, name, router, limit).await;
        if settings(&endpoint).are_on() {
            self.subscriber.listen(&channel);
        }
    }

    /// An armed wake. `None`: the request has one already, or the server publishes no events. A request without
    /// patience never subscribes: it uses a live subscription or none.
    pub(crate) async fn wake_for(&self, ask: &AttemptRequest, router: &Router) -> Option<Wake> {
        if ask.patience.is_zero() {
            let channel = || keys::events(self.db, &ask.ticket.name);
            return (ask.armed_by.is_none())
                .then(|| self.subscriber.arm_if_live(channel))
                .flatten();
        }
        // Boxed, because few requests need it.
        Box::pin(self.arm(ask, router)).await
    }

    async fn arm(&self, ask: &AttemptRequest, router: &Router) -> Option<Wake> {
        let channel = keys::events(self.db, &ask.ticket.name);
        let endpoint = self.channel_router.of(&channel)?;
        // At most half of the limit for the subscription and a quarter for the setting, because the script needs the rest.
        let limit = ask.time_to_arm(router.limit() / 2);
        let name = &ask.ticket.name;
        self.find_out(&endpoint, name, router, limit / 2).await;
        if ask.armed_by.is_some() || !settings(&endpoint).are_on() {
            return None;
        }
        self.subscriber.arm(&channel, limit).await
    }

    /// Reads the server's setting, unless the cache is fresh or another request is reading it.
    async fn find_out(&self, endpoint: &Endpoint, name: &Name, router: &Router, limit: Duration) {
        let timers = self.channel_router.timers();
        let (settings, life) = (settings(endpoint), endpoint.connects());
        if !settings.begin(life, timers.now(), router.limit()) {
            return;
        }
        let request = Request::new("CONFIG").arg("GET").arg(SETTING);
        let asked = router.ask(name.as_str(), &request, router.deadline());
        // Without a reply we learn nothing; the script that follows reports the error.
        let Some(answer) = timers.limit(limit, asked).await else {
            return;
        };
        let learned = match allowed(answer) {
            Ok(Some(reply)) => {
                let flags = reply.list().and_then(|reply| reply.get(1)?.text());
                if flags.is_some_and(suffice) {
                    EventFlags::On
                } else {
                    EventFlags::Off
                }
            }
            Ok(None) => EventFlags::Forbidden,
            Err(_) => return,
        };
        // A reply from before the latest connection may describe another server, so we discard it.
        if endpoint.connects() == life {
            settings.end(life, learned, timers.now());
        }
    }

    /// See [`HearReleases::poll_interval`](crate::store::HearReleases::poll_interval).
    pub(crate) fn pause(&self, name: &Name) -> Option<Duration> {
        let channel = keys::events(self.db, name);
        let told = self.subscriber.listens(&channel)
            && settings(&*self.channel_router.of(&channel)?).are_on();
        told.then_some(POLL_INTERVAL)
    }

    /// Whether the server permits a subscription to the events of that name.
    pub(crate) async fn can_listen(&self, name: &Name, limit: Duration) -> bool {
        let channel = keys::events(self.db, name);
        self.subscriber.arm(&channel, limit).await.is_some()
    }

    pub(crate) fn close(&self) {
        self.subscriber.close();
    }
}

/// The server's event flags. `None`: the server does not permit us to read them.
pub(crate) async fn setting(connection: &Connection) -> Result<Option<String>> {
    let request = Request::new("CONFIG").arg("GET").arg(SETTING);
    let reply = allowed(connection.ask(&request, connection.deadline()).await)?;
    Ok(reply.and_then(|reply| reply.list()?.get(1)?.text().map(str::to_owned)))
}

/// Whether these flags enable the deletion and the expiry events on the channel of a key.
pub(crate) fn suffice(flags: &str) -> bool {
    let has = |flag| flags.contains(flag);
    has('K') && (has('A') || (has('g') && has('x')))
}

/// Whether that event means that the key no longer exists.
pub(crate) fn frees(event: &[u8]) -> bool {
    matches!(
        event,
        b"del" | b"expired" | b"evicted" | b"rename_from" | b"move_from"
    )
}

/// The cached event setting of the server behind an endpoint.
fn settings(endpoint: &Endpoint) -> Arc<EventSettings> {
    endpoint.attachments.get()
}

#[derive(Debug, Default)]
struct EventSettings(Mutex<EventSettingsState>);

/// What the server says about its events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum EventFlags {
    #[default]
    Off,
    On,
    /// The user may not read it. Other users may, and wait for the events.
    Forbidden,
}

#[derive(Debug, Default)]
struct EventSettingsState {
    flags: EventFlags,
    /// A request is reading the setting, or has failed to. Until one succeeds, the events may be on.
    asking: bool,
    /// The releases since one asked for the setting.
    releases: u32,
    /// The connection count of the endpoint when the cache was refreshed. After another connect it has expired,
    /// because the server may be another one.
    life: u64,
    /// When the cache expires otherwise. `None`: it was never refreshed.
    until: Option<BootInstant>,
    /// Until when a release trusts that events are off.
    off_until: Option<BootInstant>,
}

impl EventSettingsState {
    fn is_fresh(&self, life: u64, now: BootInstant) -> bool {
        self.life == life && self.until.is_some_and(|until| now < until)
    }

    /// Whether a release knows the setting.
    fn is_known(&self, life: u64, now: BootInstant) -> bool {
        let is_old = self.flags == EventFlags::Off && self.off_until.is_none_or(|end| now >= end);
        self.is_fresh(life, now) && !self.asking && !is_old
    }
}

impl EventSettings {
    fn lock(&self) -> MutexGuard<'_, EventSettingsState> {
        self.0.lock()
    }

    /// Whether events are on, as far as we know.
    fn are_on(&self) -> bool {
        self.lock().flags == EventFlags::On
    }

    /// Whether events are on, or we do not know. Counts the release that wants to know it.
    fn count_release(&self, life: u64, now: BootInstant) -> bool {
        let mut known = self.lock();
        known.releases = known.releases.saturating_add(1);
        known.flags != EventFlags::Off || !known.is_known(life, now)
    }

    /// `true` once in so many releases, unless the setting is known.
    fn should_ask(&self, life: u64, now: BootInstant) -> bool {
        let mut known = self.lock();
        let should_ask = known.releases >= RELEASES && !known.is_known(life, now);
        if should_ask {
            known.releases = 0;
        }
        should_ask
    }

    /// The next refresh begins although the cache is fresh, unless one is under way or a release knows the setting.
    fn doubt(&self, life: u64, now: BootInstant) {
        let mut known = self.lock();
        if !known.asking && !known.is_known(life, now) {
            known.until = None;
        }
    }

    /// Starts a refresh, unless the cache is fresh. No other caller starts one within `limit`.
    fn begin(&self, life: u64, now: BootInstant, limit: Duration) -> bool {
        let mut known = self.lock();
        if known.is_fresh(life, now) {
            return false;
        }
        (known.asking, known.life, known.until) = (true, life, Some(now + limit));
        true
    }

    /// Ends the refresh that began with `life`, unless one has begun after a later connect.
    fn end(&self, life: u64, flags: EventFlags, now: BootInstant) {
        let mut known = self.lock();
        if known.life != life {
            return;
        }
        (known.flags, known.asking) = (flags, false);
        known.until = Some(match flags {
            // We do not ask again before the next connection: each refusal adds an entry to the server's ACL log.
            EventFlags::Forbidden => BootInstant::FAR,
            EventFlags::On | EventFlags::Off => now + BELIEVED,
        });
        known.off_until = Some(now + BELIEVED_OFF);
    }
}

#[cfg(test)]
mod tests;
