//! What a restart of a server may have lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidelock::store::{Backend, BoxFuture, Incarnation, ServerRuns, ready};
use tidelock::testing::{Fixture, Twist, Twisted};
use tidelock::{AcquireOptions, ErrorKind, RedLock, Result};

const LEASE: Duration = Duration::from_secs(1);

/// A server that has been up for so many seconds.
#[derive(Debug, Clone)]
struct Server(Arc<AtomicU64>);

impl ServerRuns for Server {
    fn server_run(&self) -> BoxFuture<'_, Result<Option<Incarnation>>> {
        ready(Ok(Some(Incarnation {
            id: format!("{:p}", Arc::as_ptr(&self.0)).into(),
            up: Duration::from_secs(self.0.load(Ordering::SeqCst)),
        })))
    }
}

impl Twist for Server {
    fn server_runs<'a>(&'a self, _inner: &'a dyn Backend) -> Option<&'a dyn ServerRuns> {
        Some(self)
    }
}

/// Two of three servers restart and forget a lock that was extended beyond the longest lease that was acquired.
#[tokio::test]
async fn a_server_that_may_have_forgotten_an_extended_lock_does_not_vote() {
    let servers = [(); 3].map(|()| Server(Arc::new(AtomicU64::new(3600))));
    let mut clients = Vec::new();
    for server in servers.clone() {
        let fixture =
            Fixture::memory().wrapped(move |_, store| Twisted::wrap(store, server.clone()));
        clients.push(fixture.client(fixture.builder().lease(LEASE)).await);
    }
    let redlock = RedLock::new(clients.clone()).unwrap();
    let once = AcquireOptions::new().expires_after(LEASE);
    let guard = redlock.lock("x").acquire_with(once).await.unwrap();
    guard.extend(LEASE * 20).await.unwrap();
    for (server, client) in servers.iter().zip(&clients).skip(1) {
        assert!(client.lock("x").force_release().await.unwrap());
        server.0.store(2, Ordering::SeqCst);
    }
    let second = redlock.lock("x").try_acquire().await;
    assert!(guard.is_held());
    let error = second.expect_err("a second holder");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("votes only after"), "{text}");
}

/// The servers have just started. A set with their majority waits until they may vote, as the majority alone does.
#[tokio::test(start_paused = true)]
async fn a_set_waits_for_the_servers_of_its_majority_beyond_a_lease() {
    let longest = LEASE * 20;
    let servers = [(); 3].map(|()| Server(Arc::default()));
    let mut clients = Vec::new();
    for server in servers.clone() {
        let fixture = Fixture::memory().simulated().lease_of(LEASE);
        let fixture = fixture.wrapped(move |_, store| Twisted::wrap(store, server.clone()));
        clients.push(fixture.client(fixture.builder()).await);
    }
    let builder = RedLock::builder(clients.clone()).longest_lease(longest);
    let redlock = builder.build().unwrap();
    let parts = [redlock.lock("x"), clients[0].lock("y")];
    let both = clients[0].multi_lock(parts).unwrap();
    let waiting = tokio::spawn(async move { both.acquire().await });
    tokio::time::sleep(longest / 2).await;
    assert!(!waiting.is_finished());
    for server in &servers {
        server.0.store(longest.as_secs(), Ordering::SeqCst);
    }
    waiting.await.unwrap().unwrap().release().await.unwrap();
}
