//! The setup of every row: a server, a proxy in front of it, a client through the proxy, and the checks that the rows
//! share.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use real_servers::{SOON, boot_time, builder, eventually, secs};
use testkit::proxy::Proxy;
use testkit::servers::{RedisBuilder, RedisServer};
use tidelock::{Client, ClientBuilder};

use crate::peer::Peer;

/// A server, a proxy in front of it, and a client that connects through the proxy.
pub(crate) struct Shop {
    pub(crate) client: Client,
    pub(crate) proxy: Proxy,
    pub(crate) server: RedisServer,
    pub(crate) lease: Duration,
    /// The settings of the clients that `direct` and `another` connect.
    pub(crate) settings: ClientBuilder,
}

/// A shop with a plain server.
pub(crate) async fn shop(lease: Duration) -> Result<Shop> {
    shop_on(RedisServer::builder(), lease).await
}

/// A shop with a server from this builder.
pub(crate) async fn shop_on(server: RedisBuilder, lease: Duration) -> Result<Shop> {
    open(server, builder(lease), lease).await
}

/// Settings for the rows in which the server answers every request. The response timeout is two leases: on a busy machine
/// an answer may come late, and that is not the fault of the row.
pub(crate) fn patient_builder(lease: Duration) -> ClientBuilder {
    builder(lease).response_timeout(lease * 2)
}

/// A shop with a plain server, whose clients have these settings.
pub(crate) async fn patient(lease: Duration) -> Result<Shop> {
    open(RedisServer::builder(), patient_builder(lease), lease).await
}

async fn open(server: RedisBuilder, settings: ClientBuilder, lease: Duration) -> Result<Shop> {
    let server = server.start()?;
    let proxy = Proxy::start(server.addr())?;
    // The server accepts all of them. A busy machine may be late to answer the first requests.
    let settings = settings.connect_within(SOON);
    let client = settings.clone().connect(&proxy.url()).await?;
    Ok(Shop {
        client,
        proxy,
        server,
        lease,
        settings,
    })
}

impl Shop {
    /// A second client, connected directly to the server: faults in the proxy do not affect it.
    pub(crate) async fn direct(&self) -> Result<Client> {
        let settings = self.settings.clone();
        Ok(settings.connect(&self.server.url()).await?)
    }

    /// Another process, connected directly to the server.
    pub(crate) fn peer(&self) -> Result<Peer> {
        Peer::start(&self.server.url(), self.lease)
    }

    /// The rest of the lock's lease on the server. `None`: there is no such key.
    pub(crate) fn time_left(&self, name: &str) -> Result<Option<Duration>> {
        let left: i64 = self.server.query(&["PTTL", name])?;
        ensure!(
            left != -1,
            "{name} has no time to live, so it would never expire"
        );
        Ok(u64::try_from(left).ok().map(Duration::from_millis))
    }

    /// The earliest time, on the boot clock, at which the server can grant the lock to another owner. A slow answer
    /// makes the result inexact, so we repeat the request then.
    pub(crate) fn ends_at(&self, name: &str) -> Result<Duration> {
        let start = boot_time();
        let mut earliest = Duration::ZERO;
        loop {
            let before = boot_time();
            let left = self.time_left(name)?;
            earliest = earliest.max(before + left.with_context(|| format!("nobody holds {name}"))?);
            let now = boot_time();
            if now - before < Duration::from_millis(2) || now - start > self.lease / 4 {
                return Ok(earliest);
            }
        }
    }

    /// Waits for the next renewal of a held lock. Returns the new end of the lease, as [`ends_at`](Self::ends_at) does.
    pub(crate) fn next_renewal(&self, name: &str) -> Result<Duration> {
        let mut ends = self.ends_at(name)?;
        // Without any the lease ends, and that is an error too.
        eventually(self.lease + SOON, "a renewal", || {
            let before = std::mem::replace(&mut ends, self.ends_at(name)?);
            // Without a renewal the end moves by no more than the millisecond in which the server counts.
            Ok(ends > before + self.lease / 20)
        })?;
        Ok(ends)
    }

    /// Acquires and releases a lock of another name, so that the scripts are loaded and the connections are open.
    pub(crate) async fn warm_up(&self) -> Result<()> {
        let guard = self.client.lock("warm").acquire().await?;
        self.next_renewal("warm")?;
        Ok(guard.release().await?)
    }

    /// The owner and count of each hold on the server.
    pub(crate) fn holders(&self, name: &str) -> Result<Vec<(String, u64)>> {
        self.server.query(&["HGETALL", name])
    }

    /// The number of client connections, without the test's admin connection.
    pub(crate) fn connections(&self) -> Result<usize> {
        connections(&self.server)
    }

    /// The keys and channels that should not be left: all except fencing counters and our own keys that expire.
    pub(crate) fn leftovers(&self) -> Result<Vec<String>> {
        leftovers(&self.server)
    }

    /// Closes the clients and waits until no key, channel or connection is left: at most the lease plus two seconds.
    pub(crate) async fn nothing_left(self, others: Vec<Client>) -> Result<()> {
        let Self {
            client,
            proxy,
            server,
            lease,
            settings: _,
        } = self;
        for client in others.into_iter().chain([client]) {
            client.close(Duration::ZERO).await;
        }
        let limit = lease + secs(2);
        eventually(limit, "nothing is left behind", || {
            Ok(leftovers(&server)?.is_empty() && connections(&server)? == 0)
        })
        .with_context(|| {
            let clients = server.query::<String, _>(&["CLIENT", "LIST"]);
            format!(
                "left: {:?}, {}",
                leftovers(&server),
                clients.unwrap_or_default()
            )
        })?;
        // We drop the proxy last. Otherwise it would cut connections that a client has left open, and hide the leak.
        drop(proxy);
        Ok(())
    }
}

fn connections(server: &RedisServer) -> Result<usize> {
    let list: String = server.query(&["CLIENT", "LIST"])?;
    Ok(list.matches(" addr=127.0.0.1:").count())
}

fn leftovers(server: &RedisServer) -> Result<Vec<String>> {
    let mut left: Vec<String> = server.query(&["PUBSUB", "CHANNELS"])?;
    for key in server.keys()? {
        if key.starts_with("redisson_lock_token:") {
            continue;
        }
        let ttl: i64 = server.query(&["PTTL", &key])?;
        // -2: the key has gone since it was listed.
        if ttl != -2 && (ttl == -1 || !key.starts_with("tidelock:")) {
            left.push(key);
        }
    }
    Ok(left)
}
