//! The order of a read-write lock, on stores that keep its holders and waiters in a table: pure decisions about the
//! rows. A fair lock of the same name waits in the same order, as a writer does.

#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::snapshot::Mode;
use crate::store::AttemptRequest;
use crate::types::{LockKind, OwnerId};

/// The end of the owner in the row of a lock that stands for the holders of a read-write lock. No owner id ends so.
pub(crate) const STANDS_FOR_SIDES: &str = ":sides";

/// The hold that an attempt follows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Follows<'a> {
    Nobody,
    /// A downgrade: the reader joins this writer.
    Writer(&'a OwnerId),
    /// An upgrade: the writer enters beside this reader.
    Upgradeable(&'a OwnerId),
}

impl<'a> Follows<'a> {
    pub(crate) fn of(ask: &'a AttemptRequest) -> Self {
        match (&ask.downgrade_of, &ask.upgrade_of) {
            (Some(writer), _) => Self::Writer(writer),
            (None, Some(reader)) => Self::Upgradeable(reader),
            (None, None) => Self::Nobody,
        }
    }
}

/// Which waiters enter now, by their numbers. `waiters` are in the order of their places; each has its kind and its owner.
///
/// A reader enters beside readers, upgradeable or not, behind no waiter of another kind. An upgradeable reader does too, if
/// there is no other one. Any other waiter enters alone, behind nobody.
///
/// The writer that an upgradeable reader becomes enters beside it alone, and nobody enters before it, whatever its place
/// is: a waiter that has lost its place gets one ahead of all others, and would wait for the reader, as the writer would
/// for it. Without its reader it never enters: another one may have had the lock since.
#[cfg(feature = "sqlite")]
pub(crate) fn entering<'a>(
    holders: impl IntoIterator<Item = (LockKind, &'a str)>,
    waiters: impl IntoIterator<Item = (LockKind, &'a str)>,
) -> Vec<usize> {
    let reads = |kind: LockKind| kind.shares_with(LockKind::Read);
    let holders: Vec<_> = holders.into_iter().collect();
    if !holders.iter().all(|(kind, _)| reads(*kind)) {
        return Vec::new();
    }
    let waiters: Vec<_> = waiters.into_iter().collect();
    let is_upgrade = |(_, writer): &(LockKind, &str)| {
        let mut readers = holders.iter().filter(|(kind, _)| kind.is_upgradeable());
        readers.any(|(_, reader)| OwnerId::upgrades(writer, reader))
    };
    if let Some(upgrade) = waiters.iter().position(is_upgrade) {
        return if holders.len() == 1 {
            vec![upgrade]
        } else {
            Vec::new()
        };
    }
    let mut upgradeable = holders.iter().any(|(kind, _)| kind.is_upgradeable());
    let mut entering = Vec::new();
    for (number, (kind, owner)) in waiters.into_iter().enumerate() {
        if reads(kind) {
            if !kind.is_upgradeable() || !std::mem::replace(&mut upgradeable, true) {
                entering.push(number);
            }
            continue;
        }
        if number == 0 && holders.is_empty() && OwnerId::upgraded(owner).is_none() {
            entering.push(number);
        }
        break;
    }
    entering
}

/// The mode of a holder of a side in a table. `reads`: it is a plain reader.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn mode_of(reads: bool, owner: &str) -> Mode {
    match reads {
        true => Mode::Read,
        false if OwnerId::is_upgradeable(owner) => Mode::UpgradeableRead,
        false => Mode::Write,
    }
}

/// How many turns come before that of a waiter of this kind, if these waiters are ahead of it. Readers that stand side by
/// side have one turn.
pub(crate) fn turns_ahead(ahead: impl IntoIterator<Item = LockKind>, kind: LockKind) -> u32 {
    let (mut turns, mut before) = (0, None::<LockKind>);
    for next in ahead.into_iter().chain([kind]) {
        if !before.is_some_and(|before| before.shares_with(next)) {
            turns += 1;
        }
        before = Some(next);
    }
    turns - 1
}

/// As [`turns_ahead`], from a text: a letter for each waiter ahead, and for the one that counts them. `r`: it reads.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn turns_of(letters: &str) -> u32 {
    let kind = |letter| match letter {
        'r' => LockKind::Read,
        _ => LockKind::Write,
    };
    let mut ahead = letters.chars();
    let own = ahead.next_back();
    own.map_or(0, |own| turns_ahead(ahead.map(kind), kind(own)))
}

#[cfg(test)]
mod tests {
    use super::LockKind::{Fair, Read, ReadFenced, UpgradeableRead as Upgradeable, Write};
    use super::*;

    #[cfg(feature = "sqlite")]
    #[test]
    fn readers_enter_together_and_others_alone() {
        for (holders, waiters, enter) in [
            (&[][..], &[][..], &[][..]),
            (&[], &[Write, Read], &[0]),
            (&[], &[Fair, Write], &[0]),
            (&[], &[Read, ReadFenced, Read, Write, Read], &[0, 1, 2]),
            (&[Read], &[Read, ReadFenced, Fair, Read], &[0, 1]),
            (&[Read, Read], &[Write, Read], &[]),
            (&[Write], &[Read], &[]),
            (&[Write], &[Write], &[]),
            // A downgrade: the writer is about to leave.
            (&[Write, Read], &[Read], &[]),
            (&[Read, Write], &[Read], &[]),
            // At most one upgradeable reader. Plain readers pass those that wait for it, and writers do not.
            (&[], &[Upgradeable, Upgradeable, Read, Write], &[0, 2]),
            (&[Read], &[Read, Upgradeable, Read], &[0, 1, 2]),
            (&[Read, Upgradeable], &[Upgradeable, Read, Fair], &[1]),
            (&[Upgradeable], &[Write, Read], &[]),
            (&[Write], &[Upgradeable], &[]),
            (&[Upgradeable, Write], &[Read], &[]),
        ] {
            let of =
                |kinds: &[LockKind]| kinds.iter().map(|kind| (*kind, "c:1")).collect::<Vec<_>>();
            let (entered, enter): (_, &[usize]) = (entering(of(holders), of(waiters)), enter);
            assert_eq!(entered, enter, "{waiters:?} behind {holders:?}");
        }
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn the_writer_of_an_upgrade_enters_beside_its_reader_alone() {
        let (reader, writer) = ((Upgradeable, "c:1:upgradeable"), (Write, "c:2:upgrades:1"));
        for (holders, waiters, enter) in [
            (&[reader][..], &[writer, (Read, "c:3")][..], &[0][..]),
            (&[reader, (Read, "c:3")], &[writer, (Read, "c:4")], &[]),
            (&[reader, (Write, "c:3:upgrades:1")], &[writer], &[]),
            (&[(Upgradeable, "c:4:upgradeable")], &[writer], &[]),
            (&[(Upgradeable, "d:1:upgradeable")], &[writer], &[]),
            (&[(Read, "c:1")], &[writer], &[]),
            // Its reader was lost.
            (&[], &[writer], &[]),
            // Nobody gets ahead of it.
            (&[reader], &[(Fair, "c:3"), (Read, "c:4"), writer], &[2]),
            (&[reader, (Read, "c:3")], &[(Read, "c:4"), writer], &[]),
        ] {
            let entered = entering(holders.to_vec(), waiters.to_vec());
            let enter: &[usize] = enter;
            assert_eq!(entered, enter, "{waiters:?} behind {holders:?}");
        }
    }

    #[test]
    fn readers_side_by_side_have_one_turn() {
        for (ahead, kind, turns) in [
            (&[][..], Read, 0),
            (&[Read, Read], Read, 0),
            (&[Read, Read], Write, 1),
            (&[Write, Write], Write, 2),
            (&[Read, Write, Read, ReadFenced], Read, 2),
            (&[Read, Fair, Read], Fair, 3),
        ] {
            assert_eq!(turns_ahead(ahead.to_vec(), kind), turns, "{ahead:?}");
        }
    }

    #[cfg(any(feature = "postgres", feature = "mysql"))]
    #[test]
    fn the_letters_of_a_queue_count_as_its_kinds() {
        for (letters, turns) in [
            ("", 0),
            ("r", 0),
            ("w", 0),
            ("rrr", 0),
            ("rrw", 1),
            ("ww", 1),
            ("wwr", 2),
            ("rwrr", 2),
        ] {
            assert_eq!(turns_of(letters), turns, "{letters:?}");
        }
    }

    #[cfg(any(feature = "postgres", feature = "mysql"))]
    #[test]
    fn the_owner_tells_an_upgradeable_reader_from_a_writer() {
        for (reads, owner, mode) in [
            (true, "c:1", Mode::Read),
            (false, "c:1", Mode::Write),
            (false, "c:2:upgrades:1", Mode::Write),
            (false, "c:1:upgradeable", Mode::UpgradeableRead),
        ] {
            assert_eq!(mode_of(reads, owner), mode, "{owner}, {reads}");
        }
    }
}
