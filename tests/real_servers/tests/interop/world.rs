//! The setup of one test: a server, a Java peer, and a tidelock client.

use std::future::Future;
use std::time::Duration;

use testkit::golden::{Mask, Observer};
use testkit::java::{JavaPeer, PeerOptions, RedissonVersion, monotonic_now_ns};
use testkit::servers::{Cluster, RedisServer, Sentinels};
use tidelock::{AcquireOptions, Client, Guard, Lock, LockGuard};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// The limit for a wake-up: a part of the lease of 30 s, so a lost wake-up exceeds it and a JVM that stalls for a
/// second does not. The bench measures how fast wake-ups are.
pub(crate) const WAKE_BOUND: Duration = Duration::from_secs(5);

/// The default of both sides.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// Runs a test of this name with each version of Redisson.
macro_rules! with_each_redisson {
    ($($(#[$doc:meta])* $test:ident),+ $(,)?) => {
        mod newest {
            $($(#[$doc])* #[test] fn $test() { super::$test(testkit::java::RedissonVersion::Newest); })+
        }
        mod redisson_3_15_6 {
            $($(#[$doc])* #[test] fn $test() { super::$test(testkit::java::RedissonVersion::V3_15_6); })+
        }
    };
}

/// Like [`with_each_redisson`], and also with the versions between them, which `cargo xtask compatibility` runs.
macro_rules! with_every_redisson {
    ($($(#[$doc:meta])* $test:ident),+ $(,)?) => {
        with_each_redisson!($($(#[$doc])* $test),+);
        with_every_redisson! { @more redisson_3_52_0 V3_52_0 $($(#[$doc])* $test),+ }
        with_every_redisson! { @more redisson_3_27_2 V3_27_2 $($(#[$doc])* $test),+ }
        with_every_redisson! { @more redisson_3_12_5 V3_12_5 $($(#[$doc])* $test),+ }
    };
    (@more $module:ident $version:ident $($(#[$doc:meta])* $test:ident),+) => {
        mod $module {
            $(
                $(#[$doc])*
                #[test]
                #[ignore = "one of three more versions; cargo xtask compatibility"]
                fn $test() { super::$test(testkit::java::RedissonVersion::$version); }
            )+
        }
    };
}

/// A connection that waits for each reply: on a busy machine one takes longer than the driver's default of half a second.
pub(crate) async fn patient(url: &str) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(url).unwrap();
    let patient = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&patient);
    connection.await.unwrap()
}

/// What a test knows of its servers, whatever their topology.
pub(crate) trait Servers {
    fn url(&self) -> String;
    /// The server that has this key.
    fn node_of(&self, key: &str) -> &RedisServer;
}

impl Servers for RedisServer {
    fn url(&self) -> String {
        self.url()
    }

    fn node_of(&self, _: &str) -> &RedisServer {
        self
    }
}

impl Servers for Sentinels {
    fn url(&self) -> String {
        self.url()
    }

    fn node_of(&self, _: &str) -> &RedisServer {
        self.primary().unwrap()
    }
}

impl Servers for Cluster {
    fn url(&self) -> String {
        self.url()
    }

    fn node_of(&self, key: &str) -> &RedisServer {
        self.node_of(key).unwrap()
    }
}

pub(crate) struct World<S = RedisServer> {
    runtime: Runtime,
    pub(crate) client: Client,
    pub(crate) java: JavaPeer,
    pub(crate) server: S,
}

impl World {
    pub(crate) fn new(version: RedissonVersion) -> Self {
        Self::with_lease(version, LEASE)
    }

    /// Another lease on both sides. Neither side renews before a third of it has passed.
    pub(crate) fn with_lease(version: RedissonVersion, lease: Duration) -> Self {
        Self::build(version, lease, RedisServer::start().unwrap())
    }

    pub(crate) fn observer(&self) -> Observer<'_> {
        Observer::new(&self.server, Mask::default()).unwrap()
    }
}

impl<S: Servers> World<S> {
    pub(crate) fn on(version: RedissonVersion, server: S) -> Self {
        Self::build(version, LEASE, server)
    }

    fn build(version: RedissonVersion, lease: Duration, server: S) -> Self {
        let options = PeerOptions::new(version, server.url()).watchdog(lease);
        let java = JavaPeer::start_with(&options).unwrap();
        let (runtime, client) = rust(&server.url(), lease);
        Self {
            runtime,
            client,
            java,
            server,
        }
    }

    /// Runs a future to its end.
    pub(crate) fn run<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Spawns a task on the runtime.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(future);
    }

    /// Spawns a task and returns its handle.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime.spawn(future)
    }

    pub(crate) fn acquire<G: LockGuard>(&self, lock: &Lock<G>) -> G {
        self.run(lock.acquire()).unwrap()
    }

    pub(crate) fn acquire_with<G: LockGuard>(&self, lock: &Lock<G>, options: AcquireOptions) -> G {
        self.run(lock.acquire_with(options)).unwrap()
    }

    pub(crate) fn is_free_for_rust<G: LockGuard>(&self, lock: &Lock<G>) -> bool {
        self.run(lock.try_acquire()).unwrap().is_some()
    }

    /// Starts to acquire. The task returns the guard and the time at which it got the lock.
    pub(crate) fn begin_acquire(&self, lock: &Lock) -> JoinHandle<(Guard, u64)> {
        let waiting = lock.acquire();
        self.runtime.spawn(async move {
            let guard = waiting.await.unwrap();
            (guard, monotonic_now_ns())
        })
    }
}

/// A client with a runtime of its own.
pub(crate) fn rust(url: &str, lease: Duration) -> (Runtime, Client) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let client = runtime
        .block_on(Client::builder().lease(lease).connect(url))
        .unwrap();
    (runtime, client)
}

/// The time from one value of `monotonic_now_ns` to a later one.
pub(crate) fn between(earlier: u64, later: u64) -> Duration {
    Duration::from_nanos(later.saturating_sub(earlier))
}
