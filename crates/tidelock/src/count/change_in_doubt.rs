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

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;
    use crate::acknowledge::ReplicaAck;
    use crate::error::{Error, ErrorKind};
    use crate::types::Drift;

    const FIRST: BootInstant = BootInstant(1_000);
    const SECOND: BootInstant = BootInstant(2_000);

    fn error(kind: ErrorKind) -> Result<()> {
        Err(Error::new(kind))
    }

    /// A request that was sent then has this answer.
    fn answered(doubt: &ChangeInDoubt, sent: BootInstant, answer: Result<()>) {
        let told = doubt.settles(sent, ready(answer)).now_or_never();
        assert!(told.is_some());
    }

    #[test]
    fn a_change_is_in_doubt_from_the_first_request_that_may_still_take_effect() {
        let lost = || error(ErrorKind::OutcomeUnknown);
        let unsent = || error(ErrorKind::Unavailable);
        for (first, second, since) in [
            (Ok(()), Ok(()), None),
            (unsent(), unsent(), None),
            (unsent(), lost(), Some(SECOND)),
            (lost(), lost(), Some(FIRST)),
            (lost(), unsent(), Some(FIRST)),
            // Until the second one was sent nothing had taken effect, or it has been told.
            (lost(), Ok(()), Some(SECOND)),
        ] {
            let doubt = ChangeInDoubt::default();
            let shown = format!("{first:?}, {second:?}");
            answered(&doubt, FIRST, first);
            answered(&doubt, SECOND, second);
            assert_eq!(*doubt.since.lock(), since, "{shown}");
            assert_eq!(doubt.is_open(), since.is_some(), "{shown}");
        }
    }

    #[test]
    fn a_request_that_is_dropped_may_take_effect() {
        let doubt = ChangeInDoubt::default();
        let request = doubt.settles(FIRST, pending::<Result<()>>());
        assert!(request.now_or_never().is_none());
        assert_eq!(*doubt.since.lock(), Some(FIRST));
        doubt.close();
        assert!(!doubt.is_open());
    }

    #[test]
    fn a_change_is_repeated_only_while_the_store_surely_knows_it() {
        let secs = Duration::from_secs;
        for (lease, response_timeout, known) in [
            (secs(30), secs(3), secs(300 - 6)),
            (secs(1000), secs(3), secs(3060 - 6)),
            // Half of the time must do.
            (secs(30), secs(100), secs(150)),
            (secs(30), Duration::MAX, secs(150)),
        ] {
            let settings = ClientSettings {
                lease,
                response_timeout,
                connect_within: Duration::ZERO,
                drift: Drift::default(),
                prefix: String::new(),
                acknowledge: ReplicaAck::Any,
                slow_acquire: secs(1),
            };
            let doubt = ChangeInDoubt::default();
            assert_eq!(doubt.known_until(&settings), None);
            answered(&doubt, FIRST, error(ErrorKind::OutcomeUnknown));
            let until = doubt.known_until(&settings);
            assert_eq!(
                until,
                Some(FIRST + known),
                "{lease:?}, {response_timeout:?}"
            );
        }
    }
}
