//! A process that stands in no queue, because its system has none or the file has none yet: how often it looks.

use std::time::Instant;

use super::*;

/// A waiter for the lock `a`, in a file that does not exist. So nothing is there that a queue needs.
struct Alone {
    _folder: tempfile::TempDir,
    watch: Arc<FileWatch>,
    _listening: Listening,
    wake: Wake,
}

impl Alone {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let paths = Arc::new(DatabasePaths::of(folder.path().join("locks.db")));
        let watch = FileWatch::of(&paths);
        let signals = watch.signals(Timers::new(Clock::Boot));
        let wake = signals.arm("a");
        Self {
            _folder: folder,
            _listening: watch.listen(signals),
            watch,
            wake,
        }
    }

    /// A connection to the file, which is not open yet.
    fn database(&self, create: bool) -> Database {
        let paths = Arc::clone(&self.watch.paths);
        Database::new(SharedConnectionState::of_one(paths, create))
    }
}

/// The lock may have been freed before the process watched it, and no other process tells it so.
#[test]
fn each_waiter_that_comes_makes_the_process_look_once() {
    let alone = Alone::new();
    let mut database = alone.database(false);
    // This thread is the one that looks.
    alone.watch.lock().running = true;
    for _ in 0..2 {
        alone.watch.begin("a", Clock::Boot);
        let asked = [(); 2].map(|()| alone.watch.next_check(&mut database, 0));
        assert_eq!(asked, [Some(true), Some(false)]);
    }
}

#[test]
fn the_pauses_between_the_first_looks_are_shorter_than_the_later_ones() {
    let alone = Alone::new();
    let mut database = alone.database(false);
    let mut pause_after = |checks: u32| {
        let begun = Instant::now();
        let asked = alone.watch.next_check(&mut database, checks);
        assert_eq!(asked, Some(false));
        begun.elapsed()
    };
    for checks in [SHORT_CHECKS, SHORT_CHECKS + 1, SHORT_CHECKS * 2] {
        assert!(pause_after(checks) >= LONG_PAUSE, "after {checks}");
    }
    for checks in [0, SHORT_CHECKS - 1] {
        // A busy machine may let the thread go on late, but not each time.
        let is_short = (0..200).any(|_| pause_after(checks) < LONG_PAUSE);
        assert!(is_short, "after {checks}");
    }
}

/// A lock that was not free for so long is probably held for long, and each look costs time of the processor.
#[test]
fn the_thread_that_looks_counts_its_looks_and_makes_longer_pauses_later() {
    const SOON: Duration = Duration::from_secs(60);
    const LATER: u32 = 20;

    let alone = Alone::new();
    alone.database(true).connected().unwrap();
    // The thread writes it again when it opens the file, but asks for no queue after that.
    std::fs::remove_file(&alone.watch.paths.lock).unwrap();
    let looks = || alone.watch.checks.load(Ordering::Relaxed);
    let await_looks = |count: u64| {
        let begun = Instant::now();
        while looks() < count {
            assert!(begun.elapsed() < SOON, "it looks no longer");
            std::thread::yield_now();
        }
    };
    alone.watch.begin("a", Clock::Boot);
    // The first look is made without a pause.
    await_looks(u64::from(1 + SHORT_CHECKS));
    let (begun, before) = (Instant::now(), looks());
    await_looks(before + u64::from(LATER));
    // The pause before the first of these looks had begun already.
    assert!(begun.elapsed() >= LONG_PAUSE * (LATER - 1));
}

/// Each of their attempts would fail too, until the file can be read again.
#[tokio::test]
async fn a_file_that_cannot_be_read_wakes_its_waiters_ten_times_a_second_at_most() {
    let mut alone = Alone::new();
    let begun = Instant::now();
    alone.watch.begin("a", Clock::Boot);
    for _ in 0..3 {
        alone.wake.woken().await;
    }
    let pauses = Duration::from_millis(2 * 100);
    assert!(begun.elapsed() >= pauses, "{:?}", begun.elapsed());
}
