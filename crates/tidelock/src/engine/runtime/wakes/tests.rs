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
