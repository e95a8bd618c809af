//! The guard of a held lock, its fencing token, and the signal that the lock was lost.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::engine::lease::hold::Hold;
use crate::error::{Error, ErrorKind, Result};
use crate::fence::SqlFence;
use crate::loss::{Lost, WhileHeld};
use crate::options;
use crate::release::Release;
use crate::sequencer::{self, Sequencer};
use crate::state::HoldState;
use crate::store::{LockKind, Renewal, Renewed};

/// A number that grows with every grant of a lock. Pass it to the resource that the lock protects, and let the resource
/// refuse a smaller number than the largest it has seen. Then even a holder that was frozen past its lease can do no
/// harm.
///
/// # Examples
/// ```
/// # async fn f() -> tidelock::Result<()> {
/// # let client = tidelock::Client::connect("memory:").await?;
/// let ledger = client.fenced_lock("ledger");
/// let late = ledger.acquire().await?.token(); // released at once
/// let now = ledger.acquire().await?.token();
/// assert!(late < now); // so the resource, which has seen `now`, refuses `late`
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// Creates a token from a number that was read from a resource or a store.
    ///
    /// # Examples
    /// ```
    /// use tidelock::FencingToken;
    ///
    /// let newest_seen = FencingToken::new(41); // read from the row
    /// assert!(FencingToken::new(42) > newest_seen);
    /// ```
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number to store beside the data.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.fenced_lock("ledger").acquire().await?;
    /// let column: Option<u64> = guard.token().map(|token| token.get());
    /// assert!(column.is_some());
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn get(self) -> u64 {
        self.0
    }

    /// The number as a signed integer, which is what SQL databases store.
    ///
    /// # Errors
    /// [`InvalidOptions`](ErrorKind::InvalidOptions) above [`i64::MAX`]. No store of tidelock grants such a token, but
    /// [`new`](Self::new) takes any number.
    ///
    /// # Examples
    /// ```
    /// use tidelock::FencingToken;
    ///
    /// assert_eq!(FencingToken::new(42).as_i64()?, 42);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn as_i64(self) -> Result<i64> {
        i64::try_from(self.0).map_err(|_| {
            Error::new(ErrorKind::InvalidOptions).because(format!(
                "the fencing token {self} is larger than a signed 64-bit integer"
            ))
        })
    }

    /// The next token. The largest token has none, and a store never reserves tokens after it.
    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The reason why a lock was lost.
///
/// # Examples
/// ```
/// # async fn f() -> tidelock::Result<()> {
/// # let client = tidelock::Client::connect("memory:").await?;
/// use tidelock::LostReason;
///
/// let guard = client.lock("job").acquire().await?;
/// client.close(std::time::Duration::ZERO).await;
/// match guard.lost().await {
///     LostReason::Closed => println!("this program ends"),
///     reason => panic!("{reason}"),
/// }
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// The lease could no longer be proved: it ended, or no renewal was answered in time.
    Expired,
    /// According to the store, the lock was freed or taken: by force release, flush, eviction or failover.
    Taken,
    /// The hold reached its maximum duration.
    MaxHold,
    /// The client is closing.
    Closed,
    /// The task that renews the leases has died.
    Unattended,
    /// The key now holds something else. Either a client that does not check for our locks, such as Redisson's
    /// `RReadWriteLock`, took another kind of lock under the same name, or the key was overwritten. The other holder
    /// may already have entered the critical section. Use a name for one kind of lock only.
    WrongType,
}

impl LostReason {
    const ALL: [Self; 6] = [
        Self::Expired,
        Self::Taken,
        Self::MaxHold,
        Self::Closed,
        Self::Unattended,
        Self::WrongType,
    ];

    /// The name of the reason in `snake_case`, for metrics and structured logs. It never changes.
    ///
    /// # Examples
    /// ```
    /// use tidelock::LostReason;
    ///
    /// assert_eq!(LostReason::MaxHold.as_str(), "max_hold");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Taken => "taken",
            Self::MaxHold => "max_hold",
            Self::Closed => "closed",
            Self::Unattended => "unattended",
            Self::WrongType => "wrong_type",
        }
    }

    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_number(number: u8) -> Self {
        Self::ALL
            .get(usize::from(number))
            .copied()
            .unwrap_or(Self::Unattended)
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease could not be proved any longer",
            Self::Taken => "the store gave it up: force release, flush, eviction or failover",
            Self::MaxHold => "the cap on the total hold was reached",
            Self::Closed => "the client is being closed",
            Self::Unattended => "the task that keeps the leases has died",
            Self::WrongType => {
                "another kind of lock was taken on its key, or the key was overwritten; use a name for one kind of lock only"
            }
        })
    }
}

impl std::error::Error for LostReason {}

/// A held lock. Dropping it releases the lock in the background; [`release`](Self::release) waits for the release.
///
/// A guard has no lifetime and is `Send`: you can keep it in a struct or move it to another task. While it lives, a
/// thread of the client renews the lease after every third of its length, so a blocked executor does not lose the lock.
///
/// A lock cannot stop time: a process that was frozen past its lease holds nothing when it continues. The guard detects
/// this: see [`is_held`](Self::is_held), [`lost`](Self::lost) and [`while_held`](Self::while_held), and
/// [`token`](Self::token) for actions that must never happen twice.
///
/// # Examples
/// ```
/// # async fn f() -> tidelock::Result<()> {
/// # let client = tidelock::Client::connect("memory:").await?;
/// let guard = client.lock("stock:42").acquire().await?;
/// let sold = tokio::spawn(async move {
///     let sold = guard.while_held(async { 1 }).await; // stops when the lock is lost
///     guard.release().await.map(|()| sold)
/// });
/// assert_eq!(sold.await.expect("no panic")??, 1);
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
/// ```
#[must_use = "if unused, the lock is released at once"]
#[clippy::has_significant_drop]
pub struct Guard(pub(crate) Arc<Hold>);

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        Self(hold)
    }

    /// The lock's name, prefix included.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("stock:42").acquire().await?;
    /// assert_eq!(guard.name(), "stock:42");
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn name(&self) -> &str {
        self.0.ticket.name.as_str()
    }

    /// The owner id of this acquisition, as other clients see it in the store: `uuid:n`.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("job").acquire().await?;
    /// assert_eq!(guard.owner_id(), format!("{}:1", client.id())); // this client's first acquisition
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn owner_id(&self) -> String {
        self.0.ticket.owner.to_string()
    }

    /// The fencing token. Always present on a [fenced lock](crate::Client::fenced_lock); on other locks if the store
    /// counts anyway. Renewals and re-entries do not change it.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.fenced_lock("ledger").acquire().await?;
    /// let token = guard.token().expect("a fenced lock has tokens").get();
    /// // UPDATE ledger SET …, token = $token WHERE id = $id AND token <= $token
    /// # let _ = token;
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn token(&self) -> Option<FencingToken> {
        self.0.token
    }

    /// Tells whether the lock is provably held right now, from this process's own knowledge and clock. Sends no
    /// request.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// use std::time::Duration;
    ///
    /// let guard = client.lock("job").acquire().await?;
    /// assert!(guard.is_held());
    /// client.close(Duration::ZERO).await; // releases what is left
    /// assert!(!guard.is_held());
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
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
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("primary").acquire().await?;
    /// let header = guard.sequencer()?.to_string();
    /// assert_eq!(header, "tidelock1:exclusive:1:primary");
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn sequencer(&self) -> Result<Sequencer> {
        let hold = &self.0;
        let can = hold.context.store.front().capabilities().sequencers;
        let exclusive = matches!(hold.ticket.kind, LockKind::Mutex | LockKind::Fenced);
        let Some(generation) = hold.generation.filter(|_| can && exclusive) else {
            return Err(sequencer::unsupported().on_lock(self.name()));
        };
        hold.is_written.store(true, Ordering::SeqCst);
        match hold.status.refusal() {
            Some(refusal) => Err(refusal.on_lock(self.name())),
            None => Ok(Sequencer::new(hold.ticket.name.clone(), generation)),
        }
    }

    /// Tells whether the holder may go on, should start nothing new, or must stop. Uses this process's own knowledge
    /// and clock; sends no request.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// use tidelock::HoldState;
    ///
    /// let guard = client.lock("leader").acquire().await?;
    /// match guard.state() {
    ///     HoldState::Held => { /* begin the next piece of work */ }
    ///     HoldState::Unsure => { /* finish what was begun, accept nothing new */ }
    ///     HoldState::Lost => { /* stop */ }
    /// }
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn state(&self) -> HoldState {
        self.0.status.state()
    }

    /// Returns how long the lock is provably held if no further renewal succeeds. Zero: it is lost.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("job").acquire().await?;
    /// assert!(guard.is_held());
    /// assert!(guard.valid_for() > std::time::Duration::from_secs(29)); // of a lease of 30 s
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn valid_for(&self) -> Duration {
        if self.0.is_held() {
            self.0
                .status
                .valid_until()
                .since(self.0.context.core.timers.now())
        } else {
            Duration::ZERO
        }
    }

    /// Resolves when the lock is lost, before the store can grant it to another owner. Resolves with
    /// [`LostReason::Closed`] when the client begins to close. Never resolves for a lock that was released normally.
    /// The future is `'static`, for `select!`.
    ///
    /// # Cancel safety
    /// Cancel safe. The future has no side effects.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("job").acquire().await?;
    /// let work = async { /* … */ };
    /// tokio::select! {
    ///     () = work => guard.release().await?,
    ///     reason = guard.lost() => eprintln!("stopped: {reason}"),
    /// }
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn lost(&self) -> Lost {
        Lost::new(Arc::clone(&self.0.status))
    }

    /// Waits for [`lost`](Self::lost) within this time.
    #[cfg(feature = "blocking")]
    pub(crate) async fn lost_within(&self, limit: Duration) -> Option<LostReason> {
        self.0.context.core.timers.limit(limit, self.lost()).await
    }

    /// Runs work while the lock is held. When the lock is lost, drops the work at once, before it is polled again.
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
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("report").acquire().await?;
    /// let pages = guard.while_held(async { 12 }).await?;
    /// assert_eq!(pages, 12);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn while_held<F: Future>(&self, work: F) -> WhileHeld<F> {
        WhileHeld::new(self.lost(), self.0.ticket.name.clone(), work)
    }

    /// Returns one more guard of the same acquisition, without a request. Dropping the last guard releases the lock.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// let outer = client.lock("job").acquire().await?;
    /// let inner = outer.reenter();
    /// drop(outer);
    /// assert!(inner.is_held()); // released when `inner` goes
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn reenter(&self) -> Guard {
        Guard(Arc::clone(&self.0))
    }

    /// Extends the lease to at least `lease` from now. For holds that [expire](crate::AcquireOptions::expires_after)
    /// but need longer; a renewed hold needs no extension.
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
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// use std::time::Duration;
    /// use tidelock::AcquireOptions;
    ///
    /// let minute = AcquireOptions::new().expires_after(Duration::from_secs(60));
    /// let guard = client.lock("import").acquire_with(minute).await?;
    /// guard.extend(Duration::from_secs(120)).await?;
    /// assert!(guard.valid_for() > Duration::from_secs(60));
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub async fn extend(&self, lease: Duration) -> Result<()> {
        let (hold, core) = (&self.0, &self.0.context.core);
        options::check_lease("lease", lease, &core.settings.drift)?;
        if let Some(refusal) = hold.status.refusal() {
            return Err(refusal.on_lock(self.name()));
        }
        hold.note_extension(lease);
        // We read the clock before the request. The lease in the store starts later, so we never claim more time than
        // it has.
        let sent = core.timers.now();
        let batch = [Renewal {
            ticket: hold.ticket.clone(),
            lease,
            wish: hold.wish,
        }];
        let answers = hold.context.store.front().renew(&batch).await;
        match answers
            .map_err(|error| error.on_lock(self.name()))?
            .into_iter()
            .next()
        {
            Some(Renewed::Kept) => {
                core.steward.table.renewed([hold.entry], |keep| {
                    keep.status.prove(sent + core.settings.drift.proved(lease));
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

    /// Returns a statement for your own transaction on the database that has this lock. It fails the transaction unless
    /// this guard's token is still the newest. For `postgres:` and `mysql:`.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if the locks are in no such database.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// use tidelock::ErrorKind;
    ///
    /// let guard = client.fenced_lock("ledger").acquire().await?;
    /// let error = guard.sql_fence().unwrap_err(); // `memory:` has no transactions; see `SqlFence` for one that has
    /// assert_eq!(error.kind(), ErrorKind::Unsupported);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn sql_fence(&self) -> Result<SqlFence> {
        let Hold {
            context, ticket, ..
        } = &*self.0;
        let token = self.0.token;
        token
            .and_then(|token| context.store.front().sql_fence(&ticket.name, token))
            .ok_or_else(|| {
                Error::new(crate::ErrorKind::Unsupported)
                    .on_lock(self.name())
                    .because("its store is no database with transactions of yours; compare the token yourself")
            })
    }

    /// Releases the lock and waits until the store confirms it. If other guards from [`reenter`](Self::reenter) exist,
    /// the lock stays held and this returns at once.
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost) if the lock was lost before: work done since then may have overlapped with that of
    /// another holder, whose hold is not touched. [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) if the store does not
    /// answer within two response timeouts (6 s by default): the lock may already be free, and the release continues in
    /// the background until the store answers or the lease ends.
    ///
    /// # Cancel safety
    /// Once polled, the release continues in the background; dropping the future only stops waiting for the answer. If
    /// dropped before its first poll, it releases like a dropped guard.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("job").acquire().await?;
    /// match guard.release().await {
    ///     Ok(()) => {}
    ///     Err(error) if error.lost_reason().is_some() => eprintln!("it had been lost: {error}"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn release(self) -> Release {
        Release::of(self.0)
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name())
            .field("owner", &self.0.ticket.owner)
            .field("token", &self.0.token)
            .field("held", &self.is_held())
            .finish()
    }
}
