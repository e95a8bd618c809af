//! A campaign, and the leadership that it ends with.

use std::fmt;
use std::future::Future;
use std::pin::pin;

use futures_util::future::{Either, select};

use crate::election::Election;
use crate::election::announcer::Candidacy;
use crate::election::successor::{NotTransferred, Patience};
use crate::error::{Error, ErrorKind, Result};
use crate::fenced::FencedGuard;
use crate::loss::{Lost, WhileHeld};
use crate::options::AcquireOptions;
use crate::types::FencingToken;

/// A leadership: as long as it exists and is not lost, no other candidate leads. Dropping it resigns in the background;
/// [`resign`](Self::resign) waits until the store confirms it.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let leadership = client.election("billing").identity("web-3").campaign().await?;
/// leadership.while_held(async { /* lead */ }).await?; // dropped at once if the leadership is lost
/// leadership.resign().await?; // wakes a successor
/// # Ok(()) }
/// ```
#[must_use = "if unused, it resigns at once"]
#[clippy::has_significant_drop]
pub struct Leadership {
    /// Before the candidacy: the lock is released first, and the mark in the store is changed after that.
    guard: FencedGuard,
    candidacy: LeaderCandidacy,
}

/// Ends the term in the store's mark when the leadership is over.
struct LeaderCandidacy {
    candidacy: Candidacy,
    /// The owner id of the hold.
    owner: String,
}

impl Drop for LeaderCandidacy {
    fn drop(&mut self) {
        self.candidacy.0.end_term(&self.owner);
    }
}

impl Election {
    /// Waits until this candidate is the leader. Before that it waits until the candidate is
    /// [healthy](Self::lead_while).
    ///
    /// # Errors
    /// As [`Lock::acquire`](crate::Lock::acquire); [`Cancelled`](ErrorKind::Cancelled) if the
    /// [token](Self::cancel) is cancelled; [`Unsupported`](ErrorKind::Unsupported) before any traffic, if the store has
    /// no tokens, keeps no marks, or has no fair locks and [`in_order`](Self::in_order) is set;
    /// [`InvalidOptions`](ErrorKind::InvalidOptions) for an identity that is empty or too long.
    ///
    /// # Cancel safety
    /// Cancel safe. A dropped future leaves no leadership and no place in a queue behind. The candidate is listed for up
    /// to three leases more if the store does not answer.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let election = client.election("billing");
    /// let first = election.campaign().await?;
    /// let earlier = first.term();
    /// first.resign().await?;
    /// assert!(election.campaign().await?.term() > earlier);
    /// # Ok(()) }
    /// ```
    pub async fn campaign(&self) -> Result<Leadership> {
        let campaign = async {
            self.check()?;
            loop {
                self.until_healthy().await?;
                let leadership = self.win().await?;
                if self.is_healthy() {
                    return Ok(leadership);
                }
                leadership.resign().await?; // it has become sick while it waited
            }
        };
        // The store may not answer for a lease: a process that must end cannot wait that long.
        let won: Result<Leadership> = match select(pin!(self.cancelled()), pin!(campaign)).await {
            Either::Left(_) => Err(Error::new(ErrorKind::Cancelled)),
            Either::Right((won, _)) => won,
        };
        won.map_err(|error: Error| error.on_lock(self.name()))
    }

    async fn win(&self) -> Result<Leadership> {
        let candidacy = self.announcer.enter().await?;
        let mut patience = Patience::default();
        let guard = loop {
            let guard = self
                .announcer
                .lock
                .acquire_with(self.lock_options())
                .await?;
            // A hold that passed to the next campaign of this process would keep the owner of the first: readers could
            // not tell one term from the next.
            guard.hold().release_in_store();
            match self.should_lead_instead(&mut patience).await {
                // Boxed, because this path is rare: inline it would enlarge the future of every campaign.
                Some(other) => Box::pin(self.make_way(guard, &other, &mut patience)).await?,
                None if guard.is_held() => break guard,
                // Frozen while the marks were read: another one may lead by now, in a later term.
                None => {}
            }
        };
        candidacy.0.begin_term(&guard);
        let owner = guard.owner_id();
        let candidacy = LeaderCandidacy { candidacy, owner };
        Ok(Leadership { guard, candidacy })
    }

    fn lock_options(&self) -> AcquireOptions {
        let mut options = AcquireOptions::new();
        options.waits_long = true;
        if let Some(cancel) = &self.cancel {
            options = options.cancel(cancel);
        }
        if let Some(delay) = self.lock_delay {
            options = options.lock_delay(delay);
        }
        options
    }
}

impl Leadership {
    /// The number of this term: larger than that of every earlier leadership of this election. It is the
    /// [fencing token](Self::token).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let leadership = client.election("billing").campaign().await?;
    /// assert_eq!(leadership.term(), leadership.token().get());
    /// # Ok(()) }
    /// ```
    pub fn term(&self) -> u64 {
        self.guard.token().get()
    }

    /// The fencing token of this term. Pass it to the resource, so that it refuses a leader that was declared dead.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let leadership = client.election("billing").campaign().await?;
    /// let token = leadership.token().as_i64(); // … WHERE token <= $token
    /// # Ok(()) }
    /// ```
    pub fn token(&self) -> FencingToken {
        self.guard.token()
    }

    /// Whether this process provably leads right now. Sends no request.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let leadership = client.election("billing").campaign().await?;
    /// assert!(leadership.is_held());
    /// # Ok(()) }
    /// ```
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// Resolves when the leadership is lost, before another candidate can lead; see [`Guard::lost`](crate::Guard::lost).
    ///
    /// # Cancel safety
    /// Cancel safe; it only listens.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let leadership = client.election("billing").campaign().await?;
    /// client.close(std::time::Duration::ZERO).await;
    /// assert_eq!(leadership.lost().await, tidelock::LostReason::Closed);
    /// # Ok(()) }
    /// ```
    pub fn lost(&self) -> Lost {
        self.guard.lost()
    }

    /// Runs work while this process leads. When the leadership is lost, drops the work at once, before it is polled
    /// again; see [`Guard::while_held`](crate::Guard::while_held).
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost) if the leadership was lost first.
    ///
    /// # Cancel safety
    /// As cancel safe as the work.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let leadership = client.election("billing").campaign().await?;
    /// assert_eq!(leadership.while_held(async { 12 }).await?, 12);
    /// # Ok(()) }
    /// ```
    pub fn while_held<F: Future>(&self, work: F) -> WhileHeld<F> {
        self.guard.while_held(work)
    }

    /// The guard of the election's lock.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let leadership = client.election("billing").campaign().await?;
    /// println!("leads for {:?} at least", leadership.guard().valid_for());
    /// # Ok(()) }
    /// ```
    pub fn guard(&self) -> &FencedGuard {
        &self.guard
    }

    /// Names the candidate that should follow this leadership, and leads on. See [`transfer_to`](Self::transfer_to) for
    /// what holds; the name counts for one lease. In the work of [`lead`](Election::lead) it is
    /// [`LeadershipTerm::name_successor`](crate::election::LeadershipTerm::name_successor).
    ///
    /// # Errors
    /// [`InvalidOptions`](ErrorKind::InvalidOptions) if no other candidate of this identity waits;
    /// [`Lost`](ErrorKind::Lost) if the leadership is lost; as [`leader`](Election::leader) if the store does not answer.
    /// Then the name may have been written all the same: it counts if the leadership ends within a lease.
    ///
    /// # Cancel safety
    /// Cancel safe. The successor is named or not; the leadership stays as it is.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let leadership = client.election("billing").campaign().await?;
    /// let error = leadership.name_successor("web-4").await.unwrap_err(); // it does not campaign
    /// assert_eq!(error.kind(), tidelock::ErrorKind::InvalidOptions);
    /// assert!(leadership.is_held());
    /// # Ok(()) }
    /// ```
    pub async fn name_successor(&self, identity: &str) -> Result<()> {
        let status = &self.guard.hold().status;
        let announcer = &self.candidacy.candidacy.0;
        announcer
            .name_successor(status, self.term(), identity)
            .await
    }

    /// [Names a successor](Self::name_successor), and [resigns](Self::resign).
    ///
    /// *Promise*: each candidate that gets the lock before the named one gives it back, and stands aside until the named
    /// one leads. If that one has died or left since, or does not get the lock within a third of a lease, another candidate
    /// leads. So the price of a transfer to a candidate that has died is a third of a lease without a leader. Nobody
    /// leads because of a name: a program that takes the lock of this name itself may come first, and so may a candidate
    /// to which the store does not answer when it reads who was named.
    ///
    /// # Errors
    /// As [`name_successor`](Self::name_successor): the error contains the leadership, and this process leads on. As
    /// [`resign`](Self::resign): it contains none.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future resigns in the background. The successor may not be named then.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let leadership = client.election("billing").campaign().await?;
    /// match leadership.transfer_to("web-4").await {
    ///     Ok(()) => println!("web-4 leads now"),
    ///     Err(failed) => match failed.leadership {
    ///         Some(leadership) => println!("leads on in term {}", leadership.term()),
    ///         None => println!("the leadership ends with its lease: {}", failed.error),
    ///     },
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn transfer_to(
        self,
        identity: &str,
    ) -> std::result::Result<(), NotTransferred<Self>> {
        if let Err(error) = self.name_successor(identity).await {
            return Err(NotTransferred::leads_on(self, error));
        }
        self.resign().await.map_err(NotTransferred::from)
    }

    /// Gives up the leadership, and waits until the store confirms it. A successor that waits is woken.
    ///
    /// # Errors
    /// As [`Guard::release`](crate::Guard::release). After an error the leadership ends with its lease at the latest.
    ///
    /// # Cancel safety
    /// As [`Guard::release`](crate::Guard::release): once polled, it goes on in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let election = client.election("billing");
    /// election.campaign().await?.resign().await?;
    /// assert!(election.leader().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn resign(self) -> Result<()> {
        let Self { guard, candidacy } = self;
        // First: `is_leader` must not be true when another candidate leads.
        candidacy.candidacy.0.end_term(&candidacy.owner);
        let released = guard.release().await;
        drop(candidacy);
        released
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("guard", &self.guard)
            .finish_non_exhaustive()
    }
}
