//! Whether a batch of renewals expects rows that transactions of others have locked.

use std::time::Duration;

use crate::engine::runtime::sync::Mutex;
use crate::engine::runtime::sync::atomic::{AtomicUsize, Ordering};
use crate::store::BootInstant;

/// How long batches expect kept rows after the last sign of one.
const EXPECTED: Duration = Duration::from_secs(60);

/// Until when batches expect kept rows.
#[derive(Debug, Default)]
pub(crate) struct KeptRows {
    until: Mutex<Option<BootInstant>>,
    turn: AtomicUsize,
}

impl KeptRows {
    /// A batch has failed, or has found a kept row.
    pub(crate) fn seen(&self, now: BootInstant) {
        *self.until.lock() = Some(now + EXPECTED);
    }

    pub(crate) fn are_expected(&self, now: BootInstant) -> bool {
        self.until.lock().is_some_and(|until| now < until)
    }

    /// Which of so many locks waits for its row: another one each time.
    pub(crate) fn turn_of(&self, count: usize) -> usize {
        let turn = self.turn.fetch_add(1, Ordering::SeqCst);
        turn.checked_rem(count).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_rows_are_expected_for_a_while_after_the_last_sign() {
        let (rows, nano) = (KeptRows::default(), Duration::from_nanos(1));
        let begun = BootInstant::from_nanos(7);
        assert!(!rows.are_expected(begun));
        rows.seen(begun);
        assert!(rows.are_expected(begun));
        assert!(rows.are_expected(begun + EXPECTED.saturating_sub(nano)));
        assert!(!rows.are_expected(begun + EXPECTED));
        rows.seen(begun + EXPECTED);
        assert!(rows.are_expected(begun + EXPECTED + nano));
    }

    #[test]
    fn each_lock_has_its_turn_to_wait_for_its_row() {
        let rows = KeptRows::default();
        let turns: Vec<usize> = (0..4).map(|_| rows.turn_of(3)).collect();
        assert_eq!(turns, [0, 1, 2, 0]);
        assert_eq!(rows.turn_of(0), 0);
    }
}
