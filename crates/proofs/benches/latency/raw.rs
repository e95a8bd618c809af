//! The same two scripts through the bare driver, over one connection: the yardstick.

use anyhow::{Result, ensure};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Cmd, IntoConnectionInfo};

const ACQUIRE: &str = include_str!("../../../tidelock/src/backend/redis/lua/acquire.lua");
const RELEASE: &str = include_str!("../../../tidelock/src/backend/redis/lua/release.lua");

/// One connection that knows both scripts.
#[derive(Clone)]
pub(crate) struct Raw {
    connection: MultiplexedConnection,
    acquire: String,
    release: String,
}

impl Raw {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        // No time limit and no delay: nothing the driver need not do.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let no_delay = TcpSettings::default().set_nodelay(true);
        let client = redis::Client::open(url.into_connection_info()?.set_tcp_settings(no_delay))?;
        let mut connection = client
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
    pub(crate) fn lock(&self, name: &str) -> RawLock {
        let owner = "01234567-89ab-4cde-8f01-23456789abcd:1".to_owned();
        RawLock {
            raw: self.clone(),
            tombstone: format!("tidelock:withdrawn:{{{name}}}:{owner}"),
            channel: format!("redisson_lock__channel:{{{name}}}"),
            name: name.to_owned(),
            owner,
        }
    }
}

pub(crate) struct RawLock {
    raw: Raw,
    name: String,
    owner: String,
    tombstone: String,
    channel: String,
}

impl RawLock {
    pub(crate) async fn pair(&mut self) -> Result<()> {
        self.acquire().await?;
        self.release().await
    }

    pub(crate) async fn acquire(&mut self) -> Result<()> {
        let acquire = script(
            &self.raw.acquire,
            &[&self.name, &self.tombstone],
            &["30000", &self.owner],
        );
        let (granted, _): (i64, i64) = acquire.query_async(&mut self.raw.connection).await?;
        ensure!(granted == 1, "nobody else uses this name");
        Ok(())
    }

    pub(crate) async fn release(&mut self) -> Result<()> {
        let release = script(
            &self.raw.release,
            &[&self.name],
            &[&self.owner, &self.channel, "publish"],
        );
        let freed: i64 = release.query_async(&mut self.raw.connection).await?;
        ensure!(freed == 1, "nobody else uses this name");
        Ok(())
    }
}

fn script(hash: &str, keys: &[&str], args: &[&str]) -> Cmd {
    let mut cmd = redis::cmd("EVALSHA");
    cmd.arg(hash).arg(keys.len()).arg(keys).arg(args);
    cmd
}
