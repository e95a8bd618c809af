//! Sweeps: they delete the rows of names that nobody has used for long, on stores that keep a row for each name.
//!
//! Each client has one task for it. A sweep goes on until a batch has not been full. Otherwise the table would grow without
//! end when a client uses more new names than one batch deletes. Each batch is a transaction of its own, and after it the
//! task pauses for as long as the batch took, so that other requests have at least half of the store's time.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::runtime::backoff::with_jitter;
use crate::engine::runtime::event::Flag;
use crate::error::Result;
use crate::store::{Background, Timers};

/// The longest time between two sweeps of a client, also after one that failed. That one may have kept all others waiting until
/// it failed: on MySQL behind a row that somebody's transaction keeps, with the counter locked. It would fail again.
const PERIOD: Duration = Duration::from_secs(20 * 60);

/// The longest time before the first sweep of a client that does not publish who it is. A command that ends sooner sweeps
/// nothing.
const SOON: Duration = Duration::from_secs(60);

/// The random share of each pause. Otherwise clients that were started together would sweep together.
const JITTER: f64 = 0.5;

/// The tables of a store.
pub(crate) trait SweptTables: Send + Sync + 'static {
    /// Deletes a batch of rows in one transaction. Returns whether the batch was full, so that there may be more.
    fn sweep_batch(&self) -> impl Future<Output = Result<bool>> + Send;

    /// Ends a sweep, also one that failed.
    fn finish(&self) -> impl Future<Output = ()> + Send;
}

/// The task that sweeps. It ends when this is closed or dropped.
#[derive(Debug)]
pub(crate) struct Sweeper {
    /// The first sweep need not wait.
    due: Arc<Flag>,
    over: Arc<Flag>,
}

impl Sweeper {
    /// Starts the task. `is_due`: the first sweep begins at once.
    pub(crate) fn start(
        tables: impl SweptTables,
        is_due: bool,
        timers: &Timers,
        background: &Background,
    ) -> Arc<Self> {
        let sweeper = Self {
            due: Arc::default(),
            over: Arc::default(),
        };
        if is_due {
            sweeper.begin();
        }
        let (due, over) = (Arc::clone(&sweeper.due), Arc::clone(&sweeper.over));
        let timers = timers.clone();
        background.spawn(async move {
            tokio::select! {
                biased;
                () = over.happened() => {}
                () = run(&tables, &timers, &due) => {}
            }
        });
        Arc::new(sweeper)
    }

    /// The first sweep begins now. Later calls have no effect.
    pub(crate) fn begin(&self) {
        self.due.set();
    }

    pub(crate) fn close(&self) {
        self.over.set();
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.close();
    }
}

async fn run(tables: &impl SweptTables, timers: &Timers, due: &Flag) {
    // Either way it is time for the first sweep.
    let _ = timers
        .limit(with_jitter(SOON, JITTER), due.happened())
        .await;
    loop {
        sweep(tables, timers).await;
        timers.after(with_jitter(PERIOD, JITTER)).await;
    }
}

async fn sweep(tables: &impl SweptTables, timers: &Timers) {
    loop {
        let begun = timers.now();
        match tables.sweep_batch().await {
            Ok(true) => timers.after(timers.now().since(begun)).await,
            Ok(false) => break,
            Err(error) => {
                tracing::debug!(%error, "rows of names that nobody has used for long were not deleted");
                break;
            }
        }
    }
    tables.finish().await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::engine::runtime::background::Stop;
    use crate::error::{Error, ErrorKind};
    use crate::store::Clock;

    /// What the tables have seen.
    #[derive(Default)]
    struct Seen {
        /// How many batches are full from now on.
        full: AtomicU32,
        batches: AtomicU32,
        finished: AtomicU32,
        fails: Flag,
    }

    struct Tables {
        seen: Arc<Seen>,
        timers: Timers,
    }

    /// How long a batch takes.
    const BATCH: Duration = Duration::from_millis(10);

    impl SweptTables for Tables {
        async fn sweep_batch(&self) -> Result<bool> {
            self.timers.after(BATCH).await;
            self.seen.batches.fetch_add(1, Ordering::SeqCst);
            if self.seen.fails.is_set() {
                return Err(Error::new(ErrorKind::Unavailable));
            }
            let left = self.seen.full.load(Ordering::SeqCst);
            self.seen
                .full
                .store(left.saturating_sub(1), Ordering::SeqCst);
            Ok(left > 0)
        }

        fn finish(&self) -> impl Future<Output = ()> + Send {
            self.seen.finished.fetch_add(1, Ordering::SeqCst);
            std::future::ready(())
        }
    }

    /// A sweeper of tables of which so many batches are full. The timers run while the last part is kept.
    fn sweeper(full: u32, is_due: bool) -> (Arc<Sweeper>, Arc<Seen>, Timers, Stop) {
        let (background, stop) = Background::start(Clock::Simulated).unwrap();
        let timers = Timers::new(Clock::Simulated);
        background.spawn(timers.clone().drive());
        let seen = Arc::<Seen>::default();
        seen.full.store(full, Ordering::SeqCst);
        let tables = Tables {
            seen: Arc::clone(&seen),
            timers: timers.clone(),
        };
        let sweeper = Sweeper::start(tables, is_due, &timers, &background);
        (sweeper, seen, timers, stop)
    }

    /// The number of batches and of sweeps so far.
    fn counts(seen: &Seen) -> (u32, u32) {
        let count = |number: &AtomicU32| number.load(Ordering::SeqCst);
        (count(&seen.batches), count(&seen.finished))
    }

    #[tokio::test(start_paused = true)]
    async fn a_sweep_goes_on_until_a_batch_is_not_full() {
        let (_sweeper, seen, timers, _stop) = sweeper(100, true);
        // A batch and the pause after it take twice the time of a batch.
        timers.after(BATCH * 100).await;
        let (batches, finished) = counts(&seen);
        assert!((40..=60).contains(&batches), "{batches}");
        assert_eq!(finished, 0);
        timers.after(SOON / 2).await;
        assert_eq!(counts(&seen), (101, 1));
        timers.after(PERIOD).await;
        let (batches, finished) = counts(&seen);
        assert!((102..=103).contains(&batches), "{batches}");
        assert_eq!(batches, finished + 100, "nothing was left");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_publishes_nothing_sweeps_within_a_minute() {
        let (sweeper, seen, timers, _stop) = sweeper(0, false);
        timers.after(SOON / 4).await;
        assert_eq!(counts(&seen), (0, 0));
        timers.after(SOON).await;
        assert_eq!(counts(&seen), (1, 1));
        sweeper.begin();
        timers.after(SOON).await;
        assert_eq!(counts(&seen), (1, 1), "that was the first one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_sweep_that_failed_is_not_repeated_soon() {
        let (_sweeper, seen, timers, _stop) = sweeper(100, true);
        seen.fails.set();
        timers.after(Duration::from_secs(9 * 60)).await;
        assert_eq!(counts(&seen), (1, 1));
        timers.after(PERIOD).await;
        let (batches, finished) = counts(&seen);
        assert!((2..=3).contains(&batches), "{batches}");
        assert_eq!(batches, finished);
    }

    #[tokio::test(start_paused = true)]
    async fn a_sweeper_that_is_closed_or_dropped_sweeps_no_more() {
        for closes in [true, false] {
            let (sweeper, seen, timers, _stop) = sweeper(1000, true);
            timers.after(BATCH * 10).await;
            let (batches, _) = counts(&seen);
            if closes {
                sweeper.close();
            } else {
                drop(sweeper);
            }
            timers.after(PERIOD).await;
            let (after, finished) = counts(&seen);
            assert!(after <= batches + 1, "{after} after {batches}");
            assert_eq!(finished, 0);
        }
    }
}
