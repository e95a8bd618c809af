use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake as Task;

use super::*;
use crate::engine::runtime::clock::Clock;

/// A task that its executor drops inside `wake`, together with another waiter's [`Wake`].
struct Dropped(Mutex<Option<Wake>>);

impl Task for Dropped {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().take());
    }
}

#[test]
fn a_task_that_is_dropped_while_it_is_woken_harms_nobody() {
    let (done, finished) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for how in 0..5 {
            let signals = WakeChannels::new(Timers::new(Clock::Boot), |_| {});
            let (mut first, second) = (signals.arm("a"), signals.arm("a"));
            let waker = Waker::from(Arc::new(Dropped(Mutex::new(Some(second)))));
            let mut cx = Context::from_waker(&waker);
            assert!(Pin::new(&mut first.woken()).poll(&mut cx).is_pending());
            match how {
                0 => signals.wake_one("a"),
                1 => signals.wake_all("a"),
                2 => signals.wake_each(),
                3 => first.recheck_after(Duration::ZERO),
                _ => {
                    drop(waker);
                    let other = Waker::noop();
                    let mut cx = Context::from_waker(other);
                    // The poll replaces the old waker. Dropping that waker drops the task.
                    let _ = Pin::new(&mut first.woken()).poll(&mut cx);
                }
            }
            drop(first);
            assert!(signals.watched().is_empty());
        }
        done.send(()).unwrap();
    });
    finished
        .recv_timeout(Duration::from_secs(10))
        .expect("no lock is held while a task is woken");
}

/// A task whose executor panics in `wake`.
struct Panics;

impl Task for Panics {
    fn wake(self: Arc<Self>) {
        panic!("this waker always panics");
    }
}

/// Counts its wakes.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Task for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_panicking_waker_harms_nobody_else() {
    let signals = WakeChannels::new(Timers::new(Clock::Boot), |_| {});
    let panics = Waker::from(Arc::new(Panics));
    let task = Arc::<Woken>::default();
    let woken = Waker::from(Arc::clone(&task));
    let sleep = |wake: &mut Wake, waker: &Waker| {
        let mut cx = Context::from_waker(waker);
        assert!(Pin::new(&mut wake.woken()).poll(&mut cx).is_pending());
    };
    for (round, channel) in ["a", "b", "c"].into_iter().enumerate() {
        let (mut first, mut second) = (signals.arm(channel), signals.arm(channel));
        sleep(&mut first, &panics);
        sleep(&mut second, &woken);
        match round {
            0 => signals.wake_all(channel),
            1 => {
                signals.wake_one(channel);
                drop(first); // it passes the wake on
            }
            _ => {
                first.recheck_after(Duration::from_secs(60)); // pokes the lookout
                sleep(&mut first, &panics);
                signals.wake_each();
                signals.wake_one(channel);
            }
        }
        assert_eq!(task.0.load(Ordering::SeqCst), round + 1);
    }
}

/// A waiter that sleeps, and how often its task is woken.
struct Sleeper {
    wake: Wake,
    task: Arc<Woken>,
}

impl Sleeper {
    fn new(signals: &WakeChannels) -> Self {
        Self {
            wake: signals.arm("a"),
            task: Arc::default(),
        }
    }

    /// Whether it is woken, or sleeps on.
    fn is_woken(&mut self) -> bool {
        let waker = Waker::from(Arc::clone(&self.task));
        let mut cx = Context::from_waker(&waker);
        Pin::new(&mut self.wake.woken()).poll(&mut cx).is_ready()
    }

    fn times(&self) -> usize {
        self.task.0.load(Ordering::SeqCst)
    }
}

/// Each takes a wake in another way: none, by sleep, right before an attempt, and both.
#[test]
fn a_wake_passes_on_until_the_store_has_answered() {
    for (how, passes_on) in [
        ("not woken", false),
        ("woken", true),
        ("asleep", true),
        ("asking", true),
        ("woken twice", true),
        ("asking with no further wake", true),
        ("answered", false),
    ] {
        let signals = WakeChannels::new(Timers::new(Clock::Boot), |_| {});
        let (mut first, mut second) = (Sleeper::new(&signals), Sleeper::new(&signals));
        assert!(!first.is_woken() && !second.is_woken());
        if how != "not woken" {
            signals.wake_one("a");
        }
        match how {
            "asleep" => assert!(first.is_woken()),
            "asking" => first.wake.use_up(),
            "woken twice" => {
                assert!(first.is_woken());
                signals.wake_one("a");
                first.wake.use_up();
            }
            "asking with no further wake" => {
                assert!(first.is_woken());
                first.wake.use_up();
            }
            "answered" => {
                assert!(first.is_woken());
                assert!(first.wake.is_by_message());
                first.wake.answered();
                assert!(!first.wake.is_by_message());
            }
            _ => {}
        }
        drop(first);
        assert_eq!(second.is_woken(), passes_on, "{how}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_lookout_is_woken_for_a_sooner_recheck_and_for_no_later_one() {
    let signals = WakeChannels::new(Timers::new(Clock::Simulated), |_| {});
    let (mut first, mut second) = (Sleeper::new(&signals), Sleeper::new(&signals));
    let minute = Duration::from_secs(60);
    for (recheck, woken) in [(minute, 1), (minute / 2, 2), (minute / 2, 2), (minute, 2)] {
        assert!(!first.is_woken() && !second.is_woken());
        second.wake.recheck_after(recheck);
        assert_eq!((first.times(), second.times()), (woken, 0), "{recheck:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_lookout_moves_a_recheck_that_is_set() {
    let signals = WakeChannels::new(Timers::new(Clock::Simulated), |_| {});
    let (mut first, mut second) = (signals.arm("a"), signals.arm("a"));
    let now = Clock::Simulated.now();
    let second_of_time = Duration::from_secs(1);
    let recheck = || signals.lock()["a"].recheck;
    second.look_after(second_of_time * 5);
    assert_eq!(recheck(), Some(now + second_of_time * 5), "none was set");
    second.look_after(second_of_time * 7);
    assert_eq!(recheck(), Some(now + second_of_time * 5));
    first.look_after(second_of_time * 9);
    assert_eq!(recheck(), Some(now + second_of_time * 9));
}

#[tokio::test(start_paused = true)]
async fn only_the_lookout_rechecks_and_any_that_rechecks_alone() {
    let signals = WakeChannels::new(Timers::new(Clock::Simulated), |_| {});
    let mut waiters = [(); 3].map(|()| Sleeper::new(&signals));
    let [_, _, alone] = &mut waiters;
    alone.wake.alone = true;
    alone.wake.recheck_after(Duration::from_secs(2));
    waiters[1].wake.recheck_after(Duration::from_secs(4));
    let woken = |waiters: &mut [Sleeper; 3]| waiters.each_mut().map(Sleeper::is_woken);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(woken(&mut waiters), [false, false, false]);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(woken(&mut waiters), [false, false, true]);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(woken(&mut waiters), [true, false, true]);
}

/// The lookout may be a future that is kept and not polled.
#[tokio::test(start_paused = true)]
async fn a_waiter_rechecks_at_its_own_time_if_the_lookout_does_not() {
    let signals = WakeChannels::new(Timers::new(Clock::Simulated), |_| {});
    let (mut lookout, mut second) = (signals.arm("a"), Sleeper::new(&signals));
    let mut third = Sleeper::new(&signals);
    lookout.recheck_after(Duration::from_secs(1));
    for waiter in [&mut lookout, &mut second.wake] {
        waiter.recheck_at_latest(Duration::from_secs(3));
    }
    signals.wake_one("a");
    assert!(!second.is_woken() && !third.is_woken());
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(!second.is_woken() && !third.is_woken());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(second.is_woken() && !third.is_woken());
    // Once it is the lookout, the time of the channel counts.
    second.wake.recheck_at_latest(Duration::from_secs(9));
    second.wake.recheck_after(Duration::from_secs(4));
    drop(lookout);
    third.wake.recheck_at_latest(Duration::from_secs(5));
    second.wake.use_up();
    assert!(!second.is_woken() && !third.is_woken());
    tokio::time::advance(Duration::from_secs(4)).await;
    assert!(second.is_woken() && !third.is_woken());
}

/// The other waiters ask for themselves too, and the store tells them later times.
#[tokio::test(start_paused = true)]
async fn the_lookout_rechecks_at_its_own_time_if_others_postpone_that_of_the_channel() {
    let signals = WakeChannels::new(Timers::new(Clock::Simulated), |_| {});
    let (mut lookout, mut other) = (Sleeper::new(&signals), signals.arm("a"));
    lookout.wake.recheck_after(Duration::from_secs(2));
    lookout.wake.recheck_at_latest(Duration::from_secs(3));
    assert!(!lookout.is_woken());
    tokio::time::advance(Duration::from_secs(1)).await;
    other.recheck_after(Duration::from_secs(60));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(!lookout.is_woken());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(lookout.is_woken());
}

/// The oldest waiter may be a future that is kept and not polled.
#[test]
fn a_reconnect_wakes_a_waiter_behind_one_that_is_not_polled() {
    let signals = WakeChannels::new(Timers::new(Clock::Boot), |_| {});
    let mut waiters = [(); 3].map(|()| Sleeper::new(&signals));
    for waiter in &mut waiters {
        assert!(!waiter.is_woken());
    }
    for times in [1, 2] {
        signals.wake_each();
        let all = waiters.each_ref().map(Sleeper::times);
        assert_eq!(all, [1, times, 0]);
        let [_, second, _] = &mut waiters;
        assert!(second.is_woken());
        second.wake.answered();
        assert!(!second.is_woken());
    }
}

#[test]
fn a_channel_is_watched_as_long_as_it_has_a_waiter() {
    let idle = Arc::<AtomicUsize>::default();
    let told = Arc::clone(&idle);
    let signals = WakeChannels::new(Timers::new(Clock::Boot), move |_| {
        told.fetch_add(1, Ordering::SeqCst);
    });
    let other = WakeChannels::new(Timers::new(Clock::Boot), |_| {});
    assert!(signals.is(&signals.clone()) && !signals.is(&other));
    let (first, second) = (signals.arm("a"), signals.arm("a"));
    assert!(signals.is_watched("a") && !signals.is_watched("b"));
    assert_eq!(signals.watched(), ["a".into()]);
    drop(first);
    assert!(signals.is_watched("a"));
    assert_eq!(idle.load(Ordering::SeqCst), 0);
    assert_eq!(second.of_part(2).part(), 2);
    assert!(!signals.is_watched("a"));
    assert_eq!(idle.load(Ordering::SeqCst), 1);
}
