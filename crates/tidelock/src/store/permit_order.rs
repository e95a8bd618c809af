//! The order of a semaphore, on stores that keep its holders and waiters: pure decisions about them.

/// How a waiter for permits stands. PostgreSQL decides the same in SQL.
#[cfg(any(feature = "etcd", feature = "sqlite", feature = "zookeeper"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PermitTurn {
    /// It gets its permits now.
    Gets,
    /// It waits for permits that come back, and all behind it wait for it.
    Waits,
    /// It asks for more than there are, also when all come back. Those behind it do not wait for it.
    PassedOver,
}

/// Decides about each waiter, in the order of their places. `total`: how many permits there are, `held`: how many of
/// them the holders have; more than there are, if the number was reduced.
#[cfg(any(feature = "etcd", feature = "sqlite", feature = "zookeeper"))]
pub(crate) fn decide(
    total: i64,
    held: i64,
    waiters: impl IntoIterator<Item = u16>,
) -> Vec<PermitTurn> {
    let mut free = total.saturating_sub(held);
    let mut blocked = false;
    let turn = |wanted| {
        let wanted = i64::from(wanted);
        if wanted > total {
            return PermitTurn::PassedOver;
        }
        blocked |= wanted > free;
        if blocked {
            return PermitTurn::Waits;
        }
        free -= wanted;
        PermitTurn::Gets
    };
    waiters.into_iter().map(turn).collect()
}

/// Bounds how many of those that are first count as the first. Each process of these looks at the queue as often as one
/// at its head.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
const MOST_AT_THE_HEAD: i64 = 8;

/// How many turns come before that of a waiter, if those ahead of it want so many permits. As many as have all permits
/// between them have one turn.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn permit_turns_ahead(total: i64, wanted: i64) -> u32 {
    u32::try_from(wanted / total.clamp(1, MOST_AT_THE_HEAD)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    #[cfg(any(feature = "etcd", feature = "sqlite", feature = "zookeeper"))]
    use super::PermitTurn::{Gets, PassedOver, Waits};
    use super::*;

    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    #[test]
    fn those_that_share_the_permits_have_one_turn() {
        for (total, wanted, turns) in [
            (1, 0, 0),
            (1, 2, 2),
            (3, 2, 0),
            (3, 4, 1),
            (1000, 24, 3),
            (0, 1, 1),
            (-1, i64::MAX, u32::MAX),
        ] {
            let counted = permit_turns_ahead(total, wanted);
            assert_eq!(counted, turns, "{wanted} of {total}");
        }
    }

    #[cfg(any(feature = "etcd", feature = "sqlite", feature = "zookeeper"))]
    #[test]
    fn permits_go_to_the_first_waiters_all_or_none() {
        for (total, held, waiters, turns) in [
            (5, 0, &[][..], &[][..]),
            (5, 0, &[2, 3], &[Gets, Gets]),
            (5, 0, &[2, 4, 1], &[Gets, Waits, Waits]),
            (3, 0, &[3, 1], &[Gets, Waits]),
            (5, 5, &[1, 1], &[Waits, Waits]),
            // The number was reduced below what is held.
            (2, 5, &[1], &[Waits]),
            (-1, 0, &[1], &[PassedOver]),
            // It has no permits yet.
            (0, 0, &[1, 2], &[PassedOver, PassedOver]),
            // One that asks for more than there are keeps nobody out.
            (3, 0, &[4, 2, 2, 1], &[PassedOver, Gets, Waits, Waits]),
            (3, 3, &[4, 2], &[PassedOver, Waits]),
        ] {
            let decided = decide(total, held, waiters.iter().copied());
            assert_eq!(decided, turns, "{waiters:?} with {held} of {total} held");
        }
    }
}
