//! How waiters of this process hear of releases by others: one thread for each lock file, running only while somebody waits.
//!
//! SQLite has no notifications. `PRAGMA data_version` says cheaply whether anything was written; only then are rows read.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::desk::Desk;
use super::rows::{Seen, Standing};
use super::timebase::Timebase;
use crate::backend::{Clock, Signals};
use crate::error::Result;

/// Between two looks while somebody has just begun to wait: most locks are held for a short time.
const SHORT: Duration = Duration::from_millis(4);
/// How many looks are so close to each other.
const SHORT_LOOKS: u32 = 50;
/// Between two looks from then on. Half of it is what a hand-over between processes costs on average; a look costs some
/// tens of microseconds, so that waiting stays below a hundredth of a core.
const LONG: Duration = Duration::from_millis(10);
/// How long the thread stays when nobody waits any more; the next waiter need not start one then.
const LINGER: Duration = Duration::from_secs(1);

static WATCHES: LazyLock<Mutex<HashMap<PathBuf, Weak<Watch>>>> = LazyLock::new(Mutex::default);

/// All waiters of this process for locks of one file.
#[derive(Debug)]
pub(super) struct Watch {
    path: PathBuf,
    state: Mutex<State>,
    bell: Condvar,
    looks: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    listeners: Vec<(u64, Signals)>,
    next: u64,
    running: bool,
    /// Somebody has begun to wait: look at the rows once, whatever the version says.
    fresh: bool,
}

impl Watch {
    /// The one watch of a file.
    pub(super) fn of(path: &Path) -> Arc<Self> {
        let mut watches = WATCHES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = watches.get(path).and_then(Weak::upgrade) {
            return watch;
        }
        watches.retain(|_, watch| watch.strong_count() > 0);
        let watch = Arc::new(Self {
            path: path.to_owned(),
            state: Mutex::default(),
            bell: Condvar::new(),
            looks: AtomicU64::new(0),
        });
        watches.insert(path.to_owned(), Arc::downgrade(&watch));
        watch
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

    /// Somebody waits now. To be called after its wake was armed and before its question is decided.
    pub(super) fn begin(self: &Arc<Self>, clock: Clock) {
        // In simulated time all that share the file are in this process, and wake each other directly.
        if matches!(clock, Clock::Simulated(_)) {
            return;
        }
        let mut state = self.lock();
        state.fresh = true;
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

    /// A lock was freed.
    pub(super) fn wake(&self, name: &str) {
        for signals in self.listeners() {
            signals.wake_one(name);
        }
    }

    /// How many times the file was looked at.
    #[cfg(test)]
    pub(super) fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    fn run(&self) {
        let mut desk = Desk::new(
            self.path.clone(),
            Timebase::new(Clock::Boot),
            Arc::new(Seen::default()),
        );
        let mut known = None;
        let mut since_fresh = 0;
        while self.is_needed() {
            self.looks.fetch_add(1, Ordering::Relaxed);
            let fresh = std::mem::take(&mut self.lock().fresh);
            since_fresh = if fresh { 0 } else { since_fresh + 1 };
            match self.look(&mut desk, known, fresh) {
                Ok(version) => known = Some(version),
                Err(error) => {
                    tracing::debug!(%error, "the lock file could not be looked at");
                    self.listeners().iter().for_each(Signals::wake_each);
                    known = None;
                    std::thread::sleep(LONG * 10);
                }
            }
            std::thread::sleep(pause(since_fresh));
        }
    }

    /// Wakes waiters of what is free, if anything was written since version `known`.
    fn look(&self, desk: &mut Desk, known: Option<i64>, fresh: bool) -> Result<i64> {
        Desk::be_patient_for(LONG);
        let version = desk.version()?;
        if known == Some(version) && !fresh {
            return Ok(version);
        }
        for name in self.names() {
            let free = desk.read(|view| {
                let row = view.row(&name)?;
                Ok(row.is_none_or(|row| {
                    row.standing(&name, "", view.now, view.seen) == Standing::Free
                }))
            })?;
            if free {
                self.wake(&name);
            }
        }
        Ok(version)
    }

    /// Waits for waiters, for a while. False: there are none, and the thread is to end.
    fn is_needed(&self) -> bool {
        if !self.names().is_empty() {
            return true;
        }
        let state = self.lock();
        let (mut state, _) = self
            .bell
            .wait_timeout_while(state, LINGER, |state| !state.fresh)
            .unwrap_or_else(PoisonError::into_inner);
        state.running = state.fresh;
        state.running
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

fn pause(since_fresh: u32) -> Duration {
    if since_fresh < SHORT_LOOKS {
        SHORT
    } else {
        LONG
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Timers;

    #[tokio::test]
    async fn it_looks_while_somebody_waits_and_rests_when_nobody_does() {
        let folder = tempfile::tempdir().unwrap();
        let watch = Watch::of(&folder.path().join("locks.db"));
        let signals = Signals::new(Timers::new(Clock::Boot), |_| {});
        let listening = watch.listen(signals.clone());
        assert_eq!(watch.looks(), 0);
        // Nothing is in the file: the first look finds the lock free, and says so.
        let mut wake = signals.arm("free");
        watch.begin(Clock::Boot);
        wake.woken().await;
        drop(wake);
        let wake = signals.arm("free");
        watch.begin(Clock::Boot);
        let (before, time) = (watch.looks(), Duration::from_secs(1));
        std::thread::sleep(time);
        let looks = watch.looks() - before;
        // 50 short pauses and as many long ones as the rest has room for, on a machine that may be busy.
        assert!((10..=160).contains(&looks), "{looks} looks a second");
        drop(wake);
        std::thread::sleep(LONG * 4);
        let before = watch.looks();
        std::thread::sleep(LONG * 10);
        assert_eq!(watch.looks(), before);
        drop(listening);
    }

    #[test]
    fn two_ways_to_one_file_are_one_watch() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("locks.db");
        assert!(Arc::ptr_eq(&Watch::of(&file), &Watch::of(&file)));
    }
}
