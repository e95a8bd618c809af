//! How waiters of this process hear of releases by others: one thread for each lock file, running only while somebody waits.
//!
//! SQLite has no notifications. Releases are heard of through the [`queue`](super::queue) of the processes; besides, those
//! at its head look at the rows now and then, and all do where there is no queue. `PRAGMA data_version` says cheaply
//! whether anything was written; only then are rows read.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use super::desk::{Desk, Setting};
use super::files::{Id, Place};
use super::patience;
use super::queue::Queue;
use super::ranges::Ranges;
use super::rows::{Seen, Standing};
use super::spot::{Caller, Rank};
use super::timebase::Timebase;
use crate::backend::{Clock, Signals, Timers, chance};
use crate::error::Result;

/// Between two looks without a queue, while somebody has just begun to wait: most locks are held for a short time.
const SHORT: Duration = Duration::from_millis(4);
/// How many looks are so close to each other.
const SHORT_LOOKS: u32 = 50;
/// Between two looks from then on. Half of it is what a hand-over between processes costs on average; a look costs some
/// tens of microseconds, so that waiting stays below a hundredth of a core.
const LONG: Duration = Duration::from_millis(10);
/// Between two looks at the head of a queue, which is woken by a release: only for what comes without one, such as a force
/// release by another process.
const AT_THE_HEAD: Duration = Duration::from_millis(100);
/// How long the thread stays when nobody waits any more; the next waiter need not start one then.
const LINGER: Duration = Duration::from_secs(1);

/// A file may be reached by several paths (a folder that is mounted twice); one that is not there yet has only its path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    File(Id),
    Path(PathBuf),
}

static WATCHES: LazyLock<Mutex<HashMap<Key, Weak<Watch>>>> = LazyLock::new(Mutex::default);

/// What was found at the last look.
#[derive(Debug, Default)]
struct Known {
    version: Option<(u64, i64)>,
    /// Names that were free, and left to the first in the queue. If they are free still, it is not there.
    left: BTreeSet<Arc<str>>,
}

/// All waiters of this process for locks of one file.
#[derive(Debug)]
pub(super) struct Watch {
    place: Arc<Place>,
    queue: OnceLock<Arc<Queue>>,
    state: Mutex<State>,
    bell: Condvar,
    /// How many times the file was looked at.
    looks: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    listeners: Vec<(u64, Signals)>,
    next: u64,
    running: bool,
    /// Look at the rows once, whatever the version says.
    look: bool,
    /// Somebody has begun to wait, or has left.
    changed: bool,
}

impl Watch {
    /// The one watch of a file.
    pub(super) fn of(place: &Arc<Place>) -> Arc<Self> {
        let key = Id::of(&place.main).map_or_else(|| Key::Path(place.main.clone()), Key::File);
        let mut watches = WATCHES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = watches.get(&key).and_then(Weak::upgrade) {
            return watch;
        }
        watches.retain(|_, watch| watch.strong_count() > 0);
        let watch = Arc::new(Self {
            place: Arc::clone(place),
            queue: OnceLock::new(),
            state: Mutex::default(),
            bell: Condvar::new(),
            looks: AtomicU64::new(0),
        });
        watches.insert(key, Arc::downgrade(&watch));
        watch
    }

    /// For a client's waiters. When the last one for a name leaves, this process leaves the queue.
    pub(super) fn signals(self: &Arc<Self>, timers: Timers) -> Signals {
        let watch = Arc::downgrade(self);
        Signals::new(timers, move |name| {
            watch.upgrade().iter().for_each(|watch| watch.left(name));
        })
    }

    /// Adds a client's waiters, until the returned value is dropped.
    pub(super) fn listen(self: &Arc<Self>, signals: Signals) -> Listening {
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

    /// Somebody waits for that name now. To be called after its wake was armed and before its question is decided.
    pub(super) fn begin(self: &Arc<Self>, name: &str, clock: Clock) {
        // In simulated time all that share the file are in this process, and wake each other directly.
        if matches!(clock, Clock::Simulated(_)) {
            return;
        }
        if let Some(queue) = self.queue() {
            queue.stand(name, self);
        }
        let alone = self.rank(name) == Rank::Alone;
        let mut state = self.lock();
        state.look |= alone;
        state.changed = true;
        if state.running {
            drop(state);
            self.bell.notify_one();
            return;
        }
        state.running = true;
        drop(state);
        let watch = Arc::clone(self);
        let started = std::thread::Builder::new()
            .name("tidelock-watch".to_owned())
            .spawn(move || watch.run());
        if let Err(error) = started {
            tracing::warn!(%error, "no thread to watch the lock file; waiters ask again when the lease ends");
            self.lock().running = false;
        }
    }

    /// The last of a client's waiters for that name has left.
    fn left(&self, name: &str) {
        if let Some(queue) = self.queue.get() {
            queue.leave(name, || {
                let listeners = self.listeners();
                listeners.iter().any(|signals| signals.is_watched(name))
            });
        }
        self.lock().changed = true;
        self.bell.notify_one();
    }

    /// This process was granted that lock.
    pub(super) fn had_its_turn(&self, name: &str) {
        if let Some(queue) = self.queue.get() {
            queue.had_its_turn(name);
        }
    }

    /// How many other processes are known to wait for that name.
    pub(super) fn others(&self, name: &str) -> u32 {
        self.queue().map_or(0, |queue| queue.others(name))
    }

    /// When a waiter asks again without having been woken, if the holder's lease has so long to go. Those at the head of the
    /// queue ask at its end, and not all others at the same moment.
    pub(super) fn recheck(&self, name: &str, left: Duration) -> Duration {
        // Asked twice: the thread that has just begun to stand in an empty queue may not have risen to its head yet.
        if self.rank(name) == Rank::Behind && self.others(name) == 2 {
            left + LINGER.mul_f64(chance::share())
        } else {
            left
        }
    }

    /// Call it now and then: it wakes the waiters of a queue in which nothing happens.
    pub(super) fn peek(&self) {
        let Some(queue) = self.queue.get() else {
            return;
        };
        for name in self.names() {
            if queue.is_overdue(&name) {
                self.wake(&name);
            }
        }
    }

    /// A lock was freed.
    pub(super) fn wake(&self, name: &str) {
        for signals in self.listeners() {
            signals.wake_one(name);
        }
    }

    /// `None`: this system has none, or the file is not there yet.
    fn queue(&self) -> Option<&Arc<Queue>> {
        if self.queue.get().is_none() {
            let ranges = Ranges::on(&self.place.lock).ok()?;
            // Another thread may have been faster.
            let _ = self.queue.set(Arc::new(Queue::on(ranges)));
        }
        self.queue.get()
    }

    fn rank(&self, name: &str) -> Rank {
        let queue = self.queue.get();
        queue.map_or(Rank::Alone, |queue| queue.rank(name))
    }

    fn run(&self) {
        let mut desk = Desk::new(Setting {
            place: Arc::clone(&self.place),
            base: Timebase::new(Clock::Boot),
            seen: Arc::new(Seen::default()),
            shown: None,
            alarm: Arc::default(),
            create: false,
        });
        let mut known = Known::default();
        let mut looks = 0;
        while let Some(asked) = self.next_look(&mut desk, looks) {
            self.looks.fetch_add(1, Ordering::Relaxed);
            looks = if asked { 0 } else { looks + 1 };
            if let Err(error) = self.look(&mut desk, &mut known, asked) {
                tracing::debug!(%error, "the lock file could not be looked at");
                self.listeners().iter().for_each(Signals::wake_each);
                known = Known::default();
                std::thread::sleep(LONG * 10);
            }
        }
    }

    /// Waits until it is time for the next look, after `looks` that nobody asked for. True: somebody asked for it.
    /// `None`: nobody has waited for a while, and the thread ends.
    fn next_look(&self, desk: &mut Desk, looks: u32) -> Option<bool> {
        loop {
            let names = self.names();
            let rank = names.iter().map(|name| self.rank(name)).max();
            let pause = match rank {
                None => LINGER,
                Some(Rank::Behind) if desk.is_open() => LINGER,
                Some(Rank::Behind) => Duration::MAX,
                Some(Rank::First | Rank::Second) => AT_THE_HEAD,
                Some(Rank::Alone) if looks < SHORT_LOOKS => SHORT,
                Some(Rank::Alone) => LONG,
            };
            let state = self.lock();
            let (mut state, waited) = self
                .bell
                .wait_timeout_while(state, pause, |state| !state.look && !state.changed)
                .unwrap_or_else(PoisonError::into_inner);
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
                // One that is not used would not notice that the file was replaced.
                Some(Rank::Behind) => {
                    drop(state);
                    desk.close();
                }
                Some(_) => return Some(false),
            }
        }
    }

    /// Wakes waiters of what is free, if anything was written since the last look.
    fn look(&self, desk: &mut Desk, known: &mut Known, asked: bool) -> Result<()> {
        patience::be_patient_for(LONG);
        desk.leave_if_replaced();
        let version = Some(desk.version()?);
        let left = std::mem::take(&mut known.left);
        if known.version == version && !asked && left.is_empty() {
            return Ok(());
        }
        for name in self.names() {
            let rank = self.rank(&name);
            if rank == Rank::Behind {
                continue;
            }
            let free = desk.read(|view| {
                let row = view.row(&name)?;
                Ok(row.is_none_or(|row| {
                    row.standing(&name, "", view.now, view.seen) == Standing::Free
                }))
            })?;
            if free && rank == Rank::Second && !left.contains(&name) {
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
        listeners.iter().flat_map(Signals::watched).collect()
    }

    fn listeners(&self) -> Vec<Signals> {
        let state = self.lock();
        state.listeners.iter().map(|(_, s)| s.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Caller for Watch {
    fn called(&self, name: &str) {
        self.wake(name);
    }

    fn look(&self) {
        self.lock().look = true;
        self.bell.notify_one();
    }
}

/// One client's waiters are woken as long as this lives.
#[derive(Debug)]
pub(super) struct Listening {
    watch: Arc<Watch>,
    id: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut state = self.watch.lock();
        state.listeners.retain(|(id, _)| *id != self.id);
        state.changed = true;
        drop(state);
        self.watch.bell.notify_one();
    }
}

#[cfg(test)]
mod tests;
