//! The store's revision, and whether it has gone back: it grows with each change, so the store was restored then.

use crate::engine::runtime::sync::Mutex;

/// The newest revision of the store that an answer had.
#[derive(Debug, Default)]
pub(crate) struct StoreRevision(Mutex<i64>);

impl StoreRevision {
    pub(crate) fn newest(&self) -> i64 {
        *self.0.lock()
    }

    /// The revision by which an answer that had `seen` is compared with later ones. If the store has gone back since, theirs are
    /// lower than `seen`.
    pub(crate) fn bounded(&self, seen: i64) -> i64 {
        seen.min(self.newest())
    }

    /// Records the revision in the answer to a request that was sent when `before` was the newest. Returns whether the store
    /// has gone back. Answers may come in another order than the requests, so a later one is no measure. `wrote`: the request
    /// has raised the revision.
    pub(crate) fn went_back(&self, before: i64, now: i64, wrote: bool) -> bool {
        let mut newest = self.0.lock();
        // An answer without a header has no revision.
        let went_back = now > 0 && now < before.saturating_add(i64::from(wrote));
        *newest = if went_back { now } else { now.max(*newest) };
        went_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_goes_back_only_if_an_answer_is_older_than_what_was_seen_before_its_request() {
        let revision = StoreRevision::default();
        assert!(!revision.went_back(0, 7, false));
        let (early, late) = (revision.newest(), revision.newest());
        assert!(!revision.went_back(late, 12, true));
        // The answer to the first of two requests comes last.
        assert!(!revision.went_back(early, 9, true));
        assert_eq!(revision.newest(), 12);
        assert!(!revision.went_back(12, 12, false));
        assert!(!revision.went_back(12, 0, true), "it has no revision");
        assert!(revision.went_back(12, 11, false));
        assert_eq!(revision.newest(), 11);
        // An answer of before, and one of now.
        assert_eq!([12, 10].map(|seen| revision.bounded(seen)), [11, 10]);
        assert!(!revision.went_back(11, 13, true));
        assert!(revision.went_back(13, 13, true), "its own write came first");
    }
}
