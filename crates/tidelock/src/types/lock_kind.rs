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
    /// Any number of holders, all of them readers. A store that has this kind has [`Write`](Self::Write) too.
    Read,
    /// One holder. Excludes every kind on the same name.
    Write,
    /// One holder. Waiters are served in order of arrival, over all processes. Excludes [`Mutex`](Self::Mutex) on the
    /// same name.
    Fair,
    /// As [`Fair`](Self::Fair), and every grant has a token larger than all before.
    FairFenced,
    /// One holder. Its waiters ask again and again, and need no message. Excludes [`Mutex`](Self::Mutex) on the same
    /// name.
    Spin,
    /// As [`Spin`](Self::Spin), and every grant has a token larger than all before.
    SpinFenced,
    /// As [`Read`](Self::Read), and every grant has a token larger than those of all earlier writers.
    ReadFenced,
    /// As [`Write`](Self::Write), and every grant has a token larger than all before.
    WriteFenced,
    /// So many permits of a semaphore, all or none. A store that has this kind has it for every number. All holders
    /// together have at most as many permits as the semaphore has. Refuses the other kinds on the same name, and they
    /// refuse it.
    Permits(u16),
    /// One holder, beside any number of [`Read`](Self::Read). Excludes every other kind on the same name, and may become
    /// a [`Write`](Self::Write) while no other writer gets the lock in between. Its owner is `uuid:n:upgradeable`.
    UpgradeableRead,
    /// As [`UpgradeableRead`](Self::UpgradeableRead), and every grant has a token larger than all before.
    UpgradeableReadFenced,
}

impl LockKind {
    /// All kinds, each at the place of its [number](Self::number).
    pub(crate) const ALL: [Self; 13] = [
        Self::Mutex,
        Self::Fenced,
        Self::Read,
        Self::Write,
        Self::Fair,
        Self::FairFenced,
        Self::ReadFenced,
        Self::WriteFenced,
        Self::Permits(1),
        Self::Spin,
        Self::SpinFenced,
        Self::UpgradeableRead,
        Self::UpgradeableReadFenced,
    ];

    /// The number of the kind. All numbers of permits are one kind.
    pub(crate) fn number(self) -> usize {
        let same = |kind: &Self| std::mem::discriminant(kind) == std::mem::discriminant(&self);
        Self::ALL.iter().position(same).unwrap_or_default()
    }

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
            Self::Spin => "spin",
            Self::SpinFenced => "spin_fenced",
            Self::ReadFenced => "read_fenced",
            Self::WriteFenced => "write_fenced",
            Self::Permits(_) => "permits",
            Self::UpgradeableRead => "upgradeable_read",
            Self::UpgradeableReadFenced => "upgradeable_read_fenced",
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
        self.is_read() || self.is_upgradeable() || self.is_write()
    }

    /// True for the write side of a read-write lock.
    ///
    /// # Examples
    /// ```
    /// use tidelock::store::LockKind;
    ///
    /// assert!(LockKind::WriteFenced.is_write() && !LockKind::Mutex.is_write());
    /// ```
    pub fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteFenced)
    }

    /// True for an upgradeable reader of a read-write lock.
    ///
    /// # Examples
    /// ```
    /// use tidelock::store::LockKind;
    ///
    /// assert!(LockKind::UpgradeableRead.is_upgradeable() && !LockKind::UpgradeableRead.is_read());
    /// ```
    pub fn is_upgradeable(self) -> bool {
        matches!(self, Self::UpgradeableRead | Self::UpgradeableReadFenced)
    }

    /// True for the read side of a read-write lock, whose holders share it.
    ///
    /// # Examples
    /// ```
    /// use tidelock::store::LockKind;
    ///
    /// assert!(LockKind::ReadFenced.is_read() && !LockKind::Write.is_read());
    /// ```
    pub fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::ReadFenced)
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
        matches!(
            self,
            Self::Fenced
                | Self::FairFenced
                | Self::SpinFenced
                | Self::ReadFenced
                | Self::WriteFenced
                | Self::UpgradeableReadFenced
        )
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

    /// True for a spin lock: nothing wakes its waiters.
    ///
    /// # Examples
    /// ```
    /// use tidelock::store::LockKind;
    ///
    /// assert!(LockKind::SpinFenced.is_spin() && !LockKind::Mutex.is_spin());
    /// ```
    pub fn is_spin(self) -> bool {
        matches!(self, Self::Spin | Self::SpinFenced)
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

    /// True for a lock with one holder: neither a side of a read-write lock, nor permits of a semaphore.
    ///
    /// # Examples
    /// ```
    /// use tidelock::store::LockKind;
    ///
    /// assert!(LockKind::Fair.is_exclusive());
    /// assert!(!LockKind::Write.is_exclusive() && !LockKind::Permits(2).is_exclusive());
    /// ```
    pub fn is_exclusive(self) -> bool {
        !self.is_read_write() && !self.is_permits()
    }

    /// True for permits of a semaphore.
    ///
    /// # Examples
    /// ```
    /// use tidelock::store::LockKind;
    ///
    /// assert!(LockKind::Permits(2).is_permits() && !LockKind::Read.is_permits());
    /// ```
    pub fn is_permits(self) -> bool {
        matches!(self, Self::Permits(_))
    }

    /// True if both kinds may hold the lock at the same time.
    ///
    /// # Examples
    /// ```
    /// use tidelock::store::LockKind;
    ///
    /// assert!(LockKind::Read.shares_with(LockKind::Read));
    /// assert!(LockKind::UpgradeableRead.shares_with(LockKind::Read));
    /// assert!(!LockKind::UpgradeableRead.shares_with(LockKind::UpgradeableRead));
    /// assert!(!LockKind::Read.shares_with(LockKind::Write));
    /// ```
    pub fn shares_with(self, other: Self) -> bool {
        let reads = |kind: Self| kind.is_read() || kind.is_upgradeable();
        reads(self) && reads(other) && (self.is_read() || other.is_read())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Kinds, and the question that only they answer with yes.
    type Family = (&'static [LockKind], fn(LockKind) -> bool);

    const SIDES: [LockKind; 6] = [
        LockKind::Read,
        LockKind::ReadFenced,
        LockKind::Write,
        LockKind::WriteFenced,
        LockKind::UpgradeableRead,
        LockKind::UpgradeableReadFenced,
    ];

    #[test]
    fn each_kind_belongs_to_its_families_only() {
        use LockKind::{
            Fair, FairFenced, Fenced, Mutex, Permits, Read, ReadFenced, Spin, SpinFenced,
            UpgradeableRead, UpgradeableReadFenced, Write, WriteFenced,
        };
        let families: [Family; 9] = [
            (&[Read, ReadFenced], LockKind::is_read),
            (&[Write, WriteFenced], LockKind::is_write),
            (
                &[UpgradeableRead, UpgradeableReadFenced],
                LockKind::is_upgradeable,
            ),
            (&SIDES, LockKind::is_read_write),
            (&[Fair, FairFenced], LockKind::is_fair),
            (&[Spin, SpinFenced], LockKind::is_spin),
            (&[Permits(1)], LockKind::is_permits),
            (
                &[Mutex, Fenced, Fair, FairFenced, Spin, SpinFenced],
                LockKind::is_exclusive,
            ),
            (
                &[
                    Fenced,
                    FairFenced,
                    SpinFenced,
                    ReadFenced,
                    WriteFenced,
                    UpgradeableReadFenced,
                ],
                LockKind::is_fenced,
            ),
        ];
        for (members, belongs) in families {
            for kind in LockKind::ALL {
                assert_eq!(
                    belongs(kind),
                    members.contains(&kind),
                    "{kind:?}: {members:?}"
                );
            }
        }
        for kind in LockKind::ALL {
            let is_queued = [Fair, FairFenced].contains(&kind) || SIDES.contains(&kind);
            assert_eq!(kind.is_queued(), is_queued, "{kind:?}");
        }
    }

    #[test]
    fn each_kind_has_its_own_number_and_word() {
        let mut words = HashSet::new();
        for (number, kind) in LockKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.number(), number, "{kind:?}");
            assert!(words.insert(kind.as_str()), "{kind:?}");
            assert_eq!(kind.as_str().ends_with("fenced"), kind.is_fenced());
        }
        let (few, many) = (LockKind::Permits(1), LockKind::Permits(9));
        assert_eq!(few.number(), many.number());
        assert_eq!(few.as_str(), many.as_str());
    }

    #[test]
    fn readers_share_and_at_most_one_of_them_is_upgradeable() {
        use LockKind::{
            Fair, Mutex, Permits, Read, ReadFenced, UpgradeableRead, UpgradeableReadFenced, Write,
            WriteFenced,
        };
        let shares = |kind: LockKind| {
            let others = LockKind::ALL.into_iter();
            others
                .filter(|other| {
                    let shares = kind.shares_with(*other);
                    assert_eq!(other.shares_with(kind), shares, "{kind:?} {other:?}");
                    shares
                })
                .collect::<Vec<_>>()
        };
        let readers = [Read, ReadFenced, UpgradeableRead, UpgradeableReadFenced];
        for plain in [Read, ReadFenced] {
            assert_eq!(shares(plain), readers);
        }
        for upgradeable in [UpgradeableRead, UpgradeableReadFenced] {
            assert_eq!(shares(upgradeable), [Read, ReadFenced]);
        }
        for alone in [Mutex, Fair, Write, WriteFenced, Permits(1)] {
            assert_eq!(shares(alone), [], "{alone:?}");
        }
    }
}
