//! Redlock: a lock over a majority of independent servers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::engine::ClientInner;
use crate::engine::local_queue::queued_store::QueuedStore;
use crate::engine::store_handle::SetMembers;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::Lock;
use crate::options;
use crate::store::set;
use crate::store::set::{Host, Member, Quorum, Rule};

/// Locks over N independent servers, of which more than half must agree (Redlock). A lock is held while a majority
/// keeps it, so it survives the failure of fewer than half of the servers.
///
/// The servers must be independent: no replicas of each other, no common disk, no common power. The client sends each
/// request to all servers in parallel and waits for each no longer than the [node
/// timeout](RedLockBuilder::node_timeout). It must prove a majority, by one clock and within the lease, before it
/// returns a guard and at every renewal. If a server lost the lock, the client acquires it there again. On the wire it
/// is a set of plain locks like Redisson's `RedissonRedLock`, and it excludes that lock.
///
/// *Limits*: a holder may be frozen past its lease, as with every lease, and here no [fencing
/// token](crate::FencingToken) protects against it, because counters on independent servers do not order anything. A
/// majority of the servers may forget locks (see [`restart_guard`](RedLockBuilder::restart_guard)), or their clocks may
/// jump. If correctness depends on the lock alone, use a store with consensus (etcd, ZooKeeper) and its fencing tokens.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use tidelock::{Client, RedLock};
///
/// let mut servers = Vec::new();
/// for url in ["memory:", "memory:", "memory:"] { // "redis://one", "redis://two", "redis://three"
///     servers.push(Client::connect(url).await?);
/// }
/// let redlock = RedLock::new(servers)?;
/// let guard = redlock.lock("nightly").acquire().await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RedLock {
    core: Arc<ClientInner>,
    store: QueuedStore,
}

impl RedLock {
    /// A Redlock over the stores of these clients, with default settings. Lease, drift, prefix and identity come from
    /// the first client.
    ///
    /// # Errors
    /// [`InvalidOptions`](ErrorKind::InvalidOptions) for no clients, or the same one twice.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{Client, ErrorKind, RedLock};
    ///
    /// let one = Client::connect("memory:").await?; // each server has one vote, and a client of its own
    /// let error = RedLock::new([one.clone(), one]).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidOptions);
    /// # Ok(()) }
    /// ```
    pub fn new(clients: impl IntoIterator<Item = Client>) -> Result<Self> {
        Self::builder(clients).build()
    }

    /// A builder, for other settings than the defaults.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::{Client, RedLock};
    ///
    /// let servers = [Client::connect("memory:").await?, Client::connect("memory:").await?, Client::connect("memory:").await?];
    /// let redlock = RedLock::builder(servers).longest_lease(Duration::from_secs(60)).build()?;
    /// # Ok(()) }
    /// ```
    pub fn builder(clients: impl IntoIterator<Item = Client>) -> RedLockBuilder {
        RedLockBuilder {
            clients: clients.into_iter().collect(),
            node_timeout: None,
            longest_lease: None,
            restart_guard: true,
        }
    }

    /// A lock of that name on every server. Sends nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{Client, RedLock};
    ///
    /// let servers = [Client::connect("memory:").await?, Client::connect("memory:").await?, Client::connect("memory:").await?];
    /// let nightly = RedLock::new(servers)?.lock("nightly");
    /// let guard = nightly.acquire().await?;
    /// assert!(nightly.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn lock(&self, name: &str) -> Lock {
        Lock::at(Arc::clone(&self.core), self.store.clone(), name)
    }
}

impl fmt::Debug for RedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedLock")
            .field("store", &self.store.store.front())
            .finish_non_exhaustive()
    }
}

/// A shorter node timeout is refused.
const MIN_NODE_TIMEOUT: Duration = Duration::from_millis(1);

/// Settings of a [`RedLock`]. Each method names the default.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use std::time::Duration;
/// use tidelock::{Client, RedLock};
///
/// let servers = [Client::connect("memory:").await?, Client::connect("memory:").await?, Client::connect("memory:").await?];
/// let redlock = RedLock::builder(servers).node_timeout(Duration::from_millis(100)).build()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct RedLockBuilder {
    clients: Vec<Client>,
    node_timeout: Option<Duration>,
    longest_lease: Option<Duration>,
    restart_guard: bool,
}

impl RedLockBuilder {
    /// How long to wait for one server. Default: a sixtieth of the lease, at least 50 ms and at most 500 ms, but no more
    /// than an eighth of the [response timeout](crate::ClientBuilder::response_timeout) of the first client. A frozen
    /// server delays every request by this much, so keep it small, but well above a round trip to the farthest server. If
    /// it is more than that eighth and a server is frozen, a wait for a lock that is held may end with
    /// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) instead of [`TimedOut`](ErrorKind::TimedOut).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::{Client, RedLock};
    ///
    /// let servers = [Client::connect("memory:").await?]; // a frozen one costs each request 100 ms
    /// let redlock = RedLock::builder(servers).node_timeout(Duration::from_millis(100)).build()?;
    /// # Ok(()) }
    /// ```
    pub fn node_timeout(mut self, limit: Duration) -> Self {
        self.node_timeout = Some(limit);
        self
    }

    /// The longest lease that any client uses with these servers. Default: the first client's lease. The restart guard
    /// waits this long. This `RedLock` takes longer leases of its own requests into account by itself.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::{Client, RedLock};
    ///
    /// let servers = [Client::connect("memory:").await?]; // other programs lock for five minutes there
    /// let redlock = RedLock::builder(servers).longest_lease(Duration::from_secs(300)).build()?;
    /// # Ok(()) }
    /// ```
    pub fn longest_lease(mut self, lease: Duration) -> Self {
        self.longest_lease = Some(lease);
        self
    }

    /// Whether a server votes only after it has been up for the longest lease. Default: yes. A server that restarted
    /// may have forgotten a lock that it had granted; with its vote a second holder could get a majority. The longest lease is
    /// that of the acquisitions and [extensions](crate::Guard::extend) of this `RedLock` so far.
    ///
    /// The guard has a price: if all servers have just started, they grant nothing for one lease. `acquire` waits until
    /// they are old enough; `try_acquire` fails with an error that says so. With `false`, the same guarantee needs
    /// servers that forget nothing (`appendfsync always`), or that stay closed to clients for one lease after a start.
    /// A server that does not report its uptime (no right to `INFO`) votes at once, and the client logs a warning.
    ///
    /// Redis computes its uptime from its wall clock, so set the clock of a machine before Redis starts on it. If it is set ahead
    /// later, the server seems older than it is. A server that has restarted since its last grant to this `RedLock` votes no
    /// earlier than the longest lease after that grant; if that was longer ago, the server's clock alone decides. If the clock is
    /// set back later, the server votes at the latest when the longest lease has passed since its first grant to this
    /// `RedLock`.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{Client, RedLock};
    ///
    /// let servers = [Client::connect("memory:").await?]; // with `appendfsync always`, they forget nothing
    /// let redlock = RedLock::builder(servers).restart_guard(false).build()?;
    /// assert!(redlock.lock("nightly").try_acquire().await?.is_some());
    /// # Ok(()) }
    /// ```
    pub fn restart_guard(mut self, on: bool) -> Self {
        self.restart_guard = on;
        self
    }

    /// Checks the settings and makes the [`RedLock`].
    ///
    /// # Errors
    /// [`InvalidOptions`](ErrorKind::InvalidOptions) for no clients, the same one twice, or durations that make no sense.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{ErrorKind, RedLock};
    ///
    /// let error = RedLock::builder([]).build().unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidOptions); // no servers, no majority
    /// # Ok(()) }
    /// ```
    pub fn build(self) -> Result<RedLock> {
        let Some(first) = self.clients.first() else {
            return Err(invalid("a RedLock needs at least one client"));
        };
        let core = Arc::clone(first.core());
        let lease = core.settings.lease;
        let default = || default_node_timeout(lease, core.settings.response_timeout);
        let node_timeout = self.node_timeout.unwrap_or_else(default);
        options::within("node timeout", node_timeout, MIN_NODE_TIMEOUT)?;
        let longest = self.longest_lease.unwrap_or(lease).max(lease);
        let mut ids: Vec<&str> = self.clients.iter().map(Client::id).collect();
        ids.sort_unstable();
        if ids.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(invalid(
                "the same client is given twice; give the RedLock one client for each server",
            ));
        }
        let identity = format!("majority of {ids:?}");
        let count = self.clients.len();
        if count.is_multiple_of(2) {
            tracing::warn!(
                servers = count,
                "an even number of servers tolerates no more failures than one server less"
            );
        }
        let members = self.clients.iter().enumerate().map(|(n, client)| {
            let host: Arc<dyn Host> = Arc::clone(client.core()) as _;
            let label = format!("server {} of {count}", n + 1);
            Member::new(
                client.core().home.store.sides().clone(),
                None,
                label,
                Some(host),
            )
        });
        let store = set::open(set::Plan {
            rule: Rule::Majority(Quorum::new(node_timeout, self.restart_guard, longest)),
            members: members.collect(),
            timers: core.timers.clone(),
            background: core.steward.background.clone(),
            response_timeout: core.settings.response_timeout,
        });
        let of_set = set_members(&self.clients, node_timeout);
        let store = QueuedStore::of_set(store, &identity, of_set, core.timers.clock());
        Ok(RedLock { core, store })
    }
}

impl fmt::Debug for RedLockBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedLockBuilder")
            .field("clients", &self.clients)
            .field("node_timeout", &self.node_timeout)
            .field("longest_lease", &self.longest_lease)
            .field("restart_guard", &self.restart_guard)
            .finish()
    }
}

/// What the set needs to know of its servers.
fn set_members(clients: &[Client], node_timeout: Duration) -> SetMembers {
    let cores = || clients.iter().map(Client::core);
    let connect_within = cores().map(|core| core.settings.connect_within);
    SetMembers {
        // The first client makes the set.
        hosts: cores()
            .skip(1)
            .map(|core| Arc::clone(&core.steward.guests))
            .collect(),
        needed: clients.len() / 2 + 1,
        connect_within: connect_within.max().unwrap_or_default(),
        slowest: node_timeout,
        healths: cores()
            .map(|core| Arc::clone(core.home.store.health()))
            .collect(),
    }
}

/// The node timeout of a lease. A wait that ends in an attempt without an answer for a quarter of the response timeout is told
/// that the store is silent. A server that is frozen makes each round of an attempt last for a node timeout, so it is at most
/// half of that.
fn default_node_timeout(lease: Duration, response_timeout: Duration) -> Duration {
    let of_lease = (lease / 60).clamp(Duration::from_millis(50), Duration::from_millis(500));
    of_lease.min(response_timeout / 8).max(MIN_NODE_TIMEOUT)
}

fn invalid(detail: &str) -> Error {
    Error::new(ErrorKind::InvalidOptions).because(detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_a_small_part_of_the_lease_to_answer() {
        let (ms, secs) = (Duration::from_millis, Duration::from_secs);
        for (lease, response_timeout, expected) in [
            (secs(30), secs(10), ms(500)),
            (secs(12), secs(10), ms(200)),
            (secs(3600), secs(10), ms(500)),
            (secs(1), secs(10), ms(50)),
            (secs(30), secs(2), ms(250)), // all have a turn within the response timeout
            (secs(30), ms(2), ms(1)),
        ] {
            let found = default_node_timeout(lease, response_timeout);
            assert_eq!(found, expected, "{lease:?}, {response_timeout:?}");
        }
    }

    #[tokio::test]
    async fn more_than_half_of_the_servers_are_needed_and_the_first_makes_the_set() {
        let mut clients = Vec::new();
        let limits = [1, 3, 2].map(Duration::from_secs);
        for (limit, needed) in limits.into_iter().zip([1, 2, 2]) {
            let builder = Client::builder().publish_process_info(false);
            let builder = builder.connect_within(limit);
            clients.push(builder.connect("memory:").await.unwrap());
            let set = set_members(&clients, Duration::from_millis(7));
            assert_eq!(set.needed, needed);
            assert_eq!(set.hosts.len(), clients.len() - 1);
            assert_eq!(set.healths.len(), clients.len());
            assert_eq!(set.slowest, Duration::from_millis(7));
        }
        let set = set_members(&clients, Duration::ZERO);
        assert_eq!(set.connect_within, Duration::from_secs(3));
        let guests = &clients[1].core().steward.guests;
        assert!(Arc::ptr_eq(&set.hosts[0], guests));
    }
}
