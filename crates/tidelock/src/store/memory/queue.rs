//! The queue of one lock: its holders, and the waiters of a fair or read-write lock, in order of arrival. If the store
//! is like one with queues, all waiters.

use std::time::Duration;

use crate::store::{BootInstant, LockKind, OwnerId};

/// Entries in order of arrival. Without queues a mutex has an entry only while it is held; its waiters are in the
/// client's signals.
#[derive(Debug, Default)]
pub(crate) struct LockQueue(Vec<QueuedHold>);

#[derive(Debug)]
pub(crate) struct QueuedHold {
    pub(crate) kind: LockKind,
    pub(crate) owner: OwnerId,
    /// When the lease ends. For a waiter: when it is removed if it does not ask again.
    pub(crate) ends: BootInstant,
    /// `None`: a waiter.
    pub(crate) token: Option<u64>,
    /// The upgradeable reader beside which this writer enters.
    pub(crate) upgrade_of: Option<OwnerId>,
    /// The lock-delay: how long nobody gets the lock if the hold ends without a release.
    pub(crate) delay: Duration,
}

impl LockQueue {
    /// Removes expired entries. Returns when their lock-delay ends, if they had one. The delay counts from the end of
    /// the lease, not from this call.
    pub(crate) fn tidy(&mut self, now: BootInstant) -> Option<BootInstant> {
        let ended = self.holders().filter(|place| place.ends <= now);
        let delayed = ended.filter(|place| !place.delay.is_zero());
        let until = delayed.map(|place| place.ends + place.delay).max();
        self.0.retain(|place| place.ends > now);
        until
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn is_held(&self) -> bool {
        self.holders().next().is_some()
    }

    pub(crate) fn holders(&self) -> impl Iterator<Item = &QueuedHold> {
        self.0.iter().filter(|place| place.token.is_some())
    }

    pub(crate) fn waiters(&self) -> impl Iterator<Item = &QueuedHold> {
        self.0.iter().filter(|place| place.token.is_none())
    }

    /// The owner's entry, if it holds the lock.
    pub(crate) fn held_by(&mut self, owner: &OwnerId) -> Option<&mut QueuedHold> {
        let mut places = self.0.iter_mut();
        places.find(|place| place.owner == *owner && place.token.is_some())
    }

    /// When the first entry that blocks this owner ends. The owner retries then at the latest. `None`: no entry blocks
    /// the owner.
    ///
    /// Holders and waiting upgrades count wherever they stand: an upgradeable reader enters ahead of plain readers that
    /// wait, and its upgrade stands behind it.
    pub(crate) fn in_the_way(&self, owner: &OwnerId, kind: LockKind) -> Option<BootInstant> {
        let own = self.0.iter().position(|place| place.owner == *owner);
        let blocks = |(at, place): (usize, &QueuedHold)| {
            let counts = own.is_none_or(|own| at < own)
                || place.token.is_some()
                || place.upgrade_of.is_some();
            let other = place.owner != *owner && !self.has_lost_its_reader(place);
            (counts && other && !kind.shares_with(place.kind)).then_some(place.ends)
        };
        self.0.iter().enumerate().filter_map(blocks).min()
    }

    /// Whether this is a waiting upgrade whose reader does not hold the lock. It is never granted, and blocks nobody. It
    /// stays until it asks again, so that it is woken and told.
    fn has_lost_its_reader(&self, place: &QueuedHold) -> bool {
        let reader = place.upgrade_of.as_ref();
        place.token.is_none() && reader.is_some_and(|reader| !self.is_upgradeable(reader))
    }

    /// When the first other holder beside the reader that is upgraded ends. `None`: there is none.
    pub(crate) fn beside(&self, reader: &OwnerId) -> Option<BootInstant> {
        let others = self.holders().filter(|place| place.owner != *reader);
        others.map(|place| place.ends).min()
    }

    /// How many entries are ahead of the owner's. `None`: it has none.
    pub(crate) fn ahead_of(&self, owner: &OwnerId) -> Option<u32> {
        let at = self.0.iter().position(|place| place.owner == *owner)?;
        u32::try_from(at).ok()
    }

    /// Replaces the owner's entry in place, or appends it. That of an upgrade goes behind its reader, ahead of all
    /// waiters.
    pub(crate) fn put(&mut self, place: QueuedHold) {
        match self.0.iter_mut().find(|own| own.owner == place.owner) {
            Some(own) => *own = place,
            None => match place.upgrade_of.clone() {
                Some(reader) => self.put_behind(&reader, place),
                None => self.0.push(place),
            },
        }
    }

    /// Whether this owner holds the write side.
    pub(crate) fn is_written_by(&mut self, owner: &OwnerId) -> bool {
        self.held_by(owner)
            .is_some_and(|place| place.kind.is_write())
    }

    /// Whether this owner reads upgradeably.
    pub(crate) fn is_upgradeable(&self, owner: &OwnerId) -> bool {
        let mut readers = self.holders().filter(|place| place.kind.is_upgradeable());
        readers.any(|place| place.owner == *owner)
    }

    /// Puts a new entry directly behind that of `first`, ahead of all others.
    pub(crate) fn put_behind(&mut self, first: &OwnerId, place: QueuedHold) {
        let at = self.0.iter().position(|other| other.owner == *first);
        self.0.insert(at.map_or(0, |at| at + 1), place);
    }

    /// Removes the owner's entry. `Some(true)`: it held the lock. `None`: it has no entry.
    pub(crate) fn remove(&mut self, owner: &OwnerId) -> Option<bool> {
        let at = self.0.iter().position(|place| place.owner == *owner)?;
        Some(self.0.remove(at).token.is_some())
    }

    /// Removes every holder. `false`: there was none.
    pub(crate) fn force(&mut self) -> bool {
        let held = self.is_held();
        self.0.retain(|place| place.token.is_none());
        held
    }

    /// The waiters that nothing blocks. Every entry behind one that reads nothing is blocked.
    pub(crate) fn next(&self) -> impl Iterator<Item = &OwnerId> {
        let mut next = Vec::new();
        let (mut any, mut upgradeable) = (false, false);
        for place in &self.0 {
            if self.has_lost_its_reader(place) {
                next.push(&place.owner);
                continue;
            }
            let blocked = match &place.upgrade_of {
                Some(reader) => self.beside(reader).is_some(),
                None if place.kind.is_read() => false,
                None if place.kind.is_upgradeable() => upgradeable,
                None => any,
            };
            if place.token.is_none() && !blocked {
                next.push(&place.owner);
            }
            any = true;
            upgradeable |= place.kind.is_upgradeable();
            if !place.kind.is_read() && !place.kind.is_upgradeable() {
                break;
            }
        }
        next.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::OwnerMint;

    /// The entry of an upgradeable reader that has entered stands behind that of a plain one that waits, and its writer
    /// behind it.
    #[test]
    fn a_reader_is_blocked_by_the_upgrade_behind_it() {
        let (mint, mut queue) = (OwnerMint::new(), LockQueue::default());
        let (reader, held) = (mint.fresh(), mint.fresh().upgradeable());
        let writer = mint.fresh().upgrading(&held);
        let mut put = |kind, owner: &OwnerId, token, upgrade_of| {
            queue.put(QueuedHold {
                kind,
                owner: owner.clone(),
                ends: BootInstant(9),
                token,
                upgrade_of,
                delay: Duration::ZERO,
            });
            queue.in_the_way(&reader, LockKind::Read)
        };
        let of = || Some(held.clone());
        assert_eq!(put(LockKind::Read, &reader, None, None), None);
        assert_eq!(put(LockKind::UpgradeableRead, &held, None, None), None);
        assert_eq!(put(LockKind::Write, &writer, None, of()), None, "no reader");
        assert_eq!(
            put(LockKind::UpgradeableRead, &held, Some(1), None),
            Some(BootInstant(9))
        );
        assert_eq!(
            put(LockKind::Write, &writer, Some(2), of()),
            Some(BootInstant(9))
        );
        queue.remove(&writer);
        assert_eq!(queue.in_the_way(&reader, LockKind::Read), None);
    }

    /// An entry that is held or waits, or the waiting writer that the owner with this number becomes.
    #[derive(Debug, Clone, Copy)]
    enum Entry {
        Held(LockKind),
        Waits(LockKind),
        Upgrades(usize),
    }

    /// These entries in their order, and the owners by number. There are more owners than entries.
    fn queued(entries: &[Entry]) -> (LockQueue, Vec<OwnerId>) {
        let (mint, mut queue) = (OwnerMint::new(), LockQueue::default());
        let owners: Vec<OwnerId> = (0..9).map(|_| mint.fresh()).collect();
        for (owner, entry) in owners.iter().zip(entries) {
            let (kind, token, upgrade_of) = match *entry {
                Entry::Held(kind) => (kind, Some(1), None),
                Entry::Waits(kind) => (kind, None, None),
                Entry::Upgrades(reader) => (LockKind::Write, None, Some(owners[reader].clone())),
            };
            queue.0.push(QueuedHold {
                kind,
                owner: owner.clone(),
                ends: BootInstant(9),
                token,
                upgrade_of,
                delay: Duration::ZERO,
            });
        }
        (queue, owners)
    }

    #[test]
    fn those_that_nothing_blocks_are_next() {
        use Entry::{Held, Upgrades, Waits};
        use LockKind::{Mutex, Read, UpgradeableRead as Upgradeable, Write};
        let reader = Waits(Read);
        for (entries, next) in [
            (&[][..], &[][..]),
            (&[Waits(Mutex), Waits(Mutex)], &[0]),
            (&[reader, reader, Waits(Write), reader], &[0, 1]),
            (&[Waits(Write), reader], &[0]),
            (&[Held(Write), reader], &[]),
            (&[Held(Read), Waits(Write)], &[]),
            (&[Held(Read), reader, Waits(Mutex)], &[1]),
            // At most one upgradeable reader, and plain ones pass those that wait for it.
            (
                &[Waits(Upgradeable), Waits(Upgradeable), Waits(Upgradeable)],
                &[0],
            ),
            (
                &[Held(Read), Waits(Upgradeable), Waits(Upgradeable), reader],
                &[1, 3],
            ),
            (&[Held(Upgradeable), Waits(Upgradeable), reader], &[2]),
            // An upgrade waits for all but its reader, and all others wait for it.
            (&[Held(Upgradeable), Upgrades(0), reader], &[1]),
            (&[Held(Upgradeable), Upgrades(0), Held(Read), reader], &[]),
            // Its reader was lost: it is told.
            (&[Upgrades(8), reader], &[0, 1]),
        ] {
            let (queue, owners) = queued(entries);
            let number = |owner: &OwnerId| owners.iter().position(|other| other == owner).unwrap();
            let found: Vec<usize> = queue.next().map(number).collect();
            let next: &[usize] = next;
            assert_eq!(found, next, "{entries:?}");
        }
    }

    #[test]
    fn an_upgrade_stands_behind_its_reader_and_ahead_of_those_that_wait() {
        let waits = Entry::Waits(LockKind::Write);
        let (mut queue, owners) = queued(&[Entry::Held(LockKind::UpgradeableRead), waits]);
        for _ in 0..2 {
            queue.put(QueuedHold {
                kind: LockKind::Write,
                owner: owners[2].clone(),
                ends: BootInstant(9),
                token: None,
                upgrade_of: Some(owners[0].clone()),
                delay: Duration::ZERO,
            });
            let ahead = [0, 2, 1].map(|number: usize| queue.ahead_of(&owners[number]));
            assert_eq!(ahead, [Some(0), Some(1), Some(2)]);
        }
    }

    #[test]
    fn a_forced_release_ends_holders_and_no_waiters() {
        let (held, waits) = (Entry::Held(LockKind::Read), Entry::Waits(LockKind::Write));
        for (entries, was_held, left) in [
            (&[held, held, waits][..], true, 1),
            (&[waits], false, 1),
            (&[held], true, 0),
        ] {
            let (mut queue, _) = queued(entries);
            assert_eq!(queue.force(), was_held, "{entries:?}");
            assert_eq!(
                (queue.holders().count(), queue.waiters().count()),
                (0, left)
            );
        }
    }
}
