//! The position of this process in the queue of one lock, and the thread that waits there: see [`queue`](crate::store::sqlite::queue).

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::runtime::sync::{Condvar, Mutex, MutexGuard};
use crate::store::sqlite::byte_locks::ByteLocks;

/// Bounds how long an idle thread stays, so that the next waiter need not start one.
const IDLE_THREAD_LIFETIME: Duration = Duration::from_secs(1);
/// The pause before a process that was granted the lock joins the queue again. The kernel does not hand a byte over:
/// without the pause, the process would lock the byte again while the kernel still wakes the waiter for it.
const PASS_PAUSE: Duration = Duration::from_millis(1);
/// The pause between two checks by the first process of the queue, while the holder has not locked its byte.
const SHORT_PAUSE: Duration = Duration::from_millis(4);
/// The number of checks that use the short pause.
const SHORT_CHECKS: u32 = 50;
/// The pause between two checks after that.
const LONG_PAUSE: Duration = Duration::from_millis(10);

/// The position of a process in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum QueueRank {
    /// Others are ahead, and check the rows.
    Behind,
    Second,
    First,
    /// There is no queue; every process checks for itself.
    Alone,
}

/// The three byte offsets of a lock name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NameBytes {
    pub(crate) held: i64,
    pub(crate) first: i64,
    pub(crate) second: i64,
}

impl NameBytes {
    pub(crate) fn of(name: &str) -> Self {
        // FNV-1a: all versions of this program must use the same hash, because they share the file.
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

/// The callbacks of the queue.
pub(crate) trait QueueListener: Send + Sync + 'static {
    /// The lock was released: a waiter of this process may attempt it.
    fn called(&self, name: &str);
    /// The watch must check whether the lock is free.
    fn look(&self);
}

/// The position of this process in the queue of one lock.
#[derive(Debug)]
pub(crate) struct QueuePlace {
    pub(crate) name: Arc<str>,
    bytes: NameBytes,
    ranges: Arc<ByteLocks>,
    state: Mutex<QueuePlaceState>,
    changed: Condvar,
}

#[derive(Debug)]
struct QueuePlaceState {
    /// A waiter of this process waits for the lock.
    wanted: bool,
    rank: QueueRank,
    /// When the first waiter began to wait, or this process was last granted the lock.
    since: Instant,
    /// At the last check, no process showed that it holds the lock.
    was_free: bool,
    /// The earliest time at which the queue may count as overdue.
    ask_at: Instant,
    /// The thread has ended or is about to end.
    over: bool,
}

impl QueuePlaceState {
    /// Restarts the waiting time.
    fn begin(&mut self) {
        self.since = Instant::now();
        self.ask_at = self.since;
        self.was_free = false;
    }
}

impl QueuePlace {
    pub(crate) fn of(name: &str, ranges: Arc<ByteLocks>) -> Self {
        let now = Instant::now();
        Self {
            name: name.into(),
            bytes: NameBytes::of(name),
            ranges,
            state: Mutex::new(QueuePlaceState {
                wanted: true,
                rank: QueueRank::Behind,
                since: now,
                was_free: false,
                ask_at: now,
                over: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Marks the position as wanted. Returns false if its thread has ended.
    pub(crate) fn want(&self) -> bool {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.wanted, true) {
            state.begin();
        }
        self.changed.notify_all();
        !state.over
    }

    pub(crate) fn rank(&self) -> QueueRank {
        self.lock().rank
    }

    /// See [`Queue::is_overdue`](crate::store::sqlite::queue::Queue::is_overdue). Returns true only if two checks in a row find the
    /// byte free: between two holders no process has locked it. After that, it returns false until the process has
    /// waited half as long again, because a thousand processes may do the same.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let free = state.rank == QueueRank::Behind && !self.ranges.is_taken(self.bytes.held);
        let overdue = std::mem::replace(&mut state.was_free, free) && free && now >= state.ask_at;
        if overdue {
            state.ask_at = now + now.duration_since(state.since) / 2;
        }
        overdue
    }

    /// The last waiter of this process has left.
    pub(crate) fn give_up(&self) {
        self.lock().wanted = false;
        self.step_back();
    }

    /// Marks the thread as ended.
    pub(crate) fn end(&self) {
        self.lock().over = true;
        self.step_back();
    }

    /// Unlocks the byte of the current position. We do this from the caller's thread, because the queue thread may
    /// sleep in the kernel until another process unlocks its byte.
    pub(crate) fn step_back(&self) {
        let mut state = self.lock();
        state.begin();
        match state.rank {
            QueueRank::Second => self.ranges.unlock(self.bytes.second),
            QueueRank::First => self.ranges.unlock(self.bytes.first),
            QueueRank::Behind | QueueRank::Alone => return,
        }
        state.rank = QueueRank::Behind;
        self.changed.notify_all();
    }

    /// Runs the queue position until no waiter wants it.
    pub(crate) fn serve(&self, caller: &impl QueueListener) -> std::io::Result<()> {
        let NameBytes { first, second, .. } = self.bytes;
        while self.is_wanted() {
            self.ranges.lock(second)?;
            if !self.rise(QueueRank::Second, second) {
                continue;
            }
            caller.look();
            self.ranges.lock(first)?;
            if !self.rise(QueueRank::First, first) {
                continue;
            }
            caller.look();
            self.wait_for_release(caller)?;
            std::thread::sleep(PASS_PAUSE);
        }
        Ok(())
    }

    /// Moves up after `byte` was locked. Returns false, and unlocks the byte, if nobody waits any more.
    fn rise(&self, rank: QueueRank, byte: i64) -> bool {
        let mut state = self.lock();
        if state.rank == QueueRank::Second {
            self.ranges.unlock(self.bytes.second);
        }
        state.rank = if state.wanted {
            rank
        } else {
            QueueRank::Behind
        };
        if !state.wanted {
            self.ranges.unlock(byte);
        }
        state.wanted
    }

    /// Waits for the release, as the first process of the queue.
    fn wait_for_release(&self, caller: &impl QueueListener) -> std::io::Result<()> {
        let mut checks = 0;
        while self.rank() == QueueRank::First {
            if self.ranges.try_lock(self.bytes.held)? {
                // No process has the byte: the lock is free, or its holder does not show it.
                self.ranges.unlock(self.bytes.held);
                caller.look();
            } else {
                // Blocks until the holder unlocks its byte. We need the byte only as a signal, so we unlock it at once.
                self.ranges.lock(self.bytes.held)?;
                self.ranges.unlock(self.bytes.held);
                checks = 0;
                caller.called(&self.name);
            }
            checks += 1;
            let pause = if checks <= SHORT_CHECKS {
                SHORT_PAUSE
            } else {
                LONG_PAUSE
            };
            let state = self.lock();
            drop(
                self.changed
                    .wait_timeout_while(state, pause, |state| state.rank == QueueRank::First),
            );
        }
        Ok(())
    }

    /// Keeps the idle thread for a while. Returns true if a waiter comes.
    fn is_wanted(&self) -> bool {
        let state = self.lock();
        let (mut state, _) =
            self.changed
                .wait_timeout_while(state, IDLE_THREAD_LIFETIME, |state| !state.wanted);
        state.over = !state.wanted;
        state.wanted
    }

    fn lock(&self) -> MutexGuard<'_, QueuePlaceState> {
        self.state.lock()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// A thousand processes may be behind, and each of them attempts the lock when it finds the queue overdue.
    #[test]
    fn a_queue_is_overdue_again_when_the_wait_has_become_half_as_long_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x-lock");
        std::fs::write(&file, "").unwrap();
        let place = QueuePlace::of("a", Arc::new(ByteLocks::on(&file).unwrap()));
        let begun = Instant::now();
        let is_overdue = |seconds| place.is_overdue(begun + Duration::from_secs(seconds));
        for (seconds, overdue) in [
            (10, false),
            (10, true),
            (14, false),
            (16, true),
            (18, false),
            (25, true),
        ] {
            assert_eq!(is_overdue(seconds), overdue, "after {seconds} s");
        }
        // It was granted the lock and waits again.
        place.step_back();
        assert!(!is_overdue(26) && is_overdue(26));
        // Another waiter of this process joins it.
        assert!(place.want());
        assert!(is_overdue(60), "its wait goes on");
        place.end();
        assert!(!place.want(), "its thread has ended");
    }
}
