//! A store that tells its client of turns in a queue and of releases, without a request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidelock::store::{
    AttemptReply, AttemptRequest, Awaited, Backend, BootInstant, BoxFuture, HearReleases, Name,
    Released, ReleasesSeen, Ticket,
};
use tidelock::testing::{Twist, Twisted};
use tidelock::{Client, Result};
use tokio::time::Instant;

/// What the client has asked for, and what it hears.
#[derive(Debug, Default)]
struct Heard {
    /// For each attempt, whether it has patience.
    attempts: Mutex<Vec<bool>>,
    /// How many releases it has heard of.
    releases: AtomicU64,
}

impl Heard {
    /// Whether the attempts since the last call had patience.
    fn attempts(&self) -> Vec<bool> {
        std::mem::take(&mut *self.attempts.lock().unwrap())
    }
}

/// Tells the client of its turns and of the releases. Another process waits for each lock that is released.
#[derive(Debug)]
struct Telling(Arc<Heard>);

impl Twist for Telling {
    fn releases<'a>(&'a self, _inner: &'a dyn Backend) -> Option<&'a dyn HearReleases> {
        Some(&*self.0)
    }

    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        let has_patience = !ask.patience.is_zero();
        self.0.attempts.lock().unwrap().push(has_patience);
        inner.attempt(ask)
    }

    fn release<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            inner.release(ticket).await?;
            Ok(Released::Awaited(Awaited {
                others: 1,
                releases_seen: self.0.releases.load(Ordering::SeqCst),
                ..Awaited::default()
            }))
        })
    }
}

impl HearReleases for Heard {
    fn seen(&self, _name: &Name) -> Option<ReleasesSeen> {
        Some(ReleasesSeen {
            count: self.releases.load(Ordering::SeqCst),
            last: BootInstant::from_nanos(0),
        })
    }

    fn hears_turns(&self, _ticket: &Ticket) -> bool {
        true
    }

    fn poll_interval(&self, _name: &Name) -> Option<Duration> {
        None
    }
}

async fn client() -> (Client, Arc<Heard>) {
    let heard = Arc::<Heard>::default();
    let twist = Telling(Arc::clone(&heard));
    let client = Client::builder()
        .simulated_time()
        .publish_process_info(false)
        .connect_to(async move |env| {
            let store = tidelock::testing::open("memory:", env).await?;
            Ok(Twisted::wrap(store, twist))
        })
        .await
        .unwrap();
    (client, heard)
}

/// Otherwise it would ask twice, once without patience. A lock without a queue has no places, and there the cheaper request
/// comes first.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_hears_of_its_turn_takes_a_place_with_its_first_request() {
    let (client, heard) = client().await;
    for (lock, has_patience) in [(client.fair_lock("a"), true), (client.lock("b"), false)] {
        let guard = lock.acquire().await.unwrap();
        assert_eq!(heard.attempts(), [has_patience], "{}", lock.name());
        assert!(lock.try_acquire().await.unwrap().is_none());
        assert_eq!(heard.attempts(), [false], "it does not wait");
        guard.release().await.unwrap();
    }
}

/// It lets the other process ask first until then.
#[tokio::test(start_paused = true)]
async fn a_client_that_has_heard_of_the_turn_of_another_one_asks_at_once() {
    let (client, heard) = client().await;
    let paused = async || {
        let begun = Instant::now();
        let guard = client.lock("a").acquire().await.unwrap();
        let paused = begun.elapsed();
        guard.release().await.unwrap();
        paused
    };
    assert_eq!(paused().await, Duration::ZERO, "nobody has waited yet");
    assert!(paused().await > Duration::ZERO, "the other one may come");
    heard.releases.fetch_add(1, Ordering::SeqCst);
    assert_eq!(paused().await, Duration::ZERO, "it has come and gone");
}
