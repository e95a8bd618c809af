//! The store of a story: the one in memory. Each request is under way for some steps, as on a network, and is counted.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use shuttle::future::yield_now;
use tidelock::store::{
    AttemptReply, AttemptRequest, Backend, BoxFuture, Name, Released, Renewal, Renewed, Store,
    Ticket,
};
use tidelock::testing::{Twist, Twisted};
use tidelock::{Client, ClientBuilder, Result};

/// The requests of one client that are under way.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    attempts: AtomicUsize,
    /// The most attempts that were under way at once.
    most_attempts: AtomicUsize,
    others: AtomicUsize,
    store: Mutex<Option<Arc<dyn Backend>>>,
}

/// A request that is under way, until it is dropped.
struct UnderWay<'a>(&'a AtomicUsize);

impl<'a> UnderWay<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn builder(lease: Duration) -> ClientBuilder {
    Client::builder()
        .simulated_time()
        .publish_process_info(false)
        .lease(lease)
}

/// A client of a new store in memory.
pub(crate) async fn open(requests: &Arc<Requests>, lease: Duration) -> Client {
    let client = builder(lease).connect_to(async |env| {
        let store = tidelock::testing::open("memory:", env).await?;
        let store = store.map(&|inner| {
            *requests.store() = Some(Arc::clone(&inner));
            inner
        });
        Ok(Twisted::wrap(store, Counted(Arc::clone(requests))))
    });
    client.await.expect("the store in memory opens")
}

/// Another client of that store, as another process has one. Its requests are not counted.
pub(crate) async fn open_another(requests: &Arc<Requests>, lease: Duration) -> Client {
    let store = requests.store().clone().expect("the store was opened");
    let client = builder(lease).connect_to(async |_| Ok(Store::single(store)));
    client.await.expect("the store in memory opens")
}

impl Requests {
    fn store(&self) -> std::sync::MutexGuard<'_, Option<Arc<dyn Backend>>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client was closed: nothing is under way, and the lock is free. At no time was more than one attempt under
    /// way, because only the leader of a local queue asks.
    ///
    /// # Panics
    /// If that is not so.
    pub(crate) async fn all_left(&self, name: &str) {
        let most_attempts = self.most_attempts.load(Ordering::SeqCst);
        assert!(most_attempts <= 1, "{most_attempts} attempts at once");
        let under_way = [&self.attempts, &self.others].map(|count| count.load(Ordering::SeqCst));
        assert_eq!(under_way, [0, 0], "requests after the close");
        let store = self.store().take().expect("the store was opened");
        let name = Name::new(name).expect("a good name");
        let lock = store.inspect(&name).await.expect("it is in memory");
        assert!(lock.holders.is_empty(), "held after the close: {lock:?}");
    }
}

/// Counts the requests.
#[derive(Debug)]
struct Counted(Arc<Requests>);

impl Counted {
    /// A request other than an attempt. The store in memory decides in the call itself, so `send` makes it.
    fn sent<'a, T: Send + 'a>(
        &'a self,
        send: impl FnOnce() -> BoxFuture<'a, T> + Send + 'a,
    ) -> BoxFuture<'a, T> {
        Box::pin(async move {
            let _under_way = UnderWay::new(&self.0.others);
            yield_now().await;
            let reply = send().await;
            yield_now().await;
            reply
        })
    }
}

impl Twist for Counted {
    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        Box::pin(async move {
            let _under_way = UnderWay::new(&self.0.attempts);
            let attempts = self.0.attempts.load(Ordering::SeqCst);
            // Not asserted here: the steward contains panics of the requests that it finishes.
            self.0.most_attempts.fetch_max(attempts, Ordering::SeqCst);
            yield_now().await;
            let reply = inner.attempt(ask).await;
            yield_now().await;
            reply
        })
    }

    fn renew<'a>(
        &'a self,
        inner: &'a dyn Backend,
        batch: &'a [Renewal],
    ) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        self.sent(move || inner.renew(batch))
    }

    fn release<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        self.sent(move || inner.release(ticket))
    }

    fn withdraw<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        self.sent(move || inner.withdraw(ticket))
    }
}
