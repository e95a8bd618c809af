//! The place of this process in the queue of one name, and the thread that stands there: see [`queue`](super::queue).

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::ranges::Ranges;

/// How long a thread stays when nobody waits any more; the next waiter need not start one then.
const LINGER: Duration = Duration::from_secs(1);
/// Before a process that has had its turn queues up again: the kernel does not hand a byte over, so that the process would
/// take it while the one that waits for it is being woken.
const REST: Duration = Duration::from_millis(1);
/// Between two looks of the first in the queue, where the holder has not locked its byte.
const SHORT: Duration = Duration::from_millis(4);
/// How many looks are so close to each other.
const SHORT_LOOKS: u32 = 50;
const LONG: Duration = Duration::from_millis(10);

/// Where a process stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// Others are before it, and look.
    Behind,
    Second,
    First,
    /// There is no queue: every process looks for itself.
    Alone,
}

/// The three bytes of a name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bytes {
    pub(super) held: i64,
    pub(super) first: i64,
    pub(super) second: i64,
}

impl Bytes {
    pub(super) fn of(name: &str) -> Self {
        // FNV-1a: the same in all versions of this program, for they share the file.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let held = i64::try_from((hash >> 3) << 2).unwrap_or_default();
        Self {
            held,
            first: held + 1,
            second: held + 2,
        }
    }
}

/// What the queue calls.
pub(super) trait Caller: Send + Sync + 'static {
    /// The lock was released: a waiter of this process may ask for it.
    fn called(&self, name: &str);
    /// Look whether the lock is free.
    fn look(&self);
}

/// The place of this process in the queue of one name.
#[derive(Debug)]
pub(super) struct Spot {
    pub(super) name: Arc<str>,
    bytes: Bytes,
    ranges: Arc<Ranges>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Somebody waits.
    wanted: bool,
    rank: Rank,
    /// When somebody began to wait, or this process had its last turn.
    since: Instant,
    /// When it was last looked, nobody showed that it holds the lock.
    was_free: bool,
    /// Not to be overdue before.
    ask_at: Instant,
    /// The thread has ended, or is about to.
    over: bool,
}

impl State {
    /// Begins to wait.
    fn begin(&mut self) {
        self.since = Instant::now();
        self.ask_at = self.since;
        self.was_free = false;
    }
}

impl Spot {
    pub(super) fn of(name: &str, ranges: Arc<Ranges>) -> Self {
        let now = Instant::now();
        Self {
            name: name.into(),
            bytes: Bytes::of(name),
            ranges,
            state: Mutex::new(State {
                wanted: true,
                rank: Rank::Behind,
                since: now,
                was_free: false,
                ask_at: now,
                over: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// False: its thread has ended.
    pub(super) fn want(&self) -> bool {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.wanted, true) {
            state.begin();
        }
        self.changed.notify_all();
        !state.over
    }

    pub(super) fn rank(&self) -> Rank {
        self.lock().rank
    }

    /// See [`Queue::is_overdue`](super::queue::Queue::is_overdue). Only where it is so the second time in a row: between two
    /// turns nobody has locked the byte. And not said again before it has waited half as long as until now, because there may
    /// be a thousand like it.
    pub(super) fn is_overdue(&self) -> bool {
        let (mut state, now) = (self.lock(), Instant::now());
        let free = state.rank == Rank::Behind && !self.ranges.is_taken(self.bytes.held);
        let overdue = std::mem::replace(&mut state.was_free, free) && free && now >= state.ask_at;
        if overdue {
            state.ask_at = now + now.duration_since(state.since) / 2;
        }
        overdue
    }

    /// Nobody here waits any more.
    pub(super) fn give_up(&self) {
        self.lock().wanted = false;
        self.step_back();
    }

    /// The thread ends.
    pub(super) fn end(&self) {
        self.lock().over = true;
        self.step_back();
    }

    /// Gives up what it has locked. The thread itself may be asleep in the kernel for as long as another process likes.
    pub(super) fn step_back(&self) {
        let mut state = self.lock();
        state.begin();
        match state.rank {
            Rank::Second => self.ranges.unlock(self.bytes.second),
            Rank::First => self.ranges.unlock(self.bytes.first),
            Rank::Behind | Rank::Alone => return,
        }
        state.rank = Rank::Behind;
        self.changed.notify_all();
    }

    /// Waits in the queue for as long as somebody wants it to.
    pub(super) fn serve(&self, caller: &impl Caller) -> std::io::Result<()> {
        let Bytes { first, second, .. } = self.bytes;
        while self.is_wanted() {
            self.ranges.lock(second)?;
            if !self.rise(Rank::Second, second) {
                continue;
            }
            caller.look();
            self.ranges.lock(first)?;
            if !self.rise(Rank::First, first) {
                continue;
            }
            caller.look();
            self.wait_for_release(caller)?;
            std::thread::sleep(REST);
        }
        Ok(())
    }

    /// It has locked that byte. False: in vain, nobody waits any more.
    fn rise(&self, rank: Rank, byte: i64) -> bool {
        let mut state = self.lock();
        if state.rank == Rank::Second {
            self.ranges.unlock(self.bytes.second);
        }
        state.rank = if state.wanted { rank } else { Rank::Behind };
        if !state.wanted {
            self.ranges.unlock(byte);
        }
        state.wanted
    }

    /// As the first of the queue.
    fn wait_for_release(&self, caller: &impl Caller) -> std::io::Result<()> {
        let mut looks = 0;
        while self.rank() == Rank::First {
            if self.ranges.try_lock(self.bytes.held)? {
                // Nobody has it: the lock is free, or its holder does not show.
                self.ranges.unlock(self.bytes.held);
                caller.look();
            } else {
                self.ranges.lock(self.bytes.held)?;
                self.ranges.unlock(self.bytes.held);
                looks = 0;
                caller.called(&self.name);
            }
            looks += 1;
            let pause = if looks <= SHORT_LOOKS { SHORT } else { LONG };
            let state = self.lock();
            drop(
                self.changed
                    .wait_timeout_while(state, pause, |state| state.rank == Rank::First),
            );
        }
        Ok(())
    }

    /// Keeps the thread for a while, until somebody waits again.
    fn is_wanted(&self) -> bool {
        let state = self.lock();
        let (mut state, _) = self
            .changed
            .wait_timeout_while(state, LINGER, |state| !state.wanted)
            .unwrap_or_else(PoisonError::into_inner);
        state.over = !state.wanted;
        state.wanted
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
