//! What the instruments and the log get of one acquire call: a span over the whole wait, its duration, and its end.

use std::sync::Arc;
use std::time::Duration;

use tracing::Span;
use tracing::field::Empty;

use crate::engine::acquire::request::{AcquireRequest, AcquireResult};
use crate::engine::instruments::{AcquireEnd, StoreRequest, WakeCause};
use crate::engine::lease::hold::Hold;
use crate::engine::lease::steward::StewardCommand;
use crate::error::{Error, ErrorKind};
use crate::store::{Attempt, BootInstant, Name};
use crate::types::{Escaped, FencingToken};

/// An acquire call that runs. Its end is recorded once.
pub(crate) struct Observation {
    begun: BootInstant,
    /// Disabled unless a subscriber wants it.
    pub(crate) span: Span,
}

impl Observation {
    pub(crate) fn begin(request: &AcquireRequest) -> Self {
        let span = tracing::info_span!(
            "tidelock.acquire",
            tidelock.lock.name = %request.name,
            tidelock.lock.kind = request.terms.kind.as_str(),
            tidelock.wait.limit = Empty,
            tidelock.outcome = Empty,
            tidelock.path = Empty,
            tidelock.token = Empty,
            tidelock.attempts = Empty,
            tidelock.queue.position = Empty,
            error.r#type = Empty,
        );
        if let Some(limit) = request.options.wait {
            span.record("tidelock.wait.limit", limit.as_secs_f64());
        }
        Self {
            begun: request.context.core.timers.now(),
            span,
        }
    }

    /// The caller has the result, or has left (`None`).
    pub(crate) fn end(self, request: &Arc<AcquireRequest>, result: Option<&AcquireResult>) {
        request.end_wait();
        let took = request.context.core.timers.now().since(self.begun);
        let (end, error) = end_of(request, result);
        request
            .instruments()
            .acquire_ended(request.subject(), end, took, error);
        if !self.span.is_disabled() {
            self.record(request, end, result);
        }
        warn_if_slow(request, end, took);
    }

    fn record(&self, request: &AcquireRequest, end: AcquireEnd, result: Option<&AcquireResult>) {
        let span = &self.span;
        span.record("tidelock.outcome", end.outcome());
        span.record("tidelock.attempts", request.attempts());
        if let Some(position) = request.queue_position() {
            span.record("tidelock.queue.position", position);
        }
        if let Some(path) = end.path() {
            span.record("tidelock.path", path);
        }
        if let Some(Ok(Some(hold))) = result
            && let Some(token) = hold.token
        {
            span.record("tidelock.token", token.get());
        }
        // A timeout that the caller asked for, and its own cancel, are no errors.
        if let (AcquireEnd::Failed, Some(Err(error))) = (end, result) {
            span.record("error.type", error.kind().as_str());
        }
    }
}

fn end_of(
    request: &AcquireRequest,
    result: Option<&AcquireResult>,
) -> (AcquireEnd, Option<ErrorKind>) {
    match result {
        Some(Ok(Some(_))) => (request.path(), None),
        // Only a call with a zero wait gets it.
        Some(Ok(None)) => (AcquireEnd::Busy, None),
        Some(Err(error)) => match error.kind() {
            ErrorKind::TimedOut => (AcquireEnd::TimedOut, None),
            ErrorKind::Cancelled => (AcquireEnd::Cancelled, None),
            kind => (AcquireEnd::Failed, Some(kind)),
        },
        None => (AcquireEnd::Cancelled, None),
    }
}

/// A span for the time of a hold, linked to the acquire call, which is the current span. It is not the parent of what
/// the holder does. `None` if no subscriber wants it: a hold without a span is smaller, and moves faster at a hand-off.
pub(crate) fn hold_span(name: &Name, token: Option<FencingToken>) -> Option<Box<Span>> {
    let span = tracing::debug_span!(
        parent: None,
        "tidelock.hold",
        tidelock.lock.name = %name,
        tidelock.token = token.map(FencingToken::get),
    );
    if span.is_disabled() {
        return None;
    }
    span.follows_from(Span::current());
    Some(Box::new(span))
}

/// Begins the span of a hold that came by hand-off. The hold is not shared yet.
pub(crate) fn follow(hold: &mut Arc<Hold>) {
    if let Some(hold) = Arc::get_mut(hold) {
        hold.span = hold_span(&hold.granted().ticket.name, hold.token);
    }
}

/// Warns of a call that took long and got the lock or timed out, at most once in 30 s. If it has timed out, the lock is probably still held. Then the
/// background asks the store for the holder, and the warning names it. No acquire waits for that request.
fn warn_if_slow(request: &Arc<AcquireRequest>, end: AcquireEnd, took: Duration) {
    let core = &request.context.core;
    // An error says what was wrong, and an outage of the store has log lines of its own.
    let is_slow = end.is_acquired() || end == AcquireEnd::TimedOut;
    if !is_slow
        || took < core.settings.slow_acquire
        || request.options.waits_long
        || !tracing::enabled!(tracing::Level::WARN)
        || !core.steward.instruments.may_warn(core.timers.now())
    {
        return;
    }
    if end != AcquireEnd::TimedOut || core.steward.closed.is_set() {
        slow(request, end, took, "unknown");
        return;
    }
    let request = Arc::clone(request);
    let command = StewardCommand::Adopt(Box::pin({
        let request = Arc::clone(&request);
        async move {
            let seen = request.context.store.back().inspect(&request.name).await;
            let holders = seen.map(|seen| {
                let each = seen.holders.iter().map(|holder| match &holder.client {
                    Some(client) => format!("{} ({client})", holder.owner),
                    None => holder.owner.clone(),
                });
                each.take(3).collect::<Vec<_>>().join(", ")
            });
            match holders {
                Ok(holders) if !holders.is_empty() => slow(&request, end, took, &holders),
                _ => slow(&request, end, took, "unknown"),
            }
        }
    }));
    request.context.core.steward.send(command);
}

fn slow(request: &AcquireRequest, end: AcquireEnd, took: Duration, holder: &str) {
    tracing::warn!(name: "slow_acquire", lock = %request.name, outcome = end.outcome(), waited = ?took, holder = %Escaped(holder), waiting_at = %request.location, "an acquire took long; further ones within 30 s are not logged");
}

impl AcquireRequest {
    /// The store has answered an attempt that was sent at `sent`. `woken`: what ended the wait before it.
    pub(crate) fn record_answer(
        &self,
        sent: BootInstant,
        answer: &Result<Attempt, Error>,
        woken: Option<WakeCause>,
    ) {
        let took = self.context.core.timers.now().since(sent);
        let instruments = self.instruments();
        instruments.answered(StoreRequest::Acquire, took, answer.as_ref().err());
        if let Some(cause) = woken {
            let useful = matches!(answer, Ok(Attempt::Acquired(_)));
            instruments.woken(self.subject(), cause, useful);
        }
        self.count_attempt();
        if let Ok(Attempt::Held(wait)) = answer
            && let Some(ahead) = wait.ahead
        {
            self.took_position(ahead);
        }
    }
}
