//! The runtime and the clock of a client whose tasks run under shuttle's scheduler.
//!
//! Only simulated time works here. It stands still until a test calls [`advance`]: no timer can hide a task that nobody
//! wakes, so shuttle finds such a task as a deadlock.

use std::cell::RefCell;
use std::future::Future;
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::runtime::TryCurrentError;

use crate::engine::runtime::wakers::wake_all;

/// What the clock shows when a schedule begins: 36 years, as the simulated clock of ordinary builds. In nanoseconds, as
/// all times here: a `BootInstant` reads this clock, so this file cannot name it.
const AT_START: u64 = 1 << 60;

struct ScheduledTime {
    now: u64,
    asleep: Vec<Waker>,
}

thread_local! {
    // Not shuttle's primitives: they end with a schedule, but drops at its end still read the clock. All tasks of a
    // schedule run on one thread, one at a time.
    static TIME: RefCell<ScheduledTime> = const {
        RefCell::new(ScheduledTime {
            now: AT_START,
            asleep: Vec::new(),
        })
    };
}

/// The current instant.
pub(crate) fn now() -> u64 {
    TIME.with_borrow(|time| time.now)
}

/// Sets the clock back to its start. Call it first in each schedule.
pub fn restart() {
    let asleep = TIME.with_borrow_mut(|time| {
        time.now = AT_START;
        std::mem::take(&mut time.asleep)
    });
    drop(asleep);
}

/// Moves the clock ahead, and wakes what sleeps.
pub fn advance(time: Duration) {
    let asleep = TIME.with_borrow_mut(|clock| {
        clock.now += u64::try_from(time.as_nanos()).unwrap_or(u64::MAX - clock.now);
        std::mem::take(&mut clock.asleep)
    });
    wake_all(asleep);
}

/// Sleeps until that instant.
pub(crate) async fn until(at: u64) {
    std::future::poll_fn(|cx| {
        if now() >= at {
            return Poll::Ready(());
        }
        TIME.with_borrow_mut(|time| time.asleep.push(cx.waker().clone()));
        Poll::Pending
    })
    .await;
}

/// In place of tokio's handle.
#[derive(Debug, Clone)]
pub(crate) struct Handle;

impl Handle {
    /// There is always one. `Result`, because tokio's handle may be missing.
    pub(crate) fn try_current() -> Result<Self, TryCurrentError> {
        Ok(Self)
    }

    /// Runs a future until it ends, or the schedule does.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        drop(shuttle::future::spawn(future));
    }
}
