//! The setup of every row: a server, a proxy in front of it, a client through the proxy, and the checks that the rows
//! share.

use std::future::Future;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use testkit::process::Spawned;
pub(crate) use testkit::process::boot_time;
use testkit::proxy::Proxy;
use testkit::servers::{RedisBuilder, RedisServer};
use tidelock::{AcquireOptions, Client, ClientBuilder, Guard, Lock, LostReason};
use tokio::task::JoinHandle;

/// A limit for events that the test only has to see happen.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Milliseconds, as in the text of the rows.
pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A server, a proxy in front of it, and a client that connects through the proxy.
pub(crate) struct Shop {
    pub(crate) client: Client,
    pub(crate) proxy: Proxy,
    pub(crate) server: RedisServer,
    pub(crate) lease: Duration,
}

/// A shop with a plain server.
pub(crate) async fn shop(lease: Duration) -> Result<Shop> {
    shop_on(RedisServer::builder(), lease).await
}

/// A shop with a server from this builder.
pub(crate) async fn shop_on(server: RedisBuilder, lease: Duration) -> Result<Shop> {
    let server = server.start()?;
    let proxy = Proxy::start(server.addr())?;
    let client = builder(lease).connect(&proxy.url()).await?;
    Ok(Shop {
        client,
        proxy,
        server,
        lease,
    })
}

/// The client settings of all rows: the response timeout is a quarter of the lease.
pub(crate) fn builder(lease: Duration) -> ClientBuilder {
    Client::builder().lease(lease).response_timeout(lease / 4)
}

impl Shop {
    /// A second client, connected directly to the server: faults in the proxy do not affect it.
    pub(crate) async fn direct(&self) -> Result<Client> {
        Ok(builder(self.lease).connect(&self.server.url()).await?)
    }

    /// Another process, connected directly to the server.
    pub(crate) fn peer(&self) -> Result<Peer> {
        Peer::start(&self.server.url(), self.lease)
    }

    /// The rest of the lock's lease on the server. `None`: there is no such key.
    pub(crate) fn time_left(&self, name: &str) -> Result<Option<Duration>> {
        let left: i64 = self.server.query(&["PTTL", name])?;
        ensure!(left != -1, "{name} would stay for ever");
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
            if now - before < ms(2) || now - start > self.lease / 20 {
                return Ok(earliest);
            }
        }
    }

    /// Waits for the next renewal of a held lock. Returns the new end of the lease, as [`ends_at`](Self::ends_at) does.
    pub(crate) fn next_renewal(&self, name: &str) -> Result<Duration> {
        let mut ends = self.ends_at(name)?;
        eventually(self.lease, "a renewal", || {
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

    /// Closes the clients and waits until no key, channel or connection is left: at most the lease plus a second.
    pub(crate) async fn nothing_left(self, others: Vec<Client>) -> Result<()> {
        let Self {
            client,
            proxy,
            server,
            lease,
        } = self;
        for client in others.into_iter().chain([client]) {
            client.close(Duration::ZERO).await;
        }
        let limit = lease + Duration::from_secs(1);
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

/// Polls until the condition holds and returns how long that took. For conditions that only the server can see.
pub(crate) fn eventually(
    limit: Duration,
    what: &str,
    mut reached: impl FnMut() -> Result<bool>,
) -> Result<Duration> {
    let start = Instant::now();
    loop {
        if reached()? {
            return Ok(start.elapsed());
        }
        ensure!(start.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// Awaits a future with a time limit.
pub(crate) async fn within<F: Future>(limit: Duration, what: &str, future: F) -> Result<F::Output> {
    tokio::time::timeout(limit, future)
        .await
        .with_context(|| format!("not within {limit:?}: {what}"))
}

/// Waits for the loss of a guard and records when it was reported.
pub(crate) struct Told(JoinHandle<(Duration, LostReason)>);

/// Acquires a lock, and retries if an outage lasts longer than one acquire waits.
pub(crate) async fn insist(lock: Lock) -> Result<Guard> {
    loop {
        match lock.acquire().await {
            Err(error) if error.is_retryable() => {}
            answer => return Ok(answer?),
        }
    }
}

/// Starts to wait for the loss.
pub(crate) fn listen(guard: &Guard) -> Told {
    let lost = guard.lost();
    Told(tokio::spawn(async move {
        let reason = lost.await;
        (boot_time(), reason)
    }))
}

impl Told {
    /// True if no loss has been reported.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.0.is_finished()
    }

    /// The time of the report, on the boot clock, and the reason.
    pub(crate) async fn told(self, limit: Duration) -> Result<(Duration, LostReason)> {
        Ok(within(limit, "the holder is told", self.0).await??)
    }
}

/// One hold: its begin and end on the boot clock.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) begin: Duration,
    pub(crate) end: Duration,
    pub(crate) token: u64,
}

/// All holds of one lock, by all holders.
#[derive(Debug, Clone, Default)]
pub(crate) struct History(Arc<Mutex<Vec<Span>>>);

impl History {
    pub(crate) fn add(&self, span: Span) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(span);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Fails if two holds overlap, or if a later hold has a token that is not larger (0: no tokens). Returns their
    /// number.
    pub(crate) fn check(&self) -> Result<usize> {
        let mut spans = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        spans.sort_by_key(|span| span.begin);
        for pair in spans.windows(2) {
            let (first, second) = (&pair[0], &pair[1]);
            ensure!(first.end <= second.begin, "two held at once: {pair:#?}");
            ensure!(
                second.token == 0 || first.token < second.token,
                "a token did not grow: {pair:#?}"
            );
        }
        Ok(spans.len())
    }
}

/// The counts of one worker.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Toll {
    pub(crate) failed_acquires: usize,
    pub(crate) failed_releases: usize,
}

/// Acquires and releases the lock until `stop`, and records each hold. It counts the failures that the fault explains;
/// any other failure ends the test.
pub(crate) async fn hammer(
    lock: Lock,
    history: History,
    stop: tokio::sync::watch::Receiver<bool>,
) -> Result<Toll> {
    let mut toll = Toll::default();
    while !*stop.borrow() {
        let patience = AcquireOptions::new().wait(SOON);
        let guard = match lock.acquire_with(patience).await {
            Ok(guard) => guard,
            Err(error) if error.is_retryable() => {
                toll.failed_acquires += 1;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let begin = boot_time();
        // A loss ends the section early, and the holder was told.
        let _ = guard
            .while_held(tokio::time::sleep(Duration::from_millis(1)))
            .await;
        history.add(Span {
            begin,
            end: boot_time(),
            token: guard.token().map_or(0, tidelock::FencingToken::get),
        });
        if let Err(error) = guard.release().await {
            ensure!(error.is_retryable(), "released with {error}");
            toll.failed_releases += 1;
        }
    }
    Ok(toll)
}

/// Another process with a client of its own. `src/bin/peer.rs` lists its commands.
pub(crate) struct Peer(pub(crate) Spawned);

/// A line that a peer has printed.
#[derive(Debug)]
pub(crate) struct Line {
    /// On the boot clock.
    pub(crate) at: Duration,
    pub(crate) text: String,
}

impl Line {
    /// The value of `key=` in the line.
    pub(crate) fn get(&self, key: &str) -> Result<&str> {
        let value = self.text.split_whitespace().find_map(|word| {
            word.strip_prefix(key)
                .and_then(|rest| rest.strip_prefix('='))
        });
        value.with_context(|| format!("no {key} in {:?}", self.text))
    }

    pub(crate) fn number(&self, key: &str) -> Result<u64> {
        Ok(self.get(key)?.parse()?)
    }
}

impl Peer {
    pub(crate) fn start(url: &str, lease: Duration) -> Result<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peer"));
        command.arg(url).arg(lease.as_millis().to_string());
        Self::run(command)
    }

    /// Starts a prepared command line, and waits until its client is connected.
    pub(crate) fn run(command: Command) -> Result<Self> {
        let mut peer = Self(Spawned::start(command)?);
        peer.hear("ready")?;
        Ok(peer)
    }

    /// Sends a command.
    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        self.0.write_line(line)
    }

    /// Reads the next line, which must begin with `words`.
    pub(crate) fn hear(&mut self, words: &str) -> Result<Line> {
        let line = self.0.next_line(SOON)?;
        let (stamp, text) = line.split_once(' ').unwrap_or_default();
        if !text.starts_with(words) {
            bail!("the peer said {line:?} where {words:?} was due");
        }
        Ok(Line {
            at: Duration::from_nanos(stamp.parse()?),
            text: text.to_owned(),
        })
    }

    /// Sends a command and reads the next line.
    pub(crate) fn ask(&mut self, line: &str, words: &str) -> Result<Line> {
        self.tell(line)?;
        self.hear(words)
    }
}

#[cfg(test)]
mod tests {
    use super::{History, Span, ms};

    fn checked(spans: &[(u64, u64, u64)]) -> Option<usize> {
        let history = History::default();
        for &(begin, end, token) in spans {
            let (begin, end) = (ms(begin), ms(end));
            history.add(Span { begin, end, token });
        }
        history.check().ok()
    }

    #[test]
    fn the_checker_finds_what_must_not_be() {
        assert_eq!(checked(&[(5, 6, 2), (1, 5, 1)]), Some(2));
        assert_eq!(checked(&[(1, 5, 1), (4, 6, 2)]), None, "two at once");
        assert_eq!(
            checked(&[(1, 9, 0), (4, 6, 0)]),
            None,
            "one within the other"
        );
        assert_eq!(
            checked(&[(1, 2, 3), (4, 6, 3)]),
            None,
            "the same token twice"
        );
        assert_eq!(checked(&[(1, 2, 0), (4, 6, 0)]), Some(2), "no tokens");
    }
}
