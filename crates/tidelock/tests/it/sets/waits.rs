//! How a set waits: on which member, and what it says of a wait that ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use tidelock::store::{
    Attempt, AttemptReply, AttemptRequest, Backend, BoxFuture, Capabilities, Released, Ticket,
    WakeChannels, ready,
};
use tidelock::testing::{Fixture, Twist, Twisted};
use tidelock::{AcquireOptions, Client, Error, ErrorKind, RedLock, Result};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

const LEASE: Duration = Duration::from_secs(30);

/// Time for everything that needs no lease to end.
const MOMENT: Duration = Duration::from_millis(300);

async fn client(fixture: &Fixture) -> Client {
    fixture.client(fixture.builder()).await
}

/// A waiter of a set of sets sleeps on a part of the inner set. If that part is free and another one refuses, it must be
/// woken by that one.
#[tokio::test(start_paused = true)]
async fn a_set_of_sets_is_woken_by_the_part_that_refused_last() {
    let stores = [(); 3].map(|()| Fixture::memory().simulated().lease_of(LEASE));
    let inner = Fixture::all_of(stores[..2].to_vec());
    let outer = Fixture::all_of([inner, stores[2].clone()]);
    let waiter = client(&outer.simulated().lease_of(LEASE)).await;
    let (first, second) = (client(&stores[0]).await, client(&stores[1]).await);
    let of_second = second.lock("x").acquire().await.unwrap();
    let waiting = tokio::spawn(async move { waiter.lock("x").acquire().await });
    sleep(MOMENT).await;
    let of_first = first.lock("x").try_acquire().await.unwrap();
    let of_first = of_first.expect("no waiter holds a part");
    of_second.release().await.unwrap();
    sleep(MOMENT).await;
    let begun = Instant::now();
    of_first.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    let took = begun.elapsed();
    assert!(took < MOMENT, "{took:?}");
    guard.release().await.unwrap();
}

#[derive(Debug, Clone, Copy)]
enum Answer {
    Refusal,
    Failure,
    /// That of the store.
    Own,
}

/// A store in which a ticket has a place in a queue, and loses it with its release. So a wake that was armed before
/// belongs to no place.
#[derive(Debug, Clone)]
struct Queue {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    /// The tickets that were released, and have armed no wake since.
    released: Arc<Mutex<Vec<Ticket>>>,
    /// How often an attempt believed in a wake of before.
    stale: Arc<AtomicUsize>,
    wakes: Option<WakeChannels>,
}

impl Queue {
    fn of(answers: &[Answer]) -> Self {
        Self {
            answers: Arc::new(Mutex::new(answers.iter().copied().collect())),
            released: Arc::default(),
            stale: Arc::default(),
            wakes: None,
        }
    }

    async fn client(&self) -> Client {
        let queue = self.clone();
        let fixture = Fixture::memory().simulated().lease_of(LEASE);
        let fixture = fixture.wrapped(move |env, store| {
            let mut queue = queue.clone();
            queue.wakes = Some(WakeChannels::new(env.timers.clone(), |_| {}));
            Twisted::wrap(store, queue)
        });
        client(&fixture).await
    }
}

impl Twist for Queue {
    fn capabilities(&self, inner: &dyn Backend) -> Capabilities {
        Capabilities {
            queues: true,
            ..inner.capabilities()
        }
    }

    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        Box::pin(async move {
            let mut released = self.released.lock().await;
            let was_released = released.contains(&ask.ticket);
            if was_released && ask.armed_by.is_some() {
                self.stale.fetch_add(1, Ordering::SeqCst);
            }
            if ask.wants_wake() {
                released.retain(|ticket| *ticket != ask.ticket);
            }
            drop(released);
            let next = self.answers.lock().await.pop_front();
            match next.unwrap_or(Answer::Own) {
                Answer::Own => inner.attempt(ask).await,
                Answer::Failure => Error::new(ErrorKind::Unavailable).into(),
                Answer::Refusal => {
                    let wakes = self.wakes.as_ref().filter(|_| ask.wants_wake());
                    let wake = wakes.map(|wakes| wakes.arm("x"));
                    Ok(Attempt::held(wake, Duration::from_millis(1))).into()
                }
            }
        })
    }

    fn release<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            self.released.lock().await.push(ticket.clone());
            inner.release(ticket).await
        })
    }
}

/// The first part refuses twice, and arms a wake the second time. Then it grants in vain.
#[tokio::test(start_paused = true)]
async fn a_part_that_was_given_back_is_asked_for_a_new_wake() {
    use Answer::{Failure, Own, Refusal};
    let stories: [(&[Answer], &[Answer]); 3] = [
        // The other part refuses, then grants when it is asked first, and the first part refuses.
        (&[Refusal, Refusal, Own, Refusal], &[Refusal]),
        // The other part fails.
        (&[Refusal, Refusal, Own, Refusal], &[Failure]),
        // Nothing was given back.
        (&[Refusal, Refusal, Refusal], &[]),
    ];
    for (story, (first, second)) in stories.into_iter().enumerate() {
        let queues = [Queue::of(first), Queue::of(second)];
        let (one, other) = (queues[0].client().await, queues[1].client().await);
        let whole = one.multi_lock([one.lock("x"), other.lock("y")]).unwrap();
        let guard = whole.acquire().await.unwrap();
        guard.release().await.unwrap();
        for queue in &queues {
            assert!(queue.answers.lock().await.is_empty(), "story {story}");
            assert_eq!(queue.stale.load(Ordering::SeqCst), 0, "story {story}");
        }
    }
}

/// Refuses whoever holds another part already, so that a set collides at each try.
#[derive(Debug, Clone, Default)]
struct FirstOnly(Arc<AtomicUsize>);

impl Twist for FirstOnly {
    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        self.0.fetch_add(1, Ordering::SeqCst);
        if ask.patience.is_zero() {
            return ready(Ok(Attempt::held(None, None)).into());
        }
        inner.attempt(ask)
    }
}

/// The clients ask each other's locks all the time, and each is refused by an answer of the store.
#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_between_collisions_blames_no_store() {
    for wakes in [true, false] {
        let mut clients = Vec::new();
        let asked = FirstOnly::default();
        for _ in 0..2 {
            let twist = asked.clone();
            let like = if wakes { "memory" } else { "mysql" };
            let fixture = Fixture::memory_like(like).simulated().lease_of(LEASE);
            let fixture = fixture.wrapped(move |_, store| Twisted::wrap(store, twist.clone()));
            let settings = fixture.builder().response_timeout(Duration::from_secs(1));
            clients.push(fixture.client(settings).await);
        }
        let parts = [clients[0].lock("x"), clients[1].lock("y")];
        let whole = clients[0].multi_lock(&parts).unwrap();
        for wait in (1..30).map(|n| MOMENT / 3 * n) {
            let patient = AcquireOptions::new().wait(wait);
            let error = whole.acquire_with(patient).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{wait:?}: {error}");
        }
        let requests = asked.0.load(Ordering::SeqCst);
        assert!(requests < 10_000, "{requests} requests in 43 seconds");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_between_split_votes_blames_no_store() {
    let (mut clients, mut others) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let fixture = Fixture::memory().simulated().lease_of(LEASE);
        let settings = fixture.builder().response_timeout(Duration::from_secs(1));
        clients.push(fixture.client(settings).await);
    }
    for client in &clients[..3] {
        others.push(client.lock("x").acquire().await.unwrap());
    }
    let redlock = RedLock::new(clients).unwrap();
    for wait in (1..30).map(|n| MOMENT / 3 * n) {
        let patient = AcquireOptions::new().wait(wait);
        let error = redlock.lock("x").acquire_with(patient).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{wait:?}: {error}");
    }
}

/// Fails each attempt.
#[derive(Debug, Clone, Copy)]
struct Failing(ErrorKind);

impl Twist for Failing {
    fn attempt<'a>(
        &'a self,
        _inner: &'a dyn Backend,
        _ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        ready(Error::new(self.0).into())
    }
}

/// One server fails, and the votes of the others are split. When those that hold them have gone, the others are a majority.
#[tokio::test(start_paused = true)]
async fn a_server_that_fails_does_not_end_a_wait_between_split_votes() {
    for (servers, held, kind) in [
        (3, 1, ErrorKind::Refused),
        (3, 1, ErrorKind::Unavailable),
        (5, 2, ErrorKind::Refused),
        (5, 2, ErrorKind::Unavailable),
    ] {
        let (mut clients, mut others) = (Vec::new(), Vec::new());
        for server in 1..=servers {
            let mut fixture = Fixture::memory().simulated().lease_of(LEASE);
            if server == servers {
                fixture = fixture.wrapped(move |_, store| Twisted::wrap(store, Failing(kind)));
            }
            let settings = fixture.builder().response_timeout(Duration::from_secs(1));
            clients.push(fixture.client(settings).await);
        }
        for client in &clients[..held] {
            others.push(client.lock("x").acquire().await.unwrap());
        }
        let lock = RedLock::new(clients).unwrap().lock("x");
        let tried = lock.try_acquire().await;
        assert!(matches!(tried, Ok(None)), "{servers}, {kind:?}: {tried:?}");
        let patient = AcquireOptions::new().wait(MOMENT);
        let error = lock.acquire_with(patient).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{servers}: {error}");
        for other in others {
            other.release().await.unwrap();
        }
        lock.acquire().await.unwrap().release().await.unwrap();
    }
}

/// Fails so many attempts with that error, and counts them.
#[derive(Debug, Clone)]
struct Recovering(ErrorKind, Arc<AtomicU32>);

impl Twist for Recovering {
    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        let left = &self.1;
        let fails = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            left.checked_sub(1)
        });
        match fails {
            Ok(_) => ready(Error::new(self.0).into()),
            Err(_) => inner.attempt(ask),
        }
    }
}

/// One server refuses everybody, as after a change of its password, and another one is away for a moment. The others are a
/// majority as soon as that one is back.
#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_does_not_end_a_wait_for_one_that_comes_back() {
    use ErrorKind::{Refused, Unavailable};
    for servers in [3, 5] {
        let mut clients = Vec::new();
        for server in 1..=servers {
            let (kind, times) = match server {
                1 => (Refused, u32::MAX),
                _ if server > servers / 2 + 1 => (Unavailable, 3),
                _ => (Unavailable, 0),
            };
            let twist = Recovering(kind, Arc::new(AtomicU32::new(times)));
            let fixture = Fixture::memory().simulated().lease_of(LEASE);
            let fixture = fixture.wrapped(move |_, store| Twisted::wrap(store, twist.clone()));
            let settings = fixture.builder().response_timeout(Duration::from_secs(1));
            clients.push(fixture.client(settings).await);
        }
        let lock = RedLock::new(clients).unwrap().lock("x");
        lock.acquire().await.unwrap().release().await.unwrap();
    }
}

/// As many servers refuse everybody as rule out a majority of the others.
#[tokio::test(start_paused = true)]
async fn servers_that_refuse_end_a_wait_that_nothing_can_help() {
    let mut clients = Vec::new();
    for kind in [
        ErrorKind::Refused,
        ErrorKind::Refused,
        ErrorKind::Unavailable,
    ] {
        let fixture = Fixture::memory().simulated().lease_of(LEASE);
        let fixture = fixture.wrapped(move |_, store| Twisted::wrap(store, Failing(kind)));
        clients.push(fixture.client(fixture.builder()).await);
    }
    let lock = RedLock::new(clients).unwrap().lock("x");
    let error = lock.acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
}

/// Answers no attempt.
#[derive(Debug, Clone, Copy)]
struct Frozen;

impl Twist for Frozen {
    fn attempt<'a>(
        &'a self,
        _inner: &'a dyn Backend,
        _ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        Box::pin(std::future::pending())
    }
}

/// Answers no attempt in this time, and gives it up then.
#[derive(Debug, Clone, Copy)]
struct Silent(Duration);

impl Twist for Silent {
    fn attempt<'a>(
        &'a self,
        _inner: &'a dyn Backend,
        _ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        let limit = self.0;
        Box::pin(async move {
            sleep(limit).await;
            Error::new(ErrorKind::OutcomeUnknown).into()
        })
    }
}

/// The client that makes the set expects quick answers. That another member takes longer to fail is no freeze of this process.
#[tokio::test(start_paused = true)]
async fn an_outage_of_a_slow_part_ends_a_wait_after_a_lease() {
    const QUICK: Duration = Duration::from_millis(200);
    const SLOW: Duration = Duration::from_secs(3);
    let client = async |limit: Duration, is_silent: bool| {
        let mut fixture = Fixture::memory().simulated().lease_of(LEASE);
        if is_silent {
            fixture = fixture.wrapped(|_, store| Twisted::wrap(store, Silent(SLOW)));
        }
        let settings = fixture.builder().response_timeout(limit);
        fixture.client(settings).await
    };
    let (first, second) = (client(QUICK, false).await, client(SLOW, true).await);
    let parts = [first.lock("x"), second.lock("y")];
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(client(QUICK, true).await);
    }
    let builder = RedLock::builder(servers).node_timeout(SLOW);
    let redlock = builder.build().unwrap();
    for lock in [first.multi_lock(parts).unwrap(), redlock.lock("z")] {
        let begun = Instant::now();
        let error = lock.acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        let took = begun.elapsed();
        assert!(took >= LEASE && took < LEASE * 2, "{took:?}");
        let begun = Instant::now();
        lock.try_acquire().await.unwrap_err();
        let took = begun.elapsed();
        assert!(took < SLOW * 2, "{took:?}");
    }
}

/// Four of five servers refuse the lock. The first attempt has their answers after a node timeout, and each later one as soon.
#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_while_one_server_is_frozen_blames_no_store() {
    let (mut clients, mut others) = (Vec::new(), Vec::new());
    for server in 1..=5 {
        let mut fixture = Fixture::memory().simulated().lease_of(LEASE);
        if server == 5 {
            fixture = fixture.wrapped(|_, store| Twisted::wrap(store, Frozen));
        }
        let settings = fixture.builder().response_timeout(Duration::from_secs(1));
        clients.push(fixture.client(settings).await);
    }
    for client in &clients[..4] {
        others.push(client.lock("x").acquire().await.unwrap());
    }
    let redlock = RedLock::new(clients).unwrap();
    for wait in (2..30).map(|n| MOMENT / 3 * n) {
        let patient = AcquireOptions::new().wait(wait);
        let error = redlock.lock("x").acquire_with(patient).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{wait:?}: {error}");
    }
}
