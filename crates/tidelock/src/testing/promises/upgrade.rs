//! Promises about upgradeable readers: at most one, which plain readers join, and which becomes a writer without a gap.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::error::ErrorKind;
use crate::fenced::FencedGuard;
use crate::options::AcquireOptions;
use crate::owner::Owner;
use crate::read_write::ReadWriteLock;
use crate::snapshot::Mode;
use crate::store::LockKind;
use crate::testing::fixture::{Fixture, unique, within};
use crate::testing::party::Party;
use crate::testing::polls::{Polled, poll_times};
use crate::testing::promises::waiters::{free, next, refused, until_wait, waiting};

/// A store has upgradeable readers, or refuses them with `Unsupported` before any traffic.
pub async fn a_store_without_upgradeable_readers_says_so(fixture: &Fixture) {
    let name = unique("prices");
    if fixture.capabilities().await.has(LockKind::UpgradeableRead) {
        let a = fixture.party().await;
        free(fixture, &a.upgradeable(&name)).await;
        return;
    }
    let (a, plug) = fixture.mortal(fixture.builder()).await;
    plug.pull();
    let lock = a.client().read_write_lock(&name).upgradeable_read();
    let error = lock.clone().acquire().await.expect_err("unsupported");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("memory:"), "{error}");
    let error = lock.fenced().try_acquire().await.expect_err("unsupported");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

/// Plain readers of every client join it, and nobody else does.
pub async fn only_plain_readers_join_an_upgradeable_reader(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let (a, b) = (fixture.party().await, fixture.party().await);
    for first in [a.read(&name), a.upgradeable(&name)] {
        let first = first.acquire().await.expect("free");
        // Beside a plain reader an upgradeable one enters too.
        let held = match b.upgradeable(&name).try_acquire().await.expect("answered") {
            Some(second) => second,
            None => b.read(&name).acquire().await.expect("shared"),
        };
        let seen = a.lock(&name).lock().inspect().await.expect("readable");
        let mut modes: Vec<_> = seen.holders.iter().map(|one| one.mode).collect();
        modes.sort_by_key(|mode| *mode == Mode::UpgradeableRead);
        assert_eq!(modes, [Mode::Read, Mode::UpgradeableRead]);
        for party in [&a, &b] {
            let reader = party.read(&name).acquire().await.expect("shared");
            assert!(refused(&party.upgradeable(&name)).await);
            assert!(refused(&party.write(&name)).await);
            reader.release().await.expect("held");
        }
        first.release().await.expect("held");
        held.release().await.expect("held");
        free(fixture, &b.write(&name)).await;
    }
}

/// Upgradeable readers follow each other. Plain readers pass those that wait, and writers do not.
pub async fn plain_readers_pass_a_waiting_upgradeable_reader(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let held = a.upgradeable(&name).acquire().await.expect("free");
    let second = waiting(fixture, &b.upgradeable(&name), 1).await;
    let reader = a.read(&name).acquire().await.expect("shared");
    let writer = waiting(fixture, &a.write(&name), 2).await;
    assert!(refused(&b.read(&name)).await, "a writer waits");
    held.release().await.expect("held");
    let second = next(fixture, "the second one", second).await;
    assert!(!writer.is_finished() && reader.is_held().await);
    reader.release().await.expect("held");
    assert!(!writer.is_finished(), "the second one reads");
    second.release().await.expect("held");
    let writer = next(fixture, "the writer", writer).await;
    writer.release().await.expect("held");
}

/// No new reader enters while an upgrade waits, and no waiter does, also one that came first. When its writer has released,
/// the reader reads on.
pub async fn an_upgrade_waits_for_the_readers_inside_ahead_of_all_others(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let a = fixture.client(fixture.builder()).await;
    let b = fixture.party().await;
    let sides = a.read_write_lock(&name);
    let held = sides.upgradeable_read().fenced().acquire().await;
    let held = held.expect("free");
    let readers = [b.read(&name).acquire().await, b.read(&name).acquire().await];
    let second = waiting(fixture, &b.upgradeable(&name), 1).await;
    let writer = waiting(fixture, &b.write(&name), 2).await;
    let upgrade = tokio::spawn(sides.upgrade(&held));
    let place = b.read(&name);
    until_wait(fixture, &place, 3).await;
    assert!(refused(&place).await, "an upgrade waits");
    for reader in readers {
        assert!(!upgrade.is_finished(), "a reader is inside");
        reader.expect("shared").release().await.expect("held");
    }
    let upgraded = within("the upgrade", fixture.soon(), upgrade).await;
    let upgraded: FencedGuard = upgraded.expect("no panic").expect("alone");
    assert!(upgraded.token() > held.token() && held.is_held());
    let seen = sides.read().inspect().await.expect("readable");
    let mut modes: Vec<_> = seen.holders.iter().map(|one| one.mode).collect();
    modes.sort_by_key(|mode| *mode == Mode::Write);
    assert_eq!(modes, [Mode::UpgradeableRead, Mode::Write]);
    assert!(refused(&place).await, "it writes");
    upgraded.release().await.expect("held");
    assert!(held.is_held() && !writer.is_finished() && !second.is_finished());
    held.release().await.expect("held");
    let second = next(fixture, "the second one", second).await;
    second.release().await.expect("held");
    let writer = next(fixture, "the writer", writer).await;
    writer.release().await.expect("held");
}

/// Checks the holders against each other, and the value that they read and write.
#[derive(Default)]
struct Inside {
    readers: AtomicI64,
    upgradeable: AtomicI64,
    writers: AtomicI64,
    value: AtomicU64,
    /// The largest token of any writer so far.
    newest: AtomicU64,
}

impl Inside {
    async fn write(&self, token: u64, seen: Option<u64>) {
        assert_eq!(self.writers.fetch_add(1, Ordering::SeqCst), 0);
        let readers = [&self.readers, &self.upgradeable].map(|it| it.load(Ordering::SeqCst));
        assert_eq!(readers, [0, i64::from(seen.is_some())]);
        let newest = self.newest.fetch_max(token, Ordering::SeqCst);
        assert!(token > newest, "token {token} after {newest}");
        let value = self.value.load(Ordering::SeqCst);
        assert_eq!(seen.unwrap_or(value), value, "another writer was inside");
        tokio::task::yield_now().await;
        assert_eq!(self.value.fetch_add(1, Ordering::SeqCst), value);
        self.writers.fetch_sub(1, Ordering::SeqCst);
    }

    async fn read(&self, readers: &AtomicI64) -> u64 {
        readers.fetch_add(1, Ordering::SeqCst);
        assert_eq!(self.writers.load(Ordering::SeqCst), 0, "a writer is inside");
        let value = self.value.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        assert_eq!(self.value.load(Ordering::SeqCst), value);
        value
    }
}

async fn read_and_write(sides: &ReadWriteLock, inside: &Inside, writes: bool) {
    let lock = sides.upgradeable_read().fenced();
    let held = lock.acquire().await.expect("it waits");
    let seen = inside.read(&inside.upgradeable).await;
    assert_eq!(inside.upgradeable.load(Ordering::SeqCst), 1, "at most one");
    if writes {
        let upgraded = sides.upgrade(&held).await.expect("it waits");
        assert!(upgraded.token() > held.token());
        inside.write(upgraded.token().get(), Some(seen)).await;
        upgraded.release().await.expect("held");
        assert_eq!(inside.value.load(Ordering::SeqCst), seen + 1);
    }
    inside.upgradeable.fetch_sub(1, Ordering::SeqCst);
    held.release().await.expect("held");
}

/// Tasks of two clients read, read upgradeably, upgrade and write concurrently.
pub async fn what_an_upgradeable_reader_has_read_still_holds_when_it_writes(fixture: &Fixture) {
    let (name, inside) = (unique("prices"), Arc::new(Inside::default()));
    let (a, b) = (fixture.party().await, fixture.party().await);
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..8_u32 {
        let party = if n % 2 == 0 { &a } else { &b };
        let sides = party.client().read_write_lock(&name);
        let inside = Arc::clone(&inside);
        tasks.spawn(async move {
            for turn in 0..4 {
                match (n / 2 + turn) % 4 {
                    0 => {
                        let held = sides.read().acquire().await.expect("it waits");
                        inside.read(&inside.readers).await;
                        inside.readers.fetch_sub(1, Ordering::SeqCst);
                        held.release().await.expect("held");
                    }
                    1 => {
                        let writer = sides.write().fenced().acquire().await.expect("it waits");
                        inside.write(writer.token().get(), None).await;
                        writer.release().await.expect("held");
                    }
                    kind => read_and_write(&sides, &inside, kind == 2).await,
                }
            }
        });
    }
    let limit = fixture.lease() * 60;
    within("all have had their turns", limit, tasks.join_all()).await;
    assert_eq!(inside.value.load(Ordering::SeqCst), 16);
    free(fixture, &a.write(&name)).await;
}

/// After a timeout the reader reads on, readers enter again, and a later upgrade succeeds.
pub async fn an_upgrade_that_times_out_leaves_its_reader_as_it_was(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    // A wait that ends blames the store if a request has been without an answer for a quarter of the response timeout.
    let (builder, limit) = if fixture.is_faulty() {
        (fixture.builder(), fixture.lease() / 4)
    } else {
        let patient = fixture.builder().response_timeout(fixture.asked() * 2);
        (patient, fixture.asked() / 3)
    };
    let a = fixture.client(builder).await;
    let b = fixture.party().await;
    let sides = a.read_write_lock(&name);
    let held = sides.upgradeable_read().acquire().await.expect("free");
    let reader = b.read(&name).acquire().await.expect("shared");
    for wait in [Duration::ZERO, limit] {
        let limited = AcquireOptions::new().wait(wait);
        let error = sides.upgrade_with(&held, limited).await;
        let error = error.expect_err("a reader is inside");
        // With faults the last answer may be missing.
        let fits = error.kind() == ErrorKind::TimedOut || fixture.is_faulty();
        assert!(fits, "{error}");
        assert_eq!(error.lock_name(), Some(&*name));
        assert!(held.is_held() && reader.is_held().await);
        let soon = AcquireOptions::new().wait(fixture.soon());
        let again = b.read(&name).acquire_with(soon).await;
        again
            .expect("no upgrade waits")
            .release()
            .await
            .expect("held");
    }
    reader.release().await.expect("held");
    let writer = within("the upgrade", fixture.soon(), sides.upgrade(&held)).await;
    writer.expect("alone").release().await.expect("held");
    held.release().await.expect("held");
    free(fixture, &b.write(&name)).await;
}

/// An upgrade that is dropped after any number of polls leaves no write hold and no place. Its reader reads on.
pub async fn an_upgrade_dropped_anywhere_leaves_its_reader_as_it_was(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let a = fixture.client(fixture.builder()).await;
    let b = fixture.party().await;
    let sides = a.read_write_lock(&name);
    let held = sides.upgradeable_read().acquire().await.expect("free");
    for polls in 0..20 {
        let reader = if polls % 2 == 0 {
            Some(b.read(&name).acquire().await.expect("shared"))
        } else {
            None
        };
        let upgrade = sides.upgrade(&held);
        // With a reader inside it sleeps for good.
        let patience = match &reader {
            Some(_) => fixture.lease() / 10,
            None => fixture.lease() * 10,
        };
        match poll_times(upgrade, polls, patience).await {
            Polled::Done(writer) => writer.expect("alone").release().await.expect("held"),
            Polled::Dropped => {}
            Polled::Asleep => assert!(reader.is_some(), "nothing woke it after {polls} polls"),
        }
        free(fixture, &b.read(&name)).await;
        assert!(held.is_held() && refused(&b.upgradeable(&name)).await);
        if let Some(reader) = reader {
            reader.release().await.expect("held");
        }
    }
    held.release().await.expect("held");
    free(fixture, &b.write(&name)).await;
}

/// Other guards are refused before any traffic, and stay as they are.
pub async fn only_a_guard_of_the_upgradeable_read_is_upgraded(fixture: &Fixture) {
    let name = unique("prices");
    let a = fixture.client(fixture.builder()).await;
    let sides = a.read_write_lock(&name);
    let other = a.read_write_lock(&unique("other"));
    let refused = |error: crate::Error| {
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
        assert_eq!(error.lock_name(), Some(&*name));
    };
    let reader = sides.read().acquire().await.expect("free");
    refused(sides.upgrade(&reader).await.expect_err("a plain reader"));
    let stranger = other.upgradeable_read().acquire().await.expect("free");
    let upgraded = sides.upgrade(&stranger).await;
    refused(upgraded.expect_err("of another lock"));
    assert!(reader.is_held() && stranger.is_held());
    reader.release().await.expect("held");
}

/// An owner that reads upgradeably may read, and writes by an upgrade, which it re-enters. Then it reads upgradeably again.
pub async fn an_owner_writes_by_an_upgrade_and_reads_on(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let a = fixture.client(fixture.builder()).await;
    let b = fixture.party().await;
    let sides = a.read_write_lock(&name);
    let me = AcquireOptions::new().owner(&Owner::new());
    let held = sides.upgradeable_read().acquire_with(me.clone()).await;
    let held = held.expect("free");
    let waits = waiting(fixture, &b.write(&name), 1).await;
    let refused = sides.write().acquire_with(me.clone()).await;
    let refused = refused.expect_err("it would wait for itself");
    assert_eq!(refused.kind(), ErrorKind::InvalidOptions, "{refused}");
    assert!(refused.to_string().contains("upgrade"), "{refused}");
    let writer = within(
        "itself",
        fixture.soon(),
        sides.upgrade_with(&held, me.clone()),
    )
    .await;
    let writer = writer.expect("alone");
    for lock in [sides.write(), sides.read(), sides.upgradeable_read()] {
        let again = within("itself", fixture.soon(), lock.acquire_with(me.clone())).await;
        let again = again.expect("the same owner");
        assert_eq!(again.owner_id(), writer.owner_id());
        // A guard that writes already need not ask.
        let twice = sides
            .upgrade_with(&again, me.clone())
            .await
            .expect("it writes");
        assert_eq!(twice.owner_id(), writer.owner_id());
    }
    writer.release().await.expect("held");
    let again = within(
        "itself",
        fixture.soon(),
        sides.read().acquire_with(me.clone()),
    )
    .await;
    let again = again.expect("the same owner");
    assert_eq!(again.owner_id(), held.owner_id());
    again.release().await.expect("held");
    held.release().await.expect("held");
    let waits = next(fixture, "the writer", waits).await;
    waits.release().await.expect("held");
    let reader = sides.read().acquire_with(me.clone()).await.expect("free");
    let refused = sides.upgradeable_read().acquire_with(me).await;
    let refused = refused.expect_err("it could wait for itself");
    assert_eq!(refused.kind(), ErrorKind::InvalidOptions, "{refused}");
    reader.release().await.expect("held");
}

/// The writer that an upgradeable reader has become is downgraded as any other. It does not need that reader any more.
pub async fn an_upgraded_writer_is_downgraded_and_outlives_its_reader(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let a = fixture.client(fixture.builder()).await;
    let b: Party = fixture.party().await;
    let sides = a.read_write_lock(&name);
    let held = sides.upgradeable_read().acquire().await.expect("free");
    let waits = waiting(fixture, &b.write(&name), 1).await;
    let writer = sides.upgrade(&held).await.expect("alone");
    held.release().await.expect("held");
    assert!(writer.is_held() && refused(&b.read(&name)).await);
    let reader = sides.downgrade(writer).await.expect("held");
    assert!(refused(&b.upgradeable(&name)).await, "a writer waits");
    assert!(!waits.is_finished() && reader.is_held());
    reader.release().await.expect("held");
    let waits = next(fixture, "the writer", waits).await;
    waits.release().await.expect("held");
}
