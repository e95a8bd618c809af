//! A lock over a majority of independent servers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::set::{self, Host, Member, Quorum, Rule};
use crate::client::Client;
use crate::core::Core;
use crate::core::site::Site;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::Lock;
use crate::options;

/// Locks over N independent servers, of which more than half must agree: Redlock. A lock is held while a majority keeps it,
/// so it survives that fewer than half of the servers fail.
///
/// The servers must be independent: no replicas of each other, no common disk, no common power. Each is asked in parallel
/// and waited for no longer than the [node timeout](RedLockBuilder::node_timeout). A majority has to be proved, by one
/// clock and within the lease, before there is a guard and at every renewal; a server that lost a lock is given it again.
/// On the wire it is a set of plain locks, as Redisson's `RedissonRedLock`, which it excludes.
///
/// *What breaks it?* A holder that is frozen past its lease, as with every lease: and here there is no
/// [fencing token](crate::FencingToken) against it, because counters of servers that know nothing of each other put nothing
/// in order. Servers that forget locks, see [`restart_guard`](RedLockBuilder::restart_guard), and clocks that jump on a majority of
/// servers. Where a lock must hold for correctness by itself, use a store with consensus (etcd, ZooKeeper) and its fencing.
///
/// # Examples
/// ```
/// # async fn f() -> tidelock::Result<()> {
/// use tidelock::{Client, RedLock};
///
/// let mut servers = Vec::new();
/// for url in ["memory:", "memory:", "memory:"] { // "redis://one", "redis://two", "redis://three"
///     servers.push(Client::connect(url).await?);
/// }
/// let redlock = RedLock::new(servers)?;
/// let guard = redlock.lock("nightly").acquire().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
/// ```
#[derive(Clone)]
pub struct RedLock {
    core: Arc<Core>,
    site: Arc<Site>,
}

impl RedLock {
    /// Over the stores of these clients, with default settings. Lease, drift, prefix and identity are those of the first one.
    ///
    /// # Errors
    /// [`InvalidOptions`](ErrorKind::InvalidOptions) for no clients, or the same one twice.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// use tidelock::{Client, ErrorKind, RedLock};
    ///
    /// let one = Client::connect("memory:").await?; // each server has one vote, and a client of its own
    /// let error = RedLock::new([one.clone(), one]).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidOptions);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn new(clients: impl IntoIterator<Item = Client>) -> Result<Self> {
        Self::builder(clients).build()
    }

    /// With settings of its own.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::{Client, RedLock};
    ///
    /// let servers = [Client::connect("memory:").await?, Client::connect("memory:").await?, Client::connect("memory:").await?];
    /// let redlock = RedLock::builder(servers).longest_lease(Duration::from_secs(60)).build()?;
    /// # drop(redlock);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn builder(clients: impl IntoIterator<Item = Client>) -> RedLockBuilder {
        RedLockBuilder {
            clients: clients.into_iter().collect(),
            node_timeout: None,
            longest_lease: None,
            restart_guard: true,
        }
    }

    /// A lock of that name on every server. Nothing is sent.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// use tidelock::{Client, RedLock};
    ///
    /// let servers = [Client::connect("memory:").await?, Client::connect("memory:").await?, Client::connect("memory:").await?];
    /// let nightly = RedLock::new(servers)?.lock("nightly");
    /// let guard = nightly.acquire().await?;
    /// assert!(nightly.try_acquire().await?.is_none());
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn lock(&self, name: &str) -> Lock {
        Lock::at(Arc::clone(&self.core), Arc::clone(&self.site), name)
    }
}

impl fmt::Debug for RedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedLock")
            .field("store", &self.site.front())
            .finish_non_exhaustive()
    }
}

/// Settings of a [`RedLock`]. What is not set has the default that is named.
///
/// # Examples
/// ```
/// # async fn f() -> tidelock::Result<()> {
/// use std::time::Duration;
/// use tidelock::{Client, RedLock};
///
/// let servers = [Client::connect("memory:").await?, Client::connect("memory:").await?, Client::connect("memory:").await?];
/// let redlock = RedLock::builder(servers).node_timeout(Duration::from_millis(100)).build()?;
/// # let _ = redlock;
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
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
    /// How long one server is waited for: a sixtieth of the lease, at least 50 and at most 500 ms. A server that is frozen
    /// costs every request this much, so keep it small; it must be well above a trip to the farthest server.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::{Client, RedLock};
    ///
    /// let servers = [Client::connect("memory:").await?]; // a frozen one costs each request 100 ms
    /// let redlock = RedLock::builder(servers).node_timeout(Duration::from_millis(100)).build()?;
    /// # drop(redlock);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn node_timeout(mut self, limit: Duration) -> Self {
        self.node_timeout = Some(limit);
        self
    }

    /// The longest lease that anybody uses with these servers: the first client's. What the restart guard goes by; longer
    /// ones that are asked for through this `RedLock` are noted by themselves.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::{Client, RedLock};
    ///
    /// let servers = [Client::connect("memory:").await?]; // other programs lock for five minutes there
    /// let redlock = RedLock::builder(servers).longest_lease(Duration::from_secs(300)).build()?;
    /// # drop(redlock);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn longest_lease(mut self, lease: Duration) -> Self {
        self.longest_lease = Some(lease);
        self
    }

    /// Whether a server votes only when it has been up for the longest lease: yes. A server that restarted may have forgotten
    /// a lock it had granted; with its vote a second holder could get a majority.
    ///
    /// It has a price: servers that have all just been started grant nothing for one lease. Who waits (`acquire`) gets the
    /// lock when they are old enough, who asks once is told why there is none. Without it, `false`, the same
    /// promise needs servers that forget nothing (`appendfsync always`) or that are kept from clients for one lease after a start.
    /// A server that does not tell its age (rights without `INFO`) votes at once, and the log says so.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// use tidelock::{Client, RedLock};
    ///
    /// let servers = [Client::connect("memory:").await?]; // with `appendfsync always`, they forget nothing
    /// let redlock = RedLock::builder(servers).restart_guard(false).build()?;
    /// assert!(redlock.lock("nightly").try_acquire().await?.is_some());
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn restart_guard(mut self, on: bool) -> Self {
        self.restart_guard = on;
        self
    }

    /// Makes it.
    ///
    /// # Errors
    /// [`InvalidOptions`](ErrorKind::InvalidOptions) for no clients, the same one twice, or durations that make no sense.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// use tidelock::{ErrorKind, RedLock};
    ///
    /// let error = RedLock::builder([]).build().unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidOptions); // no servers, no majority
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn build(self) -> Result<RedLock> {
        let Some(first) = self.clients.first() else {
            return Err(invalid(
                "a majority of no servers; give it at least one client",
            ));
        };
        let core = Arc::clone(first.core());
        let lease = core.settings.lease;
        let node_timeout = self.node_timeout.unwrap_or_else(|| {
            (lease / 60).clamp(Duration::from_millis(50), Duration::from_millis(500))
        });
        options::within("node timeout", node_timeout, Duration::from_millis(1))?;
        let longest = self.longest_lease.unwrap_or(lease).max(lease);
        let mut ids: Vec<&str> = self.clients.iter().map(Client::id).collect();
        ids.sort_unstable();
        if ids.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(invalid(
                "the same client twice; each server has one vote, so each needs a client of its own",
            ));
        }
        let identity = format!("majority of {ids:?}");
        let count = self.clients.len();
        if count.is_multiple_of(2) {
            tracing::warn!(
                servers = count,
                "an even number of servers survives no more failures than one less"
            );
        }
        let members = self.clients.iter().enumerate().map(|(n, client)| {
            let host: Arc<dyn Host> = Arc::clone(client.core()) as _;
            let label = format!("server {} of {count}", n + 1);
            Member::new(client.core().home.store().clone(), None, label, Some(host))
        });
        let store = set::open(set::Plan {
            rule: Rule::Majority(Quorum::new(node_timeout, self.restart_guard, longest)),
            members: members.collect(),
            timers: core.timers.clone(),
            background: core.steward.background.clone(),
            response_timeout: core.settings.response_timeout,
        });
        let site = Site::of_set(store, &identity);
        Ok(RedLock { core, site })
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

fn invalid(detail: &str) -> Error {
    Error::new(ErrorKind::InvalidOptions).because(detail)
}
