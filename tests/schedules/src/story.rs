//! What happens in a schedule: three tasks want one lock, and something goes wrong.

use std::sync::Arc;
use std::time::Duration;

use shuttle::future::{self, JoinHandle};
use shuttle::rand::Rng;
use tidelock::{AcquireOptions, ErrorKind, Lock, LostReason, schedules};

use crate::referee::{Referee, Running};
use crate::store::{Requests, open, open_another};

const NAME: &str = "a";
const TASKS: usize = 3;

/// The lease of each hold. It is well below a third of [`CLIENT_LEASE`], so that its end comes before the client
/// looks for queues without progress: that look would hide a waiter that nobody wakes.
const LEASE: Duration = Duration::from_secs(6);
const CLIENT_LEASE: Duration = Duration::from_secs(60);

/// The steps of the clock after a loss, for the pauses between two attempts. Together they are shorter than a lease.
const TICK: Duration = Duration::from_millis(20);
const TICKS: u32 = 100;

/// Bounds how many steps an event waits before it happens.
const LATEST: u32 = 60;

/// What happens besides the three tasks.
#[derive(Debug, Clone, Copy)]
pub struct Story {
    /// What it is called.
    pub name: &'static str,
    /// What happens, for the page.
    pub about: &'static str,
    /// Another client holds the lock first, so that the leader of the local queue waits for the store.
    other: bool,
    /// One task is dropped, wherever it is.
    cancel: bool,
    loss: Loss,
    /// The client is closed, with this grace period.
    close: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    None,
    /// The clock jumps by a lease, as after a freeze of the process.
    Expired,
    /// The lock is released by force.
    Forced,
}

const PLAIN: Story = Story {
    name: "three tasks",
    about: "three tasks acquire, hold and release one lock",
    other: false,
    cancel: false,
    loss: Loss::None,
    close: None,
};

/// Every story.
pub const STORIES: [Story; 8] = [
    PLAIN,
    Story {
        name: "cancel",
        about: "one of the tasks is dropped at some moment",
        cancel: true,
        ..PLAIN
    },
    Story {
        name: "another process",
        about: "another client holds the lock first, and one of the tasks is dropped",
        other: true,
        cancel: true,
        ..PLAIN
    },
    Story {
        name: "close",
        about: "the client is closed; it waits for the holders",
        close: Some(CLIENT_LEASE),
        ..PLAIN
    },
    Story {
        name: "close at once",
        about: "the client is closed without a grace period",
        close: Some(Duration::ZERO),
        ..PLAIN
    },
    Story {
        name: "loss",
        about: "the process is frozen for a lease; who holds the lock then keeps its guard until another has it",
        loss: Loss::Expired,
        ..PLAIN
    },
    Story {
        name: "force",
        about: "the lock is released by force, and one task is dropped",
        cancel: true,
        loss: Loss::Forced,
        ..PLAIN
    },
    Story {
        name: "all",
        about: "another client holds the lock first, one task is dropped, a lease is lost, and the client is closed",
        other: true,
        cancel: true,
        loss: Loss::Expired,
        close: Some(Duration::ZERO),
    },
];

impl Story {
    /// Runs the story once, under the scheduler of the caller.
    pub(crate) fn run(self) {
        schedules::restart();
        future::block_on(self.play());
    }

    async fn play(self) {
        let requests = Arc::<Requests>::default();
        let client = open(&requests, CLIENT_LEASE).await;
        let referee = Arc::<Referee>::default();
        let mut events = Vec::new();
        if self.other {
            let client = open_another(&requests, CLIENT_LEASE).await;
            let options = AcquireOptions::new().lease(LEASE);
            let guard = client.lock(NAME).acquire_with(options).await;
            let guard = guard.expect("the lock is free");
            events.push(future::spawn(async move {
                pass().await;
                drop(guard);
                client.close(CLIENT_LEASE).await;
            }));
        }
        let start = |number| {
            let running = Running(Arc::clone(&referee));
            future::spawn(self.task(number, client.lock(NAME), running))
        };
        let tasks: Vec<JoinHandle<()>> = (0..TASKS).map(start).collect();
        if self.cancel {
            let victim = tasks[1].abort_handle();
            events.push(future::spawn(async move {
                pass().await;
                victim.abort();
            }));
        }
        if let Some(grace) = self.close {
            let client = client.clone();
            events.push(future::spawn(async move {
                pass().await;
                client.close(grace).await;
            }));
        }
        if self.loss != Loss::None {
            let referee = Arc::clone(&referee);
            events.push(future::spawn(self.lose(client.lock(NAME), referee)));
        }
        for task in tasks.into_iter().chain(events) {
            // The only error is the cancellation: a panic ends the schedule.
            let _ = task.await;
        }
        client.close(CLIENT_LEASE).await;
        requests.all_left(NAME).await;
        referee.no_loss_after_release();
    }

    /// One of the three tasks. The second drops its guard; the others release the lock and wait for that.
    async fn task(self, number: usize, lock: Lock, running: Running) {
        let referee = &running.0;
        let options = AcquireOptions::new().lease(LEASE);
        let guard = match lock.acquire_with(options).await {
            Ok(guard) => guard,
            Err(error) => {
                let expected = self.close.is_some() && error.kind() == ErrorKind::Closed;
                assert!(expected, "{error:?}");
                return;
            }
        };
        let watched = self.loss == Loss::Expired;
        let lost = watched.then(|| guard.lost());
        let entered = referee.enter(number, lost.clone(), self.loss == Loss::Forced);
        future::yield_now().await;
        if watched && number == 0 && !referee.look(|seen| seen.jumped) {
            guard.lost().await;
            // Its guard must not be in the way of the others.
            let before = referee.look(|seen| seen.entered);
            referee
                .until(|seen| seen.entered > before || seen.ended == TASKS - 1)
                .await;
        }
        drop(entered);
        if number == 1 {
            drop(guard);
            return;
        }
        match guard.release().await {
            Ok(()) => referee.released(lost),
            Err(error) => {
                // A close that releases the lock itself must not look like a loss to another client.
                let closed =
                    self.close.is_some() && error.lost_reason() == Some(LostReason::Closed);
                let lost = self.loss != Loss::None && error.kind() == ErrorKind::Lost;
                assert!(closed || lost, "{error:?}");
            }
        }
    }

    async fn lose(self, lock: Lock, referee: Arc<Referee>) {
        pass().await;
        if self.loss == Loss::Forced {
            // An error means that the client was closed.
            let _ = lock.force_release().await;
            schedules::advance(LEASE / 3); // the next renewal finds out
        } else {
            schedules::advance(LEASE);
            referee.change(|seen| seen.jumped = true);
        }
        for _ in 0..TICKS {
            if referee.look(|seen| seen.ended == TASKS) {
                return;
            }
            future::yield_now().await;
            schedules::advance(TICK);
        }
    }
}

/// Waits for some steps. Without it, what a scheduler picks at random would nearly always happen early.
async fn pass() {
    let steps = shuttle::rand::thread_rng().gen_range(0..LATEST);
    for _ in 0..steps {
        future::yield_now().await;
    }
}
