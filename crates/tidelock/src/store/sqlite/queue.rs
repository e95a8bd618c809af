//! The queue of the processes that wait for one lock. The kernel keeps it, as locks on bytes of `-lock` ([`ByteLocks`]).
//! Waiting processes sleep, a release wakes one of them, and a killed process leaves the queue.
//!
//! Each lock name has three bytes:
//! - *held*: the process that holds the lock locks this byte, and unlocks it after the release;
//! - *first*: one waiting process locks this byte. It then waits for *held*, so the release wakes it;
//! - *second*: another waiting process locks this byte and waits for *first*. All others wait for *second*.
//!
//! These bytes are only hints: the rows in the file decide. A byte can be locked without a row, and a row can exist
//! without its byte, because a process was frozen or killed in between, or because another process does not use the
//! bytes. So the first and the second process also check the rows from time to time. If both are frozen, one of the
//! others attempts the lock: every few seconds they check whether any process has locked *held*.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::store::sqlite::byte_locks::ByteLocks;
use crate::store::sqlite::queue_place::{NameBytes, QueueListener, QueuePlace, QueueRank};

/// Bounds the names that a process may queue for: each takes a thread, which sleeps in the kernel.
const MAX_QUEUE_THREADS: usize = 16;

/// The positions of this process in the queues of one file.
#[derive(Debug)]
pub(crate) struct ProcessQueue {
    ranges: Arc<ByteLocks>,
    spots: Mutex<HashMap<Arc<str>, Arc<QueuePlace>>>,
    /// Set when this system turns out not to support these locks.
    is_useless: AtomicBool,
}

impl ProcessQueue {
    pub(crate) fn on(ranges: ByteLocks) -> Self {
        Self {
            ranges: Arc::new(ranges),
            spots: Mutex::default(),
            is_useless: AtomicBool::new(false),
        }
    }

    /// Joins the queue of a lock, for a waiter of this process. If the process is already in the queue, it keeps its
    /// position.
    pub(crate) fn stand(self: &Arc<Self>, name: &str, caller: &Arc<impl QueueListener>) {
        let mut spots = self.lock();
        if let Some(spot) = spots.get(name)
            && spot.want()
        {
            return;
        }
        if spots.len() >= MAX_QUEUE_THREADS || self.is_useless.load(Ordering::Relaxed) {
            return;
        }
        let spot = Arc::new(QueuePlace::of(name, Arc::clone(&self.ranges)));
        spots.insert(Arc::clone(&spot.name), Arc::clone(&spot));
        // We unlock before the start. If the thread cannot start, the drop of `QueueThread` locks the map again.
        drop(spots);
        let (serving, caller) = (self.serving(spot), Arc::clone(caller));
        let started = std::thread::Builder::new()
            .name("tidelock-queue".to_owned())
            .spawn(move || {
                if let Err(error) = serving.spot.serve(&*caller) {
                    tracing::debug!(%error, "this system has no locks for the queue; waiters poll the lock file instead");
                    serving.queue.is_useless.store(true, Ordering::Relaxed);
                    drop(serving);
                    caller.look();
                }
            });
        if let Err(error) = started {
            tracing::warn!(%error, "cannot start the thread of the queue; waiters poll the lock file instead");
        }
    }

    fn serving(self: &Arc<Self>, spot: Arc<QueuePlace>) -> QueueThread {
        let queue = Arc::clone(self);
        QueueThread { queue, spot }
    }

    /// Leaves the queue, unless a waiter of this process still waits for the lock.
    pub(crate) fn leave(&self, name: &str, is_wanted: impl FnOnce() -> bool) {
        let spots = self.lock();
        // We call `is_wanted` under the lock. Otherwise a waiter that joins at this moment would lose its position.
        if let Some(spot) = spots.get(name)
            && !is_wanted()
        {
            spot.give_up();
        }
    }

    /// This process was granted the lock. If it has more waiters, they continue at the end of the queue.
    pub(crate) fn was_served(&self, name: &str) {
        if let Some(spot) = self.lock().get(name) {
            spot.step_back();
        }
    }

    pub(crate) fn rank(&self, name: &str) -> QueueRank {
        let spots = self.lock();
        spots.get(name).map_or(QueueRank::Alone, |spot| spot.rank())
    }

    /// True if this process is behind others in the queue and no process shows that it holds the lock. The processes
    /// ahead may be frozen.
    pub(crate) fn is_overdue(&self, name: &str, now: Instant) -> bool {
        let spots = self.lock();
        spots.get(name).is_some_and(|spot| spot.is_overdue(now))
    }

    /// Counts the other processes that are known to wait for the lock: zero, one or two.
    pub(crate) fn others(&self, name: &str) -> u32 {
        let bytes = NameBytes::of(name);
        let taken = |at| u32::from(self.ranges.is_taken(at));
        taken(bytes.first) + taken(bytes.second)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<QueuePlace>>> {
        self.spots.lock()
    }
}

/// Runs the thread of a queue position. On drop, it unlocks every byte, even after a panic.
struct QueueThread {
    queue: Arc<ProcessQueue>,
    spot: Arc<QueuePlace>,
}

impl Drop for QueueThread {
    fn drop(&mut self) {
        let mut spots = self.queue.lock();
        self.spot.end();
        // A newer thread may already have replaced this one.
        let name = &self.spot.name;
        if spots
            .get(name)
            .is_some_and(|now| Arc::ptr_eq(now, &self.spot))
        {
            spots.remove(name);
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a helper that fails ends the test")]

    use std::path::Path;
    use std::sync::LazyLock;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;
    use crate::store::sqlite::holder_bytes::HolderBytes;
    use crate::types::{OwnerId, OwnerMint};

    const SOON: Duration = Duration::from_secs(10);

    /// Sends the name of each call.
    struct Told(Mutex<Sender<&'static str>>);

    impl QueueListener for Told {
        fn called(&self, _: &str) {
            let _ = self.0.lock().send("called");
        }

        fn look(&self) {
            let _ = self.0.lock().send("look");
        }
    }

    type Stands = (Arc<ProcessQueue>, Receiver<&'static str>);

    /// A queue position that behaves like that of a separate process.
    fn stand(file: &Path) -> Stands {
        let queue = Arc::new(ProcessQueue::on(ByteLocks::on(file).unwrap()));
        let (told, hears) = channel();
        queue.stand("a", &Arc::new(Told(Mutex::new(told))));
        (queue, hears)
    }

    fn await_rank(queue: &ProcessQueue, rank: QueueRank) {
        let begun = Instant::now();
        while queue.rank("a") != rank {
            assert!(
                begun.elapsed() < SOON,
                "{:?} is not {rank:?}",
                queue.rank("a")
            );
            std::thread::yield_now();
        }
    }

    /// The one holder of all tests.
    fn owner() -> OwnerId {
        static OWNER: LazyLock<OwnerId> = LazyLock::new(|| OwnerMint::new().fresh());
        OWNER.clone()
    }

    /// Three processes that joined one after the other, while another one holds the lock.
    fn three(folder: &Path) -> (HolderBytes, [Stands; 3]) {
        let file = folder.join("x-lock");
        std::fs::write(&file, "").unwrap();
        let holder = HolderBytes::beside(&file);
        holder.show("a", &owner());
        let all = [QueueRank::First, QueueRank::Second, QueueRank::Behind].map(|rank| {
            let (queue, hears) = stand(&file);
            await_rank(&queue, rank);
            (queue, hears)
        });
        (holder, all)
    }

    #[test]
    fn a_release_calls_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let (holder, [first, second, third]) = three(folder.path());
        holder.hide("a", &owner());
        let hears = |(_, hears): &(_, Receiver<_>)| hears.recv_timeout(SOON).unwrap();
        // One look on reaching the second position, one on reaching the first.
        assert_eq!([hears(&first), hears(&first)], ["look"; 2]);
        assert_eq!(hears(&first), "called");
        assert!(third.1.try_recv().is_err(), "it was not called");
        assert_eq!(hears(&first), "look", "the lock is still free");
        // The first is granted the lock and makes room for the next.
        holder.show("a", &owner());
        first.0.was_served("a");
        await_rank(&second.0, QueueRank::First);
        assert_ne!(first.0.rank("a"), QueueRank::First);
    }

    #[test]
    fn a_place_in_the_queue_that_is_left_is_filled() {
        let folder = tempfile::tempdir().unwrap();
        let (_holder, [first, second, third]) = three(folder.path());
        first.0.leave("a", || true);
        await_rank(&first.0, QueueRank::First);
        first.0.leave("a", || false);
        await_rank(&second.0, QueueRank::First);
        await_rank(&third.0, QueueRank::Second);
        assert_eq!(third.0.others("a"), 1);
        let (fourth, _hears) = stand(&folder.path().join("x-lock"));
        await_rank(&fourth, QueueRank::Behind);
        assert_eq!(fourth.others("a"), 2);
    }

    #[test]
    fn a_process_that_is_in_the_queue_keeps_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let (_holder, [first, second, _third]) = three(folder.path());
        for (queue, rank) in [(first.0, QueueRank::First), (second.0, QueueRank::Second)] {
            let (told, _hears) = channel();
            queue.stand("a", &Arc::new(Told(Mutex::new(told))));
            assert_eq!(queue.rank("a"), rank);
        }
    }

    #[test]
    fn a_process_queues_for_so_many_names_and_its_threads_end() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x-lock");
        std::fs::write(&file, "").unwrap();
        let queue = Arc::new(ProcessQueue::on(ByteLocks::on(&file).unwrap()));
        let (told, _hears) = channel();
        let told = Arc::new(Told(Mutex::new(told)));
        for number in 0..=MAX_QUEUE_THREADS {
            queue.stand(&number.to_string(), &told);
        }
        let is_queued = |number: usize| queue.rank(&number.to_string()) != QueueRank::Alone;
        assert!((0..MAX_QUEUE_THREADS).all(is_queued));
        assert!(!is_queued(MAX_QUEUE_THREADS));
        for number in 0..MAX_QUEUE_THREADS {
            queue.leave(&number.to_string(), || false);
        }
        let begun = Instant::now();
        while (0..MAX_QUEUE_THREADS).any(is_queued) {
            assert!(begun.elapsed() < SOON, "a thread goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The second process blocks in the kernel until the first unlocks its byte. Even then, it can give up its
    /// position.
    #[test]
    fn a_first_that_stands_still_does_not_keep_the_second_from_leaving() {
        let folder = tempfile::tempdir().unwrap();
        let (_holder, [first, second, third]) = three(folder.path());
        second.0.was_served("a");
        await_rank(&third.0, QueueRank::Second);
        // Both the second and the third now wait for the first position.
        first.0.leave("a", || false);
        second.0.leave("a", || false);
        await_rank(&third.0, QueueRank::First);
    }

    #[test]
    fn those_behind_are_overdue_when_nobody_shows_that_it_holds_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let (holder, [first, _, third]) = three(folder.path());
        // One instant for all calls: the pause until the next check is as short as this test.
        let now = Instant::now();
        let is_overdue = |stands: &Stands| stands.0.is_overdue("a", now);
        assert!(!is_overdue(&third), "it is held");
        holder.hide("a", &owner());
        assert!(!is_overdue(&third), "only just");
        // The first process takes the byte of the holder for a moment, to be called when the lock is free.
        let begun = Instant::now();
        while !is_overdue(&third) {
            assert!(begun.elapsed() < SOON, "it is never overdue");
        }
        assert!(!is_overdue(&third), "not again at once");
        assert!(!is_overdue(&first), "it looks by itself");
    }

    #[test]
    fn names_have_bytes_of_their_own() {
        let mut all: Vec<i64> = ["", "a", "b", "stock:42", "stock:43"]
            .map(NameBytes::of)
            .iter()
            .flat_map(|bytes| [bytes.held, bytes.first, bytes.second])
            .collect();
        assert!(all.iter().all(|at| *at >= 0));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 15);
        // The hash is stored nowhere, but other versions of this program use the same one.
        assert_eq!(NameBytes::of("stock:42").held, 5_325_404_063_224_990_988);
    }
}
