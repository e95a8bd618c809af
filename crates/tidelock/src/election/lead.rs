//! Leads whenever this candidate is elected: campaigns, runs the work of a term, and campaigns again.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};

use crate::election::announcer::Announcer;
use crate::election::{Election, Leadership};
use crate::engine::lease::status::HoldStatus;
use crate::engine::runtime::backoff::ExponentialBackoff;
use crate::engine::runtime::event::Flag;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::Guard;
use crate::loss::Lost;
use crate::types::{FencingToken, LostReason};

/// The term of a leadership, as the work of [`Election::lead`] sees it. It does not keep the leadership.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use tidelock::CancelToken;
/// use tidelock::election::LeadershipTerm;
///
/// async fn bill(term: LeadershipTerm, stop: CancelToken) -> std::io::Result<()> {
///     println!("term {} with token {}", term.number(), term.token());
///     stop.cancel();
///     Ok(())
/// }
/// let client = tidelock::Client::connect("memory:").await?;
/// let stop = CancelToken::new();
/// let election = client.election("billing").cancel(&stop);
/// election.lead(|term| bill(term, stop.clone())).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LeadershipTerm {
    token: FencingToken,
    status: Arc<HoldStatus>,
    announcer: Arc<Announcer>,
    /// Set when `lead` has dropped the work.
    ended: Arc<Flag>,
}

impl LeadershipTerm {
    fn new(token: FencingToken, guard: &Guard, announcer: &Arc<Announcer>) -> Self {
        Self {
            token,
            status: Arc::clone(&guard.hold().status),
            announcer: Arc::clone(announcer),
            ended: Arc::default(),
        }
    }

    /// The number of the term; see [`Leadership::term`].
    pub fn number(&self) -> u64 {
        self.token.get()
    }

    /// The fencing token of the term; see [`Leadership::token`].
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Whether this process provably leads in this term right now. Sends no request.
    pub fn is_held(&self) -> bool {
        self.status.refusal().is_none()
    }

    /// Resolves when the leadership of this term is lost; see [`Leadership::lost`]. It never resolves if the candidate steps
    /// down, which is no loss: tasks that the work has spawned wait for [`ended`](Self::ended).
    ///
    /// # Cancel safety
    /// Cancel safe; it only listens.
    pub fn lost(&self) -> Lost {
        Lost::new(Arc::clone(&self.status))
    }

    /// Resolves when this term has ended: the leadership is lost, the candidate steps down, or the work has returned. For
    /// tasks that the work has spawned: the work itself is dropped, and they are not.
    ///
    /// When the candidate steps down, they are told after the work was dropped, and before the leadership is given up. But
    /// nobody waits for them: a task goes on until it is polled the next time, and a successor may lead by then. So pass
    /// them the [token](Self::token), and let a work that returns by itself await its tasks first.
    ///
    /// # Cancel safety
    /// Cancel safe; it only listens.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::election::LeadershipTerm;
    ///
    /// async fn bill(term: LeadershipTerm) -> Result<(), tokio::task::JoinError> {
    ///     let task = tokio::spawn(async move {
    ///         tokio::select! {
    ///             () = term.ended() => {} // otherwise it would go on beside the next leader
    ///             () = bill_all_customers() => {}
    ///         }
    ///     });
    ///     task.await
    /// }
    /// # async fn bill_all_customers() {}
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// # let stop = tidelock::CancelToken::new();
    /// # let election = client.election("billing").cancel(&stop);
    /// # let work = |term| { let stop = stop.clone(); async move { let billed = bill(term).await; stop.cancel(); billed } };
    /// # election.lead(work).await?;
    /// # Ok(()) }
    /// ```
    pub async fn ended(&self) {
        // The loss too: after a freeze this task may be polled before the future of `lead` is.
        select(pin!(self.ended.happened()), self.lost()).await;
    }

    /// Names the candidate that should follow this term. The work then returns `Ok`, so that this candidate resigns; the
    /// name counts for one lease. See [`Leadership::transfer_to`] for what holds.
    ///
    /// # Errors
    /// As [`Leadership::name_successor`].
    ///
    /// # Cancel safety
    /// As [`Leadership::name_successor`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::election::LeadershipTerm;
    ///
    /// async fn bill_until_noon(term: LeadershipTerm) -> tidelock::Result<()> {
    ///     // …
    ///     term.name_successor("web-4").await
    /// }
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// # let stop = tidelock::CancelToken::new();
    /// # let election = client.election("billing").cancel(&stop);
    /// # let work = |term| { let stop = stop.clone(); async move { let named = bill_until_noon(term).await; stop.cancel(); named } };
    /// # election.lead(work).await?;
    /// # Ok(()) }
    /// ```
    pub async fn name_successor(&self, identity: &str) -> Result<()> {
        let naming = self
            .announcer
            .name_successor(&self.status, self.number(), identity);
        naming.await
    }
}

impl fmt::Debug for LeadershipTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeadershipTerm")
            .field("number", &self.number())
            .finish_non_exhaustive()
    }
}

/// Tells the tasks of a term that it has ended, when it is dropped: also if the work panics, or the future of `lead` is
/// dropped.
struct TermFlag(Arc<Flag>);

impl Drop for TermFlag {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// How a term ended.
pub(crate) enum TermEnd {
    /// The client closes, or the token was cancelled.
    Stopped,
    /// The work succeeded, or the candidate became sick: others may lead.
    SteppedDown,
    /// The work failed, or the leadership was lost.
    Failed,
}

impl TermEnd {
    /// What a failed campaign means for the next one.
    pub(crate) fn of_error(error: Error) -> Result<Self> {
        match error.kind() {
            ErrorKind::Closed | ErrorKind::Cancelled => Ok(Self::Stopped),
            ErrorKind::Unsupported
            | ErrorKind::InvalidName
            | ErrorKind::InvalidOptions
            | ErrorKind::Runtime => Err(error),
            // Refused and WrongType too: an operator can repair them, and nobody would start this candidate again.
            _ => {
                tracing::warn!(%error, "the campaign failed; the candidate campaigns again");
                Ok(Self::Failed)
            }
        }
    }
}

impl Election {
    /// Campaigns, runs `work` while this candidate leads, and campaigns again, until the client
    /// [closes](crate::Client::close) or the [token](Self::cancel) is cancelled. Then it returns `Ok`.
    ///
    /// The future of `work` is dropped when the leadership is lost: before it is polled again, and before the next term
    /// of this candidate begins. When the client closes, the token is cancelled or the candidate becomes
    /// [sick](Self::lead_while), the future is dropped first, then the candidate resigns, and a successor is woken.
    ///
    /// If `work` returns `Ok`, the candidate resigns and campaigns again after a short pause, in which others may be
    /// elected. After an error, of `work` or of the store, it resigns and the pauses grow up to one lease. Errors are
    /// logged. A panic of `work` resigns too, and ends this call.
    ///
    /// # Errors
    /// Only errors that no retry can repair: [`Unsupported`](ErrorKind::Unsupported),
    /// [`InvalidName`](ErrorKind::InvalidName), [`InvalidOptions`](ErrorKind::InvalidOptions),
    /// [`Runtime`](ErrorKind::Runtime).
    ///
    /// # Cancel safety
    /// Dropping the future drops the work first and then resigns in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::election::LeadershipTerm;
    ///
    /// async fn bill(term: LeadershipTerm) -> std::io::Result<()> {
    ///     loop {
    ///         bill_one_customer(term.token().get()).await?;
    ///     }
    /// }
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let election = client.election("billing").identity("web-3");
    /// let leads = tokio::spawn(async move { election.lead(bill).await });
    /// client.close(Duration::from_secs(5)).await; // on SIGTERM: the work ends, a successor is woken
    /// assert!(matches!(leads.await, Ok(Ok(()))));
    /// # async fn bill_one_customer(_token: u64) -> std::io::Result<()> { tokio::task::yield_now().await; Ok(()) }
    /// # Ok(()) }
    /// ```
    pub async fn lead<F, E>(&self, mut work: impl FnMut(LeadershipTerm) -> F) -> Result<()>
    where
        F: Future<Output = Result<(), E>>,
        E: fmt::Display,
    {
        let mut pauses = TermBackoff::default();
        loop {
            let begun = self.timers().now();
            let ended = match self.campaign().await {
                Ok(leadership) => self.one_term(leadership, &mut work).await,
                Err(error) => TermEnd::of_error(error)?,
            };
            let lasted = self.timers().now().since(begun);
            let Some(pause) = pauses.after(&ended, lasted, self.lease()) else {
                return Ok(());
            };
            if !self.pause(pause).await {
                return Ok(());
            }
        }
    }

    /// Waits between two terms. False: the candidate stops.
    pub(crate) async fn pause(&self, time: Duration) -> bool {
        let pause = pin!(self.timers().after(time));
        let stopped = pin!(self.stopped());
        matches!(select(stopped, pause).await, Either::Right(_))
    }

    /// Runs the work of one term, drops it, and resigns.
    async fn one_term<F, E>(
        &self,
        leadership: Leadership,
        work: &mut impl FnMut(LeadershipTerm) -> F,
    ) -> TermEnd
    where
        F: Future<Output = Result<(), E>>,
        E: fmt::Display,
    {
        let term = leadership.term();
        tracing::info!(
            election = self.name(),
            identity = self.announcer.identity,
            term,
            "elected"
        );
        let ended = {
            let seen = LeadershipTerm::new(leadership.token(), leadership.guard(), &self.announcer);
            // Dropped after the work and before the candidate resigns.
            let _flag = TermFlag(Arc::clone(&seen.ended));
            let running = pin!(leadership.while_held(work(seen)));
            let stopped = pin!(self.step_down());
            // The work is dropped at the end of this block, before the candidate resigns.
            match select(stopped, running).await {
                Either::Left((ended, _)) => ended,
                Either::Right((Ok(Ok(())), _)) => TermEnd::SteppedDown,
                Either::Right((Ok(Err(error)), _)) => {
                    tracing::warn!(election = self.name(), term, %error, "the work of the leader failed; it resigns");
                    TermEnd::Failed
                }
                // At the end of the grace period of a `close`.
                Either::Right((Err(lost), _)) if lost.lost_reason() == Some(LostReason::Closed) => {
                    TermEnd::Stopped
                }
                Either::Right((Err(_), _)) => TermEnd::Failed,
            }
        };
        if let Err(error) = leadership.resign().await {
            tracing::debug!(%error, "the resignation was not confirmed; the leadership ends with its lease");
        }
        ended
    }

    /// Resolves when a leader has to step down.
    async fn step_down(&self) -> TermEnd {
        match select(pin!(self.stopped()), pin!(self.until_health_is(false))).await {
            Either::Left(_) => TermEnd::Stopped,
            Either::Right(_) => TermEnd::SteppedDown,
        }
    }
}

/// The pauses between the terms of one candidate.
#[derive(Debug, Default)]
pub(crate) struct TermBackoff {
    failures: u32,
}

impl TermBackoff {
    /// The pause after a term that lasted so long, its campaign included. `None`: the candidate stops.
    pub(crate) fn after(
        &mut self,
        ended: &TermEnd,
        lasted: Duration,
        lease: Duration,
    ) -> Option<Duration> {
        self.failures = match ended {
            TermEnd::Stopped => return None,
            TermEnd::Failed if lasted < lease => self.failures.saturating_add(1),
            TermEnd::Failed | TermEnd::SteppedDown => 0,
        };
        // With jitter: candidates that have lost the store together must not come back together.
        let pauses = ExponentialBackoff::new(lease / 100, lease).jitter(0.5);
        Some(pauses.pause(self.failures))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::{LeadershipTerm, TermBackoff, TermEnd};
    use crate::client::Client;
    use crate::error::{Error, ErrorKind};

    const LEASE: Duration = Duration::from_secs(30);

    fn after_failures(backoff: &mut TermBackoff) -> Vec<Duration> {
        let mut after = || backoff.after(&TermEnd::Failed, Duration::ZERO, LEASE);
        (0..20).filter_map(|_| after()).collect()
    }

    #[test]
    fn the_pauses_after_errors_grow_to_a_lease() {
        let pauses = after_failures(&mut TermBackoff::default());
        assert!(pauses[0] <= LEASE / 25, "{pauses:?}");
        let late = &pauses[12..];
        assert!(late.iter().all(|it| *it >= LEASE / 2 && *it <= LEASE));
    }

    /// Neither a term that ended well nor one that lasted for long is followed by a long pause.
    #[test]
    fn a_good_term_makes_the_pause_short_again() {
        for (end, lasted) in [
            (TermEnd::SteppedDown, Duration::ZERO),
            (TermEnd::Failed, LEASE),
        ] {
            let mut backoff = TermBackoff::default();
            after_failures(&mut backoff);
            let pause = backoff.after(&end, lasted, LEASE);
            assert!(pause.is_some_and(|it| it <= LEASE / 50), "{pause:?}");
        }
    }

    /// The tasks of a term are told of its loss although nobody polls the future of `lead`.
    #[tokio::test]
    async fn a_term_that_is_lost_has_ended() {
        let client = Client::connect("memory:").await.unwrap();
        let election = client.election("billing");
        let leadership = election.campaign().await.unwrap();
        let term = LeadershipTerm::new(leadership.token(), leadership.guard(), &election.announcer);
        assert!(term.ended().now_or_never().is_none(), "it leads");
        assert!(leadership.is_held() && term.is_held());
        client.close(Duration::ZERO).await;
        term.ended().await;
        assert!(!leadership.is_held() && !term.is_held());
    }

    /// Nobody would start it again. What is wrong in the program itself no retry mends.
    #[test]
    fn a_candidate_campaigns_again_after_an_error_that_an_operator_can_repair() {
        for (kind, expected) in [
            (ErrorKind::Closed, "stopped"),
            (ErrorKind::Cancelled, "stopped"),
            (ErrorKind::Unsupported, "error"),
            (ErrorKind::InvalidName, "error"),
            (ErrorKind::InvalidOptions, "error"),
            (ErrorKind::Runtime, "error"),
            (ErrorKind::Refused, "failed"),
            (ErrorKind::WrongType, "failed"),
            (ErrorKind::Unavailable, "failed"),
            (ErrorKind::OutcomeUnknown, "failed"),
            (ErrorKind::Lost, "failed"),
        ] {
            let end = match TermEnd::of_error(Error::new(kind)) {
                Ok(TermEnd::Stopped) => "stopped",
                Ok(TermEnd::SteppedDown) => "stepped down",
                Ok(TermEnd::Failed) => "failed",
                Err(_) => "error",
            };
            assert_eq!(end, expected, "{kind:?}");
        }
    }
}
