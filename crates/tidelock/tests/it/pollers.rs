//! A store without wakes that counts the clients which poll: a crowd of processes asks little more than one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidelock::store::{
    AttemptReply, AttemptRequest, Backend, BoxFuture, Capabilities, PollerBeat, Pollers, Ticket,
    ready,
};
use tidelock::testing::{Fixture, Twist, Twisted};
use tidelock::{Client, Error, ErrorKind, Result};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::polled::Silent;

/// The longest pause of a client that polls alone.
const ALONE: Duration = Duration::from_millis(64);

/// The polls of such a client in a minute, at the most: its pauses are shorter by a quarter at times.
const POLLS_OF_ONE: usize = 60_000 / 48;

/// What the store knows of those that poll.
#[derive(Debug, Default)]
struct List {
    joined: Mutex<Vec<String>>,
    counted: AtomicUsize,
    /// What each of them showed, in this order.
    shown: Mutex<Vec<(String, PollerBeat)>>,
    mute: AtomicBool,
}

impl List {
    fn len(&self) -> usize {
        self.joined.lock().unwrap().len()
    }
}

/// A store without wakes that counts those that poll.
#[derive(Debug, Clone)]
struct Counting {
    silent: Silent,
    list: Arc<List>,
}

impl Counting {
    fn new() -> Self {
        let silent = Silent {
            asked: Arc::default(),
            turns: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
        };
        Self {
            silent,
            list: Arc::default(),
        }
    }

    fn fixture(&self) -> Fixture {
        let this = self.clone();
        Fixture::memory().wrapped(move |_, store| Twisted::wrap(store, this.clone()))
    }

    fn attempts(&self) -> usize {
        self.silent.asked.load(Ordering::SeqCst)
    }
}

impl Twist for Counting {
    fn capabilities(&self, inner: &dyn Backend) -> Capabilities {
        self.silent.capabilities(inner)
    }

    fn pollers<'a>(&'a self, _inner: &'a dyn Backend) -> Option<&'a dyn Pollers> {
        Some(&*self.list)
    }

    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        self.silent.attempt(inner, ask)
    }
}

impl Pollers for List {
    fn ahead<'a>(
        &'a self,
        ticket: &'a Ticket,
        beat: PollerBeat,
    ) -> BoxFuture<'a, Result<Option<u32>>> {
        self.counted.fetch_add(1, Ordering::SeqCst);
        let shown = (ticket.owner.to_string(), beat);
        self.shown.lock().unwrap().push(shown);
        if self.mute.load(Ordering::SeqCst) {
            return ready(Err(Error::new(ErrorKind::Unavailable)));
        }
        let mut joined = self.joined.lock().unwrap();
        if beat == PollerBeat::Join {
            joined.push(ticket.owner.to_string());
        }
        let ahead = joined.iter().position(|owner| owner == ticket.owner.text());
        ready(Ok(ahead.map(|ahead| u32::try_from(ahead).unwrap())))
    }

    fn leave(&self, ticket: &Ticket) {
        let mut joined = self.joined.lock().unwrap();
        joined.retain(|owner| owner != ticket.owner.text());
    }
}

async fn client(fixture: &Fixture) -> Client {
    fixture.client(Client::builder().simulated_time()).await
}

/// A client of its own, as in a process of its own, that waits.
async fn waiter(fixture: &Fixture) -> JoinHandle<Result<Instant>> {
    let client = client(fixture).await;
    tokio::spawn(async move {
        let guard = client.lock("stock").acquire().await?;
        let got = Instant::now();
        guard.release().await?;
        Ok(got)
    })
}

#[tokio::test(start_paused = true)]
async fn a_hundred_processes_poll_less_than_nine_times_as_often_as_one() {
    const CROWD: usize = 100;
    let store = Counting::new();
    let fixture = store.fixture();
    let held = client(&fixture).await.lock("stock").acquire().await;
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        crowd.push(waiter(&fixture).await);
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(store.list.len(), CROWD);
    let (attempts, counted) = (store.attempts(), store.list.counted.load(Ordering::SeqCst));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let attempts = store.attempts() - attempts;
    let counted = store.list.counted.load(Ordering::SeqCst) - counted;
    assert!(attempts < 9 * POLLS_OF_ONE, "{attempts} in a minute");
    assert!(counted <= attempts, "{counted} of {attempts}");
    // There is a lower bound too: with fewer the lock would be found late.
    assert!(attempts > POLLS_OF_ONE, "{attempts} in a minute");
    let released = Instant::now();
    held.unwrap().release().await.unwrap();
    let mut got = Vec::new();
    for waiter in crowd {
        got.push(waiter.await.unwrap().unwrap());
    }
    got.sort_unstable();
    let first = got[0] - released;
    assert!(first <= ALONE, "found after {first:?}");
    // After a grant those behind ask more often again.
    let each = (got[CROWD - 1] - released) / u32::try_from(CROWD).unwrap();
    assert!(each <= ALONE, "{each:?} for each turn");
    assert_eq!(store.list.len(), 0);
}

/// The first has nobody to count, so it only shows that it is alive. Those behind it look once a second whether it has left.
#[tokio::test(start_paused = true)]
async fn a_poller_behind_others_counts_once_a_second_and_the_first_every_four() {
    let store = Counting::new();
    let fixture = store.fixture();
    let held = client(&fixture).await.lock("stock").acquire().await;
    let waiting = [waiter(&fixture).await, waiter(&fixture).await];
    tokio::time::sleep(Duration::from_secs(61)).await;
    let joined = store.list.joined.lock().unwrap().clone();
    let shown = store.list.shown.lock().unwrap().clone();
    let count = |owner: &String, beat| {
        shown
            .iter()
            .filter(|it| **it == (owner.clone(), beat))
            .count()
    };
    let of = |owner| {
        [PollerBeat::Join, PollerBeat::Stay, PollerBeat::Skip].map(|beat| count(owner, beat))
    };
    let [join, stay, skip] = of(&joined[0]);
    assert_eq!((join, skip), (1, 0));
    assert!((13..=15).contains(&stay), "{stay}");
    let [join, stay, skip] = of(&joined[1]);
    assert_eq!(join, 1);
    assert!((13..=15).contains(&stay), "{stay}");
    // Three of four seconds, and each a poll later.
    assert!((35..=46).contains(&skip), "{skip}");
    held.unwrap().release().await.unwrap();
    for waiter in waiting {
        waiter.await.unwrap().unwrap();
    }
}

/// A poller that was killed or frozen counts until it has shown no life for a while.
#[tokio::test(start_paused = true)]
async fn behind_a_dead_poller_the_next_holder_is_found_within_one_and_a_half_intervals() {
    let store = Counting::new();
    let fixture = store.fixture();
    let holder = client(&fixture).await;
    for turn in 0..20 {
        let held = holder.lock("stock").acquire().await.unwrap();
        store.list.joined.lock().unwrap().push("dead".to_owned());
        let waiting = waiter(&fixture).await;
        tokio::time::sleep(Duration::from_millis(3000 + turn * 7)).await;
        assert_eq!(store.list.len(), 2);
        let released = Instant::now();
        held.release().await.unwrap();
        let took = waiting.await.unwrap().unwrap() - released;
        assert!(took <= ALONE.mul_f64(1.5), "found after {took:?}");
        store.list.joined.lock().unwrap().clear();
    }
}

#[tokio::test(start_paused = true)]
async fn a_poller_leaves_the_list_when_its_wait_ends_in_any_way() {
    let store = Counting::new();
    let fixture = store.fixture();
    let (holder, other) = (client(&fixture).await, client(&fixture).await);
    let held = holder.lock("stock").acquire().await.unwrap();
    let joined = async || {
        while store.list.len() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let left = async || {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(store.list.len(), 0);
    };
    let lock = other.lock("stock");
    let wait = |time| tidelock::AcquireOptions::new().wait(time);
    // A short wait does not join.
    let short = lock.acquire_with(wait(Duration::from_millis(150))).await;
    assert_eq!(short.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(store.list.counted.load(Ordering::SeqCst), 0);
    // A timeout.
    let long = tokio::spawn(lock.acquire_with(wait(Duration::from_secs(2))));
    joined().await;
    assert!(long.await.unwrap().is_err());
    left().await;
    // A future that is dropped.
    let dropped = tokio::spawn(lock.acquire());
    joined().await;
    dropped.abort();
    assert!(dropped.await.is_err());
    left().await;
    // A grant.
    let granted = tokio::spawn(lock.acquire());
    joined().await;
    held.release().await.unwrap();
    let held = granted.await.unwrap().unwrap();
    left().await;
    // A client that is closed.
    let lock = holder.lock("stock");
    let closed = tokio::spawn(lock.acquire());
    joined().await;
    holder.close(Duration::from_secs(1)).await;
    assert!(closed.await.unwrap().is_err());
    left().await;
    held.release().await.unwrap();
}

/// It asks for its place only with a beat, and polls as if it were alone.
#[tokio::test(start_paused = true)]
async fn a_poller_that_cannot_count_the_others_polls_as_if_alone() {
    let store = Counting::new();
    store.list.mute.store(true, Ordering::SeqCst);
    let fixture = store.fixture();
    let held = client(&fixture).await.lock("stock").acquire().await;
    let (one, two) = (waiter(&fixture).await, waiter(&fixture).await);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = store.attempts();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let attempts = store.attempts() - before;
    assert!(
        (POLLS_OF_ONE..=2 * POLLS_OF_ONE).contains(&attempts),
        "{attempts}"
    );
    let counted = store.list.counted.load(Ordering::SeqCst);
    assert!((20..=40).contains(&counted), "{counted}");
    // The list has them again as soon as the store answers.
    store.list.mute.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(store.list.len(), 2);
    held.unwrap().release().await.unwrap();
    one.await.unwrap().unwrap();
    two.await.unwrap().unwrap();
}
