//! Latches and counting semaphores: numbers without holders.

use super::permits::PermitRecord;
use super::world::Records;
use crate::error::Result;
use crate::store::memory::Memory;
use crate::store::memory::semaphores::tell_all;
use crate::store::{
    BootInstant, BoxFuture, CountChange, CountChanged, CountKind, Counts, LatchChange, Name,
    OwnerId, SemaphoreChange, Wait, answers_kept, ready,
};

/// A change that had no effect.
const fn unchanged(count: i64) -> CountChanged {
    CountChanged {
        changed: false,
        count,
    }
}

impl Records {
    /// The answer, and whether the waiters may go on.
    fn change_latch(&mut self, name: &Name, change: LatchChange) -> (CountChanged, bool) {
        let before = self.latches.get(name).copied();
        let (changed, count) = match (change, before) {
            (LatchChange::SetIfNew(count), None) => (true, count),
            (LatchChange::SetIfNew(_), Some(count)) => (false, count),
            (LatchChange::CountDown, Some(count)) => (true, count.saturating_sub(1)),
            (LatchChange::CountDown, None) => (false, 0),
            (LatchChange::Delete, before) => (before.is_some(), 0),
        };
        if count == 0 {
            self.latches.remove(name);
        } else {
            self.latches.insert(name.clone(), count);
        }
        let answer = CountChanged {
            changed,
            count: count.into(),
        };
        (answer, changed && count == 0)
    }

    /// The answer, and whether the waiters may go on. `taken`: how many permits the change with this id has taken.
    fn change_semaphore(
        &mut self,
        name: &Name,
        change: SemaphoreChange,
        taken: i64,
    ) -> (CountChanged, bool) {
        let free = self.semaphores.get(name).map(PermitRecord::free);
        let number = free.unwrap_or(0);
        let (more, count) = match change {
            SemaphoreChange::SetIfNew(_) if free.is_some() => return (unchanged(number), false),
            SemaphoreChange::SetIfNew(total) => (total.into(), total.into()),
            SemaphoreChange::Add(more) => (more.into(), number + i64::from(more)),
            SemaphoreChange::GiveBack(back) => (back.into(), number + i64::from(back)),
            SemaphoreChange::Take(count) if number >= count.into() => {
                (-i64::from(count), count.into())
            }
            SemaphoreChange::Take(_) => return (unchanged(number), false),
            SemaphoreChange::Drain if number > 0 => (-number, number),
            SemaphoreChange::Undo if free.is_some() => (taken, taken),
            // A semaphore that was deleted has taken its permits along.
            SemaphoreChange::Drain | SemaphoreChange::Undo => return (unchanged(0), false),
        };
        let semaphore = self.semaphores.entry(name.clone()).or_default();
        semaphore.add(more);
        let changed = CountChanged {
            changed: true,
            count,
        };
        (changed, more > 0)
    }

    /// Takes back the permits of a semaphore of this name whose lease has ended. Otherwise they would come back with the next
    /// request of such a semaphore, and there may be none. Returns how many they are.
    fn take_back_ended(&mut self, name: &Name, now: BootInstant) -> i64 {
        let semaphore = self.semaphores.get_mut(name);
        semaphore.map_or(0, |it| it.take_back(|hold| hold.ends <= now))
    }

    fn refuse_others(&mut self, name: &Name, kind: CountKind, now: BootInstant) -> Result<()> {
        self.refuse_lock(name, now)?;
        match kind {
            CountKind::Latch => self.refuse_semaphore(name),
            CountKind::Semaphore => self.refuse_latch(name),
        }
    }
}

impl Memory {
    fn change_count(
        &self,
        name: &Name,
        change: CountChange,
        id: &OwnerId,
        settled: &[OwnerId],
    ) -> Result<CountChanged> {
        let now = self.timers.now();
        let mut records = self.world.lock();
        records
            .changed
            .retain(|id, (_, until)| *until > now && !settled.contains(id));
        let known = records.changed.get(id).map(|(answer, _)| *answer);
        let undoes = change == CountChange::Semaphore(SemaphoreChange::Undo);
        // An undo must be noted whatever the name is now.
        if !undoes {
            if let Some(answer) = known {
                return Ok(answer);
            }
            records.refuse_others(name, change.kind(), now)?;
        }
        let (answer, goes_on) = match change {
            CountChange::Latch(change) => records.change_latch(name, change),
            CountChange::Semaphore(change) => {
                let back = records.take_back_ended(name, now);
                let taken = known.filter(|answer| answer.changed);
                let taken = taken.map_or(0, |answer| answer.count);
                let (answer, goes_on) = records.change_semaphore(name, change, taken);
                (answer, goes_on || back > 0)
            }
        };
        // After this, a late request with the id of an undone change takes nothing.
        let noted = if undoes { unchanged(0) } else { answer };
        if answer.changed || undoes {
            records
                .changed
                .insert(id.clone(), (noted, now + answers_kept(self.lease)));
        }
        let listeners = goes_on.then(|| records.listeners.clone());
        drop(records);
        tell_all(listeners, name);
        Ok(answer)
    }

    fn count_of(&self, name: &Name, kind: CountKind) -> Result<i64> {
        let now = self.timers.now();
        let mut records = self.world.lock();
        records.refuse_others(name, kind, now)?;
        let semaphore = records.semaphores.get(name);
        Ok(match kind {
            CountKind::Latch => records.latches.get(name).copied().unwrap_or(0).into(),
            CountKind::Semaphore => semaphore.map_or(0, |it| it.available(now)),
        })
    }
}

impl Counts for Memory {
    fn change<'a>(
        &'a self,
        name: &'a Name,
        change: CountChange,
        id: &'a OwnerId,
        settled: &'a [OwnerId],
    ) -> BoxFuture<'a, Result<CountChanged>> {
        ready(self.change_count(name, change, id, settled))
    }

    fn count<'a>(&'a self, name: &'a Name, kind: CountKind) -> BoxFuture<'a, Result<i64>> {
        ready(self.count_of(name, kind))
    }

    fn arm<'a>(&'a self, name: &'a Name, _kind: CountKind) -> BoxFuture<'a, Result<Wait>> {
        ready(Ok(Wait {
            wake: Some(self.signals.arm(name.as_str())),
            recheck: Some(self.lease / 3),
            ahead: None,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waiters_of_a_latch_go_on_with_the_change_that_opens_it() {
        use LatchChange::{CountDown, Delete, SetIfNew};
        let (mut records, name) = (Records::default(), Name::new("gate").unwrap());
        for (change, changed, count, goes_on) in [
            (CountDown, false, 0, false),
            (Delete, false, 0, false),
            (SetIfNew(2), true, 2, false),
            (SetIfNew(9), false, 2, false),
            (CountDown, true, 1, false),
            (CountDown, true, 0, true),
            (SetIfNew(1), true, 1, false),
            (Delete, true, 0, true),
        ] {
            let answer = records.change_latch(&name, change);
            let expected = (CountChanged { changed, count }, goes_on);
            assert_eq!(answer, expected, "{change:?}");
        }
    }

    #[test]
    fn a_change_without_effect_leaves_the_number_as_it_is() {
        use SemaphoreChange::{Add, Drain, GiveBack, SetIfNew, Take, Undo};
        let (mut records, name) = (Records::default(), Name::new("slots").unwrap());
        for (change, taken, changed, count, goes_on) in [
            (Take(1), 0, false, 0, false),
            (Drain, 0, false, 0, false),
            // The semaphore was deleted after that, and its permits with it.
            (Undo, 3, false, 0, false),
            (SetIfNew(3), 0, true, 3, true),
            (SetIfNew(9), 0, false, 3, false),
            (Take(4), 0, false, 3, false),
            (Take(3), 0, true, 3, false),
            (Drain, 0, false, 0, false),
            (GiveBack(2), 0, true, 2, true),
            (Add(-3), 0, true, -1, false),
            (Drain, 0, false, 0, false),
            (Take(1), 0, false, -1, false),
            (Undo, 2, true, 2, true),
            (Drain, 0, true, 1, false),
        ] {
            let answer = records.change_semaphore(&name, change, taken);
            let expected = (CountChanged { changed, count }, goes_on);
            assert_eq!(answer, expected, "{change:?}");
        }
    }
}
