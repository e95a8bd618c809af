//! The state of a barrier: who is inside, who waits, and the line of text in which the store keeps it.
//!
//! [`BarrierState::after`] is the whole algorithm, as a pure function. The register applies it by compare-and-set, so all
//! members agree on who enters together.

use crate::error::{Error, ErrorKind, Result};
use crate::types::LostReason;

/// The first word of a stored state.
const VERSION: &str = "barrier1";

/// Bounds the members that are inside or wait, so that the line fits into the column or node of every store.
const MAX_PRESENT: usize = 1000;

/// The members that are inside and those that wait, by the owner ids of their holds. An owner id is never used twice, so
/// the members of two uses of a barrier cannot be mistaken for each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BarrierState {
    /// How many members enter together. Zero if nobody is present.
    size: u32,
    /// All that entered together in this use, in the order in which they came.
    pub(super) together: Vec<String>,
    /// Those of them that have not left. While there is one, nobody else enters.
    pub(super) inside: Vec<String>,
    /// Those that wait, in the order in which they came.
    pub(super) waiting: Vec<String>,
    /// Grows with each write for as long as the store keeps the state, which it does for an hour after the last member has gone. So
    /// no text is written twice, and a request that arrives late finds that the text which it wants to replace has gone.
    pub(super) version: u64,
}

/// What a member wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BarrierStep {
    /// To wait, unless it is present already.
    Join,
    /// To wait no longer. If it is inside by now, it stays there.
    Withdraw,
    /// To be gone.
    Leave,
    /// To know the state.
    Look,
}

impl BarrierStep {
    /// Whether the member waits no longer after it.
    pub(super) fn gives_up(self) -> bool {
        matches!(self, Self::Withdraw | Self::Leave)
    }
}

/// The state after a step.
#[derive(Debug)]
pub(super) struct BarrierDecision {
    pub(super) state: BarrierState,
    /// Others wait for what has happened: members have entered, or the last one has left.
    pub(super) is_awaited: bool,
    /// The member of the step had its hold.
    pub(super) was_alive: bool,
}

impl BarrierState {
    /// The state after a step of this member.
    ///
    /// `is_alive`: whether the hold of a member is still in the store. It must have been read after this state. A member
    /// takes its hold before it joins, so a member without one has died or left.
    ///
    /// # Errors
    /// `InvalidOptions` if the members that are present have another number in mind; `Lost` if a member that joins or withdraws
    /// has no hold.
    pub(super) fn after(
        &self,
        step: BarrierStep,
        member: &str,
        size: u32,
        is_alive: &dyn Fn(&str) -> bool,
    ) -> Result<BarrierDecision> {
        let mut next = self.clone();
        next.inside.retain(|present| is_alive(present));
        next.waiting.retain(|present| is_alive(present));
        match step {
            // One that withdraws may have entered before it lost its hold, and the others have entered with it.
            BarrierStep::Join | BarrierStep::Withdraw if !is_alive(member) => {
                return Err(Error::lost(LostReason::Taken));
            }
            BarrierStep::Join => next.join(member, size)?,
            BarrierStep::Withdraw => next.waiting.retain(|present| present != member),
            BarrierStep::Leave => {
                next.inside.retain(|present| present != member);
                next.waiting.retain(|present| present != member);
            }
            BarrierStep::Look => {}
        }
        let all = usize::try_from(next.size).unwrap_or(usize::MAX);
        let enters = next.inside.is_empty() && (1..=next.waiting.len()).contains(&all);
        let is_awaited = enters || next.inside.is_empty() && !self.inside.is_empty();
        if enters {
            next.inside = next.waiting.drain(..all).collect();
            next.together.clone_from(&next.inside);
        } else if next.inside.is_empty() {
            next.together.clear();
        }
        if next.is_idle() {
            next.size = 0;
        }
        Ok(BarrierDecision {
            state: next,
            is_awaited,
            was_alive: is_alive(member),
        })
    }

    fn join(&mut self, member: &str, size: u32) -> Result<()> {
        if self.is_inside(member) || self.waiting.iter().any(|present| present == member) {
            return Ok(());
        }
        if self.is_idle() {
            self.size = size;
        }
        if self.size != size {
            return Err(Error::new(ErrorKind::InvalidOptions).because(format!(
                "the members of this barrier wait until they are {}, and this one says {size}; all must say the same",
                self.size
            )));
        }
        if self.inside.len() + self.waiting.len() >= MAX_PRESENT {
            return Err(Error::new(ErrorKind::InvalidOptions).because(format!(
                "{MAX_PRESENT} members are present; no more can wait"
            )));
        }
        self.waiting.push(member.to_owned());
        Ok(())
    }

    pub(super) fn is_inside(&self, member: &str) -> bool {
        self.inside.iter().any(|present| present == member)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.inside.is_empty() && self.waiting.is_empty()
    }

    /// The line that the store keeps. An owner id has neither blanks nor commas.
    pub(super) fn to_line(&self) -> String {
        format!(
            "{VERSION} version={} size={} together={} inside={} waiting={}",
            self.version,
            self.size,
            self.together.join(","),
            self.inside.join(","),
            self.waiting.join(",")
        )
    }

    /// Reads a line of the store. Words of later versions are passed over.
    ///
    /// # Errors
    /// `WrongType` for any other text.
    pub(super) fn from_line(line: &str) -> Result<Self> {
        if line.is_empty() {
            return Ok(Self::default());
        }
        parse(line).ok_or_else(|| {
            let start: String = line.chars().take(64).collect();
            Error::new(ErrorKind::WrongType).because(format!(
                "the state of the barrier is none of this version: {start:?}. Nothing was changed"
            ))
        })
    }
}

fn parse(line: &str) -> Option<BarrierState> {
    let mut words = line.split(' ');
    if words.next()? != VERSION {
        return None;
    }
    let mut state = BarrierState::default();
    for word in words {
        let (key, value) = word.split_once('=')?;
        let members = || value.split(',').filter(|owner| !owner.is_empty());
        match key {
            "version" => state.version = value.parse().ok()?,
            "size" => state.size = value.parse().ok()?,
            "together" => state.together = members().map(str::to_owned).collect(),
            "inside" => state.inside = members().map(str::to_owned).collect(),
            "waiting" => state.waiting = members().map(str::to_owned).collect(),
            _ => {}
        }
    }
    let known = |owner| state.together.contains(owner);
    let is_whole = (state.size > 0) != state.is_idle() && state.inside.iter().all(known);
    is_whole.then_some(state)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(_: &str) -> bool {
        true
    }

    fn step(state: &BarrierState, step: BarrierStep, member: &str) -> BarrierDecision {
        state.after(step, member, 2, &all).unwrap()
    }

    fn of(inside: &[&str], waiting: &[&str]) -> BarrierState {
        let owned = |members: &[&str]| members.iter().map(|&member| member.to_owned()).collect();
        BarrierState {
            size: 2,
            together: owned(inside),
            inside: owned(inside),
            waiting: owned(waiting),
            version: 0,
        }
    }

    #[test]
    fn the_last_to_come_lets_all_in_and_a_further_one_waits_for_the_next_use() {
        let idle = BarrierState::default();
        let first = step(&idle, BarrierStep::Join, "a");
        assert!(!first.is_awaited);
        assert_eq!(first.state, of(&[], &["a"]));
        assert_eq!(
            step(&first.state, BarrierStep::Join, "a").state,
            first.state
        );
        let second = step(&first.state, BarrierStep::Join, "b");
        assert!(second.is_awaited);
        assert_eq!(second.state, of(&["a", "b"], &[]));
        let more = step(&second.state, BarrierStep::Join, "c").state;
        let more = step(&more, BarrierStep::Join, "d").state;
        let more = step(&more, BarrierStep::Join, "e").state;
        assert_eq!(more, of(&["a", "b"], &["c", "d", "e"]));
        let one_left = step(&more, BarrierStep::Leave, "b");
        assert!(!one_left.is_awaited);
        assert_eq!(
            (&one_left.state.inside, one_left.state.together.len()),
            (&vec!["a".to_owned()], 2)
        );
        let next_use = step(&one_left.state, BarrierStep::Leave, "a");
        assert!(next_use.is_awaited);
        assert_eq!(next_use.state, of(&["c", "d"], &["e"]));
    }

    #[test]
    fn the_last_to_leave_leaves_nothing() {
        let last = step(&of(&["a"], &[]), BarrierStep::Leave, "a");
        assert!(last.is_awaited);
        assert_eq!(last.state, BarrierState::default());
        assert!(last.state.is_idle());
    }

    #[test]
    fn the_dead_are_not_counted_and_hold_up_nobody() {
        let alive = |member: &str| member != "dead";
        let joined = of(&[], &["dead"]).after(BarrierStep::Join, "b", 2, &alive);
        assert_eq!(joined.unwrap().state, of(&[], &["b"]));
        let looked = of(&["dead"], &["b", "c"]).after(BarrierStep::Look, "", 2, &alive);
        let looked = looked.unwrap();
        assert!(looked.is_awaited);
        assert_eq!(looked.state, of(&["b", "c"], &[]));
        let lost = of(&[], &[]).after(BarrierStep::Join, "dead", 2, &alive);
        assert_eq!(lost.unwrap_err().kind(), ErrorKind::Lost);
    }

    #[test]
    fn a_member_withdraws_only_while_it_waits() {
        let inside = of(&["a", "b"], &["c"]);
        assert_eq!(step(&inside, BarrierStep::Withdraw, "a").state, inside);
        let waiting = step(&inside, BarrierStep::Withdraw, "c").state;
        assert_eq!(waiting, of(&["a", "b"], &[]));
    }

    /// Whether the others have entered with it is not in the state any more.
    #[test]
    fn a_member_without_a_hold_is_not_told_that_it_has_withdrawn() {
        let alive = |member: &str| member != "dead";
        for before in [of(&["dead", "a"], &[]), of(&["a"], &["dead"]), of(&[], &[])] {
            let told = before.after(BarrierStep::Withdraw, "dead", 2, &alive);
            assert_eq!(told.unwrap_err().kind(), ErrorKind::Lost);
        }
    }

    #[test]
    fn all_members_must_name_the_same_number() {
        let waits = of(&[], &["a"]);
        let error = waits.after(BarrierStep::Join, "b", 3, &all).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOptions);
        // Nobody is left, so the next member decides.
        let gone = |member: &str| member == "b";
        let next = waits.after(BarrierStep::Join, "b", 3, &gone).unwrap();
        assert_eq!(next.state.size, 3);
    }

    #[test]
    fn a_thousand_members_are_the_most() {
        let mut state = of(&["a"], &[]);
        state.waiting = (1..MAX_PRESENT).map(|n| n.to_string()).collect();
        let join = |state: &BarrierState| state.after(BarrierStep::Join, "z", 2, &all);
        assert_eq!(join(&state).unwrap_err().kind(), ErrorKind::InvalidOptions);
        state.waiting.pop();
        assert_eq!(join(&state).unwrap().state.waiting.len(), MAX_PRESENT - 1);
    }

    #[test]
    fn a_line_of_a_later_version_is_read_or_refused() {
        let line = "barrier1 size=2 inside= waiting=a colour=red";
        assert_eq!(BarrierState::from_line(line).unwrap(), of(&[], &["a"]));
        for bad in [
            "barrier2 size=2",
            "mark1 done",
            "barrier1 size=2",
            "barrier1 size=x waiting=a",
            "barrier1 size=0 waiting=a",
            "barrier1 size=2 together=a inside=a,b waiting=",
            "x",
        ] {
            let error = BarrierState::from_line(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WrongType, "{bad}");
        }
    }

    fn members() -> impl Strategy<Value = Vec<String>> {
        proptest::collection::vec("[0-9a-f-]{1,8}:[0-9]{1,3}", 0..5)
    }

    proptest! {
        #[test]
        fn a_state_is_read_as_it_was_written(version: u64, size in 1u32.., together in members(), left: bool, waiting in members()) {
            let inside = together.iter().skip(usize::from(left)).cloned().collect();
            let mut state = BarrierState { size, together, inside, waiting, version };
            if state.is_idle() {
                state = BarrierState { version, ..BarrierState::default() };
            }
            prop_assert_eq!(BarrierState::from_line(&state.to_line()).unwrap(), state);
        }

        #[test]
        fn no_line_panics(line in ".*") {
            let _ = BarrierState::from_line(&line);
            let _ = BarrierState::from_line(&format!("{VERSION} size=2 {line}"));
        }
    }
}
