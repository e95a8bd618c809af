//! The permits of one semaphore: how many are free, and which owners hold the others.

use crate::snapshot::{Holder, Mode, PermitCount, Snapshot};
use crate::store::{BootInstant, OwnerId, PermitChange};

/// A semaphore.
#[derive(Debug, Default)]
pub(crate) struct PermitRecord {
    /// Negative if the number was reduced below the number that is held.
    free: i64,
    out: Vec<PermitHold>,
}

#[derive(Debug)]
pub(crate) struct PermitHold {
    pub(crate) owner: OwnerId,
    count: u16,
    pub(crate) ends: BootInstant,
}

impl PermitRecord {
    /// Takes back the permits of holders that this selects. Returns their number.
    pub(crate) fn take_back(&mut self, is_over: impl Fn(&PermitHold) -> bool) -> i64 {
        let over = self.out.iter().filter(|hold| is_over(hold));
        let back: i64 = over.map(|hold| i64::from(hold.count)).sum();
        self.out.retain(|hold| !is_over(hold));
        self.free += back;
        back
    }

    /// Takes permits for an owner, unless it has them already. False: there are too few.
    pub(crate) fn take(&mut self, owner: &OwnerId, count: u16, ends: BootInstant) -> bool {
        if let Some(own) = self.held_by(owner) {
            own.ends = own.ends.max(ends);
            return true;
        }
        let enough = self.has_free(count);
        if enough {
            self.free -= i64::from(count);
            let owner = owner.clone();
            self.out.push(PermitHold { owner, count, ends });
        }
        enough
    }

    pub(crate) fn has_free(&self, count: u16) -> bool {
        self.free >= i64::from(count)
    }

    /// How many permits nobody holds.
    pub(crate) fn free(&self) -> i64 {
        self.free
    }

    /// The same with those whose lease has ended, which the next request takes back.
    pub(crate) fn available(&self, now: BootInstant) -> i64 {
        let held = self.out.iter().filter(|hold| hold.ends > now);
        self.total() - held.map(|hold| i64::from(hold.count)).sum::<i64>()
    }

    /// Changes the number of permits.
    pub(crate) fn add(&mut self, more: i64) {
        self.free += more;
    }

    /// When the first lease ends.
    pub(crate) fn first_end(&self) -> Option<BootInstant> {
        self.out.iter().map(|hold| hold.ends).min()
    }

    /// Returns by how much the number of permits has changed.
    pub(crate) fn change(&mut self, change: PermitChange) -> i64 {
        let more = match change {
            PermitChange::SetIfNew(total) | PermitChange::Set(total) => {
                i64::from(total) - self.total()
            }
            PermitChange::Add(more) => i64::from(more),
        };
        self.free += more;
        more
    }

    pub(crate) fn held_by(&mut self, owner: &OwnerId) -> Option<&mut PermitHold> {
        self.out.iter_mut().find(|hold| hold.owner == *owner)
    }

    fn total(&self) -> i64 {
        let out = self.out.iter().map(|hold| i64::from(hold.count));
        self.free + out.sum::<i64>()
    }

    pub(crate) fn is_held(&self, now: BootInstant) -> bool {
        self.out.iter().any(|hold| hold.ends > now)
    }

    pub(crate) fn show(&self, snapshot: &mut Snapshot, now: BootInstant) {
        for hold in self.out.iter().filter(|hold| hold.ends > now) {
            let mut holder = Holder::new(hold.owner.permit_id(0), u64::from(hold.count));
            holder.mode = Mode::Permits;
            snapshot.holders.push(holder);
            snapshot.expires_in = snapshot.expires_in.max(Some(hold.ends.since(now)));
        }
        snapshot.permits = Some(PermitCount::new(self.available(now), self.total()));
    }
}
