//! Keyspace events: how whoever waits for a plain lock hears that its key has gone, where the server tells.
//!
//! They are off unless somebody has switched them on, and even then no promise: whoever listens looks now and then too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::doctor::allowed;
use super::gate::Gate;
use super::keys;
use super::link::Link;
use super::reply::Reply;
use super::request::Request;
use super::routes::Routes;
use super::stations::Stations;
use super::subscriber::{Subscriber, released};
use crate::backend::{Ask, Awaited, Heard, Moment, Name, Released, Wake};
use crate::error::Result;

/// How often a waiter looks that listens: what a message costs that is lost, at most.
const LOOK: Duration = Duration::from_secs(1);

/// How long it is believed that events are on or off: an operator may change that at any time.
const BELIEVED: Duration = Duration::from_secs(30);

/// The setting, by its name.
const SETTING: &str = "notify-keyspace-events";

/// A client that polls is assumed to be there for this long after it held the lock.
const STAYS: Duration = Duration::from_secs(10);

/// Wakes whoever waits for a key to go.
pub(super) struct Events {
    db: i64,
    stations: Stations,
    subscriber: Arc<Subscriber>,
    /// Names that a client other than tidelock held, and when. More such clients may poll for the name, and nobody counts them.
    strangers: Mutex<HashMap<Name, Moment>>,
}

impl Events {
    pub(super) fn new(db: i64, stations: Stations, subscriber: Arc<Subscriber>) -> Self {
        Self {
            db,
            stations,
            subscriber,
            strangers: Mutex::default(),
        }
    }

    /// That owner holds a lock.
    pub(super) fn saw(&self, name: &Name, owner: &Reply) {
        if owner.text().and_then(keys::owner_client).is_some() {
            return;
        }
        let now = self.stations.timers().now();
        let mut seen = self
            .strangers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        seen.retain(|_, at| now.since(*at) < STAYS);
        seen.insert(name.clone(), now);
    }

    fn is_polled(&self, name: &Name) -> bool {
        let now = self.stations.timers().now();
        let seen = self
            .strangers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        seen.get(name).is_some_and(|at| now.since(*at) < STAYS)
    }

    /// The channel of a lock's events, unless we know that the server does not publish them. A process that never waits never
    /// asks the server, and others may listen all the same: it must count them, otherwise they starve.
    pub(super) fn channel(&self, name: &Name) -> Option<String> {
        let channel = keys::events(self.db, name);
        let now = self.stations.timers().now();
        let events = &self.stations.of(&channel)?.events;
        events.may_be_on(now).then_some(channel)
    }

    /// What has been heard of the releases of a lock.
    pub(super) fn heard(&self, name: &Name) -> Option<Heard> {
        self.subscriber.heard(|| keys::events(self.db, name))
    }

    /// The outcome of a release to this many listeners. `before`: what this process had heard before it.
    pub(super) fn freed(&self, name: &Name, listeners: i64, before: Option<Heard>) -> Released {
        let us = i64::from(before.is_some());
        released(Awaited {
            others: u32::try_from((listeners - us).max(0)).unwrap_or(u32::MAX),
            strangers: 0,
            polled: self.is_polled(name),
            heard: before.map_or(0, |before| before.count + 1),
        })
    }

    /// Clients that poll get turns: from now on this process hears of them, if the server publishes events.
    pub(super) async fn listen(&self, name: &Name, routes: &Routes) {
        let channel = keys::events(self.db, name);
        let Some(gate) = self.stations.of(&channel) else {
            return;
        };
        self.find_out(&gate, name, routes).await;
        if gate.events.are_on() {
            self.subscriber.listen(&channel);
        }
    }

    /// A wake, armed from now on. `None`: it has one, or the server does not tell; who only asks causes no traffic.
    pub(super) async fn wake_for(&self, ask: &Ask, routes: &Routes) -> Option<Wake> {
        if ask.patience.is_zero() {
            let channel = || keys::events(self.db, &ask.ticket.name);
            return (!ask.armed)
                .then(|| self.subscriber.arm_if_live(channel))
                .flatten();
        }
        // Behind a pointer: few need it.
        Box::pin(self.arm(ask, routes)).await
    }

    async fn arm(&self, ask: &Ask, routes: &Routes) -> Option<Wake> {
        let channel = keys::events(self.db, &ask.ticket.name);
        let gate = self.stations.of(&channel)?;
        self.find_out(&gate, &ask.ticket.name, routes).await;
        if ask.armed || !gate.events.are_on() {
            return None;
        }
        // Half of the time: the script is to be answered too.
        self.subscriber.arm(&channel, routes.limit() / 2).await
    }

    /// Asks the server whether it tells, unless that is known or asked just now.
    async fn find_out(&self, gate: &Gate, name: &Name, routes: &Routes) {
        let timers = self.stations.timers();
        let Some(life) = gate.events.begin(timers.now(), routes.limit()) else {
            return;
        };
        let request = Request::new("CONFIG").arg("GET").arg(SETTING);
        let asked = routes.ask(name.as_str(), &request, routes.deadline());
        // A fraction of the time, and without an answer nothing is learned: the script says what is wrong.
        let Some(answer) = timers.limit(routes.limit() / 4, asked).await else {
            return;
        };
        let learned = match allowed(answer) {
            Ok(Some(reply)) => {
                let flags = reply.list().and_then(|reply| reply.get(1)?.text());
                (flags.is_some_and(suffice), timers.now() + BELIEVED)
            }
            // Asked again it would be refused again, and be in the log of the server's rights each time.
            Ok(None) => (false, Moment::FAR),
            Err(_) => return,
        };
        gate.events.end(life, learned);
    }

    /// See [`Backend::pause`](crate::backend::Backend::pause).
    pub(super) fn pause(&self, name: &Name) -> Option<Duration> {
        let channel = keys::events(self.db, name);
        let told = self.subscriber.listens(&channel) && self.stations.of(&channel)?.events.are_on();
        told.then_some(LOOK)
    }

    /// Whether a subscription to the events of that name is allowed.
    pub(super) async fn can_listen(&self, name: &Name, limit: Duration) -> bool {
        let channel = keys::events(self.db, name);
        self.subscriber.arm(&channel, limit).await.is_some()
    }

    pub(super) fn close(&self) {
        self.subscriber.close();
    }
}

/// What a server is set to tell. `None`: it does not let that be seen.
pub(super) async fn setting(link: &Link) -> Result<Option<String>> {
    let request = Request::new("CONFIG").arg("GET").arg(SETTING);
    let reply = allowed(link.ask(&request, link.deadline()).await)?;
    Ok(reply.and_then(|reply| reply.list()?.get(1)?.text().map(str::to_owned)))
}

/// Whether these letters make the server tell, on the channel of a key, that it was deleted and that it has expired.
pub(super) fn suffice(flags: &str) -> bool {
    let has = |flag| flags.contains(flag);
    has('K') && (has('A') || (has('g') && has('x')))
}

/// Whether the key has gone with that event.
pub(super) fn frees(event: &[u8]) -> bool {
    matches!(
        event,
        b"del" | b"expired" | b"evicted" | b"rename_from" | b"move_from"
    )
}

/// What is known of the events of the server behind a gate.
#[derive(Debug, Default)]
pub(super) struct Knowledge(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    on: bool,
    /// When it is to be asked again. `None`: now.
    until: Option<Moment>,
    /// Counts the connections: an answer that was given before the last of them may be another server's.
    life: u64,
}

impl Knowledge {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As far as is known.
    fn are_on(&self) -> bool {
        self.lock().on
    }

    /// They are on, or nobody has asked lately.
    fn may_be_on(&self, now: Moment) -> bool {
        let known = self.lock();
        known.on || known.until.is_none_or(|until| until <= now)
    }

    /// It may be otherwise now: it is to be asked again.
    pub(super) fn doubt(&self) {
        let mut known = self.lock();
        known.life += 1;
        known.until = None;
    }

    /// Whether the caller is to ask; no other is, within that time.
    fn begin(&self, now: Moment, limit: Duration) -> Option<u64> {
        let mut known = self.lock();
        if known.until.is_some_and(|until| now < until) {
            return None;
        }
        known.until = Some(now + limit);
        Some(known.life)
    }

    fn end(&self, life: u64, (on, until): (bool, Moment)) {
        let mut known = self.lock();
        if known.life == life {
            known.on = on;
            known.until = Some(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_in_which_a_key_goes_must_be_told() {
        for enough in ["AK", "KA", "gxK", "AKE", "Kgx$"] {
            assert!(suffice(enough), "{enough}");
        }
        for little in ["", "AE", "Kg", "Kx", "gxE", "K"] {
            assert!(!suffice(little), "{little}");
        }
    }

    #[test]
    fn only_what_frees_a_key_wakes() {
        for event in ["del", "expired", "evicted"] {
            assert!(frees(event.as_bytes()));
        }
        for event in ["set", "expire", "pexpire", "incrby", "", "1"] {
            assert!(!frees(event.as_bytes()));
        }
    }

    #[test]
    fn one_asks_and_what_was_said_before_a_new_connection_does_not_count() {
        let (known, at) = (Knowledge::default(), Moment::from_nanos);
        let limit = Duration::from_nanos(10);
        let life = known.begin(at(1), limit).unwrap();
        assert!(known.begin(at(5), limit).is_none() && !known.are_on());
        known.end(life, (true, at(50)));
        assert!(known.are_on() && known.begin(at(49), limit).is_none());
        // Its asker may have left.
        let old = known.begin(at(50), limit).unwrap();
        known.doubt();
        known.end(old, (false, Moment::FAR));
        assert!(known.are_on());
        let life = known.begin(at(51), limit).unwrap();
        known.end(life, (false, Moment::FAR));
        assert!(!known.are_on() && known.begin(at(1 << 60), limit).is_none());
    }
}
