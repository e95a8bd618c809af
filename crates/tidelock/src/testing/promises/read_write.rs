//! Promises about read-write locks: sharing, exclusion, fair order, and waiters that leave.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use tokio::time::Duration;

use crate::error::ErrorKind;
use crate::options::AcquireOptions;
use crate::owner::Owner;
use crate::snapshot::Mode;
use crate::testing::fixture::{Fixture, eventually, unique, within};
use crate::testing::party::Party;
use crate::testing::polls::poll_times;
use crate::testing::promises::losses::{listening, told_before};
use crate::testing::promises::waiters::{excluded, free, next, refused, waiting};
use crate::types::LostReason;

/// Readers of one client and of several clients hold the lock at the same time, and `inspect` shows them all.
pub async fn readers_share(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let mut readers = Vec::new();
    for party in [&a, &a, &b] {
        readers.push(party.read(&name).acquire().await.expect("shared"));
    }
    let asked = b.read(&name).try_acquire().await.expect("answered");
    readers.push(asked.expect("shared"));
    let seen = a.lock(&name).lock().inspect().await.expect("readable");
    let mut shown: Vec<_> = seen.holders.iter().map(|one| one.owner.clone()).collect();
    let mut held = Vec::new();
    for reader in &readers {
        assert!(reader.is_held().await);
        held.push(reader.owner_id().await);
    }
    shown.sort();
    held.sort();
    assert_eq!(shown, held);
    assert!(seen.holders.iter().all(|one| one.mode == Mode::Read));
    assert_eq!(seen.waiters, Some(0));
    for reader in readers {
        assert!(refused(&b.write(&name)).await, "a reader is left");
        reader.release().await.expect("held");
    }
    free(fixture, &b.write(&name)).await;
}

/// A writer excludes readers and other writers, and so does a lock with the same name.
pub async fn a_writer_excludes_all(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let all = |party: &Party| [party.read(&name), party.write(&name), party.lock(&name)];
    for (alone, mode) in [
        (a.write(&name), Mode::Write),
        (a.lock(&name), Mode::Exclusive),
    ] {
        let held = alone.acquire().await.expect("free");
        let seen = alone.lock().inspect().await.expect("readable");
        let modes: Vec<_> = seen.holders.iter().map(|one| one.mode).collect();
        assert_eq!(modes, [mode]);
        for other in all(&a).iter().chain(&all(&b)) {
            assert!(excluded(other).await, "{other:?} beside {mode:?}");
        }
        held.release().await.expect("held");
    }
    let reader = a.read(&name).acquire().await.expect("free");
    for party in [&a, &b] {
        assert!(refused(&party.write(&name)).await);
        assert!(excluded(&party.lock(&name)).await);
    }
    reader.release().await.expect("held");
    for side in &all(&b) {
        free(fixture, side).await;
    }
}

/// Checks the holders of a read-write lock against each other.
#[derive(Default)]
struct Inside {
    /// The number of readers, or -1 for a writer.
    who: AtomicI64,
    /// The largest token of any holder so far.
    newest: AtomicU64,
    /// The token of the last writer.
    writer: AtomicU64,
}

impl Inside {
    async fn read(&self, token: u64) {
        assert!(
            self.who.fetch_add(1, Ordering::SeqCst) >= 0,
            "a writer is inside"
        );
        assert!(token > self.writer.load(Ordering::SeqCst), "an old token");
        tokio::task::yield_now().await;
        self.newest.fetch_max(token, Ordering::SeqCst);
        assert!(self.who.fetch_sub(1, Ordering::SeqCst) > 0);
    }

    async fn write(&self, token: u64) {
        let alone = self
            .who
            .compare_exchange(0, -1, Ordering::SeqCst, Ordering::SeqCst);
        assert_eq!(alone, Ok(0), "somebody is inside");
        let newest = self.newest.fetch_max(token, Ordering::SeqCst);
        assert!(token > newest, "token {token} after {newest}");
        self.writer.store(token, Ordering::SeqCst);
        tokio::task::yield_now().await;
        assert_eq!(self.who.swap(0, Ordering::SeqCst), -1);
    }
}

/// Tasks of two clients read and write concurrently. No writer overlaps with another holder, and a writer's token is
/// larger than all tokens before it.
pub async fn readers_and_writers_never_meet(fixture: &Fixture) {
    let (name, inside) = (unique("prices"), Arc::new(Inside::default()));
    let (a, b) = (fixture.party().await, fixture.party().await);
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..12_u32 {
        let party = if n % 2 == 0 { &a } else { &b };
        let (read, write) = (party.read(&name).fenced(), party.write(&name).fenced());
        let inside = Arc::clone(&inside);
        tasks.spawn(async move {
            for turn in 0..6 {
                let writes = (n + turn) % 3 == 0;
                let side = if writes { &write } else { &read };
                let held = side.acquire().await.expect("it waits");
                let token = held.token().get();
                if writes {
                    inside.write(token).await;
                } else {
                    inside.read(token).await;
                }
                held.release().await.expect("held");
            }
        });
    }
    let limit = fixture.lease() * 40;
    within("all have had their turns", limit, tasks.join_all()).await;
    free(fixture, &a.write(&name)).await;
}

/// Waiters get the lock in order of arrival, for either side.
pub async fn the_first_to_come_is_the_first_to_go(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let (read, write) = (b.read(&name), a.write(&name));
    let held = a.write(&name).acquire().await.expect("free");
    let first = waiting(fixture, &read, 1).await;
    let second = waiting(fixture, &write, 2).await;
    let third = waiting(fixture, &read, 3).await;
    let fourth = waiting(fixture, &write, 4).await;
    held.release().await.expect("held");
    for (what, waiter, left) in [
        ("the first reader", first, 3),
        ("the first writer", second, 2),
        ("the second reader", third, 1),
        ("the second writer", fourth, 0),
    ] {
        let held = next(fixture, what, waiter).await;
        assert_eq!(read.waiters().await, left, "{what} came alone");
        held.release().await.expect("held");
    }
}

/// A waiting writer blocks new readers, so it gets the lock when the readers before it have released.
pub async fn a_writer_is_not_starved_by_readers(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let (read, write) = (a.read(&name), b.write(&name));
    let old = [read.acquire().await, read.acquire().await].map(|held| held.expect("shared"));
    let writer = waiting(fixture, &write, 1).await;
    assert!(refused(&read).await, "a writer waits");
    let newcomer = waiting(fixture, &read, 2).await;
    for held in old {
        assert!(!writer.is_finished(), "a reader was inside");
        held.release().await.expect("held");
    }
    let held = next(fixture, "the writer", writer).await;
    assert!(!newcomer.is_finished(), "a writer is inside");
    held.release().await.expect("held");
    let held = next(fixture, "the newcomer", newcomer).await;
    held.release().await.expect("held");
}

/// All readers behind a writer get the lock together when the writer releases.
pub async fn readers_behind_a_writer_enter_together(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let held = a.write(&name).acquire().await.expect("free");
    let mut waiters = Vec::new();
    for n in 1..=6 {
        let party = if n % 2 == 0 { &a } else { &b };
        waiters.push(waiting(fixture, &party.read(&name), n).await);
    }
    held.release().await.expect("held");
    let mut inside = Vec::new();
    for waiter in waiters {
        inside.push(next(fixture, "a reader beside the others", waiter).await);
    }
    for held in inside {
        held.release().await.expect("held");
    }
    free(fixture, &a.write(&name)).await;
}

/// A writer that stops waiting, at any moment, unblocks the readers behind it.
pub async fn a_waiter_that_leaves_lets_those_behind_it_pass(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let (read, write) = (a.read(&name), b.write(&name));
    for round in 0..6_u32 {
        let held = read.acquire().await.expect("shared");
        let leaver = waiting(fixture, &write, 1).await;
        let stayer = waiting(fixture, &read, 2).await;
        // In odd rounds the waiter leaves at about the moment when it gets the lock.
        let mut held = Some(held);
        if round % 2 == 1 {
            let held = held.take().expect("not yet");
            held.release().await.expect("held");
            for _ in 0..round * 3 {
                tokio::task::yield_now().await;
            }
        }
        leaver.abort();
        drop(leaver.await); // if it got the lock, this releases it
        let stayer = next(fixture, "the stayer", stayer).await;
        stayer.release().await.expect("held");
        drop(held);
        free(fixture, &write).await;
    }
}

/// A wait for either side leaves nothing when it is dropped after any number of polls.
pub async fn a_wait_for_a_side_dropped_anywhere_leaves_nothing(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let (a, b) = (fixture.party().await, fixture.party().await);
    for polls in 0..20 {
        for side in [a.read(&name), a.write(&name)] {
            let held = b.write(&name).acquire().await.expect("free");
            let left = side.lock().clone();
            let waiter = tokio::spawn(async move {
                poll_times(left.acquire(), polls, Duration::from_secs(5)).await
            });
            if polls % 2 == 0 {
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            held.release().await.expect("held");
            waiter.abort();
            drop(waiter.await);
            free(fixture, &b.write(&name)).await;
        }
    }
    let place = b.write(&name);
    eventually("nobody waits", fixture.lease() * 4, || place.nobody_waits()).await;
    eventually("nobody holds it", fixture.lease() * 4, || async {
        !place.is_locked().await
    })
    .await;
}

/// A reader whose lease ends learns of its loss. A waiting writer gets the lock only after the other reader has
/// released.
pub async fn a_reader_is_told_of_its_loss_before_a_writer_has_the_lock(fixture: &Fixture) {
    let name = unique("prices");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let short = AcquireOptions::new().expires_after(fixture.lease());
    let ends = a.read(&name).acquire_with(short).await.expect("free");
    let stays = b.read(&name).acquire().await.expect("shared");
    let writer = waiting(fixture, &a.write(&name), 1).await;
    let reason = within("the loss", fixture.lease() * 2, ends.lost()).await;
    assert_eq!(reason, LostReason::Expired);
    tokio::time::sleep(fixture.lease() / 2).await;
    assert!(!writer.is_finished() && stays.is_held().await);
    stays.release().await.expect("held");
    let writer = within("the writer", fixture.lease() * 4, writer).await;
    assert!(!ends.is_held().await);
    let late = ends.release().await.expect_err("lost");
    assert_eq!(late.kind(), ErrorKind::Lost);
    writer
        .expect("no panic")
        .release()
        .await
        .expect("untouched");
}

/// After a reader's connection fails, a writer gets the lock when the lease ends, and only after the reader knows its
/// loss.
pub async fn a_reader_that_vanishes_is_followed_by_a_writer(fixture: &Fixture) {
    let name = unique("prices");
    let (a, plug) = fixture.mortal(fixture.builder()).await;
    let b = fixture.party().await;
    let held = Arc::new(a.read(&name).acquire().await.expect("free"));
    let told = listening(&held);
    let writer = waiting(fixture, &b.write(&name), 1).await;
    plug.pull();
    let writer = within("the writer", fixture.lease() * 5 / 2, writer).await;
    told_before(fixture, &held, told).await;
    plug.put_back();
    writer.expect("no panic").release().await.expect("held");
}

/// An owner that holds the write side gets the read side at once. Other clients get the lock only after it has released
/// both.
pub async fn a_writer_may_read_and_stays_alone(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let a = fixture.client(fixture.builder()).await;
    let b = fixture.party().await;
    let sides = a.read_write_lock(&name);
    let me = AcquireOptions::new().owner(&Owner::new());
    let (read, write) = (sides.read().fenced(), sides.write().fenced());
    let writer = write.acquire_with(me.clone()).await.expect("free");
    let waiter = waiting(fixture, &b.write(&name), 1).await;
    let asked = within("itself", fixture.soon(), read.acquire_with(me)).await;
    let reader = asked.expect("the same owner");
    assert_eq!(reader.token(), writer.token());
    writer.release().await.expect("still held by the reader");
    assert!(reader.is_held());
    assert!(refused(&b.read(&name)).await && !waiter.is_finished());
    reader.release().await.expect("held");
    let next = next(fixture, "the writer that waited", waiter).await;
    next.release().await.expect("held");
}

/// An owner that holds the read side and requests the write side gets an error, because it would wait for itself. After
/// it has released the read side, it gets the write side.
pub async fn a_reader_that_wants_to_write_is_refused(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let a = fixture.client(fixture.builder()).await;
    let sides = a.read_write_lock(&name);
    let me = AcquireOptions::new().owner(&Owner::new());
    let reader = sides.read().acquire_with(me.clone()).await.expect("free");
    let again = sides
        .read()
        .acquire_with(me.clone())
        .await
        .expect("the same owner");
    let asked = sides.write().acquire_with(me.clone());
    let waits = within("an answer", fixture.soon(), asked).await;
    let tries = sides.write().try_acquire_with(me.clone()).await;
    for error in [waits.expect_err("refused"), tries.expect_err("refused")] {
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
        assert_eq!(error.lock_name(), Some(&*name));
    }
    reader.release().await.expect("held");
    again.release().await.expect("held");
    let writer = within(
        "itself alone",
        fixture.soon(),
        sides.write().acquire_with(me),
    )
    .await;
    writer.expect("free").release().await.expect("held");
}

/// A force release ends the holds of all readers, each of them learns of its loss, and the next waiter gets the lock.
pub async fn force_ends_every_reader(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let readers = [
        a.read(&name).acquire().await.expect("free"),
        b.read(&name).acquire().await.expect("shared"),
    ];
    let writer = waiting(fixture, &b.write(&name), 1).await;
    let lock = a.client().lock(&name);
    // With faults the reply may be lost. A second call does the rest.
    while let Err(error) = lock.force_release().await {
        assert!(error.is_retryable(), "{error}");
    }
    let writer = next(fixture, "the writer", writer).await;
    for reader in readers {
        let reason = within("the loss", fixture.next_renewal(), reader.lost()).await;
        assert_eq!(reason, LostReason::Taken);
    }
    writer.release().await.expect("held");
}
