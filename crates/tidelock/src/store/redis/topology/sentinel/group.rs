//! The group of sentinels that watch a service, and which of them are a majority.

use crate::store::redis::topology::sentinel::replies::fields;
use crate::store::redis::wire::reply::Reply;

/// The group, as the sentinels that answer report it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SentinelGroup {
    /// The sentinel that reports, and the others that it knows, also those that are down. Zero: not reported.
    size: usize,
    /// How many of them must agree that the primary is down.
    quorum: usize,
}

impl SentinelGroup {
    /// Reads the reply to SENTINEL MASTER.
    pub(super) fn read(master: &Reply) -> Self {
        let fields = fields(master);
        let number = |name: &str| -> Option<usize> { fields.get(name)?.parse().ok() };
        match number("num-other-sentinels") {
            Some(others) => Self::of(others, number("quorum").unwrap_or_default()),
            None => Self::default(),
        }
    }

    /// The group of a sentinel that knows so many others.
    fn of(others: usize, quorum: usize) -> Self {
        Self {
            size: others.saturating_add(1),
            quorum,
        }
    }

    /// The larger of two reports. A sentinel that was set up again knows no others for some seconds.
    pub(super) fn larger(self, other: Self) -> Self {
        Self {
            size: self.size.max(other.size),
            quorum: self.quorum.max(other.quorum),
        }
    }

    /// Whether so many different sentinels are a majority. `named`: how many the URL names.
    ///
    /// A sentinel that is cut off goes on to report the whole group, unless it is reset or loses its configuration
    /// meanwhile. Then it reports only itself, and would be a majority. So the votes must also be more than half of
    /// `named`, and reach the quorum. With one address in the URL and a quorum of 1 this excludes nothing.
    pub(super) fn is_majority(self, votes: usize, named: usize) -> bool {
        self.size > 0 && votes > self.size.max(named) / 2 && votes >= self.quorum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::wire::tests::values::texts;

    #[test]
    fn the_group_is_read_from_the_reply_about_the_primary() {
        let reply = texts(&["name", "shop", "num-other-sentinels", "2", "quorum", "2"]);
        assert_eq!(SentinelGroup::read(&reply), SentinelGroup::of(2, 2));
        let reply = texts(&["name", "shop", "num-other-sentinels", "-1"]);
        assert_eq!(SentinelGroup::read(&reply), SentinelGroup::default());
    }

    #[test]
    fn a_majority_is_that_of_the_group_that_the_sentinels_report() {
        let three = SentinelGroup::of(2, 2);
        assert!(three.is_majority(2, 3) && three.is_majority(3, 3));
        assert!(!three.is_majority(1, 3), "cut off");
        assert!(!three.is_majority(1, 1), "cut off, and alone in the URL");
        let four = SentinelGroup::of(3, 2);
        assert!(!four.is_majority(2, 3) && four.is_majority(3, 3));
        assert!(!SentinelGroup::default().is_majority(3, 3), "not reported");
    }

    #[test]
    fn a_sentinel_that_was_reset_is_no_majority_of_itself() {
        let alone = SentinelGroup::of(0, 2);
        assert!(!alone.is_majority(1, 1), "no quorum");
        assert!(!SentinelGroup::of(0, 1).is_majority(1, 3), "one of three");
        // Another one that answers still knows the group.
        let all = alone.larger(SentinelGroup::of(4, 2));
        assert_eq!(all, SentinelGroup::of(4, 2).larger(alone));
        assert!(!all.is_majority(2, 2) && all.is_majority(3, 2));
    }
}
