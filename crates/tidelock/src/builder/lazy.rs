//! Clients that connect with their first operation.

use std::sync::Arc;

use super::ClientBuilder;
use crate::client::Client;
use crate::engine::instruments::store_of;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::store::lazy::{LazyStore, OpenStore, StoreOutline};
use crate::store::{Env, registry};

impl Client {
    /// A client that connects with its first operation. Returns at once and sends nothing. The URL is as for
    /// [`connect`](Self::connect).
    ///
    /// For a service that may start before its store, as in a compose file. Until the store answers, an acquire retries
    /// with growing pauses; its wait limit covers the connecting. Without a limit, and as during any later outage, it
    /// fails after one lease, or after [`connect_within`](crate::ClientBuilder::connect_within) if that is longer. Any
    /// other operation makes one attempt to connect. Operations that come at the same time share an attempt.
    ///
    /// A lock that the store does not have is refused without a connection. Until the first connect
    /// [`status`](Self::status) says that the client is not connected; [`ping`](Self::ping) connects.
    ///
    /// # Errors
    /// [`InvalidOptions`](ErrorKind::InvalidOptions) for an invalid URL, [`Runtime`](ErrorKind::Runtime) outside a tokio
    /// runtime. The first operation reports all other errors of [`connect`](Self::connect). A wrong password or
    /// certificate ends it at once.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    ///
    /// let client = tidelock::Client::connect_lazy("redis://redis")?; // Redis may still be starting
    /// assert!(!client.status().is_connected);
    /// let guard = client.lock("migration").acquire_timeout(Duration::from_secs(20)).await?;
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    pub fn connect_lazy(url: &str) -> Result<Self> {
        Self::builder().connect_lazy(url)
    }

    /// Like [`from_env`](Self::from_env), and [`connect_lazy`](Self::connect_lazy) instead of
    /// [`connect`](Self::connect).
    ///
    /// # Errors
    /// [`InvalidOptions`](ErrorKind::InvalidOptions) if `TIDELOCK_STORE` or another variable is missing or invalid, and
    /// the errors of [`connect_lazy`](Self::connect_lazy).
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// // TIDELOCK_STORE=redis://redis TIDELOCK_PREFIX=shop:
    /// let client = tidelock::Client::from_env_lazy()?;
    /// # drop(client);
    /// # Ok(()) }
    /// ```
    pub fn from_env_lazy() -> Result<Self> {
        let builder = Self::builder().from_env()?;
        builder.connect_lazy(&ClientBuilder::store_from_env()?)
    }
}

impl ClientBuilder {
    /// A client that connects with its first operation. See [`Client::connect_lazy`].
    ///
    /// # Errors
    /// The errors of [`Client::connect_lazy`], and [`InvalidOptions`](ErrorKind::InvalidOptions) for invalid settings.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{Client, ErrorKind};
    ///
    /// let client = Client::builder().prefix("shop:").connect_lazy("memory:")?;
    /// assert!(!client.status().is_connected);
    /// client.lock("stock").acquire().await?.release().await?;
    /// assert!(client.status().is_connected);
    /// let error = Client::builder().connect_lazy("nonsense:").unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidOptions);
    /// # Ok(()) }
    /// ```
    pub fn connect_lazy(mut self, url: &str) -> Result<Client> {
        if url.starts_with("memory:") {
            self.refuse_a_paused_clock()?;
        }
        let url = Arc::<str>::from(url);
        self.labels.store = store_of(&url);
        self.connect_lazy_with(
            |env| registry::outline(&url, env),
            |env| {
                let (url, env) = (Arc::clone(&url), env.clone());
                Box::new(move || {
                    let (url, env) = (Arc::clone(&url), env.clone());
                    Box::pin(async move { registry::connect(&url, &env).await })
                })
            },
        )
    }

    #[cfg(feature = "redis")]
    pub(crate) fn connect_topology_lazy(
        mut self,
        topology: crate::redis::Topology,
    ) -> Result<Client> {
        self.labels.store = "redis";
        let topology = Arc::new(topology);
        self.connect_lazy_with(
            |env| registry::outline_topology(&topology, env),
            |env| {
                let (topology, env) = (Arc::clone(&topology), env.clone());
                Box::new(move || {
                    let (topology, env) = (Arc::clone(&topology), env.clone());
                    Box::pin(async move { registry::connect_topology(&topology, &env).await })
                })
            },
        )
    }

    /// A client of a store that is opened later. `outline` checks what can be checked without a request.
    fn connect_lazy_with(
        self,
        outline: impl FnOnce(&Env) -> Result<StoreOutline>,
        open: impl FnOnce(&Env) -> OpenStore,
    ) -> Result<Client> {
        let started = self.start()?;
        let env = &started.env;
        let (store, opened) = LazyStore::of(&outline(env)?, open(env), env);
        Ok(self.assemble(started, store, Some(opened)))
    }
}

#[cfg(test)]
mod tests;
