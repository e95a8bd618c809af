//! Sentinels: who the primary is now. All are asked at once, and asked again and again: a message about a failover may
//! never arrive, and an old primary that is cut off goes on answering as if nothing had happened.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Notify;

use super::errors::unsent;
use super::gate::{Entry, Finder, Gate};
use super::link::{Home, Link};
use super::place::{self, Place};
use super::reply::Reply;
use super::request::Request;
use crate::backend::{Background, BoxFuture, Moment, Timers, TlsFiles};
use crate::error::{Error, ErrorKind, Result};

/// How often the sentinels are asked while the client lives.
const LOOK: Duration = Duration::from_millis(500);

/// Every how many looks they are asked who else there is.
const LEARN_EVERY: u32 = 20;

/// The most sentinels that are asked.
const MOST: usize = 16;

/// How long the others are waited for when one sentinel has answered: it may be the one that is cut off.
const OTHERS: Duration = Duration::from_millis(100);

/// The sentinels of one service.
pub(super) struct Sentinel {
    who: place::Sentinels,
    /// Those of the URL, and what they have told of others.
    known: RwLock<Vec<(Place, Link)>>,
    tls: TlsFiles,
    background: Background,
    timers: Timers,
    limit: Duration,
    /// Where the primary was last.
    current: Mutex<Option<Place>>,
    /// Rung when there is a reason to look at once.
    pub(super) look: Arc<Notify>,
    closed: AtomicBool,
    /// How many failovers the best word so far knew of.
    newest: AtomicI64,
}

/// What one sentinel says. The larger is to be believed.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Word {
    /// Counts failovers; one that is cut off has missed the last.
    epoch: i64,
    /// It names another than it did: a failover is about to be finished.
    promoted: bool,
    host: String,
    port: u16,
}

impl Sentinel {
    pub(super) fn new(
        who: place::Sentinels,
        tls: &TlsFiles,
        background: &Background,
        timers: &Timers,
        limit: Duration,
    ) -> Self {
        let sentinel = Self {
            known: RwLock::default(),
            who,
            tls: tls.clone(),
            background: background.clone(),
            timers: timers.clone(),
            limit,
            current: Mutex::default(),
            look: Arc::default(),
            closed: AtomicBool::new(false),
            newest: AtomicI64::new(0),
        };
        for place in &sentinel.who.places {
            sentinel.add(place.clone());
        }
        sentinel
    }

    fn add(&self, place: Place) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST || known.iter().any(|(other, _)| *other == place) {
            return;
        }
        let entry = Entry {
            user: self.who.user.clone(),
            password: self.who.password.clone(),
            tls: self.tls.clone(),
            ..Entry::default()
        };
        let finder = Finder::Fixed(place.clone());
        let gate = Gate::new(finder, entry, self.timers.clone(), self.limit);
        let home = Home::Background(self.background.clone());
        known.push((place, Link::new(Arc::new(gate), home)));
    }

    fn known(&self) -> Vec<(Place, Link)> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.clone()
    }

    /// Asks who else watches the service: those of the URL may all go one day.
    async fn learn(&self) {
        let end = self.timers.now() + OTHERS;
        let request = Request::new("SENTINEL")
            .arg("SENTINELS")
            .arg(&self.who.service);
        for (asked, link) in self.known() {
            let said = link.ask(&request, end).await.ok();
            let others = said.as_ref().and_then(Reply::list).unwrap_or_default();
            for other in others.iter().map(fields) {
                let host = other.get("ip").map(|&host| host.to_owned());
                let port = other.get("port").and_then(|port| port.parse().ok());
                if let Some((host, port)) = host.zip(port) {
                    let tls = asked.is_tls();
                    self.add(Place::Tcp { host, port, tls });
                }
            }
        }
    }

    /// Where the primary is, by the best word that can be had.
    pub(super) fn find(&self) -> BoxFuture<'_, Result<Place>> {
        // Behind a pointer: a sentinel's own connections are made by a gate too.
        Box::pin(async move {
            // Half of it: there is still a primary to connect to.
            let mut end = self.timers.now() + self.limit / 2;
            let known = self.known();
            let each = known.iter().map(|(place, link)| self.ask(place, link, end));
            let mut asked: FuturesUnordered<_> = each.collect();
            let (mut best, mut troubles, mut strangers) = (None, Vec::new(), 0);
            let mut words = 0;
            while let Some(Some(said)) = self.timers.until(end, asked.next()).await {
                match said {
                    Ok(Some(word)) => {
                        words += 1;
                        best = best.max(Some(word));
                        end = end.min(self.timers.now() + OTHERS);
                    }
                    Ok(None) => strangers += 1,
                    Err(error) => troubles.push(error),
                }
            }
            drop(asked);
            match best {
                // Those that answer have missed a failover that others told of. When it is most of them they are right all
                // the same: somebody has set up the sentinels anew.
                Some(Word { epoch, .. })
                    if epoch < self.newest.load(Ordering::SeqCst) && words * 2 <= known.len() =>
                {
                    Err(unsent(format_args!(
                        "the sentinels {} that answer have missed the last failover",
                        place::short(&self.who.places)
                    )))
                }
                Some(Word {
                    host, port, epoch, ..
                }) => {
                    self.newest.store(epoch, Ordering::SeqCst);
                    let tls = self.who.places.iter().any(Place::is_tls);
                    Ok(Place::Tcp { host, port, tls })
                }
                None if strangers > 0 => Err(self.unknown_service(strangers).await),
                None => Err(self.unreachable(&troubles)),
            }
        })
    }

    /// `None`: this one does not know the service.
    async fn ask(&self, place: &Place, link: &Link, end: Moment) -> Result<Option<Word>> {
        let ask = |what: &str| Request::new("SENTINEL").arg(what).arg(&self.who.service);
        let (at, more) = (ask("GET-MASTER-ADDR-BY-NAME"), ask("MASTER"));
        let (at, more) = tokio::join!(link.ask(&at, end), link.ask(&more, end));
        let at = at.map_err(|error| explain(place, &error))?;
        let words: Vec<&str> = at
            .list()
            .unwrap_or_default()
            .iter()
            .filter_map(Reply::text)
            .collect();
        let [host, port] = words[..] else {
            return Ok(None);
        };
        let port = port
            .parse()
            .map_err(|_| unsent(format_args!("{place}: {port:?} is no port")))?;
        // What the rights forbid to see is left out.
        let (epoch, before) = more.ok().as_ref().map(details).unwrap_or_default();
        Ok(Some(Word {
            epoch,
            promoted: before.is_some_and(|before| before != (host.to_owned(), port)),
            host: host.to_owned(),
            port,
        }))
    }

    /// The primary is at that place now. True: it was at another before.
    pub(super) fn note(&self, place: &Place) -> bool {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref() == Some(place) {
            return false;
        }
        current.replace(place.clone()).is_some()
    }

    /// The primary was at that place last.
    pub(super) fn is_at(&self, place: &Place) -> bool {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref() == Some(place)
    }

    /// Names those that are known, as far as they may be seen.
    async fn unknown_service(&self, strangers: usize) -> Error {
        let end = self.timers.now() + OTHERS;
        let mut known = Vec::new();
        for (_, link) in self.known() {
            let masters = link
                .ask(&Request::new("SENTINEL").arg("MASTERS"), end)
                .await;
            let masters = masters.ok();
            let each = masters.as_ref().and_then(Reply::list).unwrap_or_default();
            let names = each
                .iter()
                .filter_map(|one| fields(one).get("name").copied());
            known.extend(names.map(str::to_owned));
        }
        known.sort();
        known.dedup();
        let known = match &known[..] {
            [] => String::new(),
            known => format!("; they know {}", known.join(", ")),
        };
        // One that was reset or has lost its settings must not end a client that has worked until now.
        let never = self.current.lock().is_ok_and(|current| current.is_none());
        let kind = if never && strangers == self.known().len() {
            ErrorKind::InvalidOptions
        } else {
            ErrorKind::Unavailable
        };
        let (hosts, service) = (place::short(&self.who.places), &self.who.service);
        Error::new(kind).because(format!(
            "the sentinels {hosts} know no service {service:?}{known}"
        ))
    }

    fn unreachable(&self, troubles: &[Error]) -> Error {
        let kind = match troubles {
            [first, ..] if troubles.iter().all(|one| one.kind() == first.kind()) => first.kind(),
            _ => ErrorKind::Unavailable,
        };
        // Nothing of it has reached a server that has locks.
        let kind = match kind {
            ErrorKind::OutcomeUnknown => ErrorKind::Unavailable,
            kind => kind,
        };
        let each: Vec<&str> = troubles.iter().filter_map(Error::detail).collect();
        Error::new(kind).because(format!(
            "no sentinel of {} could be asked: {}",
            self.who,
            if each.is_empty() {
                "no answer".to_owned()
            } else {
                each.join("; ")
            }
        ))
    }

    /// Ends the connections to the sentinels; nobody looks any more.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.look.notify_one();
        for (_, link) in self.known() {
            link.close();
        }
    }
}

/// Looks again and again where the primary is, until the client has gone. When it is at another place, all connections
/// are left.
pub(super) async fn follow(gate: Weak<Gate>, timers: Timers) {
    for round in 0_u32.. {
        let look = {
            let Some(gate) = gate.upgrade() else { return };
            let Some(sentinel) = gate.sentinel() else {
                return;
            };
            match sentinel.find().await {
                Ok(place) if sentinel.note(&place) => {
                    tracing::info!(primary = %place, service = %sentinel.who.service, "the sentinels name another primary");
                    gate.leave();
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "the sentinels cannot be asked"),
            }
            if round % LEARN_EVERY == 0 {
                sentinel.learn().await;
            }
            if sentinel.closed.load(Ordering::SeqCst) {
                // Once more: this look has perhaps connected anew.
                return sentinel.close();
            }
            Arc::clone(&sentinel.look)
        };
        // The gate is not kept meanwhile, because the client may go.
        timers.after(LOOK / 20).await;
        timers.limit(LOOK, look.notified()).await;
    }
}

/// Number of failovers, and where the primary was before one that is under way.
pub(super) fn details(master: &Reply) -> (i64, Option<(String, u16)>) {
    let fields = fields(master);
    let epoch = fields
        .get("config-epoch")
        .and_then(|epoch| epoch.parse().ok());
    let host = fields.get("ip").map(|&host| host.to_owned());
    let port = fields.get("port").and_then(|port| port.parse().ok());
    (epoch.unwrap_or_default(), host.zip(port))
}

/// Names and values, in turn.
fn fields(reply: &Reply) -> HashMap<&str, &str> {
    let words = reply.list().unwrap_or_default();
    let pairs = words.chunks_exact(2);
    pairs
        .filter_map(|pair| Some((pair[0].text()?, pair[1].text()?)))
        .collect()
}

fn explain(place: &Place, error: &Error) -> Error {
    let detail = error.detail().unwrap_or_default();
    let advice = if detail.contains("unknown command") {
        "it is no sentinel; the port may be the server's own: "
    } else if error.kind() == ErrorKind::Refused {
        "sentinels have users of their own, sentinel_user and sentinel_password: "
    } else {
        ""
    };
    let place = place.to_string();
    let detail = detail.strip_prefix(&place).unwrap_or(detail);
    let detail = detail.trim_start_matches([':', ' ']);
    Error::new(error.kind()).because(format!("{place}: {advice}{detail}"))
}

impl fmt::Display for Sentinel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.who.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(epoch: i64, promoted: bool, port: u16) -> Word {
        let host = "h".to_owned();
        Word {
            epoch,
            promoted,
            host,
            port,
        }
    }

    #[test]
    fn who_has_seen_more_failovers_is_believed() {
        let stale = word(3, false, 9);
        let fresh = word(4, false, 1);
        let about_to = word(3, true, 1);
        assert!(fresh > stale && about_to > stale && fresh > about_to);
    }
}
