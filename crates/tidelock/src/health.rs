//! The status of a client, for health checks and metrics.

use std::time::Duration;

/// What a client knows of itself and its store without a request; see [`Client::status`](crate::Client::status).
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let guard = client.lock("job").acquire().await?;
/// let status = client.status();
/// assert!(status.is_connected);
/// assert_eq!((status.held, status.waiting), (1, 0));
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ClientStatus {
    /// The store has answered, and since then no request was without an answer. False until the first operation of a
    /// client made by [`connect_lazy`](crate::Client::connect_lazy). An idle client sends no requests, so
    /// it notices the end of the store only with the next one: [`ping`](crate::Client::ping) sends one.
    pub is_connected: bool,
    /// The time since the store last answered an acquisition, a renewal, a release, an inspection or a ping. `None`: it
    /// has not answered yet.
    #[cfg_attr(
        feature = "serde",
        serde(with = "crate::serde_text::optional_duration")
    )]
    pub since_last_answer: Option<Duration>,
    /// How many locks this client holds. Re-entries count once.
    pub held: usize,
    /// How many acquisitions of this client wait for a lock.
    pub waiting: usize,
    /// A [`close`](crate::Client::close) has begun.
    pub is_closing: bool,
}
