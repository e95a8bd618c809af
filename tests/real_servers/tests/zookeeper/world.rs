//! A server, a proxy in front of it, and clients with and without the proxy.

use std::time::{Duration, Instant};

pub(crate) use real_servers::ms;
use testkit::process::Spawned;
use testkit::proxy::{Mode, Proxy};
use testkit::servers::ZooKeeperServer;
use tidelock::{AcquireOptions, Client, FencedGuard, Guard};
use tokio::task::JoinHandle;

/// Longer than any step of these tests, unless it hangs.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// The lease of a client that must lose nothing, however long something does not run.
const LONG: Duration = Duration::from_secs(30);

pub(crate) struct World {
    pub(crate) server: ZooKeeperServer,
    pub(crate) proxy: Proxy,
    /// Connects directly to the server. It has a long lease, unless both are alike.
    pub(crate) near: Client,
    /// Connects through the proxy, and has the lease of the test.
    pub(crate) far: Client,
    lease: Duration,
}

impl World {
    pub(crate) async fn new(lease: Duration) -> Self {
        Self::with(lease, "").await
    }

    /// With these options in the URL of `far`.
    pub(crate) async fn with(lease: Duration, options: &str) -> Self {
        Self::of(lease.max(LONG), lease, lease.min(ms(3000)), options).await
    }

    /// Both clients have this lease.
    pub(crate) async fn alike(lease: Duration) -> Self {
        Self::of(lease, lease, lease.min(ms(3000)), "").await
    }

    /// `far` does not wait long for an answer.
    pub(crate) async fn hasty(lease: Duration) -> Self {
        Self::of(lease.max(LONG), lease, (lease / 3).min(ms(600)), "").await
    }

    async fn of(long: Duration, lease: Duration, patience: Duration, options: &str) -> Self {
        let server = ZooKeeperServer::start().unwrap();
        let proxy = Proxy::start_opaque(server.addr()).unwrap();
        let near = client(&format!("{}/w", server.url()), long).await;
        let url = format!("zookeeper://{}/w{options}", proxy.addr());
        let far = client_that_waits(&url, lease, patience).await;
        Self {
            server,
            proxy,
            near,
            far,
            lease,
        }
    }

    /// Another process that uses the same locks.
    pub(crate) fn peer(&self) -> Spawned {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_peer"));
        command.arg(format!("{}/w", self.server.url()));
        command.arg(self.lease.as_millis().to_string());
        let mut peer = Spawned::start(command).unwrap();
        peer.wait_line("ready", SOON).unwrap();
        peer
    }

    /// Drops all data in both directions, without closing a connection.
    pub(crate) fn partition(&self) {
        self.proxy.set_both(Mode::Drop);
    }

    /// Cuts the old connections. New ones work again.
    pub(crate) fn heal(&self) {
        self.proxy.set_both(Mode::Pass);
        self.proxy.cut();
    }

    /// The number of ephemeral nodes: those of locks and of waiters.
    pub(crate) fn nodes(&self) -> u64 {
        self.server.number("zk_ephemerals_count").unwrap()
    }

    pub(crate) async fn until_nodes(&self, count: u64) {
        self.until_nodes_within(SOON, count).await;
    }

    pub(crate) async fn until_nodes_within(&self, limit: Duration, count: u64) {
        let end = Instant::now() + limit;
        while self.nodes() != count {
            assert!(Instant::now() < end, "{} nodes, not {count}", self.nodes());
            tokio::time::sleep(ms(20)).await; // without a pause, the request itself keeps a cold server busy
        }
    }
}

pub(crate) async fn client(url: &str, lease: Duration) -> Client {
    client_that_waits(url, lease, ms(3000)).await
}

/// `patience`: how long it waits for an answer.
pub(crate) async fn client_that_waits(url: &str, lease: Duration, patience: Duration) -> Client {
    let builder = Client::builder()
        .lease(lease)
        .response_timeout(patience)
        .connect_within(SOON)
        .publish_process_info(false);
    builder.connect(url).await.unwrap()
}

/// Waits for the lock on a separate task, and records when it was granted.
pub(crate) fn waits(client: &Client, name: &str) -> JoinHandle<(FencedGuard, Instant)> {
    let waiting = client.lock(name).fenced().acquire();
    tokio::spawn(async move {
        let guard = waiting.await.unwrap();
        (guard, Instant::now())
    })
}

/// Records when the loss of a lock was reported.
pub(crate) fn noted(guard: impl Into<Guard>) -> JoinHandle<(Guard, tidelock::LostReason, Instant)> {
    let guard = guard.into();
    tokio::spawn(async move {
        let reason = guard.lost().await;
        (guard, reason, Instant::now())
    })
}

pub(crate) async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    let Ok(value) = tokio::time::timeout(SOON, event).await else {
        panic!("not within {SOON:?}: {what}");
    };
    value
}

pub(crate) async fn free(client: &Client, name: &str) {
    let options = AcquireOptions::new().wait(SOON);
    let guard = client.lock(name).acquire_with(options).await.unwrap();
    guard.release().await.unwrap();
}

/// Waits until this many waiters queue behind the holder.
pub(crate) async fn until_waiters(client: &Client, name: &str, count: u64) {
    let end = Instant::now() + SOON;
    loop {
        let seen = client.lock(name).inspect().await.unwrap();
        if seen.waiters == Some(count) {
            return;
        }
        assert!(Instant::now() < end, "{seen:?}");
        tokio::time::sleep(ms(10)).await;
    }
}
