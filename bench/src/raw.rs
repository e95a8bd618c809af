//! The baselines: tidelock's acquire and release scripts, or calls like those of Redisson's, through the bare driver,
//! over one connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures_util::StreamExt as _;
use load::{Contender, Side};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Cmd, IntoConnectionInfo};
use tidelock::store::redis_scripts;
use tokio::sync::watch;

/// The calls that Redisson makes for a lock without a fencing token and without waiters. `RLock.lock`.
const REDISSON_ACQUIRE: &str = "
local free = redis.call('exists', KEYS[1]) == 0
if free or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return {1}
end
return {0, redis.call('pttl', KEYS[1])}
";

/// `RLock.unlock`, until Redisson 3.24; later ones make more calls.
const REDISSON_RELEASE: &str = "
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return 0
end
if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then
  return 2
end
redis.call('del', KEYS[1])
redis.call(ARGV[3], ARGV[2], '0')
return 1
";

/// One connection with both scripts loaded.
#[derive(Debug, Clone)]
pub struct Raw {
    connection: MultiplexedConnection,
    acquire: String,
    release: String,
    /// The scripts are tidelock's, which need fewer arguments.
    ours: bool,
}

impl Raw {
    /// Connects and loads the scripts.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn connect(url: &str) -> Result<Self> {
        let scripts = [redis_scripts::acquire(), redis_scripts::release()];
        Self::load(url, scripts, true).await
    }

    /// The same with the calls of Redisson's scripts.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_redisson(url: &str) -> Result<Self> {
        Self::load(url, [REDISSON_ACQUIRE, REDISSON_RELEASE], false).await
    }

    async fn load(url: &str, [acquire, release]: [&str; 2], ours: bool) -> Result<Self> {
        let mut connection = connection(url).await?;
        let mut load = async |script: &str| {
            redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(script)
                .query_async::<String>(&mut connection)
                .await
        };
        let (acquire, release) = (load(acquire).await?, load(release).await?);
        Ok(Self {
            connection,
            acquire,
            release,
            ours,
        })
    }

    /// The scripts' arguments for one lock, built in advance so that building them is not measured.
    pub fn lock(&self, name: &str) -> RawLock {
        // Tasks of one process may compete for one name, so each has an owner of its own.
        static OWNERS: AtomicU64 = AtomicU64::new(0);
        let owner = format!(
            "01234567-89ab-4cde-8f01-23456789abcd:{}{:06}",
            std::process::id(),
            OWNERS.fetch_add(1, Ordering::Relaxed)
        );
        RawLock {
            raw: self.clone(),
            channel: channel(name),
            name: name.to_owned(),
            owner,
        }
    }
}

/// The two scripts of one lock.
#[derive(Debug)]
pub struct RawLock {
    raw: Raw,
    name: String,
    owner: String,
    channel: String,
}

impl RawLock {
    /// Tries once to acquire; returns whether it succeeded.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn try_acquire(&mut self) -> Result<bool> {
        let acquire = script(&self.raw.acquire, &[&self.name], &["30000", &self.owner]);
        let answer: redis::Value = acquire.query_async(&mut self.raw.connection).await?;
        Ok(is_granted(&answer))
    }

    /// Releases the lock and wakes the subscribers.
    ///
    /// # Errors
    /// The lock was not held, or the connection is lost.
    pub async fn give_back(&mut self) -> Result<()> {
        let args = [&*self.owner, &*self.channel, "publish"];
        let args = if self.raw.ours { &args[..1] } else { &args };
        let release = script(&self.raw.release, &[&self.name], args);
        let freed: redis::Value = release.query_async(&mut self.raw.connection).await?;
        ensure!(freed != redis::Value::Int(0), "it was not held");
        Ok(())
    }
}

impl Side for Raw {
    type Contender = RawLock;

    fn contender(&self, name: &str) -> Result<RawLock> {
        Ok(self.lock(name))
    }
}

impl Contender for RawLock {
    type Held = ();

    async fn acquire(&mut self) -> Result<()> {
        ensure!(self.try_acquire().await?, "nobody else uses this name");
        Ok(())
    }

    async fn release(&mut self, (): ()) -> Result<()> {
        self.give_back().await
    }
}

/// Two processes of one task each that pass one lock back and forth. This measures the shortest possible sequence of
/// release, wake message and next acquire.
#[derive(Debug)]
pub struct Turns {
    raw: Raw,
    messages: watch::Receiver<u64>,
}

impl Turns {
    /// Connects, and subscribes to the releases of the name.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn connect(url: &str, name: &str) -> Result<Self> {
        let (count, messages) = watch::channel(0);
        tokio::spawn(listen(url.to_owned(), name.to_owned(), count));
        Self::listening(url, messages).await
    }

    /// The same, but the subscription runs on a thread of its own, as in tidelock.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_apart(url: &str, name: &str) -> Result<Self> {
        let (count, messages) = watch::channel(0);
        let ears = listen(url.to_owned(), name.to_owned(), count);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        std::thread::spawn(move || runtime.block_on(ears));
        Self::listening(url, messages).await
    }

    async fn listening(url: &str, mut messages: watch::Receiver<u64>) -> Result<Self> {
        messages
            .changed()
            .await
            .context("nothing can be listened to")?;
        Ok(Self {
            raw: Raw::connect(url).await?,
            messages,
        })
    }
}

/// Counts the messages. The subscription itself counts as one, so that the caller can wait for it.
async fn listen(url: String, name: String, count: watch::Sender<u64>) -> Result<()> {
    let mut ears = client(&url)?.get_async_pubsub().await?;
    ears.subscribe(channel(&name)).await?;
    count.send_modify(|count| *count += 1);
    let mut heard = ears.on_message();
    while heard.next().await.is_some() {
        count.send_modify(|count| *count += 1);
    }
    Ok(())
}

/// The task of one of the two processes.
#[derive(Debug)]
pub struct TurnTaker {
    lock: RawLock,
    messages: watch::Receiver<u64>,
    /// The message count to wait for before the next attempt.
    due: u64,
}

impl Side for Turns {
    type Contender = TurnTaker;

    fn contender(&self, name: &str) -> Result<TurnTaker> {
        Ok(TurnTaker {
            lock: self.raw.lock(name),
            messages: self.messages.clone(),
            due: 0,
        })
    }
}

impl Contender for TurnTaker {
    type Held = ();

    async fn acquire(&mut self) -> Result<()> {
        // Bounds the wait for a message: the other process may have ended, or may not have started yet.
        const ALONE: Duration = Duration::from_millis(20);
        loop {
            let due = self.due;
            let turn = self.messages.wait_for(|heard| *heard >= due);
            if let Ok(ended) = tokio::time::timeout(ALONE, turn).await {
                ended.context("the subscription has ended")?;
            }
            // We read the count before the attempt. Otherwise a release between the two would be counted as old, and we
            // would wait for the next one.
            let heard = *self.messages.borrow();
            if self.lock.try_acquire().await? {
                return Ok(());
            }
            self.due = heard + 1;
        }
    }

    async fn release(&mut self, (): ()) -> Result<()> {
        // Nobody else publishes while we hold the lock. So the next message is our own release, and the one after it is
        // the other process's release.
        self.due = *self.messages.borrow() + 2;
        self.lock.give_back().await
    }
}

pub(crate) fn client(url: &str) -> Result<redis::Client> {
    let no_delay = TcpSettings::default().set_nodelay(true);
    let info = url.into_connection_info()?.set_tcp_settings(no_delay);
    Ok(redis::Client::open(info)?)
}

/// A connection for scripts. No response timeout (and `TCP_NODELAY` in [`client`]), so that the driver does no
/// unnecessary work.
pub(crate) async fn connection(url: &str) -> Result<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let client = client(url)?;
    Ok(client
        .get_multiplexed_async_connection_with_config(&config)
        .await?)
}

/// Whether a script that acquires a lock has answered `1` or `{1, …}`.
pub(crate) fn is_granted(answer: &redis::Value) -> bool {
    let number = match answer {
        redis::Value::Array(parts) => parts.first(),
        number => Some(number),
    };
    number == Some(&redis::Value::Int(1))
}

pub(crate) fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

pub(crate) fn script(hash: &str, keys: &[&str], args: &[&str]) -> Cmd {
    let mut cmd = redis::cmd("EVALSHA");
    cmd.arg(hash).arg(keys.len()).arg(keys).arg(args);
    cmd
}
