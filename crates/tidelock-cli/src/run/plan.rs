//! When to terminate and when to kill a group. Pure computation without system calls: times in, steps out.
//!
//! Wrapper and supervisor run the same plan. The supervisor acts first. The wrapper acts half a margin later, unless
//! the supervisor has reported that it acted.

/// Bounds the margin: the last part of a lease, in which no process of the group may run any more. The margin is a
/// twentieth of the lease, because a KILL takes a moment on a busy machine.
const MARGIN_NS: std::ops::RangeInclusive<u64> = 20_000_000..=500_000_000;

/// The action that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing yet.
    Wait,
    /// Ask the group to terminate.
    Term,
    /// Kill it.
    Kill,
}

/// The deadlines of one group. All times are nanoseconds of the boot clock.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The lock is proved until this instant.
    until: u64,
    /// The longest time for which the lock was ever proved in advance: about one lease.
    span: u64,
    grace: u64,
    /// Another process acts by the same plan before this one.
    second: bool,
    /// From this instant on the group must terminate, even if the lock is still proved.
    over_at: Option<u64>,
    /// When the group is killed. Set once it was asked to terminate.
    kill_at: Option<u64>,
}

impl Plan {
    pub(crate) fn new(now: u64, until: u64, grace: u64) -> Self {
        Self {
            until,
            span: until.saturating_sub(now),
            grace,
            second: false,
            over_at: None,
            kill_at: None,
        }
    }

    /// Lets the other process that keeps this plan act first.
    pub(crate) fn second(self) -> Self {
        Self {
            second: true,
            ..self
        }
    }

    /// About one lease.
    pub(crate) fn span(&self) -> u64 {
        self.span
    }

    /// The lock is proved for longer. This does not cancel a termination that has begun: part of the group may be gone.
    pub(crate) fn proved(&mut self, now: u64, until: u64) {
        self.until = self.until.max(until);
        self.span = self.span.max(until.saturating_sub(now));
    }

    fn margin(&self) -> u64 {
        (self.span / 20).clamp(*MARGIN_NS.start(), *MARGIN_NS.end())
    }

    /// When the group must be gone.
    fn gone_by(&self) -> u64 {
        self.until.saturating_sub(self.margin())
    }

    /// When to ask the group to terminate if no renewal is reported. The grace is at most a quarter of the lease:
    /// renewals come every third of a lease, and a single late answer must not terminate the command.
    fn term_at(&self) -> u64 {
        let proved = self.gone_by().saturating_sub(self.grace.min(self.span / 4));
        self.over_at.map_or(proved, |over| over.min(proved))
    }

    /// The lock or the wrapper is lost: the group must terminate now, even if the lease goes on.
    pub(crate) fn over(&mut self, now: u64) {
        self.over_at.get_or_insert(now);
    }

    /// The group was asked to terminate. It is killed after the grace, and before the deadline in any case. `true`:
    /// this is the first call.
    pub(crate) fn asked(&mut self, now: u64) -> bool {
        let first = self.kill_at.is_none();
        self.kill_at
            .get_or_insert(now.saturating_add(self.grace).min(self.gone_by()));
        first
    }

    /// When to check again. The second process waits half a margin longer, which still leaves it time before the
    /// deadline.
    pub(crate) fn next(&self) -> u64 {
        let first = self.kill_at.unwrap_or_else(|| self.term_at());
        if self.second {
            first.saturating_add(self.margin() / 2)
        } else {
            first
        }
    }

    /// Returns the step that is due, and notes that the group was asked to terminate.
    pub(crate) fn due(&mut self, now: u64) -> Step {
        if now < self.next() {
            return Step::Wait;
        }
        if self.asked(now) {
            Step::Term
        } else {
            Step::Kill
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn the_group_is_gone_before_the_deadline() {
        let mut plan = Plan::new(0, 30 * S, 5 * S);
        assert_eq!(plan.next(), 30 * S - S / 2 - 5 * S);
        assert_eq!(plan.due(plan.next() - 1), Step::Wait);
        assert_eq!(plan.due(plan.next()), Step::Term);
        assert_eq!(plan.next(), 30 * S - S / 2);
        assert_eq!(plan.due(plan.next()), Step::Kill);
    }

    #[test]
    fn the_second_acts_after_the_first_and_before_the_deadline() {
        let mut first = Plan::new(0, 30 * S, 5 * S);
        let mut second = Plan::new(0, 30 * S, 5 * S).second();
        for step in [Step::Term, Step::Kill] {
            let at = second.next();
            assert!(first.next() < at && at < 30 * S, "{step:?} at {at}");
            assert_eq!(second.due(first.next()), Step::Wait);
            assert_eq!(first.due(first.next()), step);
            assert_eq!(second.due(at), step);
        }
    }

    #[test]
    fn the_second_asks_nobody_who_was_asked_by_the_first() {
        let mut plan = Plan::new(0, 30 * S, 2 * S).second();
        plan.over(10 * S);
        assert!(plan.asked(10 * S));
        assert_eq!(plan.due(12 * S), Step::Wait);
        assert_eq!(plan.due(12 * S + S / 4), Step::Kill);
    }

    #[test]
    fn a_long_grace_does_not_outlive_a_short_lease() {
        let plan = Plan::new(0, S, 5 * S);
        assert_eq!(plan.next(), S - S / 20 - S / 4);
    }

    #[test]
    fn a_renewal_moves_the_deadline_and_an_older_one_does_not() {
        let mut plan = Plan::new(0, 4 * S, S);
        plan.proved(S, 5 * S);
        plan.proved(S, 3 * S);
        assert_eq!(plan.next(), 5 * S - S / 5 - S);
    }

    #[test]
    fn a_loss_ends_it_after_the_grace_and_once() {
        let mut plan = Plan::new(0, 30 * S, 2 * S);
        plan.over(10 * S);
        assert_eq!(plan.due(10 * S), Step::Term);
        plan.over(11 * S);
        assert!(!plan.asked(11 * S));
        assert_eq!(plan.next(), 12 * S);
        plan.proved(11 * S, 40 * S);
        assert_eq!(plan.due(12 * S), Step::Kill);
    }

    #[test]
    fn a_loss_at_the_last_moment_kills_at_once() {
        let mut plan = Plan::new(0, S, 5 * S);
        plan.over(S);
        assert_eq!(plan.due(S), Step::Term);
        assert_eq!(plan.due(S), Step::Kill);
    }
}
