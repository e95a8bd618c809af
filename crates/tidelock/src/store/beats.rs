//! Beats: they show a store that this process is alive, one task for each name with waiters for a fair lock. The store
//! removes waiters of a process that shows no life.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine::runtime::sync::Mutex;
use crate::store::{Background, Name, OwnerId, Timers};

/// The time between two beats: a third of [`ALIVE`], so that two beats may be lost.
pub(crate) const BEAT: Duration = Duration::from_secs(2);
/// How long a store counts a process as alive after a beat. The scripts for Redis have the same number.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(crate) const ALIVE: Duration = Duration::from_secs(6);

/// A store with beats.
pub(crate) trait Beat: Send + Sync + 'static {
    /// What the task of a name remembers between two beats.
    type State: Default + Send;

    /// One beat for the waiters of this process. Returns the time until the next one.
    fn beat(
        &self,
        name: &Name,
        owners: &[OwnerId],
        state: &mut Self::State,
    ) -> impl Future<Output = Duration> + Send;
}

/// The waiters of this process for fair locks.
pub(crate) struct Beats<B> {
    /// Invariant: a name has a task exactly while it has an entry. An entry without owners ends with the next beat.
    names: Mutex<HashMap<Name, BeatEntry>>,
    beat: B,
    timers: Timers,
    background: Background,
}

/// The waiters of one name.
#[derive(Default)]
struct BeatEntry {
    owners: HashSet<OwnerId>,
    hurry: Arc<Notify>,
}

impl<B: Beat> Beats<B> {
    pub(crate) fn new(beat: B, timers: Timers, background: Background) -> Arc<Self> {
        Arc::new(Self {
            names: Mutex::default(),
            beat,
            timers,
            background,
        })
    }

    /// The waiter has a place in the queue, or is about to get one. The first one of a name starts the task.
    pub(crate) fn enter(self: &Arc<Self>, name: &Name, owner: &OwnerId) {
        let mut names = self.names.lock();
        if let Some(waiting) = names.get_mut(name) {
            waiting.owners.insert(owner.clone());
            return;
        }
        let waiting = names.entry(name.clone()).or_default();
        waiting.owners.insert(owner.clone());
        let hurry = Arc::clone(&waiting.hurry);
        drop(names);
        let task = run(
            Arc::downgrade(self),
            self.timers.clone(),
            name.clone(),
            hurry,
        );
        self.background.spawn(task);
    }

    /// The waiter has the lock, or gives up its place.
    pub(crate) fn leave(&self, name: &Name, owner: &OwnerId) {
        if let Some(waiting) = self.names.lock().get_mut(name) {
            waiting.owners.remove(owner);
        }
    }

    /// The next beat of this name comes at once.
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
    pub(crate) fn hurry(&self, name: &Name) {
        let names = self.names.lock();
        if let Some(waiting) = names.get(name) {
            waiting.hurry.notify_one();
        }
    }

    /// Ends all tasks with their next beat.
    pub(crate) fn close(&self) {
        for waiting in self.names.lock().values_mut() {
            waiting.owners.clear();
            waiting.hurry.notify_one();
        }
    }

    /// The waiters of a name. `None`: there are none, and the task ends.
    fn owners(&self, name: &Name) -> Option<Vec<OwnerId>> {
        let mut names = self.names.lock();
        let owners: Vec<OwnerId> = names.get(name)?.owners.iter().cloned().collect();
        if owners.is_empty() {
            names.remove(name);
            return None;
        }
        Some(owners)
    }
}

async fn run<B: Beat>(beats: Weak<Beats<B>>, timers: Timers, name: Name, hurry: Arc<Notify>) {
    let (mut pause, mut state) = (BEAT, B::State::default());
    loop {
        // Either way it is time for a beat.
        let _ = timers.limit(pause, hurry.notified()).await;
        let Some(beats) = beats.upgrade() else {
            return;
        };
        let Some(owners) = beats.owners(&name) else {
            return;
        };
        pause = beats.beat.beat(&name, &owners, &mut state).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Clock;
    use crate::types::OwnerMint;

    /// Notes each beat: the name, how many beats its task remembers, and the numbers of the owners.
    #[derive(Clone, Default)]
    struct NotedBeats(Arc<Mutex<Vec<String>>>);

    impl NotedBeats {
        fn take(&self) -> Vec<String> {
            std::mem::take(&mut *self.0.lock())
        }
    }

    impl Beat for NotedBeats {
        type State = u32;

        fn beat(
            &self,
            name: &Name,
            owners: &[OwnerId],
            state: &mut u32,
        ) -> impl Future<Output = Duration> + Send {
            let mut numbers: Vec<u64> = owners.iter().map(OwnerId::number).collect();
            numbers.sort_unstable();
            let noted = format!("{} {state} {numbers:?}", name.as_str());
            self.0.lock().push(noted);
            *state += 1;
            std::future::ready(BEAT)
        }
    }

    /// The beats of a process, in simulated time.
    fn process() -> (Arc<Beats<NotedBeats>>, NotedBeats, Timers) {
        let clock = Clock::Simulated;
        let (background, _) = Background::start(clock).unwrap();
        let timers = Timers::new(clock);
        background.spawn(timers.clone().drive());
        let noted = NotedBeats::default();
        let beats = Beats::new(noted.clone(), timers.clone(), background);
        (beats, noted, timers)
    }

    #[tokio::test(start_paused = true)]
    async fn one_task_beats_for_all_waiters_of_a_name_that_are_left() {
        let (beats, noted, timers) = process();
        let (mint, till) = (OwnerMint::new(), Name::new("till").unwrap());
        let (one, two) = (mint.fresh(), mint.fresh());
        beats.enter(&till, &one);
        beats.enter(&till, &two);
        timers.after(BEAT / 2).await;
        assert!(noted.take().is_empty(), "the store has just seen them");
        timers.after(BEAT).await;
        assert_eq!(noted.take(), ["till 0 [1, 2]"]);
        beats.leave(&till, &one);
        timers.after(BEAT).await;
        assert_eq!(noted.take(), ["till 1 [2]"]);
        beats.leave(&till, &two);
        timers.after(BEAT * 3).await;
        assert!(noted.take().is_empty(), "nobody waits");
        // The next waiter has a task of its own.
        beats.enter(&till, &one);
        timers.after(BEAT * 3 / 2).await;
        assert_eq!(noted.take(), ["till 0 [1]"]);
    }

    #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
    #[tokio::test(start_paused = true)]
    async fn only_the_name_that_hurries_beats_at_once() {
        let (beats, noted, timers) = process();
        let mint = OwnerMint::new();
        let [till, stock] = ["till", "stock"].map(|name| Name::new(name).unwrap());
        beats.enter(&till, &mint.fresh());
        beats.enter(&stock, &mint.fresh());
        beats.hurry(&till);
        timers.after(BEAT / 2).await;
        assert_eq!(noted.take(), ["till 0 [1]"]);
        timers.after(BEAT).await;
        let mut both = noted.take();
        both.sort_unstable();
        assert_eq!(both, ["stock 0 [2]", "till 1 [1]"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_closed_or_dropped_beats_no_more() {
        for closes in [true, false] {
            let (beats, noted, timers) = process();
            beats.enter(&Name::new("till").unwrap(), &OwnerMint::new().fresh());
            if closes {
                beats.close();
            } else {
                drop(beats);
            }
            timers.after(BEAT * 3).await;
            assert!(noted.take().is_empty(), "closed: {closes}");
        }
    }
}
