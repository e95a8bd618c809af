//! Redis and Valkey servers described in parts instead of a URL. [`Client::connect`](crate::Client::connect) takes the
//! same servers as a URL.

pub(crate) mod topology;

use crate::builder::ClientBuilder;
use crate::client::Client;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;

pub use self::topology::{PubSubMode, Topology};

impl Topology {
    /// Connects to these servers, with the settings of a builder. For threads, give the future to
    /// [`blocking::Client::from_async`](crate::blocking::Client::from_async).
    ///
    /// # Errors
    /// The errors of [`ClientBuilder::connect`].
    ///
    /// # Cancel safety
    /// Cancel safe. If the future is dropped, its connections are closed.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{Client, ErrorKind, redis::Topology};
    ///
    /// let error = Topology::one("no host at all").connect(Client::builder()).await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidOptions); // nothing was connected to
    /// # Ok(()) }
    /// ```
    pub async fn connect(self, settings: ClientBuilder) -> Result<Client> {
        settings.connect_topology(&self).await
    }

    /// A client that connects to these servers with its first operation. See
    /// [`Client::connect_lazy`](crate::Client::connect_lazy).
    ///
    /// # Errors
    /// The errors of [`ClientBuilder::connect_lazy`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{Client, redis::Topology};
    ///
    /// let client = Topology::one("redis").connect_lazy(Client::builder())?;
    /// assert!(!client.status().is_connected);
    /// # Ok(()) }
    /// ```
    pub fn connect_lazy(self, settings: ClientBuilder) -> Result<Client> {
        settings.connect_topology_lazy(self)
    }
}
