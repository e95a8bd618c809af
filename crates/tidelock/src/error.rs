//! One opaque error: what happened, on which lock, and what to do.

use std::error::Error as StdError;
use std::fmt;

use crate::guard::LostReason;

/// What tidelock's operations return.
///
/// # Examples
/// ```
/// use tidelock::{Client, Result};
///
/// async fn nightly(client: &Client) -> Result<bool> {
///     Ok(client.lock("nightly").try_acquire().await?.is_some())
/// }
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, as far as a caller can act on it.
///
/// # Examples
/// ```
/// # async fn f() -> tidelock::Result<()> {
/// # let client = tidelock::Client::connect("memory:").await?;
/// use std::time::Duration;
/// use tidelock::{AcquireOptions, ErrorKind};
///
/// let held = client.lock("job").acquire().await?;
/// let asked = client.lock("job").acquire_with(AcquireOptions::new().wait(Duration::from_millis(5)));
/// match asked.await.map_err(|error| error.kind()) {
///     Err(ErrorKind::TimedOut) => { /* somebody else has it: come again */ }
///     other => panic!("{other:?}"),
/// }
/// # drop(held);
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The lock was not free within the time the caller gave.
    TimedOut,
    /// The caller's [`Cancel`](crate::Cancel) was fired, or the attempt had been withdrawn.
    Cancelled,
    /// The lock had been lost before; [`Error::lost_reason`] says how.
    Lost,
    /// The store says that this owner holds nothing under this name.
    NotHeld,
    /// The key of the lock holds something that is no lock, or a lock of another kind; or its counter holds something after which
    /// there is no fencing token. It was left as it is.
    WrongType,
    /// The store refused: rights, user or password.
    Refused,
    /// The store could not be reached, or answered that it cannot serve. Nothing was changed.
    Unavailable,
    /// A request was sent and no usable answer came: it may or may not have taken effect.
    OutcomeUnknown,
    /// The client was closed.
    Closed,
    /// This store cannot do that. Nothing was sent.
    Unsupported,
    /// A lock name that no store could keep. Nothing was sent.
    InvalidName,
    /// An option, duration or address that makes no sense. Nothing was sent.
    InvalidOptions,
    /// No tokio runtime here, or a blocking call inside one.
    Runtime,
}

impl ErrorKind {
    fn text(self) -> &'static str {
        match self {
            Self::TimedOut => "not acquired in time",
            Self::Cancelled => "cancelled",
            Self::Lost => "the lock was lost",
            Self::NotHeld => "not held by this owner",
            Self::WrongType => "the key holds something that is not a lock",
            Self::Refused => "refused by the store",
            Self::Unavailable => "the store cannot be reached",
            Self::OutcomeUnknown => "no usable answer came, the outcome is unknown",
            Self::Closed => "the client is closed",
            Self::Unsupported => "not supported by this store",
            Self::InvalidName => "invalid lock name",
            Self::InvalidOptions => "invalid option",
            Self::Runtime => "wrong runtime",
        }
    }
}

/// An error of a lock operation. `Display` is one line; the driver's error, if any, is its [`source`](StdError::source).
///
/// # Examples
/// ```
/// # async fn f() -> tidelock::Result<()> {
/// # let client = tidelock::Client::connect("memory:").await?;
/// use tidelock::ErrorKind;
///
/// let error = client.lock("").acquire().await.unwrap_err();
/// match error.kind() {
///     ErrorKind::InvalidName => println!("{error}"),
///     ErrorKind::Unavailable | ErrorKind::OutcomeUnknown => println!("try again later: {error}"),
///     _ => return Err(error),
/// }
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
/// ```
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    lock: Option<String>,
    detail: Option<String>,
    lost: Option<LostReason>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of that kind, to be filled by the setters. For stores.
    ///
    /// # Examples
    /// ```
    /// use tidelock::{Error, ErrorKind};
    ///
    /// let error = Error::new(ErrorKind::Unavailable);
    /// assert_eq!(error.to_string(), "the store cannot be reached");
    /// ```
    pub fn new(kind: ErrorKind) -> Self {
        Self(Box::new(Inner {
            kind,
            lock: None,
            detail: None,
            lost: None,
            source: None,
        }))
    }

    /// Names the lock, unless it is named already. For stores.
    ///
    /// # Examples
    /// ```
    /// use tidelock::{Error, ErrorKind};
    ///
    /// let error = Error::new(ErrorKind::NotHeld).on_lock("stock:42").on_lock("another");
    /// assert_eq!(error.lock_name(), Some("stock:42")); // the first name stays
    /// ```
    #[must_use]
    pub fn on_lock(mut self, name: impl fmt::Display) -> Self {
        self.0.lock.get_or_insert_with(|| name.to_string());
        self
    }

    /// Says what was wrong and what to do. Never put a secret in. For stores.
    ///
    /// # Examples
    /// ```
    /// use tidelock::{Error, ErrorKind};
    ///
    /// let error = Error::new(ErrorKind::Refused).because("the user may not write; give it +set");
    /// assert_eq!(error.to_string(), "refused by the store: the user may not write; give it +set");
    /// ```
    #[must_use]
    pub fn because(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Writes before the detail what it is about: a file, a server.
    #[cfg(any(feature = "mysql", feature = "sqlite"))]
    pub(crate) fn prefix(mut self, what: impl fmt::Display) -> Self {
        self.0.detail = Some(match self.0.detail.take() {
            Some(detail) => format!("{what}: {detail}"),
            None => what.to_string(),
        });
        self
    }

    /// Keeps the error underneath. For stores.
    ///
    /// # Examples
    /// ```
    /// use std::error::Error as _;
    /// use tidelock::{Error, ErrorKind};
    ///
    /// let broken = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
    /// let error = Error::new(ErrorKind::OutcomeUnknown).caused_by(broken);
    /// assert!(error.source().is_some_and(|source| source.is::<std::io::Error>()));
    /// ```
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    pub(crate) fn lost(reason: LostReason) -> Self {
        let mut error = Self::new(ErrorKind::Lost).because(reason.to_string());
        error.0.lost = Some(reason);
        error
    }

    /// The same trouble, told to one who has not asked: nothing of its own can have taken effect.
    pub(crate) fn retold(&self) -> Self {
        let told = Self::new(ErrorKind::Unavailable);
        match self.detail() {
            Some(detail) => told.because(detail),
            None => told.because(self.to_string()),
        }
    }

    /// What was wrong, without the kind's own words; for stores that must give one error to several callers.
    pub(crate) fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// What happened, for a `match`.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// use tidelock::ErrorKind;
    ///
    /// let error = client.lock(&"x".repeat(513)).acquire().await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidName); // 512 bytes are the most
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The lock it happened on, if it was one.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// let error = client.plain_lock("stock:42").acquire().await.unwrap_err();
    /// assert_eq!(error.lock_name(), Some("stock:42"));
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn lock_name(&self) -> Option<&str> {
        self.0.lock.as_deref()
    }

    /// How the lock was lost, for [`ErrorKind::Lost`].
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// use tidelock::LostReason;
    ///
    /// let guard = client.lock("job").acquire().await?;
    /// client.close(std::time::Duration::ZERO).await;
    /// let error = guard.release().await.unwrap_err();
    /// assert_eq!(error.lost_reason(), Some(LostReason::Closed));
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.0.lost
    }

    /// The lock was held by somebody else for the whole time the caller gave.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// # let client = tidelock::Client::connect("memory:").await?;
    /// use std::time::Duration;
    /// use tidelock::AcquireOptions;
    ///
    /// let held = client.lock("job").acquire().await?;
    /// let briefly = AcquireOptions::new().wait(Duration::from_millis(5));
    /// let error = client.lock("job").acquire_with(briefly).await.unwrap_err();
    /// assert!(error.is_timeout());
    /// # drop(held);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub fn is_timeout(&self) -> bool {
        self.0.kind == ErrorKind::TimedOut
    }

    /// The same call may succeed later without any change by the caller.
    ///
    /// # Examples
    /// ```
    /// use tidelock::{Error, ErrorKind};
    ///
    /// assert!(Error::new(ErrorKind::Unavailable).is_retryable());
    /// assert!(!Error::new(ErrorKind::InvalidName).is_retryable()); // a bad name stays a bad name
    /// ```
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.0.kind,
            ErrorKind::TimedOut | ErrorKind::Unavailable | ErrorKind::OutcomeUnknown
        )
    }

    /// The request may have taken effect although this is an error. The client settles it by itself: an acquisition
    /// whose outcome is unknown is withdrawn.
    ///
    /// # Examples
    /// ```
    /// use tidelock::{Error, ErrorKind};
    ///
    /// assert!(Error::new(ErrorKind::OutcomeUnknown).outcome_unknown());
    /// assert!(!Error::new(ErrorKind::Unavailable).outcome_unknown()); // nothing was changed
    /// ```
    pub fn outcome_unknown(&self) -> bool {
        self.0.kind == ErrorKind::OutcomeUnknown
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(lock) = self.0.lock.as_ref().filter(|lock| !lock.is_empty()) {
            write!(f, "{lock}: ")?;
        }
        f.write_str(self.0.kind.text())?;
        match &self.0.detail {
            Some(detail) => write!(f, ": {detail}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
