//! Which Redis or Valkey servers there are, without a URL.

use std::path::PathBuf;

use crate::credentials::Credentials;

/// Addresses and settings of Redis or Valkey servers: the contents of a URL, in parts. For hosts from a configuration
/// or from service discovery, and for passwords that would need escapes in a URL.
///
/// A host is `name`, `name:port`, `10.0.0.1:port`, `[::1]` or `[::1]:port`, or the text of a
/// [`SocketAddr`](std::net::SocketAddr). Invalid values make the connect fail, not these methods.
///
/// # Examples
/// ```no_run
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use tidelock::{Client, Credentials, redis::Topology};
///
/// let topology = Topology::sentinels("shop", ["one:26379", "two", "[::1]:26379"])
///     .tls(true)
///     .database(2)
///     .sentinel_credentials(Credentials::new("watcher", "p@ss/word"));
/// let settings = Client::builder().credentials(Credentials::new("locks", "secret"));
/// let client = topology.connect(settings).await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a description does nothing until it is connected to"]
pub struct Topology {
    pub(crate) way: TopologyKind,
    pub(crate) tls: bool,
    pub(crate) database: i64,
    pub(crate) plain_locks: bool,
    pub(crate) sentinel_credentials: Option<Credentials>,
    pub(crate) pubsub_mode: Option<PubSubMode>,
}

/// The topology: how the client finds the server that has a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TopologyKind {
    One(String),
    Socket(PathBuf),
    Sentinels { service: String, hosts: Vec<String> },
    Cluster(Vec<String>),
}

/// How a cluster publishes releases: as sharded messages, which stay on the nodes of one shard, or as plain messages,
/// which reach every node. A subscription to one form does not receive the other. `On` and `Off` mean the same as in
/// Redisson's `shardedSubscriptionMode`.
///
/// # Examples
/// ```
/// use tidelock::redis::{PubSubMode, Topology};
///
/// let servers = Topology::cluster(["one", "two:7000"]).pubsub_mode(PubSubMode::Both);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PubSubMode {
    /// The default, which works together with every client. Waiters subscribe to both forms. A release is published in
    /// the sharded form, and in the plain form too while a client subscribes only to that. Servers before 7.0 have only
    /// plain messages.
    Auto,
    /// Subscribes to and publishes sharded messages only.
    On,
    /// Subscribes to and publishes plain messages only.
    Off,
    /// As `Auto`, but every release is published in both forms. For clients that subscribe to plain messages at
    /// replicas, where the server that publishes cannot count them.
    Both,
}

impl Topology {
    /// One server at a fixed address. Default port: 6379.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{Client, redis::Topology};
    ///
    /// let client = Topology::one("10.0.0.1:6380").connect(Client::builder()).await?;
    /// # Ok(()) }
    /// ```
    pub fn one(host: impl Into<String>) -> Self {
        Self::on(TopologyKind::One(host.into()))
    }

    /// One server, by its Unix socket.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{Client, redis::Topology};
    ///
    /// let client = Topology::socket("/run/redis/redis.sock").connect(Client::builder()).await?;
    /// # Ok(()) }
    /// ```
    pub fn socket(path: impl Into<PathBuf>) -> Self {
        Self::on(TopologyKind::Socket(path.into()))
    }

    /// The primary that these sentinels monitor under that service name. Default port: 26379. One sentinel that answers
    /// is enough to find the others.
    ///
    /// # Examples
    /// ```
    /// use tidelock::redis::Topology;
    ///
    /// let hosts = std::env::var("SENTINELS").unwrap_or("one:26379,two".to_owned());
    /// let servers = Topology::sentinels("shop", hosts.split(','));
    /// assert_eq!(servers, Topology::sentinels("shop", ["one:26379", "two"]));
    /// ```
    pub fn sentinels<H: Into<String>>(
        service: impl Into<String>,
        hosts: impl IntoIterator<Item = H>,
    ) -> Self {
        Self::on(TopologyKind::Sentinels {
            service: service.into(),
            hosts: hosts.into_iter().map(Into::into).collect(),
        })
    }

    /// A cluster. Default port: 6379. One node that answers is enough to find the others.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{Client, redis::Topology};
    ///
    /// let client = Topology::cluster(["one:7000", "two:7000"]).connect(Client::builder()).await?;
    /// # Ok(()) }
    /// ```
    pub fn cluster<H: Into<String>>(hosts: impl IntoIterator<Item = H>) -> Self {
        Self::on(TopologyKind::Cluster(
            hosts.into_iter().map(Into::into).collect(),
        ))
    }

    fn on(way: TopologyKind) -> Self {
        Self {
            way,
            tls: false,
            database: 0,
            plain_locks: false,
            sentinel_credentials: None,
            pubsub_mode: None,
        }
    }

    /// Whether to use TLS with all servers. Default: no. [`ClientBuilder::tls_ca`](crate::ClientBuilder::tls_ca) and
    /// [`ClientBuilder::tls_identity`](crate::ClientBuilder::tls_identity) set the certificates.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{Client, redis::Topology};
    ///
    /// let builder = Client::builder().tls_ca("/etc/shop/ca.pem");
    /// let client = Topology::one("locks.internal").tls(true).connect(builder).await?;
    /// # Ok(()) }
    /// ```
    pub fn tls(mut self, yes: bool) -> Self {
        self.tls = yes;
        self
    }

    /// The database number. Default: 0. A cluster has no other.
    ///
    /// # Examples
    /// ```
    /// use tidelock::redis::Topology;
    ///
    /// let servers = Topology::one("localhost").database(2); // as `redis://localhost/2`
    /// assert_ne!(servers, Topology::one("localhost"));
    /// ```
    pub fn database(mut self, number: u32) -> Self {
        self.database = i64::from(number);
        self
    }

    /// Whether to write each lock as one plain key, as clients of other languages do (`locks=plain` in a URL). Default:
    /// no.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{Client, redis::Topology};
    ///
    /// let shared_with_python = Topology::one("localhost").plain_locks(true); // as `redis://localhost?locks=plain`
    /// let client = shared_with_python.connect(Client::builder()).await?;
    /// # Ok(()) }
    /// ```
    pub fn plain_locks(mut self, yes: bool) -> Self {
        self.plain_locks = yes;
        self
    }

    /// User name and password for the sentinels, which have users of their own. Default: none.
    /// [`ClientBuilder::credentials`](crate::ClientBuilder::credentials) sets those for the servers that have the
    /// locks.
    ///
    /// # Examples
    /// ```
    /// use tidelock::{Credentials, redis::Topology};
    ///
    /// let watcher = Credentials::new("watcher", "secret");
    /// let servers = Topology::sentinels("shop", ["one", "two"]).sentinel_credentials(watcher);
    /// assert!(!format!("{servers:?}").contains("secret"));
    /// ```
    pub fn sentinel_credentials(mut self, credentials: Credentials) -> Self {
        self.sentinel_credentials = Some(credentials);
        self
    }

    /// How a cluster publishes releases.
    ///
    /// # Examples
    /// ```
    /// use tidelock::redis::{PubSubMode, Topology};
    ///
    /// // Where some clients listen to plain messages at replicas.
    /// let servers = Topology::cluster(["one", "two"]).pubsub_mode(PubSubMode::Both);
    /// ```
    pub fn pubsub_mode(mut self, mode: PubSubMode) -> Self {
        self.pubsub_mode = Some(mode);
        self
    }
}
