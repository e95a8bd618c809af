//! The queue of the processes that wait for one lock. The kernel keeps it, as locks on bytes of `-lock` ([`Ranges`]):
//! waiting processes sleep, one is woken at a time, and one that is killed leaves the queue.
//!
//! A name has three bytes:
//! - the process that holds the lock has locked *held*, which it unlocks after the release;
//! - of those that wait, one has locked *first*. It waits for *held*, and is therefore woken by the release;
//! - one has locked *second*, and waits for *first*. All others wait for *second*.
//!
//! None of this decides anything: the rows in the file do. A byte can be locked without a row and a row can be there
//! without its byte (a process was stopped or killed in between, or another one does not know of the bytes). So the first
//! and the second of the queue also look at the rows now and then. Should both be stopped, one of the others asks: they look
//! every few seconds whether anybody has locked *held*.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ranges::Ranges;
use super::spot::{Bytes, Caller, Rank, Spot};

/// How many names a process may wait for in this way: each takes a thread, which sleeps in the kernel.
const MOST: usize = 16;

/// The places of this process in the queues of one file.
#[derive(Debug)]
pub(super) struct Queue {
    ranges: Arc<Ranges>,
    spots: Mutex<HashMap<Arc<str>, Arc<Spot>>>,
    /// This system knows no such locks after all.
    is_useless: AtomicBool,
}

impl Queue {
    pub(super) fn on(ranges: Ranges) -> Self {
        Self {
            ranges: Arc::new(ranges),
            spots: Mutex::default(),
            is_useless: AtomicBool::new(false),
        }
    }

    /// Somebody here waits for that name. Taking a place again keeps it.
    pub(super) fn stand(self: &Arc<Self>, name: &str, caller: &Arc<impl Caller>) {
        let mut spots = self.lock();
        if let Some(spot) = spots.get(name)
            && spot.want()
        {
            return;
        }
        if spots.len() >= MOST || self.is_useless.load(Ordering::Relaxed) {
            return;
        }
        let spot = Arc::new(Spot::of(name, Arc::clone(&self.ranges)));
        spots.insert(Arc::clone(&spot.name), Arc::clone(&spot));
        drop(spots);
        let (serving, caller) = (self.serving(spot), Arc::clone(caller));
        let started = std::thread::Builder::new()
            .name("tidelock-queue".to_owned())
            .spawn(move || {
                if let Err(error) = serving.spot.serve(&*caller) {
                    tracing::debug!(%error, "no such locks on this system; the lock file is looked at instead");
                    serving.queue.is_useless.store(true, Ordering::Relaxed);
                    drop(serving);
                    caller.look();
                }
            });
        if let Err(error) = started {
            tracing::warn!(%error, "no thread to wait in; the lock file is looked at instead");
        }
    }

    fn serving(self: &Arc<Self>, spot: Arc<Spot>) -> Serving {
        let queue = Arc::clone(self);
        Serving { queue, spot }
    }

    /// Leaves the queue, unless somebody here waits for that name.
    pub(super) fn leave(&self, name: &str, is_wanted: impl FnOnce() -> bool) {
        let spots = self.lock();
        // Asked under the lock, or a place that is taken at this moment would be given up.
        if let Some(spot) = spots.get(name)
            && !is_wanted()
        {
            spot.give_up();
        }
    }

    /// This process has had its turn: if others wait here for the next one, they wait at the end of the queue.
    pub(super) fn had_its_turn(&self, name: &str) {
        if let Some(spot) = self.lock().get(name) {
            spot.step_back();
        }
    }

    pub(super) fn rank(&self, name: &str) -> Rank {
        let spots = self.lock();
        spots.get(name).map_or(Rank::Alone, |spot| spot.rank())
    }

    /// This process stands behind others, and nobody shows that it holds the lock: nothing may be happening there.
    pub(super) fn is_overdue(&self, name: &str) -> bool {
        let spots = self.lock();
        spots.get(name).is_some_and(|spot| spot.is_overdue())
    }

    /// How many other processes are known to wait for that name: none, one or two.
    pub(super) fn others(&self, name: &str) -> u32 {
        let bytes = Bytes::of(name);
        let taken = |at| u32::from(self.ranges.is_taken(at));
        taken(bytes.first) + taken(bytes.second)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Spot>>> {
        self.spots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread of a spot. However it ends, it leaves nothing locked.
struct Serving {
    queue: Arc<Queue>,
    spot: Arc<Spot>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let mut spots = self.queue.lock();
        self.spot.end();
        // Unless another has taken its place meanwhile.
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
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::super::shown::Shown;
    use std::time::{Duration, Instant};

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    /// Tells what it is called for.
    struct Told(Mutex<Sender<&'static str>>);

    impl Caller for Told {
        fn called(&self, _: &str) {
            let _ = self.0.lock().unwrap().send("called");
        }

        fn look(&self) {
            let _ = self.0.lock().unwrap().send("look");
        }
    }

    type Stands = (Arc<Queue>, Receiver<&'static str>);

    /// A place in the queue, as of a process of its own.
    fn stand(file: &Path) -> Stands {
        let queue = Arc::new(Queue::on(Ranges::on(file).unwrap()));
        let (told, hears) = channel();
        queue.stand("a", &Arc::new(Told(Mutex::new(told))));
        (queue, hears)
    }

    fn await_rank(queue: &Queue, rank: Rank) {
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

    /// Three that came one after the other, while another one holds the lock.
    fn three(folder: &Path) -> (Shown, [Stands; 3]) {
        let file = folder.join("x-lock");
        std::fs::write(&file, "").unwrap();
        let holder = Shown::beside(&file);
        holder.show("a");
        let all = [Rank::First, Rank::Second, Rank::Behind].map(|rank| {
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
        holder.hide("a");
        let hears = |(_, hears): &(_, Receiver<_>)| hears.recv_timeout(SOON).unwrap();
        // To rise to the head, and when it is there.
        assert_eq!([hears(&first), hears(&first)], ["look"; 2]);
        assert_eq!(hears(&first), "called");
        assert!(third.1.try_recv().is_err(), "it was not called");
        // It has its turn, and makes room for the next.
        holder.show("a");
        first.0.had_its_turn("a");
        await_rank(&second.0, Rank::First);
        assert_ne!(first.0.rank("a"), Rank::First);
    }

    #[test]
    fn who_leaves_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (_holder, [first, second, third]) = three(folder.path());
        first.0.leave("a", || true);
        await_rank(&first.0, Rank::First);
        first.0.leave("a", || false);
        await_rank(&second.0, Rank::First);
        await_rank(&third.0, Rank::Second);
        assert_eq!(third.0.others("a"), 1);
        let (fourth, _hears) = stand(&folder.path().join("x-lock"));
        await_rank(&fourth, Rank::Behind);
        assert_eq!(fourth.others("a"), 2);
    }

    /// The second waits for the first, and for as long as that takes it cannot be woken: its place goes on without it.
    #[test]
    fn a_first_that_stands_still_does_not_keep_the_second_from_leaving() {
        let folder = tempfile::tempdir().unwrap();
        let (_holder, [first, second, third]) = three(folder.path());
        second.0.had_its_turn("a");
        await_rank(&third.0, Rank::Second);
        // Both wait for the first place now.
        first.0.leave("a", || false);
        second.0.leave("a", || false);
        await_rank(&third.0, Rank::First);
    }

    #[test]
    fn those_behind_are_overdue_when_nobody_shows_that_it_holds_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let (holder, [first, _, third]) = three(folder.path());
        assert!(!third.0.is_overdue("a"), "it is held");
        holder.hide("a");
        assert!(!third.0.is_overdue("a"), "only just");
        assert!(third.0.is_overdue("a"));
        assert!(!third.0.is_overdue("a"), "not again at once");
        assert!(!first.0.is_overdue("a"), "it looks by itself");
    }

    #[test]
    fn names_have_bytes_of_their_own() {
        let mut all: Vec<i64> = ["", "a", "b", "stock:42", "stock:43"]
            .map(Bytes::of)
            .iter()
            .flat_map(|bytes| [bytes.held, bytes.first, bytes.second])
            .collect();
        assert!(all.iter().all(|at| *at >= 0));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 15);
        // Written into nothing, but shared with other versions of this program.
        assert_eq!(Bytes::of("stock:42").held, 5_325_404_063_224_990_988);
    }
}
