//! Whether a batch of renewals expects rows that transactions of others have locked.

use std::time::Duration;

use crate::engine::runtime::sync::Mutex;
use crate::store::BootInstant;

/// How long batches expect kept rows after one has held up a batch.
const EXPECTED: Duration = Duration::from_secs(60);

/// Until when batches expect kept rows.
#[derive(Debug, Default)]
pub(crate) struct KeptRows(Mutex<Option<BootInstant>>);

impl KeptRows {
    /// A kept row has held up a batch.
    pub(crate) fn seen(&self, now: BootInstant) {
        *self.0.lock() = Some(now + EXPECTED);
    }

    pub(crate) fn are_expected(&self, now: BootInstant) -> bool {
        self.0.lock().is_some_and(|until| now < until)
    }
}
