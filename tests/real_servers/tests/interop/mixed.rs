//! Java's `RReadWriteLock` on a name that tidelock uses as a lock. Redisson does not check for other kinds of lock and
//! takes it while we hold it. We cannot prevent that. The holder is told, and nothing stays behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use testkit::java::{HammerPlan, JavaLock, RedissonVersion, WordFile, monotonic_now_ns};
use tidelock::{AcquireOptions, ErrorKind, Guard, Lock, LostReason, Mode};

use crate::world::{WAKE_BOUND, World, between};

/// Renewed every four seconds, so a holder is told within four seconds.
const LEASE: Duration = Duration::from_secs(12);
/// A third of the lease, plus a margin for a busy machine. The renewal after it comes after eight seconds.
const NEXT_RENEWAL: Duration = Duration::from_secs(7);

/// The turns of each Java thread under load, and the length of each hold.
const TURNS: u32 = 150;
const HELD: Duration = Duration::from_millis(2);

with_every_redisson!(
    t65_a_holder_is_told_of_a_write_lock_on_its_name,
    t65_a_holder_is_told_of_a_read_lock_on_its_name,
    t65_a_release_says_that_another_kind_was_taken,
    t65_a_release_after_java_leaves_nothing_and_wakes_both_kinds,
    t65_a_holder_whose_key_java_deletes_is_told,
    t65_a_lock_that_java_deleted_goes_to_another_task_and_its_first_holder_is_told,
    t65_each_holder_is_shown_with_its_mode,
    t65_a_lock_says_what_stands_there_and_a_forced_release_frees_it,
    t65_under_load_each_holder_that_was_not_alone_is_told,
);

type Side = fn(&World, &str) -> JavaLock;

fn write(world: &World, name: &str) -> JavaLock {
    world.java.write_lock("a", name)
}

fn read(world: &World, name: &str) -> JavaLock {
    world.java.read_lock("a", name)
}

fn t65_a_holder_is_told_of_a_write_lock_on_its_name(version: RedissonVersion) {
    told_at_the_next_renewal(version, write);
}

fn t65_a_holder_is_told_of_a_read_lock_on_its_name(version: RedissonVersion) {
    told_at_the_next_renewal(version, read);
}

fn told_at_the_next_renewal(version: RedissonVersion, side: Side) {
    let world = World::new(version);
    let lock = world.client.lock("mixed");
    let guard = world.acquire_with(&lock, AcquireOptions::new().lease(LEASE));
    let java = side(&world, "mixed");
    assert!(
        java.try_lock().unwrap().value,
        "Redisson has learned to look"
    );
    let told = world.run(async { tokio::time::timeout(NEXT_RENEWAL, guard.lost()).await });
    assert_eq!(told, Ok(LostReason::WrongType));
    assert!(!guard.is_held());
    assert_lost(&world, guard);
    java.unlock().unwrap();
    assert_nothing_is_left(&world);
}

/// The guard is released before its next renewal could report the loss.
fn t65_a_release_says_that_another_kind_was_taken(version: RedissonVersion) {
    let world = World::new(version);
    let lock = world.client.lock("mixed");
    for side in [write as Side, read] {
        let guard = world.acquire(&lock);
        let java = side(&world, "mixed");
        assert!(java.try_lock().unwrap().value);
        assert_lost(&world, guard);
        assert!(
            java.is_held().unwrap().value,
            "our release ended Java's hold"
        );
        java.unlock().unwrap();
        assert_nothing_is_left(&world);
    }
}

/// Java's write unlock leaves `mode` beside our field. Once our field is gone too, the lock is free, and waiters of
/// both kinds are woken. Otherwise they would sleep until the lease ends.
fn t65_a_release_after_java_leaves_nothing_and_wakes_both_kinds(version: RedissonVersion) {
    let world = World::new(version);
    let lock = world.client.lock("mixed");
    let (plain, writer) = (
        world.java.lock("b", "mixed"),
        world.java.write_lock("b", "mixed"),
    );
    // We wait with one kind after the other: a Redisson client subscribes once for all kinds of lock of a name.
    for waiter in [plain, writer] {
        let guard = world.acquire(&lock);
        let first = write(&world, "mixed");
        assert!(first.try_lock().unwrap().value);
        first.unlock().unwrap();
        let mut observer = world.observer();
        let waiting = waiter.begin_lock_when_free().unwrap();
        observer.look(&["script", "SUBSCRIBE", "script"]).unwrap();
        let released = monotonic_now_ns();
        assert_lost(&world, guard);
        let took = between(released, waiting.wait().unwrap().done_at_ns);
        assert!(took < WAKE_BOUND, "{took:?}");
        assert_nothing_is_left(&world);
    }
}

/// A read unlock deletes a hash that appears to belong to dead readers.
fn t65_a_holder_whose_key_java_deletes_is_told(version: RedissonVersion) {
    let world = World::new(version);
    let lock = world.client.lock("mixed");
    let guard = world.acquire_with(&lock, AcquireOptions::new().lease(LEASE));
    let java = read(&world, "mixed");
    assert!(java.try_lock().unwrap().value);
    java.unlock().unwrap();
    let told = world.run(async { tokio::time::timeout(NEXT_RENEWAL, guard.lost()).await });
    // A renewal may run between the lock and the unlock, so we accept both reasons.
    assert!(
        matches!(told, Ok(LostReason::Taken | LostReason::WrongType)),
        "{told:?}"
    );
    let error = world.run(guard.release()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_nothing_is_left(&world);
}

/// The second holder has the lock as it should, and is told nothing.
fn t65_a_lock_that_java_deleted_goes_to_another_task_and_its_first_holder_is_told(
    version: RedissonVersion,
) {
    let world = World::new(version);
    let lock = world.client.lock("mixed");
    let first = world.acquire(&lock);
    let java = read(&world, "mixed");
    java.lock().unwrap();
    java.unlock().unwrap();
    let second = world.run(lock.try_acquire()).unwrap().unwrap();
    let error = world.run(first.release()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(second.is_held());
    world.run(second.release()).unwrap();
    assert_nothing_is_left(&world);
}

fn t65_each_holder_is_shown_with_its_mode(version: RedissonVersion) {
    let world = World::new(version);
    let lock = world.client.lock("mixed");
    let owner = world.java.owner("a").unwrap();
    let seen = || {
        let holders = world.run(lock.inspect()).unwrap().holders;
        let mut seen: Vec<_> = holders
            .into_iter()
            .map(|one| (one.owner, one.mode))
            .collect();
        seen.sort_by_key(|(owner, mode)| (owner.clone(), *mode == Mode::Write));
        seen
    };
    let (reader, writer) = (read(&world, "mixed"), write(&world, "mixed"));
    reader.lock().unwrap();
    assert_eq!(seen(), [(owner.clone(), Mode::Read)]);
    reader.unlock().unwrap();
    writer.lock().unwrap();
    assert_eq!(seen(), [(owner.clone(), Mode::Write)]);
    // A writer may also read.
    reader.lock().unwrap();
    assert_eq!(
        seen(),
        [(owner.clone(), Mode::Read), (owner.clone(), Mode::Write)]
    );
    reader.unlock().unwrap();
    writer.unlock().unwrap();
    // The write lock in the same key as one of ours.
    let guard = world.acquire(&lock);
    writer.lock().unwrap();
    let mut both = vec![
        (guard.owner_id(), Mode::Exclusive),
        (owner.clone(), Mode::Write),
    ];
    both.sort_by_key(|(owner, _)| owner.clone());
    assert_eq!(seen(), both);
    assert_lost(&world, guard);
    writer.unlock().unwrap();
}

/// A lock says which other kind stands at its key. A force release frees that too, as for an operator who has only the
/// name.
fn t65_a_lock_says_what_stands_there_and_a_forced_release_frees_it(version: RedissonVersion) {
    let world = World::new(version);
    let lock = world.client.lock("mixed");
    for (side, mode) in [(write as Side, "write"), (read, "read")] {
        let java = side(&world, "mixed");
        java.lock().unwrap();
        let error = world.run(lock.try_acquire()).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        let said = error.to_string();
        assert!(said.starts_with("mixed: "), "{said}");
        assert!(said.contains("RReadWriteLock"), "{said}");
        assert!(said.contains(&format!("mode {mode}")), "{said}");
        assert!(java.is_held().unwrap().value);
        assert!(world.run(lock.force_release()).unwrap());
        assert!(!java.is_held().unwrap().value);
        // Before 3.44, this is not an error.
        drop(java.unlock());
    }
    assert_nothing_is_left(&world);
}

/// Java's threads take both sides as fast as they can, next to tasks of ours. Overlaps cannot be prevented. A holder
/// that was not alone is told, at the latest when it releases. If Java's read unlock has deleted the lock of one of our
/// tasks, another one may rightly get it while the first is still inside, and is told nothing
/// ([`t65_a_lock_that_java_deleted_goes_to_another_task_and_its_first_holder_is_told`]).
fn t65_under_load_each_holder_that_was_not_alone_is_told(version: RedissonVersion) {
    for side in [write as Side, read] {
        let world = World::new(version);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("word");
        drop(WordFile::create(&path).unwrap());
        let plan = HammerPlan {
            rounds: TURNS,
            threads: 2,
            word_file: path.clone(),
            hold: HELD,
        };
        let java = side(&world, "mixed").begin_hammer(&plan).unwrap();
        let ours = Arc::<Ours>::default();
        let tasks: Vec<_> = (1..=3)
            .map(|me| {
                let inside = WordFile::open(&path).unwrap();
                let (lock, ours) = (world.client.lock("mixed"), Arc::clone(&ours));
                world.begin(async move { take_turns(&lock, &inside, me, &ours).await })
            })
            .collect();
        let report = java.value().unwrap();
        ours.over.store(true, Ordering::SeqCst);
        let mut all = Seen::default();
        for task in tasks {
            let seen = world.run(task).unwrap();
            all.turns += seen.turns;
            all.overlaps += seen.overlaps;
            all.told += seen.told;
            all.untold += seen.untold;
        }
        println!("{all:?} beside {report:?}");
        assert!(
            all.turns > 0 && all.overlaps > 0,
            "nothing was tried: {all:?}"
        );
        assert_eq!(all.untold, 0, "{all:?}");
        assert_nothing_is_left(&world);
    }
}

/// The counts of a task's turns.
#[derive(Debug, Default)]
struct Seen {
    turns: u32,
    /// Turns with another holder inside.
    overlaps: u32,
    /// Turns whose release reported a loss.
    told: u32,
    /// Turns with a holder of Java inside, and no other task of ours, whose release reported success. Which of two tasks
    /// has the lock is not known here: the one that got it first may run later.
    untold: u32,
}

/// What our tasks tell each other.
#[derive(Debug, Default)]
struct Ours {
    /// Java has had its turns.
    over: AtomicBool,
    /// How many of our tasks are inside.
    inside: AtomicU32,
    /// How many turns of our tasks have begun.
    begun: AtomicU32,
}

async fn take_turns(lock: &Lock, inside: &WordFile, me: u64, ours: &Ours) -> Seen {
    let mut seen = Seen::default();
    while !ours.over.load(Ordering::SeqCst) {
        let guard = match lock.try_acquire().await {
            Ok(Some(guard)) => guard,
            // Another task of ours holds the lock, or a Java thread that took it correctly.
            Ok(None) => {
                tokio::time::sleep(HELD).await;
                continue;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
                tokio::time::sleep(HELD / 4).await;
                continue;
            }
        };
        let is_second = ours.inside.fetch_add(1, Ordering::SeqCst) > 0;
        let turn = ours.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let (alone, counter) = inside.enter(me).unwrap();
        tokio::time::sleep(HELD).await;
        let alone = inside.leave(me, counter).unwrap() && alone;
        let met = is_second || ours.begun.load(Ordering::SeqCst) != turn;
        ours.inside.fetch_sub(1, Ordering::SeqCst);
        let told = match guard.release().await {
            Ok(()) => false,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
                true
            }
        };
        seen.turns += 1;
        seen.overlaps += u32::from(!alone);
        seen.told += u32::from(told);
        seen.untold += u32::from(!alone && !met && !told);
    }
    seen
}

fn assert_lost(world: &World, guard: Guard) {
    let error = world.run(guard.release()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert_eq!(error.lost_reason(), Some(LostReason::WrongType), "{error}");
}

/// Only keys with the prefix `tidelock:` may be left, and the next acquire succeeds at once.
fn assert_nothing_is_left(world: &World) {
    let end = std::time::Instant::now() + WAKE_BOUND;
    loop {
        let mut keys = world.server.keys().unwrap();
        // Redisson deletes its latches without waiting for the reply, and some versions let them expire.
        let of_nobody = ["tidelock:", "redisson_unlock_latch:"];
        keys.retain(|key| !of_nobody.iter().any(|prefix| key.starts_with(prefix)));
        if keys.is_empty() {
            break;
        }
        assert!(std::time::Instant::now() < end, "{keys:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(world.is_free_for_rust(&world.client.lock("mixed")));
}
