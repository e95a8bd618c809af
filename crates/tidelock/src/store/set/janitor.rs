//! The janitor: repeats releases and withdrawals at members that do not answer.
//!
//! Each member has one queue and one task. Otherwise a server that was down for an hour would get all releases of
//! that hour at once.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::engine::runtime::backoff::RECONNECT;
use crate::engine::runtime::sync::Mutex;
use crate::error::{Error, Result};
use crate::store::{Backend, Background, BootInstant, Ticket, Timers};
use crate::types::Escaped;

/// Bounds the queue of one member. Beyond it the oldest entry is dropped, and its lock ends with its lease.
const MAX_QUEUED: usize = 10_000;

/// The background commands of one member.
pub(crate) struct Janitor {
    store: Arc<dyn Backend>,
    /// The name of the member in messages.
    label: String,
    queue: Mutex<JanitorQueue>,
}

#[derive(Default)]
struct JanitorQueue {
    waiting: VecDeque<CleanupJob>,
    busy: bool,
}

/// A release or withdrawal that is retried until an instant.
pub(crate) struct CleanupJob {
    pub(crate) ticket: Ticket,
    pub(crate) withdraw: bool,
    pub(crate) until: BootInstant,
}

impl Janitor {
    pub(crate) fn new(store: Arc<dyn Backend>, label: String) -> Self {
        Self {
            store,
            label,
            queue: Mutex::default(),
        }
    }

    /// Queues a job, and starts the member's task if it is not running.
    pub(crate) fn hand(
        self: &Arc<Self>,
        job: CleanupJob,
        background: &Background,
        timers: &Timers,
    ) {
        let mut queue = self.queue.lock();
        if queue.waiting.len() == MAX_QUEUED {
            queue.waiting.pop_front();
        }
        queue.waiting.push_back(job);
        if !std::mem::replace(&mut queue.busy, true) {
            let (janitor, timers) = (Arc::clone(self), timers.clone());
            background.spawn(async move { janitor.work(&timers).await });
        }
    }

    fn next(&self) -> Option<CleanupJob> {
        let mut queue = self.queue.lock();
        let next = queue.waiting.pop_front();
        queue.busy = next.is_some();
        next
    }

    async fn work(&self, timers: &Timers) {
        let mut failures = 0;
        while let Some(errand) = self.next() {
            loop {
                match self.tell(&errand).await {
                    Ok(()) => {
                        failures = 0;
                        break;
                    }
                    Err(error) if error.is_retryable() && timers.now() < errand.until => {
                        timers.after(RECONNECT.pause(failures)).await;
                        failures += 1;
                    }
                    Err(error) => {
                        self.give_up(&errand.ticket, &error);
                        break;
                    }
                }
            }
        }
    }

    async fn tell(&self, errand: &CleanupJob) -> Result<()> {
        let answer = if errand.withdraw {
            self.store.withdraw(&errand.ticket).await
        } else {
            self.store.release(&errand.ticket).await
        };
        answer.map(drop)
    }

    fn give_up(&self, ticket: &Ticket, error: &Error) {
        tracing::debug!(lock = %ticket.name, member = %Escaped(&self.label), %error, "the lock of this member could not be released before its lease ended");
    }
}

#[cfg(feature = "testing")]
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::ErrorKind;
    use crate::store::set::quorum::Quorum;
    use crate::store::set::tests::scripted::{LIMIT, Scripted, env, majority_of, ticket};

    fn failing(kind: ErrorKind) -> Scripted {
        let answers = (0..1000).map(|_| Err(Error::new(kind)));
        answers.fold(Scripted::default(), Scripted::ends)
    }

    /// A release that no retry helps is sent once, another one until the lease has certainly ended, with growing pauses.
    #[tokio::test(start_paused = true)]
    async fn a_job_is_repeated_while_that_can_help() {
        for (kind, lease, times) in [
            (ErrorKind::Refused, LIMIT, 1..2),
            (ErrorKind::Unavailable, LIMIT, 10..200),
            (ErrorKind::Unavailable, Duration::from_secs(100), 20..400),
        ] {
            let server = failing(kind);
            let quorum = Quorum::new(Duration::from_secs(1), false, lease);
            let set = majority_of(quorum, &[&server]);
            let until = (lease * 2).max(Duration::from_secs(60));
            set.clean_up(0, ticket(), true);
            tokio::time::sleep(until * 9 / 10).await;
            let before = server.ended().len();
            assert!(times.contains(&before), "{before}");
            tokio::time::sleep(until).await;
            let ended = server.ended().len();
            assert_eq!(ended > before, kind != ErrorKind::Refused, "{ended}");
            tokio::time::sleep(until).await;
            assert_eq!(server.ended().len(), ended, "it has ended");
        }
    }

    /// They come while the first one is under way. After an hour without an answer the oldest are given up.
    #[tokio::test(start_paused = true)]
    async fn every_job_is_done_and_the_queue_is_bounded() {
        let (server, env) = (Scripted::default(), env());
        let store = crate::store::set::tests::scripted::scripted_store(&env, &server);
        let janitor = Arc::new(Janitor::new(store.back, "a".to_owned()));
        let hand = |withdraw| {
            let job = CleanupJob {
                ticket: ticket(),
                withdraw,
                until: env.timers.now() + LIMIT,
            };
            janitor.hand(job, &env.background, &env.timers);
        };
        for withdraw in [false, true, false] {
            hand(withdraw);
        }
        tokio::time::sleep(LIMIT).await;
        assert_eq!(server.ended(), [false, true, false]);
        hand(false);
        (0..MAX_QUEUED).for_each(|_| hand(true));
        assert_eq!(janitor.queue.lock().waiting.len(), MAX_QUEUED);
        tokio::time::sleep(LIMIT).await;
        assert_eq!(server.ended().len(), 3 + MAX_QUEUED);
    }
}
