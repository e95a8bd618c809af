//! When a group must be told to end, and when it must be ended. No system calls here: times come in, steps come out.
//!
//! Wrapper and supervisor keep the same plan. The supervisor acts first; the wrapper acts half a margin later, if it has not
//! heard that the supervisor has done so.

/// The last part of a lease, in which nothing of the group may run any more, is a twentieth of it, within these bounds:
/// a KILL takes a moment to be carried out on a busy machine.
const MARGIN_NS: std::ops::RangeInclusive<u64> = 20_000_000..=500_000_000;

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing yet.
    Wait,
    /// Ask the group to end.
    Term,
    /// End it.
    Kill,
}

/// The end of a group, as far as it is known.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The lock is proved until then.
    until: u64,
    /// The longest time that was ever proved ahead: about one lease.
    span: u64,
    grace: u64,
    /// Another process acts by the same plan before this one.
    second: bool,
    /// The group has to end from this instant on, whatever is proved.
    over_at: Option<u64>,
    /// Set when the group was asked to end: when it is ended.
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

    /// The lock is proved for longer. A group that was asked to end is not reprieved: it is half gone.
    pub(crate) fn proved(&mut self, now: u64, until: u64) {
        self.until = self.until.max(until);
        self.span = self.span.max(until.saturating_sub(now));
    }

    fn margin(&self) -> u64 {
        (self.span / 20).clamp(*MARGIN_NS.start(), *MARGIN_NS.end())
    }

    /// The group must be gone by then.
    fn gone_by(&self) -> u64 {
        self.until.saturating_sub(self.margin())
    }

    /// When the group is asked to end if no news come. The grace is cut to a quarter of the lease: renewals come every
    /// third of it, and one that is answered late must not cost the command its life.
    fn term_at(&self) -> u64 {
        let proved = self.gone_by().saturating_sub(self.grace.min(self.span / 4));
        self.over_at.map_or(proved, |over| over.min(proved))
    }

    /// The lock or the wrapper is lost: the group has to end, though the lease may go on.
    pub(crate) fn over(&mut self, now: u64) {
        self.over_at.get_or_insert(now);
    }

    /// The group was asked to end: it is ended after the grace, in any case before the deadline. `true`: it had not been
    /// asked before.
    pub(crate) fn asked(&mut self, now: u64) -> bool {
        let first = self.kill_at.is_none();
        self.kill_at
            .get_or_insert(now.saturating_add(self.grace).min(self.gone_by()));
        first
    }

    /// When to look again. Half of the margin is left to the second of the two, so that it too is in time.
    pub(crate) fn next(&self) -> u64 {
        let first = self.kill_at.unwrap_or_else(|| self.term_at());
        if self.second {
            first.saturating_add(self.margin() / 2)
        } else {
            first
        }
    }

    /// What is due.
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
