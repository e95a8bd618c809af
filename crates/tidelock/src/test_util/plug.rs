//! A plug between a client and its store, for tests.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{ClientInfo, Finding, Snapshot};
use crate::store::{
    AttemptReply, AttemptRequest, Backend, BoxFuture, Capabilities, ClientId, CountChange,
    CountChanged, CountKind, Counts, Extensions, MarkChange, Marks, Name, Operate, OwnerId, Page,
    PermitChange, PermitCounter, Released, Renewal, Renewed, Store, Ticket, TokenCounter,
    VerifySequencers, Wait,
};
use crate::types::FencingToken;

/// A plug between a client and its store. All clones are one plug.
/// [`ClientBuilder::plug`](crate::ClientBuilder::plug) puts it in.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> tidelock::Result<()> {
/// use tidelock::{Client, ErrorKind, LostReason, test_util::Plug};
///
/// let plug = Plug::new();
/// let client = Client::builder().simulated_time().plug(&plug).connect("memory:").await?;
/// let guard = client.lock("stock:42").acquire().await?;
/// plug.pull();
/// assert_eq!(guard.lost().await, LostReason::Expired); // before the lease can end in the store
/// let error = client.lock("stock:42").try_acquire().await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Unavailable);
/// plug.put_back();
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Plug(Arc<PlugState>);

#[derive(Debug, Default)]
struct PlugState {
    out: AtomicBool,
    mute_next: AtomicU64,
    asked: AtomicU64,
}

impl Plug {
    /// A plug that is in.
    ///
    /// # Examples
    /// ```
    /// let plug = tidelock::test_util::Plug::new();
    /// assert_eq!(plug.requests(), 0);
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Cuts the client off: from now on no request arrives, not even one that only reads. Each fails at once with
    /// [`Unavailable`](ErrorKind::Unavailable).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let plug = tidelock::test_util::Plug::new();
    /// let client = tidelock::Client::builder().plug(&plug).connect("memory:").await?;
    /// plug.pull();
    /// assert!(client.lock("a").inspect().await.is_err());
    /// # Ok(()) }
    /// ```
    pub fn pull(&self) {
        self.0.out.store(true, Ordering::SeqCst);
    }

    /// Requests arrive again.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let plug = tidelock::test_util::Plug::new();
    /// let client = tidelock::Client::builder().plug(&plug).connect("memory:").await?;
    /// plug.pull();
    /// plug.put_back();
    /// assert!(client.lock("a").try_acquire().await?.is_some());
    /// # Ok(()) }
    /// ```
    pub fn put_back(&self) {
        self.0.out.store(false, Ordering::SeqCst);
    }

    /// Drops the replies of the next `count` requests that change a lock, a number or a mark in the store. The requests take effect
    /// all the same. What only reads keeps its reply, and so does what the client tells of itself now and then.
    ///
    /// The client settles a lost reply by itself where it may ask again. A call that sends its request only once ends with
    /// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown): `force_release`, `extend`, `raise_token`, and the changes of the number of a
    /// semaphore's permits.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let plug = tidelock::test_util::Plug::new();
    /// let client = tidelock::Client::builder().plug(&plug).connect("memory:").await?;
    /// plug.lose_replies(1);
    /// let guard = client.lock("a").acquire().await?; // the client asks again with the same ticket
    /// assert!(guard.is_held());
    /// # Ok(()) }
    /// ```
    pub fn lose_replies(&self, count: u64) {
        self.0.mute_next.store(count, Ordering::SeqCst);
    }

    /// Counts the attempts, renewals, releases (also forced ones), withdrawals, checks, and changes of numbers and marks so far.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let plug = tidelock::test_util::Plug::new();
    /// let client = tidelock::Client::builder().plug(&plug).connect("memory:").await?;
    /// client.lock("a").acquire().await?.release().await?;
    /// assert_eq!(plug.requests(), 2);
    /// # Ok(()) }
    /// ```
    pub fn requests(&self) -> u64 {
        self.0.asked.load(Ordering::SeqCst)
    }

    /// The store behind this plug.
    pub(crate) fn wrap(&self, store: Store) -> Store {
        store.map(&|inner| {
            let plug = self.clone();
            Arc::new(PluggedStore { inner, plug })
        })
    }

    /// The store, behind a plug if there is one.
    pub(crate) fn around(plug: Option<&Self>, store: Store) -> Store {
        match plug {
            Some(plug) => plug.wrap(store),
            None => store,
        }
    }

    fn check(&self) -> Result<()> {
        if self.0.out.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable).because("the plug is pulled"));
        }
        Ok(())
    }

    /// Whether the reply of this request is lost.
    fn mutes(&self) -> bool {
        let take = |left: u64| left.checked_sub(1);
        self.0
            .mute_next
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
            .is_ok()
    }
}

/// A store behind a plug.
#[derive(Debug)]
struct PluggedStore {
    inner: Arc<dyn Backend>,
    plug: Plug,
}

/// The inner store is asked only inside the futures that the plug has let through. The store in memory executes a request when
/// it is asked, before the first poll of the future; so a request that never arrives would take effect.
impl PluggedStore {
    /// A request whose reply may be lost.
    fn write<'a, T: Send + 'a>(
        &'a self,
        request: impl Future<Output = Result<T>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T>> {
        Box::pin(async move {
            self.plug.0.asked.fetch_add(1, Ordering::SeqCst);
            self.plug.check()?;
            if !self.plug.mutes() {
                return request.await;
            }
            drop(request.await);
            Err(Error::new(ErrorKind::OutcomeUnknown).because("the reply was lost"))
        })
    }

    /// A request that is counted, and that changes nothing, so that its reply is not lost.
    fn ask<'a, T: Send + 'a>(
        &'a self,
        request: impl Future<Output = Result<T>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T>> {
        Box::pin(async move {
            self.plug.0.asked.fetch_add(1, Ordering::SeqCst);
            self.read(request).await
        })
    }

    fn read<'a, T: Send + 'a>(
        &'a self,
        request: impl Future<Output = Result<T>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T>> {
        Box::pin(async move {
            self.plug.check()?;
            request.await
        })
    }
}

impl Backend for PluggedStore {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn extensions(&self) -> Extensions<'_> {
        let extensions = self.inner.extensions();
        Extensions {
            sequencers: extensions.sequencers.map(|_| self as _),
            token_counter: extensions.token_counter.map(|_| self as _),
            marks: extensions.marks.map(|_| self as _),
            permit_counter: extensions.permit_counter.map(|_| self as _),
            counts: extensions.counts.map(|_| self as _),
            ..extensions
        }
    }

    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, AttemptReply> {
        Box::pin(async move {
            // The store's own client knows of a doubt even if the network loses the reply.
            let doubt = AtomicBool::new(false);
            let asked = async {
                let reply = self.inner.attempt(ask).await;
                doubt.store(reply.in_doubt, Ordering::SeqCst);
                reply.outcome
            };
            let outcome = self.write(asked).await;
            AttemptReply {
                outcome,
                in_doubt: doubt.load(Ordering::SeqCst),
            }
        })
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        self.write(async move { self.inner.renew(batch).await })
    }

    fn lane(&self, name: &Name) -> u64 {
        self.inner.lane(name)
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        self.write(async move { self.inner.release(ticket).await })
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        self.write(async move { self.inner.withdraw(ticket).await })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

impl VerifySequencers for PluggedStore {
    fn verify<'a>(
        &'a self,
        name: &'a Name,
        generation: FencingToken,
    ) -> BoxFuture<'a, Result<bool>> {
        self.ask(async move {
            match self.inner.extensions().sequencers {
                Some(sequencers) => sequencers.verify(name, generation).await,
                None => Err(Error::new(ErrorKind::Unsupported)),
            }
        })
    }
}

impl TokenCounter for PluggedStore {
    fn raise<'a>(&'a self, name: &'a Name, newest: u64) -> BoxFuture<'a, Result<u64>> {
        self.write(async move {
            match self.inner.extensions().token_counter {
                Some(counter) => counter.raise(name, newest).await,
                None => Err(Error::new(ErrorKind::Unsupported)),
            }
        })
    }
}

impl Marks for PluggedStore {
    fn now<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<SystemTime>> {
        self.read(async move { self.inner.extensions().need_marks()?.now(name).await })
    }

    fn read<'a>(&'a self, name: &'a Name, slot: &'a str) -> BoxFuture<'a, Result<Option<String>>> {
        self.read(async move { self.inner.extensions().need_marks()?.read(name, slot).await })
    }

    fn replace<'a>(
        &'a self,
        name: &'a Name,
        change: MarkChange<'a>,
    ) -> BoxFuture<'a, Result<bool>> {
        self.write(async move {
            let marks = self.inner.extensions().need_marks()?;
            marks.replace(name, change).await
        })
    }

    fn history<'a>(
        &'a self,
        name: &'a Name,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<(String, String)>>> {
        self.read(async move {
            self.inner
                .extensions()
                .need_marks()?
                .history(name, limit)
                .await
        })
    }
}

impl PermitCounter for PluggedStore {
    fn queues(&self) -> bool {
        let counter = self.inner.extensions().permit_counter;
        counter.is_some_and(PermitCounter::queues)
    }

    fn change<'a>(&'a self, name: &'a Name, change: PermitChange) -> BoxFuture<'a, Result<bool>> {
        self.write(async move {
            match self.inner.extensions().permit_counter {
                Some(counter) => counter.change(name, change).await,
                None => Err(Error::new(ErrorKind::Unsupported)),
            }
        })
    }
}

impl Counts for PluggedStore {
    fn change<'a>(
        &'a self,
        name: &'a Name,
        change: CountChange,
        id: &'a OwnerId,
        settled: &'a [OwnerId],
    ) -> BoxFuture<'a, Result<CountChanged>> {
        self.write(async move {
            let counts = self.inner.extensions().need_counts()?;
            counts.change(name, change, id, settled).await
        })
    }

    fn count<'a>(&'a self, name: &'a Name, kind: CountKind) -> BoxFuture<'a, Result<i64>> {
        self.read(async move {
            let counts = self.inner.extensions().need_counts()?;
            counts.count(name, kind).await
        })
    }

    fn arm<'a>(&'a self, name: &'a Name, kind: CountKind) -> BoxFuture<'a, Result<Wait>> {
        self.read(async move {
            let counts = self.inner.extensions().need_counts()?;
            counts.arm(name, kind).await
        })
    }
}

impl Operate for PluggedStore {
    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        self.read(async move { self.inner.inspect(name).await })
    }

    fn list<'a>(&'a self, pattern: &'a str, after: Option<&'a str>) -> BoxFuture<'a, Result<Page>> {
        self.read(async move { self.inner.list(pattern, after).await })
    }

    fn force_release<'a>(
        &'a self,
        name: &'a Name,
        seen: Option<&'a Snapshot>,
    ) -> BoxFuture<'a, Result<bool>> {
        self.write(async move { self.inner.force_release(name, seen).await })
    }

    fn announce<'a>(
        &'a self,
        client: &'a ClientId,
        info: Option<&'a ClientInfo>,
    ) -> BoxFuture<'a, Result<()>> {
        // The client sends it whenever it likes. It would take the place of the request whose reply a test means to lose.
        self.read(async move { self.inner.announce(client, info).await })
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        self.read(async move { self.inner.diagnose().await })
    }
}
