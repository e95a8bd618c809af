//! A store without wakes: one waiter of a process polls for all of them, and polls rarely.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidelock::store::{Attempt, AttemptReply, AttemptRequest, Backend, BoxFuture, Capabilities};
use tidelock::testing::{Fixture, Twist, Twisted};
use tidelock::{Client, Error, ErrorKind};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// A store without wakes that counts attempts. Each attempt needs a permit before it is sent.
#[derive(Debug, Clone)]
pub(crate) struct Silent {
    pub(crate) asked: Arc<AtomicUsize>,
    pub(crate) turns: Arc<Semaphore>,
}

impl Twist for Silent {
    fn capabilities(&self, inner: &dyn Backend) -> Capabilities {
        let wakes = false;
        Capabilities {
            wakes,
            ..inner.capabilities()
        }
    }

    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        Box::pin(async move {
            let _turn = self.turns.acquire().await;
            // The caller may have left while we waited for the permit. Its attempt must not be sent, otherwise the
            // store would grant the lock to nobody.
            if ask.liveness.has_left() {
                return Error::new(ErrorKind::Unavailable).into();
            }
            self.asked.fetch_add(1, Ordering::SeqCst);
            let mut reply = inner.attempt(ask).await;
            if let Ok(Attempt::Held(wait)) = &mut reply.outcome {
                wait.wake = None;
            }
            reply
        })
    }
}

fn silent(asked: &Arc<AtomicUsize>) -> Fixture {
    in_turns(asked, Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)))
}

fn in_turns(asked: &Arc<AtomicUsize>, turns: Arc<Semaphore>) -> Fixture {
    let asked = Arc::clone(asked);
    let silent = Silent { asked, turns };
    Fixture::memory().wrapped(move |_, store| Twisted::wrap(store, silent.clone()))
}

fn fixture() -> Fixture {
    silent(&Arc::default())
}

mod promises {
    tidelock::conformance!(super::fixture().simulated());
}

#[tokio::test(start_paused = true)]
async fn a_crowd_that_waits_asks_as_often_as_one() {
    let asked = Arc::default();
    let fixture = silent(&asked);
    let holder = fixture.client(Client::builder().simulated_time()).await;
    let held = holder.lock("stock").acquire().await.unwrap();
    let client = fixture.client(Client::builder().simulated_time()).await;
    let mut crowd = JoinSet::new();
    for _ in 0..100 {
        let lock = client.lock("stock");
        crowd.spawn(async move { lock.acquire().await?.release().await });
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let count = asked.load(Ordering::SeqCst);
    assert!(count < 100 + 60 * 25, "{count} questions in a minute");
    // There is a lower bound too: without wakes a waiter that polls too rarely gets the lock late.
    assert!(count > 60 * 10, "{count} questions in a minute");
    held.release().await.unwrap();
    let begun = tokio::time::Instant::now();
    for turn in crowd.join_all().await {
        turn.unwrap();
    }
    // The first waiter notices the release at its next poll. Each of the others gets the lock by hand-off.
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(200), "{took:?}");
    let count = asked.load(Ordering::SeqCst) - count;
    assert!(count < 250, "{count} questions for 100 turns");
}

#[tokio::test(start_paused = true)]
async fn new_waiters_do_not_delay_the_next_poll() {
    let fixture = silent(&Arc::default());
    let holder = fixture.client(Client::builder().simulated_time()).await;
    let held = holder.lock("stock").acquire().await.unwrap();
    let client = fixture.client(Client::builder().simulated_time()).await;
    let lock = client.lock("stock");
    let first = tokio::spawn(async move { lock.acquire().await.unwrap() });
    let mut crowd = JoinSet::new();
    let mut come = async || {
        let lock = client.lock("stock");
        crowd.spawn(async move { lock.acquire().await.map(drop) });
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    // New waiters arrive far more often than the first one polls. If each arrival restarted the poll interval, nobody
    // would ever poll.
    for _ in 0..50 {
        come().await;
    }
    held.release().await.unwrap();
    for _ in 0..200 {
        come().await;
    }
    assert!(first.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_lookout_that_leaves_is_replaced() {
    let fixture = silent(&Arc::default());
    let holder = fixture.client(Client::builder().simulated_time()).await;
    let held = holder.lock("stock").acquire().await.unwrap();
    let client = fixture.client(Client::builder().simulated_time()).await;
    let wait = || {
        let lock = client.lock("stock");
        tokio::spawn(async move { lock.acquire().await?.release().await })
    };
    let lookout = wait();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let next = wait();
    tokio::time::sleep(Duration::from_secs(1)).await;
    // The first poller leaves before the release, so only its replacement can notice the release.
    lookout.abort();
    held.release().await.unwrap();
    let next = tokio::time::timeout(Duration::from_millis(100), next).await;
    next.expect("it looks in its place").unwrap().unwrap();
}

/// The waiters of a set poll through the first of them, too. If it is kept and not polled, the others do not wait for it.
#[tokio::test(start_paused = true)]
async fn a_lookout_of_a_set_that_stops_is_passed_over() {
    let fixture = silent(&Arc::default());
    let holder = fixture.client(Client::builder().simulated_time()).await;
    let held = holder.lock("a").acquire().await.unwrap();
    let client = fixture.client(Client::builder().simulated_time()).await;
    let parts = [client.lock("a"), client.lock("b")];
    let lock = client.multi_lock(parts).unwrap();
    let mut idle = Box::pin(lock.acquire());
    for _ in 0..50 {
        assert!(futures_util::poll!(idle.as_mut()).is_pending());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let next = tokio::spawn(async move { lock.acquire().await?.release().await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    held.release().await.unwrap();
    let next = tokio::time::timeout(Duration::from_secs(11), next).await;
    next.expect("it asks for itself").unwrap().unwrap();
    drop(idle);
}

#[tokio::test(start_paused = true)]
async fn a_question_whose_asker_has_left_is_not_sent() {
    let (asked, turns) = (Arc::default(), Arc::new(Semaphore::new(0)));
    let fixture = in_turns(&asked, Arc::clone(&turns));
    let client = fixture.client(Client::builder().simulated_time()).await;
    let (leaver, stayer) = (client.lock("a"), client.lock("b"));
    let leaver = tokio::spawn(async move { leaver.acquire().await.map(drop) });
    let stayer = tokio::spawn(async move { stayer.acquire().await?.release().await });
    tokio::time::sleep(Duration::from_millis(1)).await;
    leaver.abort();
    assert!(leaver.await.unwrap_err().is_cancelled());
    turns.add_permits(1);
    stayer.await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}
