//! The client builder: settings, checks, and the start of a client's background parts.

mod lazy;
mod observing;
mod several;
mod start;

use std::env::VarError;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::acknowledge::ReplicaAck;
use crate::client::Client;
use crate::credentials::Credentials;
use crate::engine::instruments::{LabelSettings, store_of};
use crate::engine::runtime::background;
use crate::engine::runtime::retry;
use crate::error::{Error, ErrorKind, Result};
use crate::hand_off::HandOff;
use crate::options;
use crate::store::{Clock, Env, Store, TlsFiles, registry};
use crate::test_util::Plug;
use crate::types::Drift;

/// How a client is made. These functions lie here, because a builder names its product, and not the other way round.
impl Client {
    /// Connects with default settings. The URL names the store: `memory:`, `sqlite:PATH`, `redis://host:port/db`,
    /// `rediss://…` (TLS), `redis+unix:///path`, `redis+sentinel://host:26379,…/service`,
    /// `redis+cluster://host:6379,…`, `postgres://host/database`, `mysql://host/database`,
    /// `zookeeper://host:2181,…/context/path`, `etcd://host:2379,…`, `memcached://host:port`.
    ///
    /// [`url_options`](crate::url_options) lists the options of each URL.
    ///
    /// It makes one attempt. [`connect_within`](crate::ClientBuilder::connect_within) retries while a store starts or
    /// is full; [`connect_lazy`](Self::connect_lazy) leaves the connecting to the first operation.
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::ErrorKind::InvalidOptions) for an invalid URL,
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when the store does not answer,
    /// [`Refused`](crate::ErrorKind::Refused) when it rejects the client, [`Runtime`](crate::ErrorKind::Runtime)
    /// outside a tokio runtime.
    ///
    /// # Cancel safety
    /// Cancel safe. If the future is dropped, its connections are closed.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{Client, ErrorKind};
    ///
    /// let client = Client::connect("memory:").await?;
    /// assert!(client.lock("job").try_acquire().await?.is_some());
    /// let error = Client::connect("nonsense:").await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidOptions);
    /// # Ok(()) }
    /// ```
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// Connects to the store of `TIDELOCK_STORE`, with the settings of
    /// [`ClientBuilder::from_env`](crate::ClientBuilder::from_env).
    ///
    /// # Errors
    /// [`InvalidOptions`](crate::ErrorKind::InvalidOptions) if the variable is not set, and the errors of
    /// [`connect`](Self::connect).
    ///
    /// # Cancel safety
    /// Cancel safe. If the future is dropped, its connections are closed.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// // TIDELOCK_STORE=redis://127.0.0.1 TIDELOCK_PREFIX=shop:
    /// let client = tidelock::Client::from_env().await?;
    /// # drop(client);
    /// # Ok(()) }
    /// ```
    pub async fn from_env() -> Result<Self> {
        let builder = Self::builder().from_env()?;
        builder.connect(&ClientBuilder::store_from_env()?).await
    }

    /// A builder, for other settings than the defaults.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    ///
    /// let client = tidelock::Client::builder().lease(Duration::from_secs(10)).connect("memory:").await?;
    /// # Ok(()) }
    /// ```
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }
}

/// Settings of a client. Each setting documents its default.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use std::time::Duration;
/// use tidelock::Client;
///
/// let client = Client::builder().lease(Duration::from_secs(10)).prefix("shop:").connect("memory:").await?;
/// assert_eq!(client.lock("stock").name(), "shop:stock");
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `connect`"]
pub struct ClientBuilder {
    lease: Duration,
    response_timeout: Duration,
    drift: Drift,
    prefix: String,
    tls: TlsFiles,
    credentials: Option<Arc<dyn Fn() -> Credentials + Send + Sync>>,
    publish_process_info: bool,
    program: Option<String>,
    program_version: Option<String>,
    os_user: Option<String>,
    create: bool,
    acknowledge: ReplicaAck,
    acknowledge_within: Duration,
    hand_off: HandOff,
    connect_within: Duration,
    clock: Clock,
    plug: Option<Plug>,
    slow_acquire: Duration,
    labels: LabelSettings,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            response_timeout: Duration::from_secs(3),
            drift: Drift::default(),
            prefix: String::new(),
            tls: TlsFiles::default(),
            credentials: None,
            publish_process_info: true,
            program: None,
            program_version: None,
            os_user: None,
            create: true,
            acknowledge: ReplicaAck::default(),
            acknowledge_within: Duration::from_secs(1),
            hand_off: HandOff::default(),
            connect_within: Duration::ZERO,
            clock: Clock::Boot,
            plug: None,
            slow_acquire: Duration::from_secs(1),
            labels: LabelSettings::default(),
        }
    }
}

impl ClientBuilder {
    /// Sets the length of the lease. Default: 30 s, as Redisson's `lockWatchdogTimeout`. While a guard lives, the
    /// client renews the lease after every third of its length. A crashed holder blocks others for one lease. A hold
    /// survives a pause of the holder or of the store of up to about two thirds of the lease.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    ///
    /// let client = tidelock::Client::builder().lease(Duration::from_secs(10)).connect("memory:").await?;
    /// let guard = client.lock("job").acquire().await?;
    /// assert!(guard.valid_for() <= Duration::from_secs(10)); // renewed every 3.3 s
    /// # Ok(()) }
    /// ```
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets how long to wait for the answer to one request. Default: 3 s. Use much less than a third of the lease.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    ///
    /// // A server in the next rack answers in a millisecond, or not at all.
    /// let quick = tidelock::Client::builder().response_timeout(Duration::from_millis(500));
    /// let client = quick.connect("memory:").await?;
    /// # Ok(()) }
    /// ```
    pub fn response_timeout(mut self, limit: Duration) -> Self {
        self.response_timeout = limit;
        self
    }

    /// Sets how long [`connect`](Self::connect) retries while the store cannot be reached or accepts no client: it is
    /// starting, full of clients, busy, or without a leader. By default it tries once.
    ///
    /// A permanent error ends the retries at once: a wrong URL, user or password, or an invalid certificate. The first
    /// attempt has a full [response timeout](Self::response_timeout), even if `limit` is shorter.
    ///
    /// After [`connect_lazy`](Self::connect_lazy), an acquire retries for this time or for one lease, whichever is
    /// longer, and never beyond its own wait limit. For a lock of several clients the longest of their limits counts, until
    /// enough of them have connected.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    ///
    /// // A service that may be started before its Redis.
    /// let patient = tidelock::Client::builder().connect_within(Duration::from_secs(60));
    /// let client = patient.connect("redis://127.0.0.1").await?;
    /// # Ok(()) }
    /// ```
    pub fn connect_within(mut self, limit: Duration) -> Self {
        self.connect_within = limit;
        self
    }

    /// Sets the part of each lease that the client does not rely on, because the store's clock may run faster. Default:
    /// a share of 0.01 plus 2 ms. This is enough for disciplined clocks, but not for a clock that is slewed hard or
    /// stepped.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    ///
    /// let careful = tidelock::Client::builder().lease(Duration::from_secs(10)).drift(0.1, Duration::from_millis(100));
    /// let guard = careful.connect("memory:").await?.lock("job").acquire().await?;
    /// assert!(guard.valid_for() <= Duration::from_millis(8_900)); // 10 s less a tenth and 0.1 s
    /// # Ok(()) }
    /// ```
    pub fn drift(mut self, share: f64, fixed: Duration) -> Self {
        self.drift = Drift { share, fixed };
        self
    }

    /// Sets how long a lock may stay in this client through hand-offs while more of its tasks wait. Default: 1000
    /// hand-offs or 10 ms in a row.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{Client, HandOff};
    ///
    /// // Every release goes to the store: other processes wait for nobody's turn but their own.
    /// let client = Client::builder().hand_off(HandOff::OFF).connect("memory:").await?;
    /// # Ok(()) }
    /// ```
    pub fn hand_off(mut self, rules: HandOff) -> Self {
        self.hand_off = rules;
        self
    }

    /// Sets the prefix of every lock name (Redisson: a `NameMapper`). Default: none.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::builder().prefix("shop:").connect("memory:").await?;
    /// assert_eq!(client.lock("stock").name(), "shop:stock");
    /// # Ok(()) }
    /// ```
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets user and password, instead of those in the URL. A password without a user is for the user in the URL.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{Client, Credentials};
    ///
    /// let locks = Credentials::new("locks", "p@ss/word"); // needs no escapes, unlike in a URL
    /// let client = Client::builder().credentials(locks).connect("redis://127.0.0.1").await?;
    /// # Ok(()) }
    /// ```
    pub fn credentials(self, credentials: Credentials) -> Self {
        self.credentials_from(move || credentials.clone())
    }

    /// Sets a source of user and password that is called at every connect, for passwords that rotate while the client
    /// runs. A password without a user is for the user in the URL.
    ///
    /// # Examples
    /// ```
    /// # use tidelock::{Client, Credentials};
    /// let builder = Client::builder().credentials_from(|| {
    ///     Credentials::new("shop", std::fs::read_to_string("/run/secrets/redis").unwrap_or_default())
    /// });
    /// ```
    pub fn credentials_from(
        mut self,
        source: impl Fn() -> Credentials + Send + Sync + 'static,
    ) -> Self {
        self.credentials = Some(Arc::new(source));
        self
    }

    /// Trusts the CA certificates in this PEM file instead of the public ones. For URLs with TLS: `rediss://`,
    /// `etcds://`, `postgres://…?sslmode=verify-full`, `mysql://…?ssl-mode=VERIFY_IDENTITY`.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::Client;
    ///
    /// let client = Client::builder().tls_ca("/etc/shop/ca.pem").connect("rediss://locks.internal").await?;
    /// # Ok(()) }
    /// ```
    pub fn tls_ca(mut self, pem: impl Into<PathBuf>) -> Self {
        self.tls.ca = Some(pem.into());
        self
    }

    /// Presents this client certificate to the store. Both arguments are PEM files. For URLs with TLS, as listed in
    /// [`tls_ca`](Self::tls_ca).
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::builder()
    ///     .tls_ca("/etc/shop/ca.pem")
    ///     .tls_identity("/etc/shop/client.pem", "/etc/shop/client.key")
    ///     .connect("rediss://locks.internal")
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn tls_identity(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.tls.cert = Some(certificate.into());
        self.tls.key = Some(key.into());
        self
    }

    /// Sets whether to create a missing store. Default: yes. Use `false` for clients that only inspect locks: with a
    /// wrong path they would otherwise create an empty store in which every lock is free. This concerns the file of
    /// `sqlite:` and the tables of `postgres:` and `mysql:`. Connecting creates nothing else, and never a folder.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{Client, ErrorKind};
    ///
    /// let folder = std::env::temp_dir();
    /// let url = format!("sqlite:{}", folder.join("no-such-file.db").display());
    /// let error = Client::builder().create(false).connect(&url).await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidOptions);
    /// # Ok(()) }
    /// ```
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets how many replicas must acknowledge a grant before it is returned, and a renewal before it counts. Default:
    /// [`ReplicaAck::Any`] if there are replicas. A grant that is not acknowledged in time is undone, and the
    /// acquisition retries.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{ReplicaAck, Client};
    ///
    /// // Slower, and survives a failover whichever replica is promoted.
    /// let client = Client::builder().acknowledge(ReplicaAck::All).connect("memory:").await?;
    /// # Ok(()) }
    /// ```
    pub fn acknowledge(mut self, policy: ReplicaAck) -> Self {
        self.acknowledge = policy;
        self
    }

    /// Sets how long to wait for the replicas. Default: 1 s, as Redisson's `slavesSyncTimeout`; but at most a third of
    /// the response timeout or a sixth of the lease. A hung replica delays an acquisition that needs it by this time.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::{ReplicaAck, Client};
    ///
    /// let builder = Client::builder().acknowledge(ReplicaAck::Majority).acknowledge_within(Duration::from_millis(200));
    /// let client = builder.connect("memory:").await?;
    /// # Ok(()) }
    /// ```
    pub fn acknowledge_within(mut self, limit: Duration) -> Self {
        self.acknowledge_within = limit;
        self
    }

    /// Reads settings from the environment. [`Client::from_env`] reads the store's URL too. `TIDELOCK_LEASE_MS`, `TIDELOCK_RESPONSE_TIMEOUT_MS`, `TIDELOCK_PREFIX`,
    /// `TIDELOCK_USER`, `TIDELOCK_PASSWORD`, `TIDELOCK_PASSWORD_FILE` (read again at every connect, but a pipe only once), `TIDELOCK_TLS_CA`,
    /// `TIDELOCK_TLS_CERT`, `TIDELOCK_TLS_KEY`, `TIDELOCK_ACKNOWLEDGE` (`off`, `any`, `majority` or `all`),
    /// `TIDELOCK_ACKNOWLEDGE_MS`.
    ///
    /// # Errors
    /// [`InvalidOptions`](ErrorKind::InvalidOptions), with the name of the variable, if its value is invalid or not UTF-8.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// // TIDELOCK_LEASE_MS=10000 TIDELOCK_PREFIX=shop: TIDELOCK_PASSWORD_FILE=/run/secrets/redis
    /// let client = tidelock::Client::builder().from_env()?.connect("redis://127.0.0.1").await?;
    /// # Ok(()) }
    /// ```
    pub fn from_env(mut self) -> Result<Self> {
        self.lease = millis_from_env("TIDELOCK_LEASE_MS")?.unwrap_or(self.lease);
        self.response_timeout =
            millis_from_env("TIDELOCK_RESPONSE_TIMEOUT_MS")?.unwrap_or(self.response_timeout);
        self.acknowledge_within =
            millis_from_env("TIDELOCK_ACKNOWLEDGE_MS")?.unwrap_or(self.acknowledge_within);
        if let Some(word) = variable("TIDELOCK_ACKNOWLEDGE")? {
            self.acknowledge = word.parse().map_err(|error: Error| {
                let why = error.detail().unwrap_or_default();
                Error::new(error.kind()).because(format!("TIDELOCK_ACKNOWLEDGE: {why}"))
            })?;
        }
        self.prefix = variable("TIDELOCK_PREFIX")?.unwrap_or(self.prefix);
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        self.tls.ca = path("TIDELOCK_TLS_CA").or(self.tls.ca);
        self.tls.cert = path("TIDELOCK_TLS_CERT").or(self.tls.cert);
        self.tls.key = path("TIDELOCK_TLS_KEY").or(self.tls.key);
        let user = variable("TIDELOCK_USER")?;
        if let Some(file) = path("TIDELOCK_PASSWORD_FILE") {
            // An unreadable file shows up as a refused connect.
            // A pipe can be read only once: each later read would find an empty password.
            let is_pipe = std::fs::metadata(&file).is_ok_and(|file| !file.is_file());
            let read = move || {
                let text = std::fs::read_to_string(&file).ok();
                text.map(|text| text.trim_end().to_owned())
            };
            let once = OnceLock::new();
            return Ok(self.credentials_from(move || Credentials {
                user: user.clone(),
                password: if is_pipe {
                    once.get_or_init(&read).clone()
                } else {
                    read()
                },
            }));
        }
        let password = variable("TIDELOCK_PASSWORD")?;
        if user.is_some() || password.is_some() {
            return Ok(self.credentials(Credentials { user, password }));
        }
        Ok(self)
    }

    pub(crate) fn store_from_env() -> Result<String> {
        variable("TIDELOCK_STORE")?.ok_or_else(|| {
            Error::new(ErrorKind::InvalidOptions).because(
                "TIDELOCK_STORE is not set; set it to the URL of the store, such as redis://127.0.0.1",
            )
        })
    }

    /// Runs the client on tokio's clock, which tests can pause, and on the current runtime.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::{AcquireOptions, Client, LostReason};
    ///
    /// // On a runtime whose clock is paused (`start_paused`): an hour passes as soon as nothing else is left to do.
    /// let client = Client::builder().simulated_time().connect("memory:").await?;
    /// let hour = AcquireOptions::new().max_hold(Duration::from_secs(3600));
    /// let guard = client.lock("report").acquire_with(hour).await?;
    /// assert_eq!(guard.lost().await, LostReason::MaxHold);
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "test-util")]
    pub fn simulated_time(mut self) -> Self {
        self.clock = Clock::Simulated;
        self
    }

    /// Puts a [`Plug`] between the client and its store, for tests.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{Client, ErrorKind, test_util::Plug};
    ///
    /// let plug = Plug::new();
    /// let client = Client::builder().plug(&plug).connect("memory:").await?;
    /// plug.pull();
    /// let error = client.lock("stock:42").try_acquire().await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Unavailable);
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "test-util")]
    pub fn plug(mut self, plug: &Plug) -> Self {
        self.plug = Some(plug.clone());
        self
    }

    /// Connects. See [`Client::connect`].
    ///
    /// # Errors
    /// The errors of [`Client::connect`], and [`InvalidOptions`](ErrorKind::InvalidOptions) for invalid settings.
    ///
    /// # Cancel safety
    /// Cancel safe. If the future is dropped, its connections are closed.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{Client, ErrorKind};
    ///
    /// let client = Client::builder().connect("memory:").await?;
    /// let error = Client::builder().connect("nonsense:").await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidOptions);
    /// # Ok(()) }
    /// ```
    pub async fn connect(mut self, url: &str) -> Result<Client> {
        if url.starts_with("memory:") {
            self.refuse_a_paused_clock()?;
        }
        let (url, limit) = (url.to_owned(), self.connect_within);
        self.labels.store = store_of(&url);
        self.connect_with(async move |env: &Env| {
            let once = || registry::connect(&url, env);
            retry::within(limit, limit, &env.timers, once).await
        })
        .await
    }

    #[cfg(feature = "redis")]
    pub(crate) async fn connect_topology(
        mut self,
        topology: &crate::redis::Topology,
    ) -> Result<Client> {
        let limit = self.connect_within;
        self.labels.store = "redis";
        self.connect_with(async move |env: &Env| {
            let once = || registry::connect_topology(topology, env);
            retry::within(limit, limit, &env.timers, once).await
        })
        .await
    }

    /// Connects to your own store implementation.
    ///
    /// # Errors
    /// The errors of `open`, and [`InvalidOptions`](ErrorKind::InvalidOptions) for invalid settings.
    ///
    /// # Cancel safety
    /// As cancel safe as `open`.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{Client, Error, ErrorKind};
    ///
    /// let error = Client::builder().connect_to(async |_env| {
    ///     Err(Error::new(ErrorKind::Unavailable).because("nobody at home")) // or a `backend::Store` of your own
    /// });
    /// assert_eq!(error.await.unwrap_err().kind(), ErrorKind::Unavailable);
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "unstable-backend")]
    pub async fn connect_to(self, open: impl AsyncFnOnce(&Env) -> Result<Store>) -> Result<Client> {
        self.connect_with(open).await
    }

    pub(crate) async fn connect_with(
        self,
        open: impl AsyncFnOnce(&Env) -> Result<Store>,
    ) -> Result<Client> {
        let started = self.start()?;
        tracing::debug!(lease = ?self.lease, response_timeout = ?self.response_timeout, "connecting to the store");
        let store = open(&started.env).await?;
        tracing::debug!("connected");
        Ok(self.assemble(started, store, None))
    }

    pub(crate) fn check(&self) -> Result<()> {
        // We check the share first: the lease checks below compute with it, and need a valid number.
        if !(0.0..0.5).contains(&self.drift.share) {
            return Err(Error::new(ErrorKind::InvalidOptions)
                .because("the share of the drift must be between 0 and 0.5"));
        }
        options::check_lease("lease", self.lease, &self.drift)?;
        let least = Duration::from_millis(1);
        options::within("response timeout", self.response_timeout, least)?;
        options::within("acknowledge_within", self.acknowledge_within, least)?;
        if !self.connect_within.is_zero() {
            options::within("connect_within", self.connect_within, least)?;
        }
        self.hand_off.check()
    }

    /// Refuses a runtime whose clock is paused, as in `#[tokio::test(start_paused = true)]`, unless the client uses the
    /// same clock. The timeouts of the test would fire at once while the client still waits in real time, and the test
    /// would blame the lock.
    fn refuse_a_paused_clock(&self) -> Result<()> {
        if !matches!(self.clock, Clock::Boot) {
            return Ok(());
        }
        background::need_runtime()?;
        let before = tokio::time::Instant::now();
        std::thread::sleep(Duration::from_micros(100)); // long enough for any clock that runs
        if tokio::time::Instant::now() > before {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidOptions).because(
            "the runtime's clock is paused (start_paused), but this client would use the real one; connect with \
             Client::builder().simulated_time(), cargo feature `test-util`",
        ))
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("lease", &self.lease)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// The value of a variable of the environment. `None`: it is not set.
fn variable(name: &str) -> Result<Option<String>> {
    match std::env::var(name) {
        Ok(text) => Ok(Some(text)),
        Err(VarError::NotPresent) => Ok(None),
        // We do not take it for one that is not set. Otherwise the locks of a client would, for example, have no prefix. The
        // value may be a password, so the error is without it.
        Err(VarError::NotUnicode(_)) => {
            Err(Error::new(ErrorKind::InvalidOptions).because(format!("{name} is not valid UTF-8")))
        }
    }
}

fn millis_from_env(name: &str) -> Result<Option<Duration>> {
    let Some(text) = variable(name)? else {
        return Ok(None);
    };
    match text.parse() {
        Ok(millis) => Ok(Some(Duration::from_millis(millis))),
        Err(_) => Err(Error::new(ErrorKind::InvalidOptions)
            .because(format!("{name} is {text:?}, not a number of milliseconds"))),
    }
}

#[cfg(test)]
mod tests;
