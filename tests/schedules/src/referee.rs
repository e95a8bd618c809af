//! What the tasks of a story tell each other: who is in the critical section, and what has happened.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use futures_util::FutureExt;
use tidelock::Lost;

/// It has no scheduling point of its own: its mutex is the standard library's, and no task waits under it.
#[derive(Default)]
pub(crate) struct Referee(Mutex<Seen>);

#[derive(Default)]
pub(crate) struct Seen {
    inside: Vec<(usize, Option<Lost>)>,
    /// The loss signals of holds that were released.
    released: Vec<Lost>,
    /// How many times a task has got the lock.
    pub(crate) entered: usize,
    /// How many tasks have ended.
    pub(crate) ended: usize,
    /// The clock has jumped.
    pub(crate) jumped: bool,
    asleep: Vec<Waker>,
}

/// A task that has not ended, until it is dropped.
pub(crate) struct Running(pub(crate) Arc<Referee>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.change(|seen| seen.ended += 1);
    }
}

/// A task that is in the critical section, until it is dropped.
pub(crate) struct Entered<'a> {
    number: usize,
    referee: &'a Referee,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let gone: Vec<_> = self.referee.change(|seen| {
            let own = |(number, _): &mut (usize, _)| *number == self.number;
            seen.inside.extract_if(.., own).collect()
        });
        drop(gone); // its listener leaves, which is a scheduling point
    }
}

impl Referee {
    /// The task has the lock. No other task may have it, unless that holder was told that it is lost. `forced`: the
    /// lock may have been released by force, which promises nothing.
    ///
    /// # Panics
    /// If two hold the lock.
    pub(crate) fn enter(&self, number: usize, lost: Option<Lost>, forced: bool) -> Entered<'_> {
        let others = self.look(|seen| seen.inside.clone());
        for (other, lost) in others {
            let told = lost.is_some_and(|lost| lost.now_or_never().is_some());
            // Asked after the poll: it is a scheduling point, and this holder may have left there.
            let remains = self.look(|seen| seen.inside.iter().any(|(inside, _)| *inside == other));
            assert!(
                told || forced || !remains,
                "tasks {other} and {number} both hold the lock"
            );
        }
        self.change(|seen| {
            seen.inside.push((number, lost));
            seen.entered += 1;
        });
        Entered {
            number,
            referee: self,
        }
    }

    /// A hold was released. If it was not lost during the release, its loss signal stays silent from now on.
    pub(crate) fn released(&self, lost: Option<Lost>) {
        let silent = lost.filter(|lost| lost.clone().now_or_never().is_none());
        self.change(|seen| seen.released.extend(silent));
    }

    /// # Panics
    /// If a holder that had released the lock was told of a loss, perhaps of the next holder.
    pub(crate) fn no_loss_after_release(&self) {
        for lost in self.change(|seen| std::mem::take(&mut seen.released)) {
            let told = lost.now_or_never();
            assert!(told.is_none(), "told of a loss after its release: {told:?}");
        }
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes what is known, and wakes the tasks that wait for it.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Seen) -> T) -> T {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut seen);
        let asleep = std::mem::take(&mut seen.asleep);
        drop(seen);
        asleep.into_iter().for_each(Waker::wake);
        result
    }

    /// Resolves when this is true.
    pub(crate) async fn until(&self, is_true: impl Fn(&Seen) -> bool) {
        std::future::poll_fn(|cx| {
            let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if is_true(&seen) {
                return Poll::Ready(());
            }
            seen.asleep.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
