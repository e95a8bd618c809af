//! Checks the members of a barrier: exactly so many enter together, all of them agree who, no use begins while somebody of
//! another one is inside, and nobody who was told that its time is over was let in.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

use tidelock::BarrierGuard;

/// What was broken, or nothing.
pub(crate) type Verdict = Result<(), String>;

/// All uses of one barrier, as its members learn of them.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    all: Vec<Use>,
    /// The members inside. A member is inside from the answer of its call until it begins to leave.
    inside: Vec<Inside>,
    /// For each client, how many of its calls have ended without an answer: the others may have entered with these.
    unanswered: BTreeMap<String, usize>,
}

/// The members that entered together, by their owner ids. No two members ever have the same.
#[derive(Debug)]
struct Use {
    together: Vec<String>,
    /// Those that know of it.
    entered: BTreeSet<String>,
    /// A member was told that all have left.
    is_over: bool,
}

#[derive(Debug)]
struct Inside {
    who: String,
    of: usize,
    guard: Weak<BarrierGuard>,
}

impl Uses {
    /// A member has learned that it is inside. `may_be_late`: an operator has just taken the holds of all members.
    pub(crate) fn entered(
        &mut self,
        who: &str,
        size: usize,
        guard: &Rc<BarrierGuard>,
        may_be_late: bool,
    ) -> Verdict {
        let (owner, together) = (guard.owner_id(), guard.together());
        let own = together.iter().filter(|member| **member == owner).count();
        if together.len() != size || own != 1 {
            let members = together.len();
            return Err(format!(
                "{who} enters {own} times in a use of {members} members, not {size}"
            ));
        }
        let of = self.use_of(who, together)?;
        if !may_be_late {
            let others = self.inside.iter().find(|one| one.of != of && one.is_held());
            if let Some(other) = others {
                return Err(format!(
                    "two uses at once: {who} enters, and {} is inside of another use",
                    other.who
                ));
            }
            if self.all[of].is_over {
                return Err(format!(
                    "{who} enters, and a member of this use was told that all have left"
                ));
            }
        }
        if !self.all[of].entered.insert(owner) {
            return Err(format!("{who} enters twice as one member"));
        }
        self.inside.push(Inside {
            who: who.to_owned(),
            of,
            guard: Rc::downgrade(guard),
        });
        Ok(())
    }

    /// The use of these members. All must have the same list.
    fn use_of(&mut self, who: &str, together: &[String]) -> Result<usize, String> {
        let known = |one: &Use| together.iter().any(|owner| one.together.contains(owner));
        let mut uses = (0..self.all.len()).filter(|at| known(&self.all[*at]));
        match (uses.next(), uses.next()) {
            (None, _) => {
                self.all.push(Use {
                    together: together.to_vec(),
                    entered: BTreeSet::new(),
                    is_over: false,
                });
                Ok(self.all.len() - 1)
            }
            (Some(at), None) if self.all[at].together == together => Ok(at),
            _ => Err(format!(
                "two members do not agree who has entered with them; one is {who}"
            )),
        }
    }

    /// A member begins to leave, or has lost its lease.
    pub(crate) fn leaves(&mut self, guard: &Rc<BarrierGuard>) {
        let own = Rc::downgrade(guard);
        self.inside.retain(|one| !one.guard.ptr_eq(&own));
    }

    /// A member of this list was told that all have left.
    pub(crate) fn all_left(
        &mut self,
        who: &str,
        together: &[String],
        may_be_late: bool,
    ) -> Verdict {
        let of = self.use_of(who, together)?;
        self.all[of].is_over |= !may_be_late;
        let left_behind = self.inside.iter().find(|one| one.of == of && one.is_held());
        match left_behind.filter(|_| !may_be_late) {
            Some(other) => Err(format!(
                "{who} was told that all have left, and {} is inside",
                other.who
            )),
            None => Ok(()),
        }
    }

    /// A call of this client has ended without an answer.
    pub(crate) fn unanswered(&mut self, client: &str) {
        *self.unanswered.entry(client.to_owned()).or_default() += 1;
    }

    /// At the end of the story: each member that was let in has learned of it, or its call had no answer.
    pub(crate) fn all_told(&self) -> Verdict {
        let mut untold: BTreeMap<&str, usize> = BTreeMap::new();
        for one in &self.all {
            for owner in one.together.iter().filter(|it| !one.entered.contains(*it)) {
                let client = owner.split_once(':').map_or(&**owner, |(client, _)| client);
                *untold.entry(client).or_default() += 1;
            }
        }
        for (client, untold) in untold {
            let unanswered = self.unanswered.get(client).copied().unwrap_or(0);
            if untold > unanswered {
                return Err(format!(
                    "{untold} members of a client were let in and do not know it; {unanswered} of its calls had no answer"
                ));
            }
        }
        Ok(())
    }
}

impl Inside {
    fn is_held(&self) -> bool {
        self.guard.upgrade().is_some_and(|guard| guard.is_held())
    }
}
