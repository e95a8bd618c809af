//! The guard of a held lock.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::acknowledge::Acknowledged;
#[cfg(doc)]
use crate::acknowledge::ReplicaAck;
use crate::closing::Closing;
use crate::engine::lease::hold::Hold;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::fence::SqlFence;
use crate::loss::{Lost, WhileHeld};
use crate::options;
use crate::release::Release;
use crate::sequencer::{self, Sequencer};
use crate::state::HoldState;
use crate::store::Renewed;
#[cfg(feature = "blocking")]
use crate::store::Timers;
use crate::types::{FencingToken, LostReason};

/// A held lock. Dropping it releases the lock in the background; [`release`](Self::release) waits for the release.
///
/// A guard has no lifetime and is `Send`: you can keep it in a struct or move it to another task. While it lives, a
/// thread of the client renews the lease after every third of its length, so a blocked executor does not lose the lock.
///
/// A lock cannot stop time: a process that was frozen past its lease holds nothing when it continues. The guard detects
/// this: see [`is_held`](Self::is_held), [`lost`](Self::lost) and [`while_held`](Self::while_held). Actions that must
/// never happen twice need the token of a [`FencedGuard`](crate::FencedGuard).
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let guard = client.lock("stock:42").acquire().await?;
/// let sold = tokio::spawn(async move {
///     let sold = guard.while_held(async { 1 }).await; // stops when the lock is lost
///     guard.release().await.map(|()| sold)
/// });
/// assert_eq!(sold.await.expect("no panic")??, 1);
/// # Ok(()) }
/// ```
#[must_use = "if unused, the lock is released at once"]
#[clippy::has_significant_drop]
pub struct Guard(pub(crate) Arc<Hold>);

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        Self(hold)
    }

    pub(crate) fn hold(&self) -> &Hold {
        &self.0
    }

    /// See [`FencedGuard::sql_fence`](crate::FencedGuard::sql_fence).
    pub(crate) fn sql_fence(&self, token: FencingToken) -> Result<SqlFence> {
        let lacks = |why: &'static str| {
            let error = Error::new(crate::ErrorKind::Unsupported);
            Err(error.on_lock(self.name()).because(why))
        };
        // A reader that enters later has a newer token, although it takes nothing from this one.
        let kind = self.0.granted().ticket.kind;
        if kind.is_read() || kind.is_upgradeable() {
            return lacks("a reader has no SQL fence; take the write side");
        }
        match self.0.context.store().front().extensions().sql_fence {
            Some(statement) => Ok(SqlFence::new(statement, self.name(), token)),
            None => {
                lacks("only PostgreSQL and MySQL have an SQL fence; compare the token yourself")
            }
        }
    }

    /// The lock's name, prefix included.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("stock:42").acquire().await?;
    /// assert_eq!(guard.name(), "stock:42");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &str {
        self.0.granted().ticket.name.as_str()
    }

    /// The owner id of this acquisition, as other clients see it in the store: `uuid:n`. Of permits, the id of the first.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("job").acquire().await?;
    /// assert_eq!(guard.owner_id(), format!("{}:1", client.id())); // this client's first acquisition
    /// # Ok(()) }
    /// ```
    pub fn owner_id(&self) -> String {
        let ticket = &self.0.granted().ticket;
        if ticket.kind.is_permits() {
            return ticket.owner.permit_id(0);
        }
        ticket.owner.to_string()
    }

    /// How many replicas had acknowledged the grant when `acquire` returned. `None`: no replica was asked, because the
    /// policy is [`ReplicaAck::Off`], the store has no replicas, or the server does not allow the query.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("job").acquire().await?;
    /// match guard.acknowledged() {
    ///     Some(replicas) => println!("{} of at least {}", replicas.reached, replicas.needed),
    ///     None => println!("known to one server only"),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn acknowledged(&self) -> Option<Acknowledged> {
        self.0.acknowledged
    }

    /// Tells whether the lock is provably held right now, from this process's own knowledge and clock. Sends no
    /// request.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("job").acquire().await?;
    /// assert!(guard.is_held());
    /// client.close(Duration::ZERO).await; // releases what is left
    /// assert!(!guard.is_held());
    /// # Ok(()) }
    /// ```
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// Returns a text form of this hold, to send with requests to a server: see [`Sequencer`]. Sends no request.
    ///
    /// A hold with a sequencer is released in the store when it ends; this process does not hand it off.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if the store cannot check a sequencer later, [`Lost`](ErrorKind::Lost)
    /// if the lock is no longer held.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("primary").acquire().await?;
    /// let header = guard.sequencer()?.to_string();
    /// assert_eq!(header, "tidelock1:exclusive:1:primary");
    /// # Ok(()) }
    /// ```
    pub fn sequencer(&self) -> Result<Sequencer> {
        let hold = &self.0;
        let can = hold.context.store().front().capabilities().sequencers;
        let exclusive = hold.granted().ticket.kind.is_exclusive();
        let Some(generation) = hold.generation.filter(|_| can && exclusive) else {
            return Err(sequencer::unsupported().on_lock(self.name()));
        };
        hold.release_in_store();
        match hold.status.refusal() {
            Some(refusal) => Err(refusal.on_lock(self.name())),
            None => Ok(Sequencer::new(
                hold.granted().ticket.name.clone(),
                generation,
            )),
        }
    }

    /// Tells whether the holder may go on, should start nothing new, or must stop. Uses this process's own knowledge
    /// and clock; sends no request.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::HoldState;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("leader").acquire().await?;
    /// match guard.state() {
    ///     HoldState::Held => { /* begin the next piece of work */ }
    ///     HoldState::Unsure => { /* finish what was begun, accept nothing new */ }
    ///     HoldState::Lost => { /* stop */ }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn state(&self) -> HoldState {
        self.0.status.state()
    }

    /// Returns how long the lock is provably held if no further renewal succeeds. Zero: it is lost.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("job").acquire().await?;
    /// assert!(guard.is_held());
    /// assert!(guard.valid_for() > std::time::Duration::from_secs(29)); // of a lease of 30 s
    /// # Ok(()) }
    /// ```
    pub fn valid_for(&self) -> Duration {
        if self.0.is_held() {
            self.0
                .status
                .valid_until()
                .since(self.0.context.steward().timers.now())
        } else {
            Duration::ZERO
        }
    }

    /// Resolves when the lock is lost, before the store can grant it to another owner: at the latest before the lease can
    /// end. If somebody breaks the lock, or the store loses it, it resolves at the next renewal. While the client
    /// [closes](crate::Client::close) it stays quiet until the grace period ends, and then resolves with
    /// [`LostReason::Closed`]. Never resolves for a lock that was released normally. The future is `'static`, for
    /// `select!`.
    ///
    /// # Cancel safety
    /// Cancel safe. The future has no side effects.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("job").acquire().await?;
    /// let work = async { /* … */ };
    /// tokio::select! {
    ///     () = work => guard.release().await?,
    ///     reason = guard.lost() => eprintln!("stopped: {reason}"),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn lost(&self) -> Lost {
        Lost::new(Arc::clone(&self.0.status))
    }

    /// Resolves when the client of this lock begins to [close](crate::Client::close). The lock is still held and
    /// renewed, and [`lost`](Self::lost) is quiet: finish your work within the grace period and drop the guard. See
    /// [`Client::closing`](crate::Client::closing).
    ///
    /// # Cancel safety
    /// Cancel safe; it only listens.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("leader").acquire().await?;
    /// let shutdown = tokio::spawn({
    ///     let client = client.clone();
    ///     async move { client.close(Duration::from_secs(5)).await }
    /// });
    /// guard.closing().await;
    /// assert!(guard.is_held());
    /// guard.release().await?; // so the close need not wait for the whole grace period
    /// assert_eq!(shutdown.await.ok(), Some(0));
    /// # Ok(()) }
    /// ```
    pub fn closing(&self) -> Closing {
        Closing::new(&self.0.context.steward().closed)
    }

    /// An error if the lock is not held any more.
    #[cfg(feature = "blocking")]
    pub(crate) fn still_held(&self) -> Result<()> {
        match self.0.status.refusal() {
            Some(lost) => Err(lost.on_lock(self.name())),
            None => Ok(()),
        }
    }

    /// The timers of the client, for the waits of the blocking API.
    #[cfg(feature = "blocking")]
    pub(crate) fn timers(&self) -> &Timers {
        &self.0.context.steward().timers
    }

    /// Runs work while the lock is held. When the lock is lost, drops the work at once, before it is polled again.
    /// While the client [closes](crate::Client::close) the work goes on until the grace period ends.
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost) with the lock's name and [reason](Error::lost_reason), if the lock was lost first. The
    /// work was dropped at an await point.
    ///
    /// # Cancel safety
    /// As cancel safe as the work.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("report").acquire().await?;
    /// let pages = guard.while_held(async { 12 }).await?;
    /// assert_eq!(pages, 12);
    /// # Ok(()) }
    /// ```
    pub fn while_held<F: Future>(&self, work: F) -> WhileHeld<F> {
        WhileHeld::new(self.lost(), self.0.granted().ticket.name.clone(), work)
    }

    /// Returns one more guard of the same acquisition, without a request. Dropping the last guard releases the lock.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let outer = client.lock("job").acquire().await?;
    /// let inner = outer.reenter();
    /// drop(outer);
    /// assert!(inner.is_held()); // released when `inner` goes
    /// # Ok(()) }
    /// ```
    pub fn reenter(&self) -> Guard {
        Guard(Arc::clone(&self.0))
    }

    /// Extends the lease to at least `lease` from now. For holds that [expire](crate::AcquireOptions::expires_after)
    /// but need longer; a renewed hold needs no extension.
    ///
    /// A hold that was extended beyond its lease is released in the store when it ends; this process does not hand it off.
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost) if the lock is no longer held, [`InvalidOptions`](ErrorKind::InvalidOptions),
    /// [`Unavailable`](ErrorKind::Unavailable), [`OutcomeUnknown`](ErrorKind::OutcomeUnknown).
    ///
    /// # Cancel safety
    /// Once polled, the request continues in the background or has no effect. Until this returns,
    /// [`valid_for`](Self::valid_for) keeps the earlier value.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::AcquireOptions;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let minute = AcquireOptions::new().expires_after(Duration::from_secs(60));
    /// let guard = client.lock("import").acquire_with(minute).await?;
    /// guard.extend(Duration::from_secs(120)).await?;
    /// assert!(guard.valid_for() > Duration::from_secs(60));
    /// # Ok(()) }
    /// ```
    pub async fn extend(&self, lease: Duration) -> Result<()> {
        let (hold, steward) = (&self.0, self.0.context.steward());
        options::check_lease("lease", lease, &steward.drift)?;
        if let Some(refusal) = hold.status.refusal() {
            return Err(refusal.on_lock(self.name()));
        }
        hold.note_extension(lease);
        // We read the clock before the request. The lease in the store starts later, so we never claim more time than
        // it has.
        let sent = steward.timers.now();
        let batch = [hold.status.renewal(lease, sent, &steward.drift)];
        let store = hold.context.store();
        let asked = async {
            let answers = store.front().renew(&batch).await;
            store.heard(&hold.granted().ticket.name, &answers);
            answers
        };
        match steward
            .answered(asked)
            .await
            .map_err(|error| error.on_lock(self.name()))?
            .into_iter()
            .next()
        {
            Some(Renewed::Kept) => {
                steward.table.renewed([hold.entry], |keep| {
                    keep.status.prove(sent + steward.drift.proved(lease));
                });
                // The loss may have been reported before the answer came. Then the hold stays lost.
                match hold.status.refusal() {
                    Some(refusal) => Err(refusal.on_lock(self.name())),
                    None => Ok(()),
                }
            }
            Some(Renewed::Failed(error)) => Err(error.on_lock(self.name())),
            lost => {
                let reason = match lost {
                    Some(Renewed::WrongType) => LostReason::WrongType,
                    _ => LostReason::Taken,
                };
                hold.status.lose(reason);
                Err(Error::lost(reason).on_lock(self.name()))
            }
        }
    }

    /// Releases the lock and waits until the store confirms it. If other guards from [`reenter`](Self::reenter) exist,
    /// the lock stays held and this returns at once.
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost) if the lock was lost before: work done since then may have overlapped with that of
    /// another holder, whose hold is not touched. [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) if the store does not
    /// answer within two response timeouts (6 s by default): the lock may already be free, and the release continues in
    /// the background until the store answers or the lease ends. After any other error, such as [`Refused`](ErrorKind::Refused)
    /// after a change of the password, the client sends the release once more in the background, on another
    /// connection. If that fails too, the lock stays held until its lease ends.
    ///
    /// # Cancel safety
    /// Once polled, the release continues in the background; dropping the future only stops waiting for the answer. If
    /// dropped before its first poll, it releases like a dropped guard.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("job").acquire().await?;
    /// match guard.release().await {
    ///     Ok(()) => {}
    ///     Err(error) if error.lost_reason().is_some() => eprintln!("it had been lost: {error}"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn release(self) -> Release {
        Release::of(self.0)
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name())
            .field("owner", &self.0.granted().ticket.owner)
            .field("held", &self.is_held())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::error::ErrorKind;
    use crate::store::{Backend, BoxFuture, Renewal, ready};
    use crate::testing::{Twist, Twisted};

    type Answer = fn() -> Renewed;

    /// Gives this answer to each renewal.
    #[derive(Debug)]
    struct Answers(Answer);

    impl Twist for Answers {
        fn renew<'a>(
            &'a self,
            _inner: &'a dyn Backend,
            batch: &'a [Renewal],
        ) -> BoxFuture<'a, Result<Vec<Renewed>>> {
            ready(Ok(batch.iter().map(|_| (self.0)()).collect()))
        }
    }

    #[tokio::test]
    async fn an_extension_that_failed_is_a_loss_only_if_the_store_says_so() {
        let answers: [(Answer, ErrorKind, Option<LostReason>); 3] = [
            (|| Renewed::Gone, ErrorKind::Lost, Some(LostReason::Taken)),
            (
                || Renewed::WrongType,
                ErrorKind::Lost,
                Some(LostReason::WrongType),
            ),
            (
                || Renewed::Failed(Error::new(ErrorKind::Refused)),
                ErrorKind::Refused,
                None,
            ),
        ];
        for (answer, kind, reason) in answers {
            let builder = Client::builder().publish_process_info(false);
            let client = builder.connect_to(async move |env| {
                let store = crate::testing::open("memory:", env).await?;
                Ok(Twisted::wrap(store, Answers(answer)))
            });
            let client = client.await.unwrap();
            let guard = client.lock("a").acquire().await.unwrap();
            let error = guard.extend(Duration::from_secs(60)).await.unwrap_err();
            assert_eq!((error.kind(), error.lost_reason()), (kind, reason));
            assert_eq!(error.lock_name(), Some("a"));
            assert_eq!(guard.is_held(), reason.is_none());
        }
    }

    #[tokio::test]
    async fn a_reader_is_told_that_the_write_side_may_have_an_sql_fence() {
        let client = Client::connect("memory:").await.unwrap();
        let sides = client.read_write_lock("a");
        let (side, store) = ("take the write side", "only PostgreSQL and MySQL");
        for (lock, why) in [
            (sides.read().fenced(), side),
            (sides.upgradeable_read().fenced(), side),
            (sides.write().fenced(), store),
            (client.lock("b").fenced(), store),
        ] {
            let guard = lock.acquire().await.unwrap();
            let error = guard.sql_fence().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(why), "{error}");
            // A third party could not tell several holders apart.
            assert_eq!(guard.sequencer().is_ok(), lock.kind.is_exclusive());
            guard.release().await.unwrap();
        }
    }
}
