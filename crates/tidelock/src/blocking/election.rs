//! Leader election of the blocking API.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::blocking::Client;
use crate::election::{Candidate, ElectedLeader, NotTransferred, TermBackoff, TermEnd};
use crate::engine::runtime::background::Blocker;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::fenced::FencedGuard;
use crate::options::CancelToken;
use crate::types::{FencingToken, LostReason};

/// An election; see [`election::Election`](crate::election::Election).
///
/// # Examples
/// ```
/// let client = tidelock::blocking::Client::connect("memory:")?;
/// let election = client.election("billing").identity("web-3");
/// let leadership = election.campaign()?;
/// assert!(election.is_leader());
/// leadership.resign()?;
/// # Ok::<(), tidelock::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "call `lead` or `campaign`"]
pub struct Election {
    election: crate::election::Election,
    blocker: Arc<Blocker>,
}

impl Client {
    /// An election; see [`Client::election`](crate::Client::election).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let leadership = client.election("billing").campaign()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn election(&self, name: &str) -> Election {
        Election {
            election: self.client.election(name),
            blocker: Arc::clone(&self.blocker),
        }
    }
}

impl Election {
    /// See [`Election::identity`](crate::election::Election::identity).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let election = client.election("billing").identity("web-3");
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.election = self.election.identity(identity);
        self
    }

    /// See [`Election::priority`](crate::election::Election::priority).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let spare = client.election("billing").priority(-1);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn priority(mut self, priority: i32) -> Self {
        self.election = self.election.priority(priority);
        self
    }

    /// See [`Election::in_order`](crate::election::Election::in_order).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let election = client.election("billing").in_order();
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn in_order(mut self) -> Self {
        self.election = self.election.in_order();
        self
    }

    /// See [`Election::lock_delay`](crate::election::Election::lock_delay).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let election = client.election("billing").lock_delay(std::time::Duration::from_secs(10));
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn lock_delay(mut self, time: Duration) -> Self {
        self.election = self.election.lock_delay(time);
        self
    }

    /// See [`Election::lead_while`](crate::election::Election::lead_while). A thread cannot be stopped: work that may
    /// become sick has to look for itself.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let election = client.election("billing").lead_while(|| true);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn lead_while(mut self, healthy: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.election = self.election.lead_while(healthy);
        self
    }

    /// See [`Election::cancel`](crate::election::Election::cancel).
    ///
    /// # Examples
    /// ```
    /// use tidelock::CancelToken;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let stop = CancelToken::new();
    /// let election = client.election("billing").cancel(&stop);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn cancel(mut self, cancel: &CancelToken) -> Self {
        self.election = self.election.cancel(cancel);
        self
    }

    /// The name of the election and of its lock, prefix included.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert_eq!(client.election("billing").name(), "billing");
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.election.name()
    }

    /// See [`Election::is_leader`](crate::election::Election::is_leader).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert!(!client.election("billing").is_leader());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn is_leader(&self) -> bool {
        self.election.is_leader()
    }

    /// See [`Election::leader`](crate::election::Election::leader).
    ///
    /// # Errors
    /// As [`Election::leader`](crate::election::Election::leader), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert!(client.election("billing").leader()?.is_none());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn leader(&self) -> Result<Option<ElectedLeader>> {
        self.blocker.run(self.election.leader())?
    }

    /// See [`Election::candidates`](crate::election::Election::candidates).
    ///
    /// # Errors
    /// As [`leader`](Self::leader).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert!(client.election("billing").candidates()?.is_empty());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn candidates(&self) -> Result<Vec<Candidate>> {
        self.blocker.run(self.election.candidates())?
    }

    /// The changes of the leader, beginning with the present one; see
    /// [`Election::observe`](crate::election::Election::observe).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// for change in client.election("billing").observe().take(1) {
    ///     assert!(change?.is_none()); // nobody leads now
    /// }
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn observe(&self) -> LeaderChanges {
        LeaderChanges {
            changes: self.election.observe(),
            blocker: Arc::clone(&self.blocker),
        }
    }

    /// Waits until this candidate is the leader.
    ///
    /// # Errors
    /// As [`Election::campaign`](crate::election::Election::campaign), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let leadership = client.election("billing").campaign()?;
    /// println!("leads in term {}", leadership.term());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn campaign(&self) -> Result<Leadership> {
        Ok(Leadership {
            leadership: self.blocker.run(self.election.campaign())??,
            blocker: Arc::clone(&self.blocker),
        })
    }

    /// Campaigns, runs `work` while this candidate leads, and campaigns again, until the client closes or the
    /// [token](Self::cancel) is cancelled; see [`Election::lead`](crate::election::Election::lead). The work has to return
    /// when its leadership is no longer held, and when the program stops: a thread cannot be stopped.
    ///
    /// # Errors
    /// As [`Election::lead`](crate::election::Election::lead), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// use tidelock::CancelToken;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let stop = CancelToken::new(); // a signal handler cancels it
    /// client.election("billing").cancel(&stop).lead(|leadership| {
    ///     while leadership.is_held() && !stop.is_cancelled() {
    ///         bill_one_customer(leadership.token().get())?;
    /// #       stop.cancel();
    ///     }
    ///     Ok::<_, std::io::Error>(())
    /// })?;
    /// # fn bill_one_customer(_token: u64) -> std::io::Result<()> { Ok(()) }
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn lead<E: fmt::Display>(
        &self,
        mut work: impl FnMut(&Leadership) -> std::result::Result<(), E>,
    ) -> Result<()> {
        let mut pauses = TermBackoff::default();
        loop {
            let begun = self.election.timers().now();
            let ended = match self.campaign() {
                Ok(leadership) => self.one_term(leadership, &mut work),
                Err(error) => TermEnd::of_error(error)?,
            };
            let lasted = self.election.timers().now().since(begun);
            let Some(pause) = pauses.after(&ended, lasted, self.election.lease()) else {
                return Ok(());
            };
            let goes_on = self.blocker.run(self.election.pause(pause))?;
            if !goes_on {
                return Ok(());
            }
        }
    }

    fn one_term<E: fmt::Display>(
        &self,
        leadership: Leadership,
        work: &mut impl FnMut(&Leadership) -> std::result::Result<(), E>,
    ) -> TermEnd {
        let term = leadership.term();
        let ended = match work(&leadership) {
            Ok(()) => TermEnd::SteppedDown,
            Err(error) => {
                tracing::warn!(election = self.name(), term, %error, "the work of the leader failed; it resigns");
                TermEnd::Failed
            }
        };
        if let Err(error) = leadership.resign() {
            tracing::debug!(%error, "the resignation was not confirmed; the leadership ends with its lease");
        }
        ended
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.election.fmt(f)
    }
}

/// A leadership; see [`election::Leadership`](crate::election::Leadership). Dropping it resigns.
///
/// # Examples
/// ```
/// let client = tidelock::blocking::Client::connect("memory:")?;
/// let leadership = client.election("billing").campaign()?;
/// assert!(leadership.is_held());
/// leadership.resign()?;
/// # Ok::<(), tidelock::Error>(())
/// ```
#[must_use = "if unused, it resigns at once"]
pub struct Leadership {
    leadership: crate::election::Leadership,
    blocker: Arc<Blocker>,
}

impl Leadership {
    /// See [`Leadership::term`](crate::election::Leadership::term).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert_eq!(client.election("billing").campaign()?.term(), 1);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn term(&self) -> u64 {
        self.leadership.term()
    }

    /// See [`Leadership::token`](crate::election::Leadership::token).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let token = client.election("billing").campaign()?.token();
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn token(&self) -> FencingToken {
        self.leadership.token()
    }

    /// See [`Leadership::is_held`](crate::election::Leadership::is_held).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert!(client.election("billing").campaign()?.is_held());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn is_held(&self) -> bool {
        self.leadership.is_held()
    }

    /// Waits until the leadership is lost; see [`Leadership::lost`](crate::election::Leadership::lost).
    ///
    /// # Errors
    /// [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let leadership = client.election("billing").campaign()?;
    /// client.close(std::time::Duration::ZERO)?;
    /// assert_eq!(leadership.lost()?, tidelock::LostReason::Closed);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn lost(&self) -> Result<LostReason> {
        self.blocker.run(self.leadership.lost())
    }

    /// As [`lost`](Self::lost), but waits at most this long. `None`: it still leads.
    ///
    /// # Errors
    /// [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let leadership = client.election("billing").campaign()?;
    /// assert!(leadership.lost_timeout(std::time::Duration::from_millis(5))?.is_none());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn lost_timeout(&self, limit: Duration) -> Result<Option<LostReason>> {
        let guard = self.leadership.guard();
        self.blocker.run(guard.timers().limit(limit, guard.lost()))
    }

    /// Runs work, unless the leadership is lost before it begins. It cannot be stopped; the result says whether the
    /// leadership was held all the time.
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost) if the leadership was lost before or during the work.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let leadership = client.election("billing").campaign()?;
    /// assert_eq!(leadership.while_held(|| 12)?, 12);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn while_held<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        self.leadership.guard().still_held()?;
        let result = work();
        self.leadership.guard().still_held()?;
        Ok(result)
    }

    /// See [`Leadership::guard`](crate::election::Leadership::guard).
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let leadership = client.election("billing").campaign()?;
    /// println!("leads for {:?} at least", leadership.guard().valid_for());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn guard(&self) -> &FencedGuard {
        self.leadership.guard()
    }

    /// Names the candidate that should follow this leadership, and leads on; see
    /// [`Leadership::name_successor`](crate::election::Leadership::name_successor).
    ///
    /// # Errors
    /// As [`Leadership::name_successor`](crate::election::Leadership::name_successor), and
    /// [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let leadership = client.election("billing").campaign()?;
    /// assert!(leadership.name_successor("web-4").is_err()); // it does not campaign
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn name_successor(&self, identity: &str) -> Result<()> {
        self.blocker.run(self.leadership.name_successor(identity))?
    }

    /// Names a successor, and resigns; see [`Leadership::transfer_to`](crate::election::Leadership::transfer_to).
    ///
    /// # Errors
    /// As [`Leadership::transfer_to`](crate::election::Leadership::transfer_to), and [`Runtime`](ErrorKind::Runtime) in
    /// async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let leadership = client.election("billing").campaign()?;
    /// let failed = leadership.transfer_to("web-4").unwrap_err(); // it does not campaign
    /// assert!(failed.leadership.expect("leads on").is_held());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn transfer_to(self, identity: &str) -> std::result::Result<(), NotTransferred<Self>> {
        if let Err(error) = self.name_successor(identity) {
            return Err(NotTransferred::leads_on(self, error));
        }
        self.resign().map_err(NotTransferred::from)
    }

    /// Gives up the leadership; see [`Leadership::resign`](crate::election::Leadership::resign).
    ///
    /// # Errors
    /// As [`Leadership::resign`](crate::election::Leadership::resign), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// client.election("billing").campaign()?.resign()?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn resign(self) -> Result<()> {
        self.blocker.run(self.leadership.resign())?
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.leadership.fmt(f)
    }
}

/// The changes of an election's leader, from [`Election::observe`]: an iterator that waits for each change.
///
/// # Examples
/// ```
/// let client = tidelock::blocking::Client::connect("memory:")?;
/// let mut changes = client.election("billing").observe();
/// assert!(matches!(changes.next(), Some(Ok(None)))); // nobody leads now
/// # Ok::<(), tidelock::Error>(())
/// ```
#[must_use = "iterators are lazy"]
pub struct LeaderChanges {
    changes: crate::election::LeaderChanges,
    blocker: Arc<Blocker>,
}

impl Iterator for LeaderChanges {
    type Item = Result<Option<ElectedLeader>>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.blocker.run(self.changes.next());
        next.unwrap_or_else(|error| Some(Err(error)))
    }
}

impl fmt::Debug for LeaderChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.changes.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    /// Far below the lease.
    const BRIEFLY: Duration = Duration::from_millis(10);

    fn candidate() -> (Client, Election) {
        // The pauses between the terms are parts of the lease.
        let builder = Client::builder().lease(Duration::from_secs(3));
        let client = builder.connect_blocking("memory:").unwrap();
        let election = client.election("billing").identity("web-1");
        (client, election)
    }

    #[test]
    fn a_candidate_leads_again_until_it_is_cancelled() {
        let (_client, election) = candidate();
        let stop = CancelToken::new();
        let election = election.cancel(&stop);
        let mut terms = Vec::new();
        let led = election.lead(|leadership| {
            assert!(leadership.is_held() && election.is_leader());
            terms.push(leadership.term());
            match terms.len() {
                1 => Err("no route to host"),
                2 => Ok(()),
                _ => {
                    stop.cancel();
                    Ok(())
                }
            }
        });
        led.unwrap();
        assert_eq!(terms.len(), 3);
        assert!(terms.is_sorted_by(|one, next| one < next), "{terms:?}");
        assert!(!election.is_leader());
    }

    #[test]
    fn a_leadership_tells_what_it_is_and_goes_to_candidates_only() {
        let (_client, election) = candidate();
        let mut changes = election.observe();
        assert_eq!(changes.next().unwrap().unwrap(), None);
        assert!(!election.is_leader());
        let leadership = election.campaign().unwrap();
        assert!(election.is_leader());
        let (token, owner) = (leadership.token(), leadership.guard().owner_id());
        assert_eq!(leadership.term(), token.get());
        assert_eq!(leadership.guard().token(), token);
        let leader = changes.next().unwrap().unwrap().unwrap();
        assert_eq!(leader.owner, owner);
        assert_eq!(election.leader().unwrap().unwrap().owner, owner);
        assert!(election.candidates().unwrap().is_empty());
        assert_eq!(leadership.while_held(|| 7).unwrap(), 7);
        assert_eq!(leadership.lost_timeout(BRIEFLY).unwrap(), None);
        let error = leadership.name_successor("web-2").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
        let failed = leadership.transfer_to("web-2").unwrap_err();
        assert_eq!(failed.error.kind(), ErrorKind::InvalidOptions);
        let leadership = failed.leadership.unwrap();
        assert!(leadership.is_held());
        leadership.resign().unwrap();
        assert!(!election.is_leader());
    }

    #[test]
    fn a_closed_client_has_no_part_in_an_election() {
        let (client, election) = candidate();
        let leadership = election.campaign().unwrap();
        client.close(Duration::ZERO).unwrap();
        assert!(!leadership.is_held() && !election.is_leader());
        assert_eq!(leadership.lost().unwrap(), LostReason::Closed);
        let told = leadership.lost_timeout(BRIEFLY).unwrap();
        assert_eq!(told, Some(LostReason::Closed));
        let error = leadership.while_held(|| 7).unwrap_err();
        assert_eq!(error.lost_reason(), Some(LostReason::Closed));
        for refused in [
            election.campaign().map(drop),
            election.leader().map(drop),
            election.candidates().map(drop),
            leadership.name_successor("web-2"),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Closed);
        }
        let led = election.lead(|_| Err::<(), _>("it leads"));
        led.unwrap();
        assert!(election.observe().next().is_none());
        let error = leadership.resign().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    }
}
