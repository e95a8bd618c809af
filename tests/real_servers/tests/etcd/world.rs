//! A private server, and a client with short leases.

use std::time::{Duration, Instant};

pub(crate) use real_servers::ms;
use testkit::servers::EtcdServer;
use tidelock::{Client, FencedGuard};

/// A limit for steps that are much faster unless they hang.
pub(crate) const SOON: Duration = Duration::from_secs(40);

/// A client with a lease of two seconds.
pub(crate) async fn client(url: &str) -> Client {
    let builder = Client::builder()
        .lease(ms(2000))
        .response_timeout(ms(2000))
        .connect_within(SOON)
        .publish_process_info(false);
    builder.connect(url).await.unwrap()
}

/// Starts a waiter. It returns the guard and the time at which it got the lock.
pub(crate) fn waits(
    client: &Client,
    name: &str,
) -> tokio::task::JoinHandle<(FencedGuard, Instant)> {
    let lock = client.lock(name).fenced();
    tokio::spawn(async move {
        let guard = lock.acquire().await.unwrap();
        (guard, Instant::now())
    })
}

pub(crate) async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    let event = tokio::time::timeout(SOON, event).await;
    event.unwrap_or_else(|_| panic!("not within {SOON:?}: {what}"))
}

/// Waits until there are `count` keys, and returns them in the order of their creation.
pub(crate) async fn until_keys(server: &EtcdServer, count: usize) -> Vec<String> {
    let end = Instant::now() + SOON;
    loop {
        let args = ["get", "", "--prefix", "--keys-only", "--sort-by=CREATE"];
        let list = server.admin(&args).unwrap();
        let keys: Vec<String> = list
            .lines()
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect();
        if keys.len() == count {
            return keys;
        }
        assert!(Instant::now() < end, "{count} keys: {keys:?}");
        tokio::time::sleep(ms(10)).await;
    }
}

/// The lease of a key, in the notation of `etcdctl`.
pub(crate) fn lease_of(server: &EtcdServer, key: &str) -> String {
    let said = server.admin(&["get", key, "-w", "fields"]).unwrap();
    let lease = said
        .lines()
        .find_map(|line| line.strip_prefix("\"Lease\" : "));
    format!("{:x}", lease.unwrap().trim().parse::<i64>().unwrap())
}
