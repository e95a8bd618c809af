//! The error type: the failure, the lock, and the remedy.

use std::error::Error as StdError;
use std::fmt;

use crate::types::{Escaped, LostReason};
use crate::unstable::for_stores;

/// The result of tidelock's operations.
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

/// The class of an error, as far as a caller can act on it.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use std::time::Duration;
/// use tidelock::{AcquireOptions, ErrorKind};
///
/// let client = tidelock::Client::connect("memory:").await?;
/// let held = client.lock("job").acquire().await?;
/// let asked = client.lock("job").acquire_with(AcquireOptions::new().wait(Duration::from_millis(5)));
/// match asked.await.map_err(|error| error.kind()) {
///     Err(ErrorKind::TimedOut) => { /* somebody else has it: come again */ }
///     other => panic!("{other:?}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another owner held the lock until the caller's time limit, according to the store. A store that did not answer
    /// is [`Unavailable`](Self::Unavailable) or [`OutcomeUnknown`](Self::OutcomeUnknown).
    TimedOut,
    /// The caller's [`CancelToken`](crate::CancelToken) was cancelled, or the attempt was withdrawn before.
    Cancelled,
    /// The lock was lost before this call; [`Error::lost_reason`] tells how.
    Lost,
    /// According to the store, this owner does not hold the lock.
    NotHeld,
    /// The key of the lock holds no lock or a lock of another kind, or its counter holds a value with no next fencing
    /// token. The key was left unchanged.
    WrongType,
    /// The store refused the request: wrong user, password or permissions.
    Refused,
    /// The store could not be reached, or reported that it cannot serve. Nothing was changed.
    Unavailable,
    /// A request was sent but got no usable answer. It may or may not have taken effect.
    OutcomeUnknown,
    /// The client was closed.
    Closed,
    /// This store does not support the operation. Nothing was sent.
    Unsupported,
    /// An invalid lock name for any store. Nothing was sent.
    InvalidName,
    /// An invalid option, duration or address. Nothing was sent.
    InvalidOptions,
    /// The call is outside a tokio runtime, or is a blocking call inside one, or its client was made by another process, from
    /// which this one was forked.
    Runtime,
}

impl ErrorKind {
    /// The name of the kind in `snake_case`, for metrics and structured logs. It never changes.
    ///
    /// # Examples
    /// ```
    /// use tidelock::ErrorKind;
    ///
    /// assert_eq!(ErrorKind::TimedOut.as_str(), "timed_out");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
            Self::NotHeld => "not_held",
            Self::WrongType => "wrong_type",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Closed => "closed",
            Self::Unsupported => "unsupported",
            Self::InvalidName => "invalid_name",
            Self::InvalidOptions => "invalid_options",
            Self::Runtime => "runtime",
        }
    }

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

/// An error of a lock operation. `Display` writes one line. The driver's error, if any, is the
/// [`source`](StdError::source).
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use tidelock::ErrorKind;
///
/// let client = tidelock::Client::connect("memory:").await?;
/// let error = client.lock("").acquire().await.unwrap_err();
/// match error.kind() {
///     ErrorKind::InvalidName => println!("{error}"),
///     ErrorKind::Unavailable | ErrorKind::OutcomeUnknown => println!("try again later: {error}"),
///     _ => return Err(error),
/// }
/// # Ok(()) }
/// ```
pub struct Error(Box<ErrorInner>);

struct ErrorInner {
    kind: ErrorKind,
    lock: Option<String>,
    detail: Option<String>,
    lost: Option<LostReason>,
    #[cfg(feature = "redis")]
    scope: Option<ReplyScope>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What the error reply of a server says of other requests.
#[cfg(feature = "redis")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyScope {
    /// Nothing: the server may accept another request.
    Request,
    /// The server would refuse any other request at the moment.
    Server,
}

impl Error {
    for_stores! {
        /// Creates an error of this kind; setters add the details.
        ///
        /// # Examples
        /// ```
        /// use tidelock::{Error, ErrorKind};
        ///
        /// let error = Error::new(ErrorKind::Unavailable);
        /// assert_eq!(error.to_string(), "the store cannot be reached");
        /// ```
        fn new(kind: ErrorKind) -> Self {
            Self(Box::new(ErrorInner {
                kind,
                lock: None,
                detail: None,
                lost: None,
                #[cfg(feature = "redis")]
                scope: None,
                source: None,
            }))
        }
    }

    for_stores! {
        /// Sets the lock name if none is set.
        ///
        /// # Examples
        /// ```
        /// use tidelock::{Error, ErrorKind};
        ///
        /// let error = Error::new(ErrorKind::NotHeld).on_lock("stock:42").on_lock("another");
        /// assert_eq!(error.lock_name(), Some("stock:42")); // the first name stays
        /// ```
        #[must_use]
        fn on_lock(mut self, name: impl AsRef<str>) -> Self {
            self.0.lock.get_or_insert_with(|| name.as_ref().to_owned());
            self
        }
    }

    for_stores! {
        /// Sets the detail: the failure and the remedy. Never include a secret.
        ///
        /// # Examples
        /// ```
        /// use tidelock::{Error, ErrorKind};
        ///
        /// let error = Error::new(ErrorKind::Refused).because("the user may not write; give it +set");
        /// assert_eq!(error.to_string(), "refused by the store: the user may not write; give it +set");
        /// ```
        #[must_use]
        fn because(mut self, detail: impl Into<String>) -> Self {
            self.0.detail = Some(detail.into());
            self
        }
    }

    /// Prefixes the detail with its subject: a file or a server.
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
    pub(crate) fn prefix(mut self, what: impl fmt::Display) -> Self {
        self.0.detail = Some(match self.0.detail.take() {
            Some(detail) => format!("{what}: {detail}"),
            None => what.to_string(),
        });
        self
    }

    for_stores! {
        /// Sets the source error.
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
        fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
            self.0.source = Some(source.into());
            self
        }
    }

    /// Marks the error as a reply of the server. Not a source, which would repeat the text wherever causes are printed.
    #[cfg(feature = "redis")]
    pub(crate) fn replied(mut self, scope: ReplyScope) -> Self {
        self.0.scope = Some(scope);
        self
    }

    /// `None`: the error is no reply of the server.
    #[cfg(feature = "redis")]
    pub(crate) fn reply_scope(&self) -> Option<ReplyScope> {
        self.0.scope
    }

    pub(crate) fn lost(reason: LostReason) -> Self {
        let mut error = Self::new(ErrorKind::Lost).because(reason.to_string());
        error.0.lost = Some(reason);
        error
    }

    /// The same error for a caller whose own request was not sent: it cannot have taken effect.
    pub(crate) fn retold(&self) -> Self {
        let told = Self::new(ErrorKind::Unavailable);
        match self.detail() {
            Some(detail) => told.because(detail),
            None => told.because(self.to_string()),
        }
    }

    /// The error of a request that only reads, or whose effect is undone or does not matter to the caller: its outcome is
    /// never in doubt.
    pub(crate) fn without_effect(mut self) -> Self {
        if self.outcome_unknown() {
            self.0.kind = ErrorKind::Unavailable;
        }
        self
    }

    /// The detail without the text of the kind. For stores that report one error to several callers.
    pub(crate) fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// The kind of the error, for a `match`.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::ErrorKind;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let error = client.lock(&"x".repeat(513)).acquire().await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidName); // 512 bytes are the most
    /// # Ok(()) }
    /// ```
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The lock that the error concerns, if any.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let error = client.plain_lock("stock:42").acquire().await.unwrap_err();
    /// assert_eq!(error.lock_name(), Some("stock:42"));
    /// # Ok(()) }
    /// ```
    pub fn lock_name(&self) -> Option<&str> {
        self.0.lock.as_deref()
    }

    /// The reason of the loss, for [`ErrorKind::Lost`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::LostReason;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("job").acquire().await?;
    /// client.close(std::time::Duration::ZERO).await;
    /// let error = guard.release().await.unwrap_err();
    /// assert_eq!(error.lost_reason(), Some(LostReason::Closed));
    /// # Ok(()) }
    /// ```
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.0.lost
    }

    /// True if another owner held the lock until the caller's time limit. False if the store did not answer.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::AcquireOptions;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let held = client.lock("job").acquire().await?;
    /// let briefly = AcquireOptions::new().wait(Duration::from_millis(5));
    /// let error = client.lock("job").acquire_with(briefly).await.unwrap_err();
    /// assert!(error.is_timeout());
    /// # Ok(()) }
    /// ```
    pub fn is_timeout(&self) -> bool {
        self.0.kind == ErrorKind::TimedOut
    }

    /// True if the same call may succeed later without a change by the caller.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let error = client.lock("").acquire().await.unwrap_err();
    /// assert!(!error.is_retryable()); // a bad name stays a bad name
    /// # Ok(()) }
    /// ```
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.0.kind,
            ErrorKind::TimedOut | ErrorKind::Unavailable | ErrorKind::OutcomeUnknown
        )
    }

    /// True if the request may have taken effect despite the error. The client cleans up by itself: it withdraws an
    /// acquisition with an unknown outcome.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let error = client.lock("").acquire().await.unwrap_err();
    /// assert!(!error.outcome_unknown()); // nothing was sent
    /// # Ok(()) }
    /// ```
    pub fn outcome_unknown(&self) -> bool {
        self.0.kind == ErrorKind::OutcomeUnknown
    }
}

impl fmt::Display for ErrorInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(lock) = self.lock.as_ref().filter(|lock| !lock.is_empty()) {
            write!(f, "{lock}: ")?;
        }
        f.write_str(self.kind.text())?;
        match &self.detail {
            Some(detail) => write!(f, ": {detail}"),
            None => Ok(()),
        }
    }
}

/// One line that is safe for a terminal, though the name and the detail may contain text from a store.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Escaped(&self.0), f)
    }
}

/// Readable, because `unwrap` and a failing `main` print it: the kind, the message and the source.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({:?}", self.0.kind, self.0.to_string())?;
        if let Some(source) = &self.0.source {
            write!(f, ", caused by {}", Escaped(format_args!("{source:?}")))?;
        }
        f.write_str(")")
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
pub(crate) mod tests;
