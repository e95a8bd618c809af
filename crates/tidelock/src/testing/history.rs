//! The history checker: records holds and finds overlaps.

use std::time::Instant;

use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::types::FencingToken;

/// Records on one clock when each holder believed that it held the lock, and checks that no two periods overlap.
#[derive(Debug, Default)]
pub struct History(Mutex<Vec<Period>>);

#[derive(Debug, Clone)]
struct Period {
    #[allow(dead_code, reason = "shown when a check fails")]
    who: String,
    token: Option<FencingToken>,
    begun: Instant,
    ended: Option<Instant>,
}

/// A recorded period that has not ended. End it with [`History::end`].
#[derive(Debug)]
#[must_use = "a period that is never ended overlaps with all that follow"]
pub struct Span(usize);

impl History {
    /// Records that a holder got the lock. Call it after the acquire has returned; otherwise a correct store could
    /// appear to overlap.
    pub fn begin(&self, who: impl Into<String>, token: Option<FencingToken>) -> Span {
        let mut periods = self.lock();
        periods.push(Period {
            who: who.into(),
            token,
            begun: Instant::now(),
            ended: None,
        });
        Span(periods.len() - 1)
    }

    /// Records that the holder stops using the lock. Call it before the release, or when `lost` has fired.
    #[allow(clippy::needless_pass_by_value, reason = "a period ends once")]
    pub fn end(&self, span: Span) {
        self.lock()[span.0].ended = Some(Instant::now());
    }

    /// The number of recorded periods.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns whether no period was recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks that no two periods overlap, and that each token is larger than the one before.
    ///
    /// # Errors
    /// Describes the first two periods that violate this.
    pub fn check(&self) -> Result<(), String> {
        let mut periods = self.lock().clone();
        periods.sort_by_key(|period| period.begun);
        for pair in periods.windows(2) {
            let (first, second) = (&pair[0], &pair[1]);
            if first.ended.is_none_or(|ended| ended > second.begun) {
                return Err(format!("two holders at once: {first:?} and {second:?}"));
            }
            if first.token.is_some() && first.token >= second.token {
                return Err(format!("a token did not grow: {first:?}, then {second:?}"));
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Period>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlap_is_found() {
        let history = History::default();
        let first = history.begin("a", None);
        let second = history.begin("b", None);
        history.end(first);
        history.end(second);
        assert!(history.check().unwrap_err().contains("two holders"));
    }

    #[test]
    fn a_period_without_an_end_is_found() {
        let history = History::default();
        let _never_ended = history.begin("a", None);
        let second = history.begin("b", None);
        history.end(second);
        assert!(history.check().is_err());
    }

    #[test]
    fn a_token_that_stands_still_is_found() {
        let history = History::default();
        for _ in 0..2 {
            let span = history.begin("a", Some(FencingToken::new(7)));
            history.end(span);
        }
        assert!(history.check().unwrap_err().contains("token"));
    }

    #[test]
    fn turns_are_accepted() {
        let history = History::default();
        for n in 1..4 {
            let span = history.begin("a", Some(FencingToken::new(n)));
            history.end(span);
        }
        assert_eq!(history.check(), Ok(()));
        assert_eq!(history.len(), 3);
    }
}
