//! What others see of an election: the leader, the candidates, and each change.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use futures_util::FutureExt;
use futures_util::stream::Stream;

use crate::closing::Closing;
use crate::election::Election;
use crate::election::mark::CandidateMark;
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{ClientInfo, Holder};
use crate::store::{BoxFuture, Name, Timer};

/// Bounds how many candidates are listed.
pub(super) const MOST: u32 = 1000;

/// How often a stream of changes asks the store.
const LOOKS_PER_LEASE: u32 = 30;

/// The leader of an election, as others see it.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let election = client.election("billing").identity("web-3");
/// let leadership = election.campaign().await?;
/// let leader = election.leader().await?.expect("it leads");
/// assert_eq!(leader.identity.as_deref(), Some("web-3"));
/// assert_eq!(leader.owner, leadership.guard().owner_id());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElectedLeader {
    /// The owner that holds the lock of the election, as [`Holder::owner`](crate::Holder::owner).
    pub owner: String,
    /// Its [identity](Election::identity). `None`: the holder is no candidate. It took the lock of this name itself, as a
    /// Java service does.
    pub identity: Option<String>,
    /// The number of its term. `None`: the holder is no candidate, or was elected a moment ago and has not shown its
    /// term yet.
    pub term: Option<u64>,
    /// Since when it leads, by the store's clock. `None`: as for `term`.
    pub since: Option<SystemTime>,
    /// Its process, if it has published its details.
    pub process: Option<ClientInfo>,
}

/// A candidate that does not lead; [`Election::candidates`] lists them.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// for candidate in client.election("billing").candidates().await? {
///     println!("{} campaigns since {:?}", candidate.identity, candidate.since);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// Its [identity](Election::identity).
    pub identity: String,
    /// Its [client](crate::Client::id).
    pub client: String,
    /// Since when it campaigns, by the store's clock.
    pub since: SystemTime,
    /// Its [priority](Election::priority).
    pub priority: i32,
}

impl Election {
    /// The leader now. `None`: nobody leads.
    ///
    /// It may have changed by the time you read it. A leader itself uses [`is_leader`](Self::is_leader) and its term.
    ///
    /// # Errors
    /// As [`Lock::inspect`](crate::Lock::inspect), and [`Unsupported`](ErrorKind::Unsupported) before any traffic.
    ///
    /// # Cancel safety
    /// Cancel safe; it only reads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// match client.election("billing").leader().await? {
    ///     Some(leader) => println!("{:?} leads in term {:?}", leader.identity, leader.term),
    ///     None => println!("nobody leads"),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn leader(&self) -> Result<Option<ElectedLeader>> {
        let seen = async {
            self.announcer.check()?;
            let seen = self.announcer.lock.inspect().await?;
            let Some(holder) = seen.holders.into_iter().next() else {
                return Ok(None);
            };
            let name = self.announcer.lock.checked_name()?;
            let mark = match client_of(&holder.owner) {
                Some(client) => self.mark_of(&name, client).await?,
                None => None,
            };
            Ok(Some(elected(holder, mark)))
        };
        seen.await
            .map_err(|error: Error| error.on_lock(self.name()))
    }

    async fn mark_of(&self, name: &Name, client: &str) -> Result<Option<CandidateMark>> {
        let core = &self.announcer.lock.context.core;
        let marks = self.announcer.marks()?;
        let name = name.of_candidates();
        let read = || marks.read(&name, client);
        let text = core
            .through_outage(core.settings.response_timeout, read)
            .await
            .map_err(Error::without_effect)?;
        Ok(text.as_deref().and_then(CandidateMark::from_text))
    }

    /// The candidates that wait to lead, at most 1000. On stores that show the queue of a fair lock (Redis and
    /// `memory:`) the candidates of an election [in order](Self::in_order) come in the order in which they will lead. All others are sorted
    /// by when they began to campaign, and any of them may lead next.
    ///
    /// A candidate whose process has died is listed for up to three leases more.
    ///
    /// # Errors
    /// As [`leader`](Self::leader).
    ///
    /// # Cancel safety
    /// Cancel safe; it only reads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// assert!(client.election("billing").candidates().await?.is_empty());
    /// # Ok(()) }
    /// ```
    pub async fn candidates(&self) -> Result<Vec<Candidate>> {
        let listed = async {
            self.announcer.check()?;
            let core = &self.announcer.lock.context.core;
            let name = self.announcer.lock.checked_name()?;
            let marks = self.announcer.marks()?;
            let name = name.of_candidates();
            let read = || marks.history(&name, MOST);
            let stored = core
                .through_outage(core.settings.response_timeout, read)
                .await
                .map_err(Error::without_effect)?;
            // After the marks: a candidate that is elected meanwhile is left out, and not listed beside its leadership.
            let seen = self.announcer.lock.inspect().await?;
            let leads = |client: &str| {
                seen.holders
                    .iter()
                    .any(|h| client_of(&h.owner) == Some(client))
            };
            let stored = stored.into_iter().filter(|(client, _)| !leads(client));
            let mut candidates: Vec<Candidate> = stored
                .filter_map(|(client, text)| {
                    let CandidateMark {
                        identity,
                        since,
                        priority,
                        ..
                    } = CandidateMark::from_text(&text)?;
                    Some(Candidate {
                        identity,
                        client,
                        since,
                        priority,
                    })
                })
                .collect();
            let place = |client: &str| {
                let place = seen
                    .queue
                    .iter()
                    .position(|owner| client_of(owner) == Some(client));
                place.unwrap_or(usize::MAX)
            };
            candidates.sort_by_key(|it| (place(&it.client), it.since, it.client.clone()));
            Ok(candidates)
        };
        listed
            .await
            .map_err(|error: Error| error.on_lock(self.name()))
    }

    /// The changes of the leader, beginning with the present one. It asks the store thirty times per lease, so once per
    /// second by default. A leadership shorter than that may be left out, but the newest one is always reported, and so
    /// is *nobody* if nobody leads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let mut changes = client.election("billing").observe();
    /// assert_eq!(changes.next().await.transpose()?, Some(None)); // nobody leads now
    /// # Ok(()) }
    /// ```
    pub fn observe(&self) -> LeaderChanges {
        LeaderChanges {
            election: self.clone(),
            last: None,
            is_first: true,
            is_failing: false,
            closing: Closing::new(&self.core().steward.closed),
            next: NextLook::After(None),
        }
    }
}

/// The client of an owner of tidelock or Redisson.
fn client_of(owner: &str) -> Option<&str> {
    let (client, _) = owner.split_once(':')?;
    (client.len() == 36).then_some(client)
}

fn elected(holder: Holder, mark: Option<CandidateMark>) -> ElectedLeader {
    let (identity, led) = match mark {
        Some(CandidateMark {
            identity,
            since,
            led,
            ..
        }) => {
            let led = led.filter(|(owner, _)| *owner == holder.owner);
            (Some(identity), led.map(|(_, term)| (term, since)))
        }
        None => (None, None),
    };
    let (term, since) = led.unzip();
    ElectedLeader {
        owner: holder.owner,
        identity,
        term,
        since,
        process: holder.client,
    }
}

/// The changes of an election's leader, from [`Election::observe`]: a stream.
///
/// It goes on through an outage of the store, which it reports as one error. After it, the leader is reported again. It
/// ends when the client is closed.
///
/// # Cancel safety
/// Cancel safe; it only reads.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let election = client.election("billing").identity("web-3");
/// let mut changes = election.observe();
/// assert_eq!(changes.next().await.transpose()?, Some(None));
/// let leadership = election.campaign().await?;
/// let leader = changes.next().await.transpose()?.flatten().expect("it leads");
/// assert_eq!(leader.identity.as_deref(), Some("web-3"));
/// # Ok(()) }
/// ```
#[must_use = "a stream does nothing unless it is polled"]
pub struct LeaderChanges {
    election: Election,
    /// The leader that was reported last.
    last: Option<ElectedLeader>,
    /// Nothing was reported yet, or an error was reported last.
    is_first: bool,
    /// The outage was reported.
    is_failing: bool,
    closing: Closing,
    next: NextLook,
}

/// When the stream asks the store.
enum NextLook {
    /// `None`: now.
    After(Option<Timer>),
    Asked(BoxFuture<'static, Result<Option<ElectedLeader>>>),
    /// Never again.
    End,
}

impl LeaderChanges {
    /// The next change. `None`: the client is closed.
    ///
    /// # Errors
    /// As [`Election::leader`]. An outage is reported once, and the stream goes on.
    ///
    /// # Cancel safety
    /// Cancel safe; no change is lost.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let mut changes = client.election("billing").observe();
    /// client.close(std::time::Duration::ZERO).await;
    /// assert!(changes.next().await.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn next(&mut self) -> Option<Result<Option<ElectedLeader>>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// What to report of an answer. `None`: nothing has changed.
    fn report(
        &mut self,
        seen: Result<Option<ElectedLeader>>,
    ) -> Option<Result<Option<ElectedLeader>>> {
        match seen {
            Ok(leader) => {
                self.is_failing = false;
                let is_first = std::mem::replace(&mut self.is_first, false);
                if !is_first && self.last == leader {
                    return None;
                }
                self.last.clone_from(&leader);
                Some(Ok(leader))
            }
            Err(error) => {
                self.is_first = true;
                if !error.is_retryable() {
                    self.next = NextLook::End;
                }
                let is_news = !std::mem::replace(&mut self.is_failing, true);
                (is_news && error.kind() != ErrorKind::Closed).then_some(Err(error))
            }
        }
    }
}

impl Stream for LeaderChanges {
    type Item = Result<Option<ElectedLeader>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            match &mut this.next {
                NextLook::End => return Poll::Ready(None),
                NextLook::After(pause) => {
                    // The timers stop with the client. So its close ends the pause too; otherwise it would not end.
                    let is_closed = this.closing.poll_unpin(cx).is_ready();
                    if let Some(pause) = pause.as_mut().filter(|_| !is_closed) {
                        ready!(pause.poll_unpin(cx));
                    }
                    let election = this.election.clone();
                    this.next = NextLook::Asked(Box::pin(async move { election.leader().await }));
                }
                NextLook::Asked(asked) => {
                    let seen = ready!(asked.as_mut().poll(cx));
                    let pause = this.election.lease() / LOOKS_PER_LEASE;
                    let pause = this.election.timers().after(pause);
                    this.next = NextLook::After(Some(pause));
                    if let Some(change) = this.report(seen) {
                        return Poll::Ready(Some(change));
                    }
                }
            }
        }
    }
}

impl fmt::Debug for LeaderChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderChanges")
            .field("election", &self.election)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::Client;

    const CLIENT: &str = "01234567-89ab-8cde-8123-456789abcdef";

    fn leader(term: u64) -> ElectedLeader {
        ElectedLeader {
            owner: format!("{CLIENT}:7"),
            identity: Some("web-1".to_owned()),
            term: Some(term),
            since: Some(UNIX_EPOCH),
            process: None,
        }
    }

    #[test]
    fn only_an_owner_with_the_id_of_a_client_has_a_mark() {
        assert_eq!(client_of(&format!("{CLIENT}:7")), Some(CLIENT));
        for other in [CLIENT, "", "7", "short:7", &format!("{CLIENT}0:7")] {
            assert_eq!(client_of(other), None, "{other}");
        }
    }

    #[test]
    fn the_term_of_an_earlier_hold_is_not_that_of_the_leader() {
        let mark = |owner: &str| CandidateMark {
            identity: "web-1".to_owned(),
            since: UNIX_EPOCH,
            led: Some((owner.to_owned(), 5)),
            priority: 0,
        };
        let holder = Holder::new(format!("{CLIENT}:7"), 1);
        let seen = elected(holder.clone(), Some(mark(&holder.owner)));
        assert_eq!(seen, leader(5));
        let seen = elected(holder.clone(), Some(mark(&format!("{CLIENT}:6"))));
        assert_eq!(seen.identity.as_deref(), Some("web-1"));
        assert_eq!((seen.term, seen.since), (None, None));
        let seen = elected(holder, None);
        assert_eq!((seen.identity, seen.term), (None, None));
    }

    #[tokio::test]
    async fn a_change_and_the_first_error_of_an_outage_are_told_once() {
        let client = Client::connect("memory:").await.unwrap();
        let mut changes = client.election("billing").observe();
        let silent = || Err(Error::new(ErrorKind::Unavailable));
        for (seen, is_told) in [
            (Ok(None), true),
            (Ok(None), false),
            (Ok(Some(leader(5))), true),
            (Ok(Some(leader(5))), false),
            (Ok(Some(leader(6))), true),
            (silent(), true),
            (silent(), false),
            (Ok(Some(leader(6))), true), // the same as before, but others may have led meanwhile
            (Ok(Some(leader(6))), false),
            (silent(), true),
        ] {
            let shown = format!("{seen:?}");
            let expected = is_told.then(|| shown.clone());
            let told = changes.report(seen).map(|told| format!("{told:?}"));
            assert_eq!(told, expected, "{shown}");
            assert!(!matches!(changes.next, NextLook::End), "{shown}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_leader_is_seen_within_a_thirtieth_of_a_lease() {
        let builder = Client::builder().simulated_time();
        let client = builder.connect("memory:").await.unwrap();
        let election = client.election("billing");
        let mut changes = election.observe();
        assert_eq!(changes.next().await.unwrap().unwrap(), None);
        let _leadership = election.campaign().await.unwrap();
        let begun = election.timers().now();
        let seen = changes.next().await.unwrap().unwrap();
        assert!(seen.is_some());
        let seen_after = election.timers().now().since(begun);
        let (limit, rings_late) = (election.lease() / 30, Duration::from_millis(10));
        assert!(seen_after <= limit + rings_late, "{seen_after:?}");
    }

    #[tokio::test]
    async fn an_error_that_no_retry_helps_ends_the_changes() {
        let client = Client::connect("memory:").await.unwrap();
        for (kind, is_told) in [(ErrorKind::Refused, true), (ErrorKind::Closed, false)] {
            let mut changes = client.election("billing").observe();
            let told = changes.report(Err(Error::new(kind)));
            assert_eq!(told.is_some(), is_told, "{kind:?}");
            assert!(changes.next().await.is_none(), "{kind:?}");
        }
    }
}
