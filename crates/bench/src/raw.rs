//! The same two scripts through the bare driver, over one connection: the yardstick.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures_util::StreamExt as _;
use load::{Contender, Side};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Cmd, IntoConnectionInfo};
use tokio::sync::watch;

const ACQUIRE: &str = concat!(
    include_str!("../../tidelock/src/backend/redis/lua/names.lua"),
    include_str!("../../tidelock/src/backend/redis/lua/sweep.lua"),
    include_str!("../../tidelock/src/backend/redis/lua/token.lua"),
    include_str!("../../tidelock/src/backend/redis/lua/acquire.lua"),
);
const RELEASE: &str = concat!(
    include_str!("../../tidelock/src/backend/redis/lua/listeners.lua"),
    include_str!("../../tidelock/src/backend/redis/lua/tell.lua"),
    include_str!("../../tidelock/src/backend/redis/lua/names.lua"),
    include_str!("../../tidelock/src/backend/redis/lua/sweep.lua"),
    include_str!("../../tidelock/src/backend/redis/lua/others.lua"),
    include_str!("../../tidelock/src/backend/redis/lua/release.lua"),
);

/// One connection that knows both scripts.
#[derive(Debug, Clone)]
pub struct Raw {
    connection: MultiplexedConnection,
    acquire: String,
    release: String,
}

impl Raw {
    /// Connects and loads the scripts.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn connect(url: &str) -> Result<Self> {
        // No time limit and no delay: nothing the driver need not do.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let mut connection = client(url)?
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let mut load = async |script: &str| {
            redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(script)
                .query_async::<String>(&mut connection)
                .await
        };
        let (acquire, release) = (load(ACQUIRE).await?, load(RELEASE).await?);
        Ok(Self {
            connection,
            acquire,
            release,
        })
    }

    /// What one lock's scripts are called with, all of it made beforehand.
    pub fn lock(&self, name: &str) -> RawLock {
        let owner = format!(
            "01234567-89ab-4cde-8f01-23456789abcd:{}",
            std::process::id()
        );
        RawLock {
            raw: self.clone(),
            tombstone: format!("tidelock:withdrawn:{{{name}}}:{owner}"),
            channel: channel(name),
            name: name.to_owned(),
            owner,
        }
    }
}

/// One lock's two scripts.
#[derive(Debug)]
pub struct RawLock {
    raw: Raw,
    name: String,
    owner: String,
    tombstone: String,
    channel: String,
}

impl RawLock {
    /// Whether it could be had.
    ///
    /// # Errors
    /// When the connection has gone.
    pub async fn try_acquire(&mut self) -> Result<bool> {
        let acquire = script(
            &self.raw.acquire,
            &[&self.name, &self.tombstone],
            &["30000", &self.owner],
        );
        let answer: Vec<i64> = acquire.query_async(&mut self.raw.connection).await?;
        Ok(answer.first() == Some(&1))
    }

    /// Gives it back, and wakes who listens.
    ///
    /// # Errors
    /// When it was not held, or the connection has gone.
    pub async fn give_back(&mut self) -> Result<()> {
        let release = script(
            &self.raw.release,
            &[&self.name],
            &[&self.owner, &self.channel, "publish"],
        );
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

/// Two processes of one task each that hand one lock to and fro: how soon a release, its message and the next acquire
/// can follow each other at all.
#[derive(Debug)]
pub struct Turns {
    raw: Raw,
    messages: watch::Receiver<u64>,
}

impl Turns {
    /// Connects, and listens to the releases of that name.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn connect(url: &str, name: &str) -> Result<Self> {
        let (count, messages) = watch::channel(0);
        tokio::spawn(listen(url.to_owned(), name.to_owned(), count));
        Self::listening(url, messages).await
    }

    /// The same, but a thread of its own listens, as tidelock's does.
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

/// Counts what is heard, and the beginning as one.
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

/// One of the two.
#[derive(Debug)]
pub struct TurnTaker {
    lock: RawLock,
    messages: watch::Receiver<u64>,
    /// How many releases must have been heard before it is this one's turn.
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
        // The other one may have ended, or not yet begun.
        const ALONE: Duration = Duration::from_millis(20);
        loop {
            let due = self.due;
            let turn = self.messages.wait_for(|heard| *heard >= due);
            if let Ok(ended) = tokio::time::timeout(ALONE, turn).await {
                ended.context("the subscription has ended")?;
            }
            let heard = *self.messages.borrow();
            if self.lock.try_acquire().await? {
                return Ok(());
            }
            self.due = heard + 1;
        }
    }

    async fn release(&mut self, (): ()) -> Result<()> {
        // While it is held nobody else says anything: the next message is this release, the one after it the other's.
        self.due = *self.messages.borrow() + 2;
        self.lock.give_back().await
    }
}

fn client(url: &str) -> Result<redis::Client> {
    let no_delay = TcpSettings::default().set_nodelay(true);
    let info = url.into_connection_info()?.set_tcp_settings(no_delay);
    Ok(redis::Client::open(info)?)
}

fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

fn script(hash: &str, keys: &[&str], args: &[&str]) -> Cmd {
    let mut cmd = redis::cmd("EVALSHA");
    cmd.arg(hash).arg(keys.len()).arg(keys).arg(args);
    cmd
}
