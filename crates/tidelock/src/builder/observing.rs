//! Settings of what a client tells about itself.

use std::time::Duration;

use super::ClientBuilder;

/// Bounds the lease from below, in response timeouts, before the client warns: a renewal that times out must leave the
/// time for another one.
const SHORTEST_SAFE_LEASE: u32 = 6;

impl ClientBuilder {
    /// Sets from how long on an acquire is logged as slow, with level `warn` and the event name `slow_acquire`. Default:
    /// 1 s. A client logs at most one in 30 s. If the acquire has timed out, the client asks the store in the background
    /// for the holder, and the line names it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    ///
    /// // The nightly jobs may wait for each other for an hour.
    /// let patient = tidelock::Client::builder().slow_acquire(Duration::from_secs(3600));
    /// let client = patient.connect("memory:").await?;
    /// # Ok(()) }
    /// ```
    pub fn slow_acquire(mut self, threshold: Duration) -> Self {
        self.slow_acquire = threshold;
        self
    }

    /// Sets the groups of lock names for the label `group` of the metrics: globs (`*` and `?`), each with its group.
    /// The first glob that matches a name, prefix included, counts. Names that match none have the group `other`.
    /// Default: no rules, and no such label.
    ///
    /// A name of a lock is never a label, because names are unbounded and each label costs the recorder memory. A client
    /// has at most 50 groups; further ones count as `other`.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let groups = [("stock:*", "stock"), ("order:*:lines", "order"), ("order:*", "order")];
    /// let client = tidelock::Client::builder().metric_groups(groups).connect("memory:").await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "metrics")]
    pub fn metric_groups<G: Into<String>, N: Into<String>>(
        mut self,
        rules: impl IntoIterator<Item = (G, N)>,
    ) -> Self {
        let rules = rules.into_iter();
        self.labels.groups = rules
            .map(|(glob, group)| (glob.into(), group.into()))
            .collect();
        self
    }

    /// Sets whether this client publishes its host, process id, program name and [user](Self::os_user) in the store for
    /// operators, and every ten seconds what it holds and waits for ([`Client::processes`](crate::Client::processes)).
    /// Default: yes.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let discreet = tidelock::Client::builder().publish_process_info(false).connect("memory:").await?;
    /// let lock = discreet.lock("job");
    /// let guard = lock.acquire().await?;
    /// assert!(lock.inspect().await?.holders[0].client.is_none()); // nobody learns which process it is
    /// # Ok(()) }
    /// ```
    pub fn publish_process_info(mut self, publish: bool) -> Self {
        self.publish_process_info = publish;
        self
    }

    /// Sets the program that operators see as the holder of this client's locks. Default: the file name of this program.
    /// For programs that hold locks for others. All users of the store can read it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::builder().program("nightly-report").connect("memory:").await?;
    /// let guard = client.lock("job").acquire().await?; // soon `tidelock show job` names nightly-report
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn program(mut self, program: impl Into<String>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// Sets the version of the program that operators see in [`Client::processes`](crate::Client::processes). Default:
    /// none. All users of the store can read it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let version = env!("CARGO_PKG_VERSION");
    /// let client = tidelock::Client::builder().program_version(version).connect("memory:").await?;
    /// # Ok(()) }
    /// ```
    pub fn program_version(mut self, version: impl Into<String>) -> Self {
        self.program_version = Some(version.into());
        self
    }

    /// Sets the user of the operating system whom operators see beside the program. Default: none. The library does not
    /// look the user up: where users are kept in a directory service, that can block. All users of the store can read
    /// it. The store's login is set by [`credentials`](Self::credentials).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::builder().os_user("deploy").connect("memory:").await?;
    /// let guard = client.lock("job").acquire().await?; // soon `tidelock show job` names the user too
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn os_user(mut self, user: impl Into<String>) -> Self {
        self.os_user = Some(user.into());
        self
    }

    /// Logs a lease that is short for the response timeout. A renewal is sent after a third of the lease, so with a
    /// shorter one a single request that times out leaves no time for another before the lock is lost.
    pub(super) fn warn_of_a_short_lease(&self) {
        let (lease, timeout) = (self.lease, self.response_timeout);
        if lease < timeout.saturating_mul(SHORTEST_SAFE_LEASE) {
            tracing::warn!(
                ?lease,
                response_timeout = ?timeout,
                "the lease is shorter than {SHORTEST_SAFE_LEASE} response timeouts: one slow answer of the store can \
                 cost the lock; set a longer lease or a shorter response timeout"
            );
        }
    }
}
