//! Clients of several stores, from URLs.

use super::{ClientBuilder, variable};
use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::redlock::RedLock;

impl ClientBuilder {
    /// A client for each of these URLs, in their order, with the same settings: for a [`RedLock`], or for a
    /// [`multi_lock`](Client::multi_lock) over several stores. Each client connects with its first operation, so a
    /// server that is down keeps nobody from starting.
    ///
    /// # Errors
    /// The errors of [`connect_lazy`](Self::connect_lazy), with the position of the URL.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::{Client, RedLock};
    ///
    /// let settings = Client::builder().lease(Duration::from_secs(10));
    /// let servers = settings.connect_each_lazy(["memory:", "memory:", "memory:"])?;
    /// let redlock = RedLock::builder(servers).node_timeout(Duration::from_millis(100)).build()?;
    /// redlock.lock("nightly").acquire().await?.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn connect_each_lazy<U: AsRef<str>>(
        self,
        urls: impl IntoIterator<Item = U>,
    ) -> Result<Vec<Client>> {
        let urls: Vec<U> = urls.into_iter().collect();
        let count = urls.len();
        let clients = urls.iter().enumerate().map(|(at, url)| {
            let client = self.clone().connect_lazy(url.as_ref());
            client.map_err(|error| {
                let why = error.detail().unwrap_or_default();
                Error::new(error.kind()).because(format!("store {} of {count}: {why}", at + 1))
            })
        });
        clients.collect()
    }
}

impl RedLock {
    /// A Redlock over the servers with these URLs, with default settings. The servers need not be there yet: each is
    /// connected to when it is first asked, and a majority is enough. For other settings see
    /// [`ClientBuilder::connect_each_lazy`].
    ///
    /// # Errors
    /// The errors of [`ClientBuilder::connect_each_lazy`], and [`InvalidOptions`](ErrorKind::InvalidOptions) for no URLs.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::RedLock;
    ///
    /// let redlock = RedLock::connect_lazy(["redis://one", "redis://two", "redis://three"])?;
    /// let guard = redlock.lock("nightly").acquire().await?;
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    pub fn connect_lazy<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self> {
        Self::new(Client::builder().connect_each_lazy(urls)?)
    }

    /// A Redlock over the servers of `TIDELOCK_STORES`, a list of URLs with spaces between them, with the settings of
    /// [`ClientBuilder::from_env`] for each. Otherwise like [`connect_lazy`](Self::connect_lazy).
    ///
    /// # Errors
    /// The errors of [`connect_lazy`](Self::connect_lazy), and [`InvalidOptions`](ErrorKind::InvalidOptions) if a variable
    /// is missing or invalid.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// // TIDELOCK_STORES="redis://one redis://two redis://three" TIDELOCK_PASSWORD_FILE=/run/secrets/redis
    /// let redlock = tidelock::RedLock::from_env_lazy()?;
    /// # drop(redlock);
    /// # Ok(()) }
    /// ```
    pub fn from_env_lazy() -> Result<Self> {
        let urls = variable("TIDELOCK_STORES")?.ok_or_else(|| {
            Error::new(ErrorKind::InvalidOptions).because(
                "TIDELOCK_STORES is not set; set it to the URLs of the servers, with spaces between them",
            )
        })?;
        let settings = Client::builder().from_env()?;
        Self::new(settings.connect_each_lazy(urls.split_whitespace())?)
    }
}
