//! One look at the store for all who see the page.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::exit::Outcome;
use crate::top::pace::Looks;
use crate::top::picture::Picture;
use crate::web::timeline::Timeline;

/// After this time without an answer to any request of a look, the page says that the store does not answer. A request
/// ends later.
const SLOW: Duration = Duration::from_secs(2);

/// Bounds how long a request waits for the look that it asked for. A look takes longer if it is very many requests, or if this
/// process has no time.
const PATIENCE: Duration = Duration::from_secs(5);

/// A picture that is older is not shown as the present one while a look goes on. A look comes at least once a minute while
/// somebody watches, so a picture of that age is from when the page was open the last time.
const OLD: Duration = Duration::from_secs(300);

/// What was seen last.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// Grows with each change.
    pub(super) number: u64,
    /// The last picture, and when it was taken. `None`: the store has not answered yet.
    pub(super) picture: Option<(Arc<Picture>, Instant)>,
    /// Who held what before.
    pub(super) timeline: Arc<Timeline>,
    /// Why there is no newer one.
    pub(super) trouble: Option<Arc<str>>,
    /// The trouble is a look that has got no answer for two seconds. It has not ended, so it may still succeed.
    is_slow: bool,
    /// Until then there is no newer one.
    newest_until: Option<Instant>,
}

impl Seen {
    fn is_newest(&self) -> bool {
        self.newest_until
            .is_some_and(|until| Instant::now() < until)
    }
}

/// Looks at the store while there are viewers, as often for a hundred as for one.
#[derive(Debug)]
pub(super) struct Sampler {
    /// Each viewer holds a receiver, so the number of receivers is the number of viewers.
    seen: watch::Sender<Seen>,
    wanted: Notify,
}

impl Sampler {
    pub(super) fn new() -> Self {
        Self {
            seen: watch::Sender::new(Seen::default()),
            wanted: Notify::new(),
        }
    }

    /// The number of open pages and event streams.
    pub(super) fn viewers(&self) -> usize {
        self.seen.receiver_count()
    }

    /// The changes from now on, as long as it lives, and what to show until the first of them.
    pub(super) async fn follow(&self) -> (watch::Receiver<Seen>, Seen) {
        self.follow_within(PATIENCE, OLD, |_| true).await
    }

    /// Waits for something new of which `is_enough` is true.
    async fn follow_within(
        &self,
        patience: Duration,
        old: Duration,
        is_enough: impl Fn(&Seen) -> bool,
    ) -> (watch::Receiver<Seen>, Seen) {
        let mut seen = self.seen.subscribe();
        self.wanted.notify_one();
        let before = seen.borrow().number;
        let is_new = |seen: &Seen| is_enough(seen) && (seen.is_newest() || seen.number != before);
        // The sampler lives as long as its sender, so only the time can run out.
        let in_time = timeout(patience, seen.wait_for(is_new)).await.is_ok();
        let mut first = seen.borrow_and_update().clone();
        // Then the last picture may be of an hour ago, when the page was open the last time. Without a word of that it would
        // count as the present one. But one of a minute ago is no sign that the store is away.
        let is_recent = |taken: &Instant| taken.elapsed() < old;
        let recent = first
            .picture
            .as_ref()
            .map(|(_, taken)| taken)
            .is_some_and(is_recent);
        if !in_time && !is_new(&first) && !recent && first.trouble.is_none() {
            first.trouble = Some("the look at it has not ended yet".into());
        }
        (seen, first)
    }

    /// Waits for a look at the store, unless the last one is recent. Returns what was seen.
    pub(super) async fn now(&self) -> Seen {
        self.follow().await.1
    }

    /// As [`now`](Self::now), but a look that is slow goes on. A page that says that the store does not answer is corrected a
    /// moment later, but for a scrape it would be an outage. So it was when a firewall had dropped the connection while nobody
    /// watched: the first request fails after the response timeout, and the rest of the look goes through a new connection.
    pub(super) async fn after_look(&self) -> Seen {
        let has_ended = |seen: &Seen| !seen.is_slow;
        self.follow_within(PATIENCE, OLD, has_ended).await.1
    }

    /// Looks again and again while there are viewers. Never ends.
    pub(super) async fn look_for_all(&self, mut looks: Looks<'_>) -> std::convert::Infallible {
        loop {
            // The pace holds over times without viewers too: a page that is loaded again and again is one viewer.
            while self.viewers() == 0 {
                self.wanted.notified().await;
            }
            let client = looks.client();
            let silent_for = || client.status().since_last_answer;
            let (outcome, next) = self.end_of(looks.look(), SLOW, silent_for).await;
            self.show(outcome, next);
            sleep_until(next).await;
        }
    }

    /// Waits for the end of a look. If the store has been silent for so long meanwhile, shows that. A look is many requests:
    /// it may be longer although each of them is answered at once, and then the store is not away.
    async fn end_of<T>(
        &self,
        look: impl Future<Output = T>,
        slow: Duration,
        silent_for: impl Fn() -> Option<Duration>,
    ) -> T {
        let mut look = std::pin::pin!(look);
        let (mut pause, mut is_shown) = (slow, false);
        loop {
            if let Ok(looked) = timeout(pause, &mut look).await {
                return looked;
            }
            pause = slow / 2;
            let is_silent = silent_for().is_none_or(|silent_for| silent_for >= slow);
            if is_silent && !is_shown {
                is_shown = true;
                self.show_slow();
            }
        }
    }

    fn show(&self, outcome: Outcome<Picture>, next: Instant) {
        self.seen.send_modify(|seen| {
            seen.number += 1;
            seen.is_slow = false;
            seen.newest_until = Some(next);
            match outcome {
                Ok(picture) => {
                    let taken = Instant::now();
                    Arc::make_mut(&mut seen.timeline).add(&picture, taken);
                    seen.picture = Some((Arc::new(picture), taken));
                    seen.trouble = None;
                }
                Err(failure) => seen.trouble = Some(failure.message.into()),
            }
        });
    }

    /// No page has to wait for the look that still runs.
    fn show_slow(&self) {
        self.seen.send_modify(|seen| {
            seen.number += 1;
            // The end of the look replaces it.
            seen.newest_until = Some(Instant::now() + Duration::from_secs(60));
            seen.is_slow = true;
            seen.trouble = Some("it has not answered for two seconds".into());
        });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::exit::Failure;
    use crate::top::sample::picture;

    #[tokio::test]
    async fn a_long_look_at_a_store_that_answers_is_no_silence() {
        let sampler = Sampler::new();
        let asked = Cell::new(0);
        let silent_for = || {
            asked.set(asked.get() + 1);
            // From the third time on it has not answered for long.
            Some(if asked.get() < 3 {
                Duration::ZERO
            } else {
                Duration::MAX
            })
        };
        let mut seen = sampler.seen.subscribe();
        let look = async {
            let _ = seen.wait_for(|seen| seen.trouble.is_some()).await;
            asked.get()
        };
        let slow = Duration::from_millis(2);
        assert_eq!(sampler.end_of(look, slow, silent_for).await, 3);
        assert_eq!(sampler.seen.borrow().number, 1);
    }

    #[test]
    fn a_failed_look_keeps_the_last_picture_until_the_next_one() {
        let sampler = Sampler::new();
        let soon = Instant::now() + Duration::from_secs(60);
        let seen = || sampler.seen.borrow().clone();
        sampler.show(Ok(picture()), soon);
        let first = seen();
        assert!(first.picture.is_some() && first.trouble.is_none() && first.is_newest());
        sampler.show_slow();
        let slow = seen();
        assert!(slow.picture.is_some() && slow.trouble.is_some() && slow.is_newest());
        sampler.show(Err(Failure::usage("it is away")), Instant::now());
        let failed = seen();
        assert_eq!(failed.trouble.as_deref(), Some("it is away"));
        assert!(failed.picture.is_some() && !failed.is_newest());
        sampler.show(Ok(picture()), soon);
        let again = seen();
        assert!(again.trouble.is_none());
        assert!(first.number < slow.number && slow.number < failed.number);
        assert!(failed.number < again.number);
    }

    #[tokio::test]
    async fn a_picture_from_before_a_look_that_goes_on_is_not_of_now() {
        let sampler = Sampler::new();
        sampler.show(Ok(picture()), Instant::now());
        let old = Duration::ZERO;
        let (tab, first) = sampler.follow_within(Duration::ZERO, old, |_| true).await;
        assert!(first.picture.is_some() && first.trouble.is_some());
        // A recent one is shown.
        let (_, first) = sampler.follow_within(Duration::ZERO, OLD, |_| true).await;
        assert!(first.picture.is_some() && first.trouble.is_none());
        // Others go on with what they have.
        assert!(tab.borrow().trouble.is_none());
        sampler.show(Ok(picture()), Instant::now() + Duration::from_secs(60));
        let (_, first) = sampler.follow_within(Duration::ZERO, old, |_| true).await;
        assert!(first.picture.is_some() && first.trouble.is_none());
    }

    /// A scrape in the third second of a look must not say that a store is down whose answer is on its way.
    #[tokio::test]
    async fn a_scrape_waits_for_the_end_of_a_slow_look() {
        let sampler = Sampler::new();
        sampler.show(Ok(picture()), Instant::now());
        let mut scrape = Box::pin(sampler.after_look());
        assert!(futures_util::poll!(scrape.as_mut()).is_pending());
        sampler.show_slow();
        assert!(futures_util::poll!(scrape.as_mut()).is_pending());
        // One that comes now waits too. A page is told at once.
        let mut later = Box::pin(sampler.after_look());
        assert!(futures_util::poll!(later.as_mut()).is_pending());
        assert!(sampler.now().await.trouble.is_some());
        sampler.show(Ok(picture()), Instant::now());
        assert!(scrape.await.trouble.is_none() && later.await.trouble.is_none());
        // A look that does not end in time is an outage, and so is one that fails.
        sampler.show_slow();
        let has_ended = |seen: &Seen| !seen.is_slow;
        let (_, late) = sampler.follow_within(Duration::ZERO, OLD, has_ended).await;
        assert!(late.trouble.is_some());
        let soon = Instant::now() + Duration::from_secs(60);
        sampler.show(Err(Failure::usage("it is away")), soon);
        assert!(sampler.after_look().await.trouble.is_some());
    }

    #[test]
    fn who_has_gone_wants_to_see_nothing() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(async {
            let sampler = Sampler::new();
            sampler.show(Ok(picture()), Instant::now() + Duration::from_secs(60));
            let tabs = [sampler.follow().await, sampler.follow().await];
            assert_eq!(sampler.viewers(), 2);
            drop(tabs);
            sampler.now().await;
            assert_eq!(sampler.viewers(), 0);
        });
    }
}
