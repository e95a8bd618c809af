//! Finds the primary by querying sentinels.
//!
//! It queries all sentinels at once, and the answer with the highest epoch wins. It repeats this regularly, because
//! the message about a failover may get lost, and a primary that is cut off continues to reply as before.

mod group;
mod known;
mod replies;

pub(crate) use crate::store::redis::topology::sentinel::replies::details;

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Notify;

use crate::engine::runtime::sync::Mutex;
use crate::error::{Error, ErrorKind, Result};
use crate::store::redis::address;
use crate::store::redis::address::HostAddress;
use crate::store::redis::topology::connection::{Connection, ConnectionRuntime};
use crate::store::redis::topology::endpoint::{
    Endpoint, EndpointLogin, PrimaryFinder, ServerFinder,
};
use crate::store::redis::topology::sentinel::group::SentinelGroup;
use crate::store::redis::topology::sentinel::known::{KnownSentinel, KnownSentinels};
use crate::store::redis::topology::sentinel::replies::{SentinelReply, explain, fields};
use crate::store::redis::wire::errors::unsent;
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::wire::request::Request;
use crate::store::{Background, BootInstant, BoxFuture, Timers, TlsFiles};
use crate::types::Escaped;

/// The interval between two queries to the sentinels.
const QUERY_INTERVAL: Duration = Duration::from_millis(500);

/// After this many queries, we also query for further sentinels of the service.
const LEARN_EVERY: u32 = 20;

/// How many queries in a row may ask for them if none is answered in time: the sentinels that the others know may be needed soon.
const LEARN_TRIES: u32 = 4;

/// How long we wait for the other sentinels after the first reply, which may come from a sentinel that is cut off.
const OTHERS: Duration = Duration::from_millis(100);

/// The sentinels of one service, and the primary they name.
pub(crate) struct Sentinel {
    who: address::Sentinels,
    known: KnownSentinels,
    tls: TlsFiles,
    background: Background,
    timers: Timers,
    limit: Duration,
    /// The last known address of the primary.
    current: Mutex<Option<HostAddress>>,
    /// Notified to query the sentinels at once.
    refresh: Arc<Notify>,
    closed: AtomicBool,
    /// The epoch of the last answer that we trusted.
    newest: AtomicI64,
}

impl Sentinel {
    pub(crate) fn new(
        who: address::Sentinels,
        tls: &TlsFiles,
        background: &Background,
        timers: &Timers,
        limit: Duration,
    ) -> Self {
        let sentinel = Self {
            known: KnownSentinels::default(),
            who,
            tls: tls.clone(),
            background: background.clone(),
            timers: timers.clone(),
            limit,
            current: Mutex::default(),
            refresh: Arc::default(),
            closed: AtomicBool::new(false),
            newest: AtomicI64::new(0),
        };
        for address in &sentinel.who.addresses {
            sentinel.add(address.clone(), None);
        }
        sentinel
    }

    /// `id`: the sentinel that others have named at this address.
    fn add(&self, address: HostAddress, id: Option<&str>) {
        if self.known.names(&address, id) {
            return;
        }
        let entry = EndpointLogin {
            user: self.who.user.clone(),
            password: self.who.password.clone(),
            tls: self.tls.clone(),
            ..EndpointLogin::default()
        };
        let finder = ServerFinder::Fixed(address.clone());
        let endpoint = Endpoint::new(finder, entry, self.timers.clone(), self.limit);
        let home = ConnectionRuntime::Background(self.background.clone());
        let connection = Connection::new(Arc::new(endpoint), home);
        let (is_named, now) = (self.who.addresses.contains(&address), self.timers.now());
        let new = KnownSentinel::new(address, connection, is_named, now).with_id(id);
        self.known.add(new, now);
    }

    /// Queries the sentinels for the others of the service: those of the URL may all be gone one day. `false`: none has
    /// answered.
    async fn learn(&self) -> bool {
        self.known.let_silent_go(self.timers.now(), self.limit);
        let request = Request::new("SENTINEL")
            .arg("SENTINELS")
            .arg(&self.who.service);
        let replies = self.ask_each(self.known.all(), &request).await;
        let has_learned = !replies.is_empty();
        for (asked, said) in replies {
            for other in said.list().unwrap_or_default().iter().map(fields) {
                let host = other.get("ip").map(|&host| host.to_owned());
                let port = other.get("port").and_then(|port| port.parse().ok());
                if let Some((host, port)) = host.zip(port) {
                    let tls = asked.address.is_tls();
                    let id = other.get("runid").copied();
                    self.add(HostAddress::Tcp { host, port, tls }, id);
                }
            }
        }
        has_learned
    }

    /// Sends a request to sentinels, and returns the replies that come soon after the first one.
    ///
    /// We ask all at once. One after the other, a silent one would use up the time, and the connections to those behind
    /// it would be dropped although they work.
    async fn ask_each(
        &self,
        sentinels: Vec<Arc<KnownSentinel>>,
        request: &Request,
    ) -> Vec<(Arc<KnownSentinel>, Reply)> {
        // A caller that looks for the primary has half of the limit behind it, and needs time to connect.
        let limit = self.timers.now() + self.limit / 4;
        let each = sentinels.into_iter().map(|sentinel| async move {
            let reply = sentinel.connection.ask(request, limit).await.ok()?;
            Some((sentinel, reply))
        });
        let replies = self.soon(limit, each, Option::is_some).await;
        replies.into_iter().flatten().collect()
    }

    /// What these futures return before the limit, and soon after the first result that is a `reply`.
    async fn soon<T>(
        &self,
        limit: BootInstant,
        each: impl Iterator<Item = impl Future<Output = T>>,
        reply: impl Fn(&T) -> bool,
    ) -> Vec<T> {
        let mut pending: FuturesUnordered<_> = each.collect();
        let (mut end, mut results) = (limit, Vec::new());
        while let Some(Some(result)) = self.timers.until(end, pending.next()).await {
            if reply(&result) {
                end = end.min(self.timers.now() + OTHERS);
            }
            results.push(result);
        }
        results
    }

    /// Queries one sentinel. `None`: it does not know the service.
    async fn ask(
        &self,
        sentinel: &KnownSentinel,
        end: BootInstant,
    ) -> Result<Option<(SentinelReply, SentinelGroup)>> {
        let (address, connection) = (&sentinel.address, &sentinel.connection);
        let ask = |what: &str| Request::new("SENTINEL").arg(what).arg(&self.who.service);
        let (at, more) = (ask("GET-MASTER-ADDR-BY-NAME"), ask("MASTER"));
        let (at, more) = (connection.ask(&at, end), connection.ask(&more, end));
        let (at, more, is_another) = tokio::join!(at, more, sentinel.is_another(end));
        let at = at.map_err(|error| explain(address, &error))?;
        if is_another {
            return Err(unsent(format_args!(
                "{address}: another sentinel than before"
            )));
        }
        sentinel.answered(self.timers.now());
        let args: Vec<&str> = at
            .list()
            .unwrap_or_default()
            .iter()
            .filter_map(Reply::text)
            .collect();
        let [host, port] = args[..] else {
            return Ok(None);
        };
        let port = port
            .parse()
            .map_err(|_| unsent(format_args!("{address}: {port:?} is not a port")))?;
        // If the user is not allowed to run SENTINEL MASTER, we do without the epoch.
        let more = more.ok();
        let (epoch, before) = more.as_ref().map(details).unwrap_or_default();
        let word = SentinelReply {
            epoch,
            promoted: before.is_some_and(|before| before != (host.to_owned(), port)),
            host: host.to_owned(),
            port,
        };
        let group = more.as_ref().map(SentinelGroup::read).unwrap_or_default();
        Ok(Some((word, group)))
    }

    /// Whether the sentinels that have answered are a majority: of those that the client knows, or of the group that they
    /// report. Where sentinels get new addresses, as in Kubernetes, the client knows many that are gone.
    async fn are_majority(
        &self,
        answered: Vec<Arc<KnownSentinel>>,
        known: usize,
        group: SentinelGroup,
    ) -> bool {
        if answered.len() * 2 > known {
            return true;
        }
        // The client may know one sentinel by two addresses, such as its name and its IP address. It has one vote.
        let request = Request::new("SENTINEL").arg("MYID");
        let ids = self.ask_each(answered, &request).await;
        let ids: HashSet<&str> = ids.iter().filter_map(|(_, id)| id.text()).collect();
        group.is_majority(ids.len(), self.who.addresses.len())
    }

    /// The error for an unknown service. It lists the known services, if the user may see them.
    async fn unknown_service(&self, unaware: usize) -> Error {
        let mut known = Vec::new();
        let masters = Request::new("SENTINEL").arg("MASTERS");
        for (_, masters) in self.ask_each(self.known.all(), &masters).await {
            let each = masters.list().unwrap_or_default().iter();
            let names = each.filter_map(|one| fields(one).get("name").copied());
            known.extend(names.map(str::to_owned));
        }
        known.sort();
        known.dedup();
        let known = match &known[..] {
            [] => String::new(),
            known => format!("; they know {}", known.join(", ")),
        };
        // Only a first connect fails for good. A sentinel that was reset or has lost its configuration must not break
        // a client that has worked until now.
        let never = self.current.lock().is_none();
        let kind = if never && unaware == self.known.all().len() {
            ErrorKind::InvalidOptions
        } else {
            ErrorKind::Unavailable
        };
        let (hosts, service) = (address::short(&self.who.addresses), &self.who.service);
        Error::new(kind).because(format!(
            "the sentinels {hosts} do not monitor a service {service:?}{known}"
        ))
    }

    fn unreachable(&self, troubles: &[Error]) -> Error {
        let kind = match troubles {
            [first, ..] if troubles.iter().all(|one| one.kind() == first.kind()) => first.kind(),
            _ => ErrorKind::Unavailable,
        };
        // The request has not reached a server with locks, so its outcome is known.
        let kind = match kind {
            ErrorKind::OutcomeUnknown => ErrorKind::Unavailable,
            kind => kind,
        };
        let each: Vec<&str> = troubles.iter().filter_map(Error::detail).collect();
        Error::new(kind).because(format!(
            "no sentinel of {} answered: {}",
            self.who,
            if each.is_empty() {
                "no answer".to_owned()
            } else {
                each.join("; ")
            }
        ))
    }
}

impl PrimaryFinder for Sentinel {
    /// The address of the primary, from the sentinel with the highest epoch.
    fn find(&self) -> BoxFuture<'_, Result<HostAddress>> {
        // Boxed, because the type is recursive: the connection to a sentinel uses an endpoint too.
        Box::pin(async move {
            // Half of the limit: the connect to the primary needs the rest.
            let limit = self.timers.now() + self.limit / 2;
            let known = self.known.all();
            let each = known
                .iter()
                .map(|sentinel| async move { (sentinel, self.ask(sentinel, limit).await) });
            let is_reply = |(_, said): &(_, Result<Option<_>>)| matches!(said, Ok(Some(_)));
            let (mut best, mut troubles, mut unaware) = (None, Vec::new(), 0);
            let (mut answered, mut group) = (Vec::new(), SentinelGroup::default());
            for (sentinel, said) in self.soon(limit, each, is_reply).await {
                match said {
                    Ok(Some((word, reported))) => {
                        answered.push(Arc::clone(sentinel));
                        group = group.larger(reported);
                        best = best.max(Some(word));
                    }
                    Ok(None) => unaware += 1,
                    Err(error) => troubles.push(error),
                }
            }
            let Some(best) = best else {
                return Err(match unaware {
                    0 => self.unreachable(&troubles),
                    _ => self.unknown_service(unaware).await,
                });
            };
            // These sentinels have missed a failover that others have reported, so we do not trust them. A majority with
            // a lower epoch is right nevertheless: an operator has set up the sentinels again. Those that are silent
            // count: a minority that is cut off together with this client is no majority.
            let is_old = best.epoch < self.newest.load(Ordering::SeqCst);
            if is_old && !self.are_majority(answered, known.len(), group).await {
                return Err(unsent(format_args!(
                    "the sentinels {} that answer have not seen the last failover",
                    address::short(&self.who.addresses)
                )));
            }
            self.newest.store(best.epoch, Ordering::SeqCst);
            let (host, port) = (best.host, best.port);
            let tls = self.who.addresses.iter().any(HostAddress::is_tls);
            Ok(HostAddress::Tcp { host, port, tls })
        })
    }

    fn note(&self, address: &HostAddress) -> bool {
        let mut current = self.current.lock();
        if current.as_ref() == Some(address) {
            return false;
        }
        current.replace(address.clone()).is_some()
    }

    fn is_at(&self, address: &HostAddress) -> bool {
        let current = self.current.lock();
        current.as_ref() == Some(address)
    }

    fn doubt(&self) {
        self.refresh.notify_one();
    }

    /// Closes the connections to the sentinels and stops `follow`.
    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.refresh.notify_one();
        for sentinel in self.known.all() {
            sentinel.connection.close();
        }
    }
}

/// Queries the sentinels regularly until the client is dropped. If the primary has changed, it ends all connections
/// to the old one.
pub(crate) async fn follow(sentinel: Weak<Sentinel>, endpoint: Weak<Endpoint>, timers: Timers) {
    let mut tries = 0;
    for round in 0_u32.. {
        let refresh = {
            let Some((sentinel, endpoint)) = sentinel.upgrade().zip(endpoint.upgrade()) else {
                return;
            };
            let found = sentinel.find().await;
            if round % LEARN_EVERY == 0 {
                tries = LEARN_TRIES;
            }
            // Sentinels of which none answers would keep us from the next query.
            let learns = tries > 0 && found.is_ok();
            match found {
                Ok(address) if sentinel.note(&address) => {
                    tracing::info!(primary = %Escaped(&address), service = %Escaped(&sentinel.who.service), "the sentinels report another primary");
                    endpoint.leave();
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "cannot query the sentinels"),
            }
            if learns {
                let has_learned = sentinel.learn().await;
                tries = if has_learned { 0 } else { tries - 1 };
            }
            if sentinel.closed.load(Ordering::SeqCst) {
                // We close again: this round may have reconnected after the first `close`.
                return sentinel.close();
            }
            Arc::clone(&sentinel.refresh)
        };
        // We hold no reference to the endpoint while we sleep, so that the client can be dropped.
        timers.after(QUERY_INTERVAL / 20).await;
        timers.limit(QUERY_INTERVAL, refresh.notified()).await;
    }
}

impl fmt::Display for Sentinel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.who.fmt(f)
    }
}

#[cfg(test)]
mod tests;
