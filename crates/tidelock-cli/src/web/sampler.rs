//! One look at the store for all who see the page.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::exit::Outcome;
use crate::top::pace::Looks;
use crate::top::picture::Picture;
use crate::web::timeline::Timeline;

/// After this time without an answer, the page says that the store does not answer. A request ends later, and a look is
/// several of them.
const SLOW: Duration = Duration::from_secs(2);

/// Bounds how long a page waits for the look that it asked for. Nothing waits so long unless this process has no time.
const PATIENCE: Duration = Duration::from_secs(5);

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

    /// The changes from now on, as long as it lives. The first one may be a change that was seen before.
    pub(super) async fn follow(&self) -> watch::Receiver<Seen> {
        let mut seen = self.seen.subscribe();
        self.wanted.notify_one();
        let before = seen.borrow().number;
        let is_new = |seen: &Seen| seen.is_newest() || seen.number != before;
        // The sampler lives as long as its sender, so only the time can run out. Then the last picture is shown.
        let _ = timeout(PATIENCE, seen.wait_for(is_new)).await;
        seen
    }

    /// Waits for a look at the store, unless the last one is recent. Returns what was seen.
    pub(super) async fn now(&self) -> Seen {
        self.follow().await.borrow().clone()
    }

    /// Looks again and again while there are viewers. Never ends.
    pub(super) async fn look_for_all(&self, mut looks: Looks<'_>) -> std::convert::Infallible {
        loop {
            // The pace holds over times without viewers too: a page that is loaded again and again is one viewer.
            while self.viewers() == 0 {
                self.wanted.notified().await;
            }
            let next = {
                let mut look = std::pin::pin!(looks.look());
                let looked = timeout(SLOW, &mut look).await;
                if looked.is_err() {
                    self.show_slow();
                }
                let (outcome, next) = match looked {
                    Ok(looked) => looked,
                    Err(_) => look.await,
                };
                self.show(outcome, next);
                next
            };
            sleep_until(next).await;
        }
    }

    fn show(&self, outcome: Outcome<Picture>, next: Instant) {
        self.seen.send_modify(|seen| {
            seen.number += 1;
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

    /// Nobody has to wait for the look that still runs.
    fn show_slow(&self) {
        self.seen.send_modify(|seen| {
            seen.number += 1;
            // The end of the look replaces it.
            seen.newest_until = Some(Instant::now() + Duration::from_secs(60));
            seen.trouble = Some("it has not answered for two seconds".into());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Failure;
    use crate::top::sample::picture;

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
