//! How long a change of a count may be repeated: as long as the store surely knows it.

use crate::engine::ClientSettings;
use crate::engine::runtime::sync::Mutex;
use crate::error::Result;
use crate::store::{BootInstant, answers_kept};

/// Whether requests of one change may have taken effect, or may still do so, although the caller has no answer that says so.
#[derive(Debug, Default)]
pub(super) struct ChangeInDoubt {
    /// None of them had taken effect before. `None`: no request is in doubt.
    since: Mutex<Option<BootInstant>>,
}

impl ChangeInDoubt {
    pub(super) fn is_open(&self) -> bool {
        self.since.lock().is_some()
    }

    /// The change has taken effect, and the caller knows it.
    pub(super) fn close(&self) {
        *self.since.lock() = None;
    }

    /// Until when the change may be repeated. After that the store may have forgotten the answer to a request in doubt, and a
    /// repeated one would count again. No outage lasts that long, but this process may have been frozen, and the store counts
    /// that time. `None`: no request is in doubt.
    pub(super) fn known_until(&self, settings: &ClientSettings) -> Option<BootInstant> {
        let kept = answers_kept(settings.lease);
        // A request arrives some time after it was sent. If the response timeout is huge, half of the time must do.
        let arrives_within = settings.response_timeout.saturating_mul(2);
        let known = kept.saturating_sub(arrives_within).max(kept / 2);
        let since = *self.since.lock();
        since.map(|since| since + known)
    }

    /// Waits for the answer to a request that is sent now.
    pub(super) async fn settles<T>(
        &self,
        sent: BootInstant,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let earlier = *self.since.lock();
        // A request that is dropped, as by the end of the patience, may take effect too.
        *self.since.lock() = earlier.or(Some(sent));
        let answer = request.await;
        let since = match &answer {
            // The store knew of no effect, or has told it. An earlier request may still arrive.
            Ok(_) => earlier.map(|_| sent),
            Err(error) if error.outcome_unknown() => earlier.or(Some(sent)),
            Err(_) => earlier,
        };
        *self.since.lock() = since;
        answer
    }
}
