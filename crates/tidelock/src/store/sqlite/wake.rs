//! Wakes waiters of this process after releases by other processes. Each lock file has one thread, which runs only
//! while someone waits.
//!
//! SQLite has no notifications. The watch learns of releases through the [`queue`](crate::store::sqlite::queue) of the processes. In
//! addition, the processes at the head of the queue check the rows from time to time; without a queue, every process
//! does. `PRAGMA data_version` tells cheaply whether anything was written; only then does the watch read rows.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::time::Duration;

use crate::engine::runtime::backoff::with_jitter;
use crate::engine::runtime::sync::{Condvar, Mutex, MutexGuard};
use crate::error::Result;
use crate::store::sqlite::busy;
use crate::store::sqlite::byte_locks::ByteLocks;
use crate::store::sqlite::connection::{Database, SharedConnectionState};
use crate::store::sqlite::files::{DatabasePaths, Id};
use crate::store::sqlite::queue::ProcessQueue;
use crate::store::sqlite::queue_place::{QueueListener, QueueRank};
use crate::store::sqlite::rows::RowOwner;
use crate::store::{Clock, Timers, WakeChannels};

/// The pause between two checks without a queue, just after a waiter began to wait: most locks are held for a short
/// time.
const SHORT_PAUSE: Duration = Duration::from_millis(4);
/// The number of checks that use the short pause.
const SHORT_CHECKS: u32 = 50;
/// The pause between two checks after that. On average a hand-off between processes takes half of it. A check costs
/// some tens of microseconds, so waiting takes less than a hundredth of a core.
const LONG_PAUSE: Duration = Duration::from_millis(10);
/// The pause between two checks at the head of a queue. A release wakes the head; these checks find changes without
/// one, such as a force release by another process.
const AT_THE_HEAD: Duration = Duration::from_millis(100);
/// Bounds how long an idle thread stays, so that the next waiter need not start one.
const IDLE_THREAD_LIFETIME: Duration = Duration::from_secs(1);

/// Identifies a lock file. Several paths may lead to one file (a folder that is mounted twice). A file that does not exist
/// yet has only its path, and off Unix each file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    File(Id),
    Path(PathBuf),
}

/// The watches of this process, by file.
static WATCHES: LazyLock<Mutex<HashMap<Key, Weak<FileWatch>>>> = LazyLock::new(Mutex::default);

/// The result of the last check.
#[derive(Debug, Default)]
struct LastLook {
    version: Option<(u64, i64)>,
    /// Locks that were free and left to the first process of the queue. If they are still free, that process does not
    /// react.
    left: BTreeSet<Arc<str>>,
}

/// Watches one lock file for all waiters of this process.
#[derive(Debug)]
pub(crate) struct FileWatch {
    paths: Arc<DatabasePaths>,
    queue: OnceLock<Arc<ProcessQueue>>,
    state: Mutex<FileWatchState>,
    condvar: Condvar,
    /// Counts the checks, for tests.
    checks: AtomicU64,
}

#[derive(Debug, Default)]
struct FileWatchState {
    listeners: Vec<(u64, WakeChannels)>,
    next: u64,
    running: bool,
    /// Requests one check of the rows, even if the version is unchanged.
    look: bool,
    /// A waiter has come or left.
    changed: bool,
}

impl FileWatch {
    /// Returns the watch of a file. The process has only one for each file.
    pub(crate) fn of(paths: &Arc<DatabasePaths>) -> Arc<Self> {
        // On other systems all files have one identity.
        let id = Id::of(&paths.main).filter(|_| cfg!(unix));
        let key = id.map_or_else(|| Key::Path(paths.main.clone()), Key::File);
        let mut watches = WATCHES.lock();
        // The file of that watch may have been deleted or renamed: then a file at another path can have its identity, and the
        // watch would look into the wrong one.
        if let Some(watch) = watches.get(&key).and_then(Weak::upgrade)
            && (watch.paths.main == paths.main || Id::of(&watch.paths.main) == id)
        {
            return watch;
        }
        // Without this, the map would keep an entry for every file that was ever opened.
        watches.retain(|_, watch| watch.strong_count() > 0);
        let watch = Arc::new(Self {
            paths: Arc::clone(paths),
            queue: OnceLock::new(),
            state: Mutex::default(),
            condvar: Condvar::new(),
            checks: AtomicU64::new(0),
        });
        watches.insert(key, Arc::downgrade(&watch));
        watch
    }

    /// Creates the signals of a client's waiters. When the last waiter for a name leaves, this process leaves the
    /// queue.
    pub(crate) fn signals(self: &Arc<Self>, timers: Timers) -> WakeChannels {
        let watch = Arc::downgrade(self);
        WakeChannels::new(timers, move |name| {
            watch.upgrade().iter().for_each(|watch| watch.left(name));
        })
    }

    /// Adds a client's waiters, until the returned value is dropped.
    pub(crate) fn listen(self: &Arc<Self>, signals: WakeChannels) -> Listening {
        let mut state = self.lock();
        state.next += 1;
        let id = state.next;
        state.listeners.push((id, signals));
        drop(state);
        Listening {
            watch: Arc::clone(self),
            id,
        }
    }

    /// Starts to watch a lock. Call this after the wake was armed and before the attempt is decided. Otherwise a
    /// release in between would go unnoticed.
    pub(crate) fn begin(self: &Arc<Self>, name: &str, clock: Clock) {
        // In simulated time, all users of the file are in this process and wake each other directly.
        if clock == Clock::Simulated {
            return;
        }
        if let Some(queue) = self.queue() {
            queue.stand(name, self);
        }
        let alone = self.rank(name) == QueueRank::Alone;
        let mut state = self.lock();
        // Without a queue, we check once even if the version is unchanged: the lock may already be free.
        state.look |= alone;
        state.changed = true;
        if state.running {
            drop(state);
            self.condvar.notify_one();
            return;
        }
        state.running = true;
        drop(state);
        let watch = Arc::clone(self);
        let started = std::thread::Builder::new()
            .name("tidelock-watch".to_owned())
            .spawn(move || watch.run());
        if let Err(error) = started {
            tracing::warn!(%error, "cannot start the thread that watches the lock file; waiters retry when the lease ends");
            self.lock().running = false;
        }
    }

    /// The last waiter of a client for this lock has left.
    fn left(&self, name: &str) {
        if let Some(queue) = self.queue.get() {
            queue.leave(name, || {
                let listeners = self.listeners();
                listeners.iter().any(|signals| signals.is_watched(name))
            });
        }
        self.lock().changed = true;
        self.condvar.notify_one();
    }

    /// This process was granted the lock.
    pub(crate) fn was_served(&self, name: &str) {
        if let Some(queue) = self.queue.get() {
            queue.was_served(name);
        }
    }

    /// Counts the other processes that are known to wait for this lock.
    pub(crate) fn others(&self, name: &str) -> u32 {
        self.queue().map_or(0, |queue| queue.others(name))
    }

    /// Returns when a waiter retries without a wake, if the holder's lease lasts for `left`. Processes at the head of
    /// the queue retry when the lease ends; all others add jitter, so that they do not retry at the same moment.
    pub(crate) fn recheck(&self, name: &str, left: Duration) -> Duration {
        // We check the rank and the count: a thread that has just joined an empty queue may not have reached its head
        // yet.
        if self.rank(name) == QueueRank::Behind && self.others(name) == 2 {
            left + with_jitter(IDLE_THREAD_LIFETIME, 1.0)
        } else {
            left
        }
    }

    /// Wakes the waiters of overdue queues. The worker calls this from time to time.
    pub(crate) fn peek(&self) {
        let Some(queue) = self.queue.get() else {
            return;
        };
        for name in self.names() {
            if queue.is_overdue(&name, std::time::Instant::now()) {
                self.wake(&name);
            }
        }
    }

    /// Wakes one waiter of each client for a freed lock.
    pub(crate) fn wake(&self, name: &str) {
        for signals in self.listeners() {
            signals.wake_one(name);
        }
    }

    /// Returns the queue. `None`: this system does not support it, or the file does not exist yet.
    fn queue(&self) -> Option<&Arc<ProcessQueue>> {
        if self.queue.get().is_none() {
            let ranges = ByteLocks::on(&self.paths.lock).ok()?;
            // Another thread may have set it already.
            let _ = self.queue.set(Arc::new(ProcessQueue::on(ranges)));
        }
        self.queue.get()
    }

    fn rank(&self, name: &str) -> QueueRank {
        let queue = self.queue.get();
        queue.map_or(QueueRank::Alone, |queue| queue.rank(name))
    }

    fn run(&self) {
        let mut database = Database::new(SharedConnectionState::of_one(
            Arc::clone(&self.paths),
            false,
        ));
        let mut known = LastLook::default();
        let mut checks = 0;
        while let Some(asked) = self.next_check(&mut database, checks) {
            self.checks.fetch_add(1, Ordering::Relaxed);
            checks = if asked { 0 } else { checks + 1 };
            if let Err(error) = self.look(&mut database, &mut known, asked) {
                tracing::debug!(%error, "cannot check the lock file");
                // We cannot tell which locks are free, so all waiters make an attempt of their own.
                self.listeners().iter().for_each(WakeChannels::wake_each);
                known = LastLook::default();
                std::thread::sleep(LONG_PAUSE * 10);
            }
        }
    }

    /// Waits until the next check is due, after `checks` unrequested checks. Returns true if the check was requested.
    /// `None`: nobody has waited for a while, and the thread ends.
    fn next_check(&self, database: &mut Database, checks: u32) -> Option<bool> {
        loop {
            let names = self.names();
            let rank = names.iter().map(|name| self.rank(name)).max();
            let pause = match rank {
                None => IDLE_THREAD_LIFETIME,
                Some(QueueRank::Behind) if database.is_open() => IDLE_THREAD_LIFETIME,
                Some(QueueRank::Behind) => Duration::MAX,
                Some(QueueRank::First | QueueRank::Second) => AT_THE_HEAD,
                Some(QueueRank::Alone) if checks < SHORT_CHECKS => SHORT_PAUSE,
                Some(QueueRank::Alone) => LONG_PAUSE,
            };
            let state = self.lock();
            let (mut state, waited) = self
                .condvar
                .wait_timeout_while(state, pause, |state| !state.look && !state.changed);
            state.changed = false;
            if std::mem::take(&mut state.look) {
                return Some(true);
            }
            if !waited.timed_out() {
                continue;
            }
            match rank {
                None => {
                    state.running = false;
                    return None;
                }
                // An unused connection would not notice that the file was replaced, so we close it.
                Some(QueueRank::Behind) => {
                    drop(state);
                    database.close();
                }
                Some(_) => return Some(false),
            }
        }
    }

    /// Wakes the waiters of free locks, if anything was written since the last check.
    fn look(&self, database: &mut Database, known: &mut LastLook, asked: bool) -> Result<()> {
        busy::be_patient_for(LONG_PAUSE);
        database.leave_if_replaced();
        let version = Some(database.version()?);
        let left = std::mem::take(&mut known.left);
        if known.version == version && !asked && left.is_empty() {
            return Ok(());
        }
        for name in self.names() {
            let rank = self.rank(&name);
            if rank == QueueRank::Behind {
                continue;
            }
            let free = database.read(|view| {
                let row = view.row(&name)?;
                Ok(row.is_none_or(|row| {
                    row.owner_of_row(&name, "", view.now, view.seen) == RowOwner::Free
                }))
            })?;
            // The first process of the queue should take a free lock. As the second, we wake our waiter only if the
            // lock is still free at the next check.
            if free && rank == QueueRank::Second && !left.contains(&name) {
                known.left.insert(name);
            } else if free {
                self.wake(&name);
            }
        }
        known.version = version;
        Ok(())
    }

    fn names(&self) -> BTreeSet<Arc<str>> {
        let listeners = self.listeners();
        listeners.iter().flat_map(WakeChannels::watched).collect()
    }

    fn listeners(&self) -> Vec<WakeChannels> {
        let state = self.lock();
        state.listeners.iter().map(|(_, s)| s.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, FileWatchState> {
        self.state.lock()
    }
}

impl QueueListener for FileWatch {
    fn called(&self, name: &str) {
        self.wake(name);
    }

    fn look(&self) {
        self.lock().look = true;
        self.condvar.notify_one();
    }
}

/// Keeps a client registered: its waiters are woken until this is dropped.
#[derive(Debug)]
pub(crate) struct Listening {
    watch: Arc<FileWatch>,
    id: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut state = self.watch.lock();
        state.listeners.retain(|(id, _)| *id != self.id);
        state.changed = true;
        drop(state);
        self.watch.condvar.notify_one();
    }
}

#[cfg(test)]
mod tests;
