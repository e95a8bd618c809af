//! Processes that stand one behind the other: who looks at the rows, who asks when, and who leaves.

use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use super::*;
use crate::store::sqlite::connection::Durable;
use crate::store::sqlite::queue_place::NameBytes;
use crate::store::{LockKind, Name, Ticket};
use crate::types::OwnerMint;

const SOON: Duration = Duration::from_secs(10);

/// The ranks of the processes in the order of their arrival.
const RANKS: [QueueRank; 3] = [QueueRank::First, QueueRank::Second, QueueRank::Behind];

/// The waiters of another process, which do nothing when they are woken.
struct Others;

impl QueueListener for Others {
    fn called(&self, _: &str) {}

    fn look(&self) {}
}

fn await_rank(queue: &ProcessQueue, rank: QueueRank) {
    let begun = Instant::now();
    while queue.rank("a") != rank {
        let now = queue.rank("a");
        assert!(begun.elapsed() < SOON, "{now:?} is not {rank:?}");
        std::thread::yield_now();
    }
}

/// A new file, its watch, and so many other processes in the queue of the lock `a`.
struct Queue {
    _folder: tempfile::TempDir,
    paths: Arc<DatabasePaths>,
    watch: Arc<FileWatch>,
    others: Vec<Arc<ProcessQueue>>,
}

impl Queue {
    fn behind(others: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let paths = Arc::new(DatabasePaths::of(folder.path().join("locks.db")));
        std::fs::write(&paths.lock, "").unwrap();
        let mut queue = Self {
            watch: FileWatch::of(&paths),
            _folder: folder,
            paths,
            others: Vec::new(),
        };
        for rank in &RANKS[..others] {
            queue.another_joins(*rank);
        }
        queue
    }

    /// Another process joins at the end, and gets this rank.
    fn another_joins(&mut self, rank: QueueRank) -> Arc<ProcessQueue> {
        let bytes = ByteLocks::on(&self.paths.lock).unwrap();
        let other = Arc::new(ProcessQueue::on(bytes));
        other.stand("a", &Arc::new(Others));
        await_rank(&other, rank);
        self.others.push(Arc::clone(&other));
        other
    }

    /// This process joins at the end.
    fn joins(&self) {
        let own = self.watch.queue().unwrap();
        own.stand("a", &self.watch);
        await_rank(own, RANKS[self.others.len()]);
    }
}

impl Drop for Queue {
    /// The threads end soon.
    fn drop(&mut self) {
        for queue in self.others.iter().chain(self.watch.queue()) {
            queue.leave("a", || false);
        }
    }
}

#[test]
fn the_first_process_of_the_queue_attempts_a_free_lock_and_the_second_if_it_stays_free() {
    let ticket = Ticket {
        kind: LockKind::Mutex,
        name: Name::new("a").unwrap(),
        owner: OwnerMint::new().fresh(),
    };
    // The first look after the release, the next ones without any change, and one that was asked for.
    for (others, wakes) in [
        (0, [true, false, true]),
        (1, [false, true, false]),
        (2, [false, false, false]),
    ] {
        let queue = Queue::behind(others);
        let (watch, paths) = (&queue.watch, &queue.paths);
        let [mut holder, mut looks] = [(); 2].map(|()| {
            let setting = SharedConnectionState::of_one(Arc::clone(paths), true);
            Database::new(setting)
        });
        let lease = Duration::from_secs(30);
        let granted = holder.write(Durable::No, |view| view.attempt(&ticket, lease, 0));
        granted.unwrap();
        queue.joins();
        let signals = watch.signals(Timers::new(Clock::Boot));
        let _listening = watch.listen(signals.clone());
        let mut wake = signals.arm("a");
        let mut known = LastLook::default();
        watch.look(&mut looks, &mut known, true).unwrap();
        assert!(!is_woken(&mut wake), "{others} others: it is held");
        let released = holder.write(Durable::No, |view| view.release(&ticket));
        released.unwrap();
        for (number, woken) in wakes.into_iter().enumerate() {
            let is_asked = number == 2;
            watch.look(&mut looks, &mut known, is_asked).unwrap();
            assert_eq!(is_woken(&mut wake), woken, "{others} others, look {number}");
        }
    }
}

#[test]
fn only_a_process_behind_two_others_asks_later_than_the_lease_ends() {
    let left = Duration::from_secs(5);
    for (others, joins, is_later) in [
        (0, true, false),
        (1, true, false),
        (2, true, true),
        (2, false, false),
    ] {
        let queue = Queue::behind(others);
        if joins {
            queue.joins();
        }
        let again = queue.watch.recheck("a", left);
        let latest = left + IDLE_THREAD_LIFETIME;
        assert!((left..=latest).contains(&again), "{again:?}");
        assert_eq!(again > left, is_later, "{others} others");
    }
}

#[test]
fn a_process_keeps_its_place_for_as_long_as_one_of_its_clients_waits() {
    let mut queue = Queue::behind(0);
    let watch = Arc::clone(&queue.watch);
    let [one, other] = [(); 2].map(|()| watch.signals(Timers::new(Clock::Boot)));
    let _listening = [&one, &other].map(|signals| watch.listen(signals.clone()));
    let (first, last) = (one.arm("a"), other.arm("a"));
    queue.joins();
    let next = queue.another_joins(QueueRank::Second);
    drop(first);
    assert_eq!(watch.rank("a"), QueueRank::First);
    drop(last);
    await_rank(&next, QueueRank::First);
}

#[test]
fn a_process_that_was_granted_the_lock_lets_the_next_one_go_first() {
    let mut queue = Queue::behind(0);
    queue.joins();
    let next = queue.another_joins(QueueRank::Second);
    queue.watch.was_served("a");
    await_rank(&next, QueueRank::First);
    await_rank(queue.watch.queue().unwrap(), QueueRank::Second);
}

/// It would not notice that the file was replaced, and would keep all others from the new one.
#[test]
fn a_process_behind_others_keeps_no_connection_open() {
    let queue = Queue::behind(2);
    let setting = SharedConnectionState::of_one(Arc::clone(&queue.paths), true);
    let mut database = Database::new(setting);
    database.connected().unwrap();
    queue.joins();
    let signals = queue.watch.signals(Timers::new(Clock::Boot));
    let _listening = queue.watch.listen(signals.clone());
    let _wake = signals.arm("a");
    let watch = Arc::clone(&queue.watch);
    let asks = std::thread::spawn(move || {
        std::thread::sleep(IDLE_THREAD_LIFETIME * 5 / 2);
        QueueListener::look(&*watch);
    });
    assert_eq!(queue.watch.next_check(&mut database, 0), Some(true));
    assert!(!database.is_open());
    asks.join().unwrap();
}

/// All versions of this program must use the same bytes, because they share the file.
#[test]
fn the_processes_at_the_head_stand_on_the_two_bytes_after_that_of_the_holder() {
    let queue = Queue::behind(2);
    let bytes = ByteLocks::on(&queue.paths.lock).unwrap();
    let held = NameBytes::of("a").held;
    let taken = [1, 2, 3].map(|after| bytes.is_taken(held + after));
    assert_eq!(taken, [true, true, false]);
}

/// Tells of each look.
struct ToldOfLooks(Sender<()>);

impl QueueListener for ToldOfLooks {
    fn called(&self, _: &str) {}

    fn look(&self) {
        let _ = self.0.send(());
    }
}

/// Otherwise it would keep a core busy for as long as the lock is held by a process that does not show it.
#[test]
fn the_first_process_of_the_queue_pauses_between_two_looks() {
    const PAUSES: u32 = 20;
    const SHORTEST: Duration = Duration::from_millis(4);

    let queue = Queue::behind(0);
    let bytes = ByteLocks::on(&queue.paths.lock).unwrap();
    let first = Arc::new(ProcessQueue::on(bytes));
    let (told, looks) = channel();
    let begun = Instant::now();
    first.stand("a", &Arc::new(ToldOfLooks(told)));
    // It looks when it becomes the second, when it becomes the first, and before the first pause.
    for _ in 0..3 + PAUSES {
        looks.recv_timeout(SOON).unwrap();
    }
    assert!(begun.elapsed() >= SHORTEST * PAUSES);
    first.leave("a", || false);
}
