//! The kind of a lock.

/// The kind of lock that a name is used as. [`Capabilities::kinds`](crate::store::Capabilities::kinds) lists those of a
/// store.
///
/// # Examples
/// ```
/// use tidelock::store::LockKind;
///
/// assert_ne!(LockKind::Mutex, LockKind::Fenced);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockKind {
    /// One holder.
    Mutex,
    /// One holder. Every grant has a token larger than all before. Excludes [`Mutex`](Self::Mutex) on the same name.
    Fenced,
    /// Any number of holders, all of this kind. A store that has this kind has [`Write`](Self::Write) too.
    Read,
    /// One holder. Excludes every kind on the same name.
    Write,
    /// One holder. Waiters are served in order of arrival, over all processes. Excludes [`Mutex`](Self::Mutex) on the
    /// same name.
    Fair,
    /// As [`Fair`](Self::Fair), and every grant has a token larger than all before.
    FairFenced,
}

impl LockKind {
    /// All kinds, each at the place of its number.
    #[cfg(feature = "metrics")]
    pub(crate) const ALL: [Self; 6] = [
        Self::Mutex,
        Self::Fenced,
        Self::Read,
        Self::Write,
        Self::Fair,
        Self::FairFenced,
    ];

    /// The name of the kind in `snake_case`, for metrics and structured logs. It never changes.
    ///
    /// # Examples
    /// ```
    /// use tidelock::store::LockKind;
    ///
    /// assert_eq!(LockKind::Fenced.as_str(), "fenced");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Fenced => "fenced",
            Self::Read => "read",
            Self::Write => "write",
            Self::Fair => "fair",
            Self::FairFenced => "fair_fenced",
        }
    }

    /// True for a side of a read-write lock.
    ///
    /// # Examples
    /// ```
    /// use tidelock::store::LockKind;
    ///
    /// assert!(LockKind::Read.is_read_write() && !LockKind::Fair.is_read_write());
    /// ```
    pub fn is_read_write(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }

    /// True if every grant must have a token.
    ///
    /// # Examples
    /// ```
    /// use tidelock::store::LockKind;
    ///
    /// assert!(LockKind::FairFenced.is_fenced() && !LockKind::Fair.is_fenced());
    /// ```
    pub fn is_fenced(self) -> bool {
        matches!(self, Self::Fenced | Self::FairFenced)
    }

    /// True for a fair lock.
    ///
    /// # Examples
    /// ```
    /// use tidelock::store::LockKind;
    ///
    /// assert!(LockKind::FairFenced.is_fair() && !LockKind::Write.is_fair());
    /// ```
    pub fn is_fair(self) -> bool {
        matches!(self, Self::Fair | Self::FairFenced)
    }

    /// True for a fair lock and for a side of a read-write lock. A waiter for a side always has a position in a queue of
    /// the store, even if the store has no queue for other kinds. Otherwise a stream of readers would leave no gap for a
    /// writer.
    ///
    /// # Examples
    /// ```
    /// use tidelock::store::LockKind;
    ///
    /// assert!(LockKind::Fair.is_queued() && LockKind::Write.is_queued() && !LockKind::Mutex.is_queued());
    /// ```
    pub fn is_queued(self) -> bool {
        self.is_read_write() || self.is_fair()
    }

    /// True if both kinds may hold the lock at the same time.
    ///
    /// # Examples
    /// ```
    /// use tidelock::store::LockKind;
    ///
    /// assert!(LockKind::Read.shares_with(LockKind::Read));
    /// assert!(!LockKind::Read.shares_with(LockKind::Write));
    /// ```
    pub fn shares_with(self, other: Self) -> bool {
        self == Self::Read && other == Self::Read
    }
}
