//! Cancel safety: drops every operation at each of its await points in turn, until it completes. Nothing may be left
//! behind.
//!
//! Use it with a store whose requests [pend](crate::testing::Faults::pending). The requests of a fast store have no
//! await points at which they stop.
#![allow(
    clippy::async_yields_async,
    reason = "what is begun is polled a given number of times"
)]

use std::future::Future;
use std::time::Duration;

use crate::client::Client;
use crate::error::ErrorKind;
use crate::options::AcquireOptions;
use crate::owner::Owner;
use crate::testing::fixture::{Fixture, eventually, unique, within};
use crate::testing::polls::{Polled, poll_times};

/// Bounds the polls. Every operation completes with fewer.
pub(super) const MAX_AWAITS: usize = 500;

/// The least lease of the clients. A third of it is enough for a hand-over on a busy machine.
const LEAST: Duration = Duration::from_secs(12);

/// Two clients and a lock between them.
pub(super) struct Stage<'a> {
    fixture: &'a Fixture,
    /// The lease of its clients. Nothing awaits its end.
    lease: Duration,
    pub(super) one: Client,
    pub(super) other: Client,
    pub(super) name: String,
}

impl<'a> Stage<'a> {
    pub(super) async fn new(fixture: &'a Fixture) -> Self {
        let lease = (fixture.lease() * 4).max(LEAST);
        let builder = || fixture.builder().lease(lease);
        Self {
            fixture,
            lease,
            one: fixture.client(builder()).await,
            other: fixture.client(builder()).await,
            name: unique("stock"),
        }
    }

    /// Longer than any operation that does not hang.
    pub(super) fn patience(&self) -> Duration {
        self.lease * 3
    }

    /// How long an acquire waits that must succeed. Shorter than a lease: a hold that was forgotten does not end within it.
    pub(super) fn soon(&self) -> AcquireOptions {
        AcquireOptions::new().wait(self.lease / 3)
    }

    /// How long an acquire waits that is in vain if the holder `stays`.
    pub(super) fn limit(&self, stays: bool) -> AcquireOptions {
        if stays {
            AcquireOptions::new().wait(self.fixture.lease() / 10)
        } else {
            AcquireOptions::new()
        }
    }

    /// Checks that the next acquire gets the lock, that no hold and no waiter is left, and that both clients are idle.
    pub(super) async fn is_clean(&self, polls: usize) {
        let next = self.other.lock(&self.name).acquire_with(self.soon()).await;
        let next = next.unwrap_or_else(|error| panic!("a ghost after {polls} polls: {error}"));
        next.release().await.expect("held");
        let lock = self.other.lock(&self.name);
        eventually("neither lock nor waiter", self.patience(), || async {
            let seen = lock.inspect().await.expect("readable");
            !seen.is_locked() && seen.waiters.unwrap_or(0) == 0
        })
        .await;
        self.is_idle().await;
    }

    /// Checks that no client has something left to do.
    pub(super) async fn is_idle(&self) {
        eventually("the clients are idle", self.patience(), || async {
            self.one.is_idle() && self.other.is_idle()
        })
        .await;
    }
}

/// Drops the future of `operation` after 0, 1, 2, … polls, until it completes, and runs `after` each time. Returns how
/// many polls the future took.
pub(super) async fn at_every_await<T, F: Future<Output = T>>(
    stage: &Stage<'_>,
    mut operation: impl AsyncFnMut() -> F,
    mut after: impl AsyncFnMut(Option<T>, usize),
) -> usize {
    for polls in 0..MAX_AWAITS {
        let future = operation().await;
        let done = match poll_times(future, polls, stage.patience()).await {
            Polled::Done(output) => Some(output),
            Polled::Dropped => None,
            Polled::Asleep => panic!("nothing woke it after {polls} polls"),
        };
        let ended = done.is_some();
        after(done, polls).await;
        if ended {
            return polls;
        }
    }
    panic!("not done after {MAX_AWAITS} polls");
}

/// A dropped acquire of a free lock leaves nothing.
pub async fn acquire_cancelled_at_every_await_leaves_nothing(fixture: &Fixture) {
    let stage = Stage::new(fixture).await;
    let lock = stage.one.lock(&stage.name);
    let begin = async || lock.acquire();
    at_every_await(&stage, begin, async |done, polls| {
        if let Some(guard) = done {
            guard.expect("free").release().await.expect("held");
        }
        stage.is_clean(polls).await;
    })
    .await;
}

/// A dropped downgrade leaves neither the write hold nor the read hold.
///
/// # Panics
/// If the store has no read-write locks.
pub async fn downgrade_cancelled_at_every_await_leaves_nothing(fixture: &Fixture) {
    let stage = Stage::new(fixture).await;
    let sides = stage.one.read_write_lock(&stage.name);
    let others = stage.other.read_write_lock(&stage.name);
    let begin = async || {
        let writer = sides.write().acquire().await.expect("free");
        sides.downgrade(writer)
    };
    at_every_await(&stage, begin, async |done, polls| {
        if let Some(reader) = done {
            reader.expect("held").release().await.expect("held");
        }
        // First the write side: a store may keep a lock and the sides of one name apart.
        let next = others.write().acquire_with(stage.soon()).await;
        next.expect("free").release().await.expect("held");
        stage.is_clean(polls).await;
    })
    .await;
}

/// A dropped upgrade leaves no write hold, and its reader as it was, whether another reader is inside or not.
///
/// # Panics
/// If the store has no upgradeable readers.
pub async fn upgrade_cancelled_at_every_await_leaves_its_reader_as_it_was(fixture: &Fixture) {
    let stage = Stage::new(fixture).await;
    let sides = stage.one.read_write_lock(&stage.name);
    let others = stage.other.read_write_lock(&stage.name);
    let held = sides.upgradeable_read().acquire().await.expect("free");
    for shared in [false, true] {
        let inside = if shared {
            Some(others.read().acquire().await.expect("shared"))
        } else {
            None
        };
        // With a reader inside it waits until the limit.
        let limit = if shared {
            fixture.lease() / 20
        } else {
            stage.lease / 3
        };
        let begin = async || sides.upgrade_with(&held, AcquireOptions::new().wait(limit));
        at_every_await(&stage, begin, async |done, polls| {
            if let Some(result) = done {
                match result {
                    Ok(writer) => writer.release().await.expect("held"),
                    Err(error) => assert!(shared, "{error} after {polls} polls"),
                }
            }
            let next = others.read().acquire_with(stage.soon()).await;
            next.expect("shared").release().await.expect("held");
            assert!(held.is_held(), "after {polls} polls");
        })
        .await;
        drop(inside);
    }
    held.release().await.expect("held");
    stage.is_clean(0).await;
}

/// A dropped `try_acquire` leaves nothing, whether the lock is free or held.
pub async fn try_acquire_cancelled_at_every_await_leaves_nothing(fixture: &Fixture) {
    for taken in [false, true] {
        let stage = Stage::new(fixture).await;
        let lock = stage.one.lock(&stage.name);
        let held = if taken {
            Some(stage.other.lock(&stage.name).acquire().await.expect("free"))
        } else {
            None
        };
        let begin = async || lock.try_acquire();
        at_every_await(&stage, begin, async |done, polls| {
            if let Some(answer) = done {
                let guard = answer.expect("answered");
                assert_eq!(guard.is_none(), taken);
                drop(guard);
            }
            if !taken {
                stage.is_clean(polls).await;
            }
        })
        .await;
        if let Some(held) = held {
            held.release().await.expect("not touched");
        }
        stage.is_clean(usize::MAX).await;
    }
}

/// A dropped acquire leaves nothing when the lock is released while it waits.
pub async fn wait_cancelled_at_every_await_leaves_nothing(fixture: &Fixture) {
    let stage = Stage::new(fixture).await;
    let lock = stage.one.lock(&stage.name);
    let holder = stage.other.lock(&stage.name);
    let begin = async || {
        let guard = holder.acquire().await.expect("free");
        let wait = lock.acquire();
        async move {
            // Both run concurrently, so the release meets the wait at each of its await points.
            let (got, released) = tokio::join!(wait, guard.release());
            released.expect("held");
            got
        }
    };
    at_every_await(&stage, begin, async |done, polls| {
        if let Some(guard) = done {
            guard.expect("handed over").release().await.expect("held");
        }
        stage.is_clean(polls).await;
    })
    .await;
}

/// A dropped release still releases the lock.
pub async fn release_cancelled_at_every_await_still_releases(fixture: &Fixture) {
    let stage = Stage::new(fixture).await;
    let lock = stage.one.lock(&stage.name);
    let begin = async || lock.acquire().await.expect("free").release();
    at_every_await(&stage, begin, async |done, polls| {
        if let Some(released) = done {
            released.expect("held");
        }
        stage.is_clean(polls).await;
    })
    .await;
}

/// After a dropped extension the guard still holds the lock and releases it.
pub async fn extend_cancelled_at_every_await_harms_nothing(fixture: &Fixture) {
    let stage = Stage::new(fixture).await;
    let lock = stage.one.lock(&stage.name);
    // A hold that was left behind does not end while `is_clean` waits, and a session of the store proves as much.
    let (short, long) = (stage.lease / 2, stage.lease);
    for polls in 0..MAX_AWAITS {
        let short = AcquireOptions::new().lease(short);
        let guard = lock.acquire_with(short).await.expect("free");
        let before = guard.valid_for();
        let done = poll_times(guard.extend(long), polls, stage.patience()).await;
        assert!(guard.is_held());
        if matches!(done, Polled::Done(_)) {
            assert!(guard.valid_for() > before, "{:?}", guard.valid_for());
        }
        guard.release().await.expect("held");
        stage.is_clean(polls).await;
        match done {
            Polled::Done(result) => return result.expect("it was held"),
            Polled::Dropped => {}
            Polled::Asleep => panic!("nothing woke it after {polls} polls"),
        }
    }
    panic!("not done after {MAX_AWAITS} polls");
}

/// A dropped second acquire of an owner that has the lock does not affect the first hold.
pub async fn reentry_cancelled_at_every_await_harms_nothing(fixture: &Fixture) {
    let stage = Stage::new(fixture).await;
    let lock = stage.one.lock(&stage.name);
    for rival in [false, true] {
        let owner = Owner::new();
        let mine = || AcquireOptions::new().owner(&owner);
        let begin = async || {
            // With a rival, no acquire has completed: `one` is in flight, and `two` waits behind it.
            let first = if rival {
                None
            } else {
                Some(lock.acquire_with(mine()).await.expect("free"))
            };
            let (one, two) = (lock.acquire_with(mine()), lock.acquire_with(mine()));
            async move {
                let (one, two) = tokio::join!(one, two);
                (first, one, two)
            }
        };
        at_every_await(&stage, begin, async |done, polls| {
            if let Some((first, one, two)) = done {
                let (one, two) = (one.expect("free"), two.expect("re-entered"));
                assert_eq!(one.owner_id(), two.owner_id());
                drop((first, one));
                assert!(two.is_held());
                two.release().await.expect("held");
            }
            stage.is_clean(polls).await;
        })
        .await;
    }
}

/// A dropped force release either ends the hold or leaves it intact; an intact hold is released as before.
pub async fn force_release_cancelled_at_every_await_leaves_nothing(fixture: &Fixture) {
    let stage = Stage::new(fixture).await;
    let lock = stage.other.lock(&stage.name);
    for polls in 0..MAX_AWAITS {
        let held = stage.one.lock(&stage.name).acquire().await.expect("free");
        let done = poll_times(lock.force_release(), polls, stage.patience()).await;
        let ended = match done {
            Polled::Done(broken) => {
                assert!(broken.expect("answered"), "it was held");
                true
            }
            Polled::Dropped => false,
            Polled::Asleep => panic!("nothing woke it after {polls} polls"),
        };
        match held.release().await {
            Ok(()) => assert!(!ended, "it was broken"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Lost, "{error}"),
        }
        // A request that was dropped on another connection may come late, and then frees the next hold.
        let next = lock.acquire().await.expect("free");
        if let Err(error) = next.release().await {
            assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        }
        stage.is_clean(polls).await;
        if ended {
            return;
        }
    }
    panic!("not done after {MAX_AWAITS} polls");
}

/// A dropped `close` of a client that holds one lock and waits for another: both end, at the latest when the guard is
/// dropped.
pub async fn close_cancelled_at_every_await_leaves_nothing(fixture: &Fixture) {
    let stage = Stage::new(fixture).await;
    let awaited = unique("awaited");
    for polls in 0..MAX_AWAITS {
        let builder = fixture.builder().lease(stage.lease);
        let closing = fixture.client(builder).await;
        let guard = closing.lock(&stage.name).acquire().await.expect("free");
        let rival = stage.other.lock(&awaited).acquire().await.expect("free");
        let lock = closing.lock(&awaited);
        let waiter = tokio::spawn(async move { lock.acquire().await.map(drop) });
        let grace = fixture.lease() / 100;
        let done = poll_times(closing.close(grace), polls, stage.patience()).await;
        rival.release().await.expect("held");
        let served = within("the waiter", stage.patience(), waiter)
            .await
            .expect("no panic");
        if let Err(error) = served {
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        }
        drop(guard);
        stage.is_clean(polls).await;
        eventually("the closed client is idle", stage.patience(), || async {
            closing.is_idle()
        })
        .await;
        match done {
            Polled::Done(left) => return assert_eq!(left, 1, "the guard was still there"),
            Polled::Dropped => {}
            Polled::Asleep => panic!("nothing woke it after {polls} polls"),
        }
    }
    panic!("not done after {MAX_AWAITS} polls");
}
