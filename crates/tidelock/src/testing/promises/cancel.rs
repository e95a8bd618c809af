//! Promises about cancellation: a caller that leaves at any moment leaves nothing behind.

use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::error::ErrorKind;
use crate::lock::Lock;
use crate::options::AcquireOptions;
use crate::owner::Owner;
use crate::testing::fixture::{Fixture, eventually, unique, within};
use crate::testing::history::History;
use crate::testing::polls::{Polled, poll_times};

/// Bounds the polls. Every operation has fewer await points.
const POLLS: usize = 24;

/// Checks that another client gets the lock, at once or as soon as the background has cleaned up.
async fn free(fixture: &Fixture, client: &Client, name: &str) {
    let soon = AcquireOptions::new().wait(fixture.soon());
    let guard = client.lock(name).acquire_with(soon).await;
    guard
        .unwrap_or_else(|error| panic!("a ghost: {error}"))
        .release()
        .await
        .expect("held");
}

/// An acquire of a free lock leaves nothing when it is dropped after any number of polls.
pub async fn an_acquire_dropped_anywhere_leaves_nothing(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("stock");
    let (a, b) = (
        fixture.client(fixture.builder()).await,
        fixture.client(fixture.builder()).await,
    );
    for polls in 0..POLLS {
        drop(poll_times(a.lock(&name).acquire(), polls, fixture.soon()).await);
        free(fixture, &b, &name).await;
    }
}

/// An acquire of a held lock leaves nothing when it is dropped after any number of polls, also during the hand-off.
pub async fn a_wait_dropped_anywhere_leaves_nothing(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("stock");
    let (a, b) = (
        fixture.client(fixture.builder()).await,
        fixture.client(fixture.builder()).await,
    );
    for polls in 0..POLLS {
        let guard = b.lock(&name).acquire().await.expect("free");
        let lock = a.lock(&name);
        let waiter =
            tokio::spawn(
                async move { poll_times(lock.acquire(), polls, Duration::from_secs(5)).await },
            );
        if polls % 2 == 0 {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        guard.release().await.expect("held");
        tokio::time::sleep(Duration::from_millis(3)).await;
        waiter.abort();
        drop(waiter.await);
        free(fixture, &b, &name).await;
    }
}

/// A release still releases the lock when it is dropped after any number of polls. No abandoned hold is renewed.
pub async fn a_release_dropped_anywhere_still_releases(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("stock");
    let (a, b) = (
        fixture.client(fixture.builder()).await,
        fixture.client(fixture.builder()).await,
    );
    for polls in 0..POLLS {
        let guard = a.lock(&name).acquire().await.expect("free");
        match poll_times(guard.release(), polls, fixture.lease() * 4).await {
            Polled::Done(result) => result.expect("it was held"),
            Polled::Dropped => {}
            Polled::Asleep => panic!("a release that never ends"),
        }
        free(fixture, &b, &name).await;
    }
}

/// After an extension is dropped after any number of polls, the guard still holds the lock and releases it.
pub async fn an_extension_dropped_anywhere_harms_nothing(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("stock");
    let (a, b) = (
        fixture.client(fixture.builder()).await,
        fixture.client(fixture.builder()).await,
    );
    for polls in 0..POLLS {
        let guard = a.lock(&name).acquire().await.expect("free");
        // Longer than the lease that the hold has: otherwise the extension would change nothing.
        drop(poll_times(guard.extend(fixture.asked() * 2), polls, fixture.soon()).await);
        assert!(guard.is_held());
        guard.release().await.expect("held");
        free(fixture, &b, &name).await;
    }
}

/// An acquire whose reply is lost is retried, results in one hold, and one release frees it.
pub async fn a_lost_reply_is_cleaned_up(fixture: &Fixture) {
    let name = unique("stock");
    let (a, plug) = fixture.mortal(fixture.builder()).await;
    let b = fixture.client(fixture.builder()).await;
    for lost in 1..4 {
        plug.lose_replies(lost);
        let held = a.lock(&name).acquire().await.expect("asked again");
        let seen = b.lock(&name).inspect().await.expect("readable");
        assert_eq!(seen.holders.len(), 1);
        assert_eq!(seen.holders[0].holds, 1);
        held.release().await.expect("held");
        assert!(!b.lock(&name).inspect().await.expect("readable").is_locked());
        plug.lose_replies(0);
    }
}

/// If the reply is lost and the caller leaves, the lock is released in the background.
pub async fn an_acquire_left_without_a_reply_is_withdrawn(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("stock");
    let (a, plug) = fixture.mortal(fixture.builder()).await;
    let b = fixture.client(fixture.builder()).await;
    for polls in 1..6 {
        plug.lose_replies(1);
        let lock = a.client().lock(&name);
        drop(poll_times(lock.acquire(), polls, fixture.soon()).await);
        plug.lose_replies(0);
        free(fixture, &b, &name).await;
    }
}

/// A release whose reply is lost returns `Ok`, not a loss, and does not affect the next holder.
pub async fn a_lost_release_reply_is_no_error(fixture: &Fixture) {
    let name = unique("stock");
    let (a, plug) = fixture.mortal(fixture.builder()).await;
    let b = fixture.client(fixture.builder()).await;
    for lost in 1..4 {
        let held = a.lock(&name).acquire().await.expect("free");
        plug.lose_replies(lost);
        held.release()
            .await
            .expect("released, although no reply said so");
        plug.lose_replies(0);
        let taken = b
            .lock(&name)
            .try_acquire()
            .await
            .expect("answered")
            .expect("free");
        taken.release().await.expect("held");
    }
}

/// A waiter that leaves after it was woken passes the wake on.
pub async fn a_cancelled_wait_passes_its_wake_on(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("stock");
    let abilities = fixture.capabilities().await;
    let (a, b) = (
        fixture.client(fixture.builder()).await,
        fixture.client(fixture.builder()).await,
    );
    for _ in 0..10 {
        let guard = b.lock(&name).acquire().await.expect("free");
        // We poll it until it waits. Then it is woken, and dropped without another poll.
        let mut leaver = Box::pin(a.lock(&name).acquire());
        let waits = tokio::time::timeout(fixture.lease() / 20, leaver.as_mut()).await;
        assert!(waits.is_err(), "it is held");
        let lock = a.lock(&name);
        let stayer = tokio::spawn(async move { lock.acquire().await.expect("it waits") });
        tokio::time::sleep(fixture.lease() / 20).await;
        guard.release().await.expect("held");
        tokio::time::sleep(Duration::from_millis(3)).await;
        drop(leaver);
        let bound = if abilities.wakes {
            fixture.soon()
        } else {
            fixture.lease() * 2
        };
        let next = within("the stayer", bound, stayer).await.expect("no panic");
        next.release().await.expect("held");
    }
}

/// A guard dropped by a panic releases the lock, and the panic reaches the caller unchanged.
pub async fn a_panic_releases(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let (name, a) = (unique("stock"), fixture.client(fixture.builder()).await);
    let lock = a.lock(&name);
    let task = tokio::spawn(async move {
        let _guard = lock.acquire().await.expect("free");
        std::panic::panic_any("the caller's own");
    });
    assert!(task.await.expect_err("it panicked").is_panic());
    free(fixture, &a, &name).await;
}

/// A guard dropped on a thread without a runtime releases the lock.
pub async fn a_guard_dropped_outside_a_runtime_releases(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let (name, a) = (unique("stock"), fixture.client(fixture.builder()).await);
    let guard = a.lock(&name).acquire().await.expect("free");
    std::thread::spawn(move || drop(guard))
        .join()
        .expect("no panic in a drop");
    free(fixture, &a, &name).await;
}

/// Futures dropped by the shutdown of a runtime leave nothing, and guards outlive their runtime.
pub async fn the_end_of_a_runtime_leaves_nothing(fixture: &Fixture) {
    let (name, a) = (unique("stock"), fixture.client(fixture.builder()).await);
    let other = unique("other");
    let (lock, held_there) = (a.lock(&name), a.lock(&other));
    if fixture.is_simulated() {
        tokio::time::resume(); // the clock of the other runtime cannot be paused together with this one
    }
    let kept = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let kept = runtime.block_on(held_there.acquire()).expect("free");
        for _ in 0..8 {
            let lock = lock.clone();
            runtime.spawn(async move {
                loop {
                    lock.acquire()
                        .await
                        .expect("it waits")
                        .release()
                        .await
                        .expect("held");
                    // With the memory store no await suspends. Without this yield the runtime could not stop the task.
                    tokio::task::yield_now().await;
                }
            });
        }
        std::thread::sleep(Duration::from_millis(30));
        drop(runtime);
        kept
    });
    let kept = tokio::task::spawn_blocking(|| kept.join())
        .await
        .expect("joined")
        .expect("no panic");
    free(fixture, &a, &name).await;
    tokio::time::sleep(fixture.lease() * 3 / 2).await;
    assert!(kept.is_held(), "renewed although its runtime has gone");
    drop(kept);
    free(fixture, &a, &other).await;
}

/// 4,000 acquires dropped at random moments leave no lock and no waiter, and there are never two holders.
pub async fn dropped_at_random_moments_4000(fixture: &Fixture) {
    dropped_at_random_moments(fixture, 4000).await;
}

/// The same with 400 acquires, for slow stores.
pub async fn dropped_at_random_moments_400(fixture: &Fixture) {
    dropped_at_random_moments(fixture, 400).await;
}

async fn dropped_at_random_moments(fixture: &Fixture, turns: usize) {
    const TASKS: usize = 64;
    let names = [unique("stock"), unique("stock"), unique("stock")];
    let histories: [Arc<History>; 3] = Default::default();
    let (a, b) = (
        fixture.client(fixture.builder()).await,
        fixture.client(fixture.builder()).await,
    );
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let which = task % names.len();
        let lock = if task % 2 == 0 { &a } else { &b }.lock(&names[which]);
        let history = Arc::clone(&histories[which]);
        let all = fixture.lease() * 50;
        tasks.spawn(async move {
            for turn in 0..turns.div_ceil(TASKS) {
                // While nobody has had the lock, some wait as long as it takes: otherwise a busy machine could cancel all.
                let some = Duration::from_micros(fastrand::u64(..4000 << (turn % 6)));
                let must = turn % 6 == 5 && history.is_empty();
                acquire_or_drop(&lock, &history, if must { all } else { some }).await;
            }
        });
    }
    within("all tasks", fixture.lease() * 100, tasks.join_all()).await;
    let mut had = 0;
    for (name, history) in names.iter().zip(&histories) {
        assert_eq!(history.check(), Ok(()));
        had += history.len();
        let lock = b.lock(name);
        eventually(
            "no lock and no waiter is left",
            fixture.lease() * 4,
            || async {
                let seen = lock.inspect().await.expect("readable");
                !seen.is_locked() && seen.waiters.unwrap_or(0) == 0
            },
        )
        .await;
    }
    assert!(had > 0, "somebody had the lock");
    for client in [a, b] {
        eventually(
            "the client has nothing left to do",
            fixture.lease() * 4,
            || async { client.is_idle() },
        )
        .await;
    }
}

/// Drops an acquire when its patience ends, or holds the lock for a moment and ends the hold in a random way. The
/// patience is usually too short to get the lock.
async fn acquire_or_drop(lock: &Lock, history: &History, patience: Duration) {
    let Ok(guard) = tokio::time::timeout(patience, lock.acquire()).await else {
        return;
    };
    let guard = guard.expect("it waits");
    let span = history.begin(guard.owner_id(), None);
    tokio::time::sleep(Duration::from_micros(fastrand::u64(..300))).await;
    history.end(span);
    match fastrand::u8(..3) {
        0 => drop(guard),
        1 => drop(poll_times(guard.release(), 1, Duration::from_secs(9)).await),
        _ => guard.release().await.expect("held"),
    }
}

/// A wait of an explicit owner that is dropped does not block the next acquire of the same owner.
pub async fn an_owner_that_leaves_blocks_nobody(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("stock");
    let (a, b) = (
        fixture.client(fixture.builder()).await,
        fixture.client(fixture.builder()).await,
    );
    let owner = Owner::new();
    let guard = b.lock(&name).acquire().await.expect("free");
    for polls in 0..6 {
        let waiting = a
            .lock(&name)
            .acquire_with(AcquireOptions::new().owner(&owner));
        drop(poll_times(waiting, polls, Duration::from_millis(5)).await);
    }
    guard.release().await.expect("held");
    let options = AcquireOptions::new().owner(&owner).wait(fixture.soon());
    let result = a.lock(&name).acquire_with(options).await;
    let kind = result.as_ref().err().map(crate::Error::kind);
    assert_ne!(kind, Some(ErrorKind::TimedOut));
    result.expect("free").release().await.expect("held");
}
