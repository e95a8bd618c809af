//! The sentinels that a client queries: those of the URL, and those that they have named.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::engine::runtime::sync::{Mutex, RwLock};
use crate::store::BootInstant;
use crate::store::redis::address::HostAddress;
use crate::store::redis::topology::connection::Connection;
use crate::store::redis::wire::request::Request;

/// The most sentinels we query. It bounds the connections.
const MAX_SENTINELS: usize = 16;

/// After this time without an answer, a sentinel may be one that does not come back.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// One of them.
pub(super) struct KnownSentinel {
    pub(super) address: HostAddress,
    pub(super) connection: Connection,
    /// The URL names it.
    is_named: bool,
    /// Its id, as others have told it. `None`: the URL names its address, or they told none.
    id: Mutex<Option<String>>,
    /// When it answered last, or when we learned of it, in nanoseconds.
    heard: AtomicU64,
}

/// The sentinels that a client queries.
#[derive(Default)]
pub(super) struct KnownSentinels(RwLock<Vec<Arc<KnownSentinel>>>);

impl KnownSentinel {
    pub(super) fn new(
        address: HostAddress,
        connection: Connection,
        is_named: bool,
        now: BootInstant,
    ) -> Self {
        Self {
            address,
            connection,
            is_named,
            id: Mutex::default(),
            heard: AtomicU64::new(now.nanos()),
        }
    }

    pub(super) fn with_id(self, id: Option<&str>) -> Self {
        self.note_id(id);
        self
    }

    fn note_id(&self, id: Option<&str>) {
        if !self.is_named && id.is_some() {
            *self.id.lock() = id.map(str::to_owned);
        }
    }

    /// Whether another sentinel answers at this address than the one that was named there. Addresses are used again, as in
    /// Kubernetes, and a sentinel of another deployment may know a service of the same name. We would lock on its servers.
    /// A sentinel without the command (before Redis 6.2), or one that refuses it, is believed.
    pub(super) async fn is_another(&self, end: BootInstant) -> bool {
        let Some(id) = self.id.lock().clone() else {
            return false;
        };
        let request = Request::new("SENTINEL").arg("MYID");
        let told = self.connection.ask(&request, end).await;
        told.is_ok_and(|told| told.text().is_some_and(|told| told != id))
    }

    pub(super) fn answered(&self, now: BootInstant) {
        self.heard.store(now.nanos(), Ordering::Relaxed);
    }

    fn silent_for(&self, now: BootInstant) -> Duration {
        now.since(BootInstant::from_nanos(self.heard.load(Ordering::Relaxed)))
    }
}

impl KnownSentinels {
    pub(super) fn all(&self) -> Vec<Arc<KnownSentinel>> {
        self.0.read().clone()
    }

    /// Closes the connections to those that have been silent for so long. The next query connects again.
    ///
    /// While others answer, nobody waits for a silent one for long. Its connection may lead nowhere, for as long as TCP repeats a
    /// packet, and would keep all requests that were sent on it.
    pub(super) fn let_silent_go(&self, now: BootInstant, limit: Duration) {
        let all = self.all();
        let silent = all.iter().filter(|one| one.silent_for(now) > limit);
        silent.for_each(|one| one.connection.close());
    }

    /// Whether this sentinel is known. If so, notes its id: the sentinel at that address may be another one by now.
    pub(super) fn names(&self, address: &HostAddress, id: Option<&str>) -> bool {
        let known = self.0.read();
        let known = known.iter().find(|one| one.address == *address);
        known.inspect(|one| one.note_id(id)).is_some()
    }

    /// Adds a sentinel. At the limit it takes the place of the one that has been silent for longest: where sentinels
    /// get new addresses, as in Kubernetes, those that are gone would keep out all new ones for good.
    ///
    /// Below the limit none is forgotten. A minority that is cut off together with this client would be all that it
    /// knows after a while, and would be believed as a majority.
    pub(super) fn add(&self, new: KnownSentinel, now: BootInstant) {
        let mut known = self.0.write();
        if known.iter().any(|one| one.address == new.address) {
            return;
        }
        if known.len() >= MAX_SENTINELS {
            let may_go = |one: &KnownSentinel| !one.is_named && one.silent_for(now) > SILENT_FOR;
            let silent = known.iter().enumerate().filter(|(_, one)| may_go(one));
            let Some((longest, _)) = silent.max_by_key(|(_, one)| one.silent_for(now)) else {
                return;
            };
            known.remove(longest).connection.close();
        }
        known.push(Arc::new(new));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::topology::connection::ConnectionRuntime;
    use crate::store::redis::topology::endpoint::{Endpoint, EndpointLogin, ServerFinder};
    use crate::store::redis::topology::tests::connection_to;
    use crate::store::redis::wire::tests::replies::text;
    use crate::store::redis::wire::tests::{ScriptedServer, loopback};
    use crate::store::{Clock, Timers};

    const MINUTE: Duration = Duration::from_secs(60);

    fn add(known: &KnownSentinels, port: u16, now: BootInstant) {
        let finder = ServerFinder::Fixed(loopback(port));
        let timers = Timers::new(Clock::Simulated);
        let endpoint = Endpoint::new(finder, EndpointLogin::default(), timers, MINUTE);
        let connection = Connection::new(Arc::new(endpoint), ConnectionRuntime::Caller);
        let new = KnownSentinel::new(loopback(port), connection, port == 1, now);
        known.add(new, now);
    }

    fn ports(known: &KnownSentinels) -> Vec<u16> {
        let all = known.all();
        let ports = all.iter().map(|one| match one.address {
            HostAddress::Tcp { port, .. } => port,
            HostAddress::Unix(_) => 0,
        });
        ports.collect()
    }

    #[test]
    fn at_the_limit_the_one_that_is_silent_for_longest_makes_room() {
        let (known, start) = (KnownSentinels::default(), BootInstant::from_nanos(1));
        for port in 1..=16 {
            add(&known, port, start);
        }
        add(&known, 17, start + MINUTE);
        assert!(!ports(&known).contains(&17), "none was silent for so long");
        // The one of the URL was never heard, 5 was heard early, 9 a little later, and all others just now.
        let now = start + MINUTE * 3;
        for one in known.all() {
            match one.address {
                HostAddress::Tcp { port: 1, .. } => {}
                HostAddress::Tcp { port: 5, .. } => one.answered(start + MINUTE),
                HostAddress::Tcp { port: 9, .. } => one.answered(start + MINUTE * 3 / 2),
                _ => one.answered(now),
            }
        }
        add(&known, 2, now);
        assert_eq!(ports(&known), (1..=16).collect::<Vec<u16>>(), "2 is known");
        add(&known, 17, now);
        add(&known, 18, now);
        let left = (1..=18).filter(|port| ![5, 9].contains(port));
        assert_eq!(ports(&known), left.collect::<Vec<u16>>());
        add(&known, 19, now);
        assert!(!ports(&known).contains(&19), "all others are alive");
    }

    #[test]
    fn below_the_limit_a_silent_sentinel_stays() {
        let (known, start) = (KnownSentinels::default(), BootInstant::from_nanos(1));
        for port in 1..=5 {
            add(&known, port, start);
        }
        add(&known, 6, start + MINUTE * 100);
        assert_eq!(ports(&known), [1, 2, 3, 4, 5, 6]);
    }

    #[tokio::test]
    async fn a_sentinel_is_believed_unless_it_has_another_id_than_was_told() {
        let server = ScriptedServer::start().await;
        let (a, b) = (text("a"), text("b"));
        for (is_named, told, reply, is_another) in [
            (false, Some("a"), &*a, false),
            (false, Some("a"), &*b, true),
            (false, Some("a"), "-ERR unknown subcommand\r\n", false),
            (false, None, &*b, false),
            // The URL names its address, whoever is there.
            (true, Some("a"), &*b, false),
        ] {
            server.answers("SENTINEL MYID", &[reply]);
            let connection = connection_to(server.address());
            let end = connection.deadline();
            let now = BootInstant::from_nanos(1);
            let one = KnownSentinel::new(server.address(), connection, is_named, now);
            let one = one.with_id(told);
            assert_eq!(one.is_another(end).await, is_another, "{told:?} {reply}");
        }
    }

    #[tokio::test]
    async fn the_id_that_is_told_last_is_the_one_that_counts() {
        let server = ScriptedServer::start().await;
        server.answers("SENTINEL MYID", &[&text("b")]);
        let known = KnownSentinels::default();
        let connection = connection_to(server.address());
        let (end, now) = (connection.deadline(), BootInstant::from_nanos(1));
        let one = KnownSentinel::new(server.address(), connection, false, now);
        known.add(one.with_id(Some("a")), now);
        assert!(known.all()[0].is_another(end).await);
        assert!(known.names(&server.address(), Some("b")));
        assert!(!known.all()[0].is_another(end).await);
        assert!(known.names(&server.address(), None));
        assert!(!known.all()[0].is_another(end).await);
        assert!(!known.names(&loopback(1), Some("b")), "nobody has named it");
    }

    #[tokio::test]
    async fn only_a_connection_that_has_been_silent_is_let_go() {
        let server = ScriptedServer::start().await;
        let (known, start) = (KnownSentinels::default(), BootInstant::from_nanos(1));
        let connection = connection_to(server.address());
        let own = connection.clone();
        known.add(
            KnownSentinel::new(server.address(), own, false, start),
            start,
        );
        let get = || connection.get(connection.deadline());
        let conn = get().await.unwrap();
        known.let_silent_go(start + MINUTE, MINUTE);
        assert!(Arc::ptr_eq(&get().await.unwrap(), &conn));
        known.all()[0].answered(start + MINUTE);
        known.let_silent_go(start + MINUTE * 2, MINUTE);
        assert!(Arc::ptr_eq(&get().await.unwrap(), &conn), "it has answered");
        known.let_silent_go(start + MINUTE * 3, MINUTE);
        assert!(!Arc::ptr_eq(&get().await.unwrap(), &conn));
    }
}
