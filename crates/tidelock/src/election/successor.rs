//! Chooses who leads next: the candidate that a leader has named, or one with a higher priority.
//!
//! A candidate reads the marks when it has the lock, before its term begins. If another one should lead, it gives the
//! lock back and stands aside. So nobody has to ask while he waits, and nothing has to be agreed on with a candidate that
//! may be dead or frozen: all that changes is who asks for the lock when.
//!
//! ```text
//!   leader    reads the marks: is X there? ─► writes `successor` = X ─► releases
//!   Y         granted ─► reads: X should lead ─► releases ─► stands aside ─► X has a term: back to the queue
//!   X         granted ─► reads: named ─► its term begins; erases the name
//! ```
//!
//! X may have died, and a store may keep a mark for too long. Therefore a candidate stands aside for a third of a lease
//! at most, by its own clock, and then leads itself. Whoever dies with the lock is a holder that died: the lock ends
//! with its lease.

use std::error::Error as StdError;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};

use crate::election::Election;
use crate::election::announcer::{Announcer, EXPIRES_NOW, TRIES};
use crate::election::mark::CandidateMark;
use crate::election::seen::MOST;
use crate::engine::lease::status::HoldStatus;
use crate::engine::runtime::backoff::ExponentialBackoff;
use crate::engine::runtime::clock::BootInstant;
use crate::error::{Error, ErrorKind, Result};
use crate::fenced::FencedGuard;
use crate::store::{MarkChange, Name, percent};

/// The slot, among the marks of the candidates, of the name of a successor. No client has this id.
const SLOT: &str = "successor";

/// The first word of a stored line.
const VERSION: &str = "successor1";

/// The part of a lease for which a candidate stands aside at most.
const PARTS: u32 = 3;

/// The candidate that a leader has named.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NamedSuccessor {
    identity: String,
    /// The term of the leader. So no two leaders write the same text.
    term: u64,
}

impl NamedSuccessor {
    fn to_text(&self) -> String {
        let mut line = format!("{VERSION} term={} identity=", self.term);
        percent::encode_word(&mut line, &self.identity);
        line
    }

    /// `None`: nobody is named.
    fn from_text(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        if words.next()? != VERSION {
            return None;
        }
        let (mut identity, mut term) = (None, None);
        for word in words {
            let (key, value) = word.split_once('=')?;
            match key {
                "identity" => identity = Some(percent::decode(value)?),
                "term" => term = Some(value.parse().ok()?),
                _ => {}
            }
        }
        Some(Self {
            identity: identity?,
            term: term?,
        })
    }
}

/// What the marks of an election say.
struct ElectionMarks(Vec<(String, String)>);

impl ElectionMarks {
    fn named(&self) -> Option<(&str, NamedSuccessor)> {
        let (_, text) = self.0.iter().find(|(slot, _)| slot == SLOT)?;
        Some((text, NamedSuccessor::from_text(text)?))
    }

    fn candidates(&self) -> impl Iterator<Item = (&str, CandidateMark)> {
        self.0.iter().filter_map(|(client, text)| {
            let mark = CandidateMark::from_text(text)?;
            Some((client.as_str(), mark))
        })
    }

    /// The clients that wait, with their marks. A mark with a term is that of a leader whose leadership has ended.
    fn waiting(&self) -> impl Iterator<Item = (&str, CandidateMark)> {
        self.candidates().filter(|(_, mark)| mark.led.is_none())
    }

    /// Whether this client still waits, and nobody has led since that term was given back.
    fn still_await(&self, client: &str, given_back: u64) -> bool {
        let terms = || self.candidates().filter_map(|(_, mark)| mark.led);
        self.waiting().any(|(waits, _)| waits == client)
            && !terms().any(|(_, term)| term > given_back)
    }

    /// Whether somebody has led in a term after this one.
    fn have_led_since(&self, term: u64) -> bool {
        let named = self.named().map(|(_, named)| named.term);
        let led = self.candidates().filter_map(|(_, mark)| mark.led);
        led.map(|(_, term)| term).chain(named).any(|led| led > term)
    }

    /// The client that should lead instead of `own`, which has the lock.
    fn first_before(&self, own: &str, identity: &str, priority: i32) -> Option<String> {
        let others = || self.waiting().filter(|(client, _)| *client != own);
        if let Some((_, named)) = self.named() {
            if named.identity == identity {
                return None;
            }
            let follows = others().find(|(_, mark)| mark.identity == named.identity);
            if let Some((client, _)) = follows {
                return Some(client.to_owned());
            }
        }
        let higher = others().filter(|(_, mark)| mark.priority > priority);
        let highest = higher.max_by_key(|(_, mark)| mark.priority);
        highest.map(|(client, _)| client.to_owned())
    }
}

/// For how long a campaign may still stand aside.
#[derive(Debug, Clone, Default)]
pub(super) struct Patience {
    /// When it began to stand aside in vain.
    since: Option<BootInstant>,
    /// The last term that it gave back.
    given_back: u64,
}

impl Patience {
    /// The rest of a third of the lease. It is whole again after a lease: by then it is about another vacancy.
    fn left(&self, now: BootInstant, lease: Duration) -> Duration {
        let used = self.since.map_or(Duration::ZERO, |since| now.since(since));
        if used >= lease {
            return lease / PARTS;
        }
        (lease / PARTS).saturating_sub(used)
    }

    /// The patience of a candidate that reads these marks. After a leadership it is about another vacancy, too: the
    /// candidate may have lost its patience at the moment at which that leader was elected.
    fn seen(&self, marks: &ElectionMarks) -> Self {
        if marks.have_led_since(self.given_back) {
            Self::default()
        } else {
            self.clone()
        }
    }

    fn begin(&mut self, now: BootInstant, lease: Duration, term: u64) {
        self.given_back = term;
        let is_over = |since: &BootInstant| now.since(*since) >= lease;
        if self.since.as_ref().is_none_or(is_over) {
            self.since = Some(now);
        }
    }
}

impl Election {
    /// The client that should lead instead of this one, which has the lock. `None`: this one leads.
    pub(super) async fn should_lead_instead(&self, patience: &mut Patience) -> Option<String> {
        let marks = match self.announcer.election_marks().await {
            Ok(marks) => marks,
            Err(error) => {
                tracing::debug!(election = self.name(), %error, "who should lead could not be read; this candidate leads");
                return None;
            }
        };
        *patience = patience.seen(&marks);
        if patience.left(self.timers().now(), self.lease()).is_zero() {
            return None;
        }
        let Announcer {
            identity, priority, ..
        } = &*self.announcer;
        let own = self.core().mint.client();
        let other = marks.first_before(own.as_str(), identity, *priority);
        if let Some((text, named)) = marks.named().filter(|_| other.is_none())
            && named.identity == *identity
        {
            self.announcer.erase_successor(text.to_owned(), &named);
        }
        other
    }

    /// Gives the lock back, and waits until the other candidate leads or has left, until a third one leads, or until the
    /// patience is over. A leader has ended the vacancy: the patience is for the next one then.
    ///
    /// # Errors
    /// `Closed` or `Cancelled`.
    pub(super) async fn make_way(
        &self,
        guard: FencedGuard,
        other: &str,
        patience: &mut Patience,
    ) -> Result<()> {
        let term = guard.token().get();
        tracing::debug!(
            election = self.name(),
            term,
            other,
            "another candidate should lead; this one stands aside"
        );
        let lease = self.lease();
        patience.begin(self.timers().now(), lease, term);
        let begun = patience.clone();
        let aside = async {
            if let Err(error) = guard.release().await {
                tracing::debug!(%error, "the release was not confirmed; the lock ends with its lease");
            }
            let left = begun.left(self.timers().now(), lease);
            let led = pin!(self.until_led(other, term));
            let ended = select(led, self.timers().after(left)).await;
            matches!(ended, Either::Left(_))
        };
        match select(pin!(self.stopped()), pin!(aside)).await {
            Either::Left((kind, _)) => return Err(Error::new(kind)),
            Either::Right((true, _)) => *patience = Patience::default(), // it was not in vain
            Either::Right((false, _)) => {}
        }
        Ok(())
    }

    /// Resolves when somebody leads in a term after this one, or when this client is no candidate any more.
    async fn until_led(&self, client: &str, given_back: u64) {
        let lease = self.lease();
        let pauses = ExponentialBackoff::new(lease / 1000, lease / 30).jitter(0.5);
        for looks in 0.. {
            self.timers().after(pauses.pause(looks)).await;
            match self.announcer.election_marks().await {
                Ok(marks) if marks.still_await(client, given_back) => {}
                Ok(_) => return,
                Err(error) => tracing::debug!(%error, "the marks of an election could not be read"),
            }
        }
    }
}

impl Announcer {
    async fn election_marks(&self) -> Result<ElectionMarks> {
        let core = &self.lock.context.core;
        let name = self.lock.checked_name()?.of_candidates();
        let marks = self.marks()?;
        let read = || marks.history(&name, MOST);
        let read = core.through_outage(core.settings.response_timeout, read);
        let read = read.await.map_err(Error::without_effect);
        read.map(ElectionMarks)
    }

    /// Asks all candidates to let this one lead after the leadership of this status.
    pub(super) async fn name_successor(
        &self,
        status: &HoldStatus,
        term: u64,
        identity: &str,
    ) -> Result<()> {
        let naming = async {
            let still_leads = || status.refusal().map_or(Ok(()), Err);
            self.check()?;
            still_leads()?;
            let marks = self.election_marks().await?;
            let core = &self.lock.context.core;
            let own = core.mint.client();
            let mut others = marks.waiting().filter(|(it, _)| *it != own.as_str());
            if !others.any(|(_, mark)| mark.identity == identity) {
                return Err(Error::new(ErrorKind::InvalidOptions)
                    .because(format!("no other candidate {identity:?} campaigns")));
            }
            let named = NamedSuccessor {
                identity: identity.to_owned(),
                term,
            };
            let before = marks.0.iter().find(|(slot, _)| slot == SLOT);
            let before = before.map(|(_, text)| text.clone());
            let name = self.lock.checked_name()?.of_candidates();
            let text = named.to_text();
            let write = || self.write_successor(&name, before.clone(), &text);
            core.through_outage(core.settings.lease, write).await?;
            // A name that a frozen process has written too late does no harm: candidates stand aside for a while.
            still_leads()
        };
        let named: Result<()> = naming.await;
        named.map_err(|error| error.on_lock(self.lock.name()))
    }

    async fn write_successor(
        &self,
        name: &Name,
        mut before: Option<String>,
        text: &str,
    ) -> Result<()> {
        let (marks, lease) = (self.marks()?, self.lock.context.core.settings.lease);
        for _ in 0..TRIES {
            let change = MarkChange::unacknowledged(SLOT, before.as_deref(), text, lease);
            if marks.replace(name, change).await? {
                return Ok(());
            }
            // The one before has expired or is being erased, or an earlier try whose reply was lost has written it.
            before = marks.read(name, SLOT).await?;
        }
        Err(Error::new(ErrorKind::OutcomeUnknown)
            .because("others write the name of a successor too"))
    }

    /// The named successor leads: the name must not count for the leadership after it. It expires anyway.
    fn erase_successor(self: &Arc<Self>, text: String, named: &NamedSuccessor) {
        let core = &self.lock.context.core;
        let in_flight = core.steward.owned_in_flight();
        let announcer = Arc::clone(self);
        // Another text, because a store may keep a mark for longer than it was asked to.
        let erased = format!("{VERSION} term={}", named.term);
        core.steward.background.spawn(async move {
            let erasing = async {
                let name = announcer.lock.checked_name()?.of_candidates();
                let marks = announcer.marks()?;
                let change = MarkChange::unacknowledged(SLOT, Some(&text), &erased, EXPIRES_NOW);
                let erase = || marks.replace(&name, change);
                let core = &announcer.lock.context.core;
                core.through_outage(core.settings.lease, erase).await
            };
            if let Err(error) = erasing.await {
                tracing::debug!(%error, "the name of a successor was not erased; it expires");
            }
            drop(in_flight);
        });
    }
}

/// A transfer that failed; see [`Leadership::transfer_to`](crate::election::Leadership::transfer_to).
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let leadership = client.election("billing").campaign().await?;
/// let failed = leadership.transfer_to("web-4").await.unwrap_err();
/// assert_eq!(failed.error.kind(), tidelock::ErrorKind::InvalidOptions); // web-4 does not campaign
/// assert!(failed.leadership.expect("leads on").is_held());
/// # Ok(()) }
/// ```
#[non_exhaustive]
pub struct NotTransferred<L> {
    /// The leadership, if it has not been given up.
    pub leadership: Option<Box<L>>,
    /// Why the transfer failed.
    pub error: Error,
}

impl<L> NotTransferred<L> {
    pub(crate) fn leads_on(leadership: L, error: Error) -> Self {
        Self {
            leadership: Some(Box::new(leadership)),
            error,
        }
    }
}

impl<L> From<Error> for NotTransferred<L> {
    /// The leadership was given up.
    fn from(error: Error) -> Self {
        Self {
            leadership: None,
            error,
        }
    }
}

impl<L> fmt::Debug for NotTransferred<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotTransferred")
            .field("leads_on", &self.leadership.is_some())
            .field("error", &self.error)
            .finish()
    }
}

impl<L> fmt::Display for NotTransferred<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the leadership was not transferred: {}", self.error)
    }
}

impl<L> StdError for NotTransferred<L> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.error)
    }
}

#[cfg(test)]
mod tests;
