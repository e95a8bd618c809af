//! The record of who held a lock when, and its check: no two holds at once, and tokens that grow.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::process::boot_time;
use tidelock::AcquireOptions;
use tidelock::testing::AnyLock;

use crate::timing::SOON;

/// One hold: its begin and end on the boot clock.
#[derive(Debug, Clone)]
pub struct Span {
    /// After the grant was known.
    pub begin: Duration,
    /// Before the release was sent.
    pub end: Duration,
    /// The fencing token. 0: the store has none.
    pub token: u64,
}

/// All holds of one lock, by all holders.
#[derive(Debug, Clone, Default)]
pub struct History(Arc<Mutex<Vec<Span>>>);

impl History {
    /// Records a hold.
    pub fn add(&self, span: Span) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(span);
    }

    /// The number of holds so far.
    #[allow(clippy::len_without_is_empty, reason = "a count, not a collection")]
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Fails if two holds overlap, or if a later hold has a token that is not larger (0: no tokens). Returns their
    /// number.
    pub fn check(&self) -> Result<usize> {
        let mut spans = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        spans.sort_by_key(|span| span.begin);
        for pair in spans.windows(2) {
            let (first, second) = (&pair[0], &pair[1]);
            ensure!(first.end <= second.begin, "two held at once: {pair:#?}");
            ensure!(
                second.token == 0 || first.token < second.token,
                "a token did not grow: {pair:#?}"
            );
        }
        Ok(spans.len())
    }
}

/// The counts of one worker.
#[derive(Debug, Default, Clone, Copy)]
pub struct Toll {
    /// Acquires that failed because of the fault.
    pub failed_acquires: usize,
    /// Releases that failed because of the fault.
    pub failed_releases: usize,
}

/// Acquires and releases the lock until `stop`, and records each hold. It counts the failures that the fault explains;
/// any other failure ends the test.
pub async fn hammer(
    lock: impl Into<AnyLock>,
    history: History,
    stop: tokio::sync::watch::Receiver<bool>,
) -> Result<Toll> {
    let lock = lock.into();
    let mut toll = Toll::default();
    while !*stop.borrow() {
        let patience = AcquireOptions::new().wait(SOON);
        let guard = match lock.acquire_with(patience).await {
            Ok(guard) => guard,
            Err(error) if error.is_retryable() => {
                toll.failed_acquires += 1;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let begin = boot_time();
        // A loss ends the section early, and the holder was told.
        let _ = guard
            .while_held(tokio::time::sleep(Duration::from_millis(1)))
            .await;
        history.add(Span {
            begin,
            end: boot_time(),
            token: guard.number(),
        });
        if let Err(error) = guard.release().await {
            ensure!(error.is_retryable(), "released with {error}");
            toll.failed_releases += 1;
        }
    }
    Ok(toll)
}

#[cfg(test)]
mod tests {
    use super::{History, Span};
    use crate::timing::ms;

    fn checked(spans: &[(u64, u64, u64)]) -> Option<usize> {
        let history = History::default();
        for &(begin, end, token) in spans {
            let (begin, end) = (ms(begin), ms(end));
            history.add(Span { begin, end, token });
        }
        history.check().ok()
    }

    #[test]
    fn the_checker_finds_what_must_not_be() {
        assert_eq!(checked(&[(5, 6, 2), (1, 5, 1)]), Some(2));
        assert_eq!(checked(&[(1, 5, 1), (4, 6, 2)]), None, "two at once");
        assert_eq!(
            checked(&[(1, 9, 0), (4, 6, 0)]),
            None,
            "one within the other"
        );
        assert_eq!(
            checked(&[(1, 2, 3), (4, 6, 3)]),
            None,
            "the same token twice"
        );
        assert_eq!(checked(&[(1, 2, 0), (4, 6, 0)]), Some(2), "no tokens");
    }
}
