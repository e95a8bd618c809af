//! Backoff while the store does not answer: how long to pause, and when to give up.

use std::time::Duration;

use crate::engine::acquire::request::AcquireRequest;
use crate::engine::local_queue::leader::Leader;
use crate::engine::runtime::backoff::RECONNECT;
use crate::engine::runtime::running_time::running_part;
use crate::error::{Error, Result};
use crate::store::{BootInstant, NotYet};

/// How long the store has not answered. It counts only time in which this process ran.
#[derive(Default)]
pub(crate) struct StoreOutage {
    /// The length of the outage so far.
    lasted: Duration,
    /// When the last attempt failed, and how long the pause after it was.
    failed: Option<(BootInstant, Duration)>,
    /// Until when the store says that it is not ready yet, plus a response timeout.
    ready_by: Option<BootInstant>,
    tries: u32,
}

impl StoreOutage {
    /// Records a failed attempt, and returns how long to pause before the next. If the outage begins with this error,
    /// it began at `from`.
    ///
    /// # Errors
    /// The given error if a retry cannot succeed, or if the outage has lasted a whole lease (with a zero wait: a
    /// response timeout; before the client has connected: `connect_within`, if that is longer). Otherwise a caller without a deadline would wait without end and without an error. A store
    /// may say when it will be ready; then we wait until that time. Only its first announcement counts. Otherwise a
    /// store that is never ready would postpone the error without end.
    pub(crate) fn pause(
        &mut self,
        error: Error,
        from: BootInstant,
        request: &AcquireRequest,
        leader: Option<&Leader>,
    ) -> Result<Duration> {
        let core = &request.context.core;
        let (now, response_timeout) = (core.timers.now(), request.context.response_timeout());
        let limit = if request.only_asks() {
            response_timeout
        } else if request.context.store.health().is_connecting() {
            core.settings.lease.max(request.context.connect_within())
        } else {
            core.settings.lease
        };
        let (since, rest) = self.failed.unwrap_or((from, Duration::ZERO));
        let longest = response_timeout + rest;
        self.lasted += running_part(now.since(since), longest);
        if let Some(within) = NotYet::of(&error)
            && !request.only_asks()
        {
            self.ready_by.get_or_insert(now + within + response_timeout);
        }
        if !error.is_retryable() {
            return Err(error);
        }
        let ready_by = self.ready_by.unwrap_or(now);
        if self.lasted >= limit && now >= ready_by {
            // The waiters behind this leader rely on its attempts, so their waits end too.
            if let Some(leader) = leader {
                leader.fail(&error);
            }
            return Err(error);
        }
        if let Some(leader) = leader {
            leader.last_error(Some(&error));
        }
        tracing::debug!(lock = %request.name, %error, "the store did not answer; retrying");
        request.waiter.set_last_error(Some(error));
        let pause = RECONNECT.pause(self.tries);
        self.tries += 1;
        self.failed = Some((now, pause));
        Ok(pause)
    }
}
