//! The order of a read-write lock, on stores that keep its holders and waiters in a table: pure decisions about the
//! rows. A fair lock of the same name waits in the same order, as a writer does.

use crate::types::LockKind;

/// The end of the owner in the row of a lock that stands for the holders of a read-write lock. No owner id ends so.
pub(crate) const STANDS_FOR_SIDES: &str = ":sides";

/// How many waiters enter now, counted from the first one on. `waiters` are in the order of their places.
///
/// A reader enters beside readers, behind no waiter of another kind. Any other waiter enters alone, behind nobody.
#[cfg(feature = "sqlite")]
pub(crate) fn entering(
    holders: impl IntoIterator<Item = LockKind>,
    waiters: impl IntoIterator<Item = LockKind>,
) -> usize {
    let (mut held, mut shared) = (false, true);
    for holder in holders {
        held = true;
        shared &= holder.is_read();
    }
    if !shared {
        return 0;
    }
    let mut waiters = waiters.into_iter().peekable();
    if held || waiters.peek().is_some_and(|first| first.is_read()) {
        waiters.take_while(|waiter| waiter.is_read()).count()
    } else {
        waiters.take(1).count()
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
    use super::LockKind::{Fair, Read, ReadFenced, Write};
    use super::*;

    #[cfg(feature = "sqlite")]
    #[test]
    fn readers_enter_together_and_others_alone() {
        for (holders, waiters, enter) in [
            (&[][..], &[][..], 0),
            (&[], &[Write, Read], 1),
            (&[], &[Fair, Write], 1),
            (&[], &[Read, ReadFenced, Read, Write, Read], 3),
            (&[Read], &[Read, ReadFenced, Fair, Read], 2),
            (&[Read, Read], &[Write, Read], 0),
            (&[Write], &[Read], 0),
            (&[Write], &[Write], 0),
            // A downgrade: the writer is about to leave.
            (&[Write, Read], &[Read], 0),
            (&[Read, Write], &[Read], 0),
        ] {
            let entered = entering(holders.to_vec(), waiters.to_vec());
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
}
