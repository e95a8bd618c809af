//! The in-doubt log: what a set remembers of a ticket. It is empty as long as every member answers.

use std::collections::HashMap;
use std::time::Duration;

use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::store::{BootInstant, OwnerId};

/// How long an entry is kept. It exceeds the time that a request can lie in the buffers of a frozen server.
const ENTRY_TTL: Duration = Duration::from_secs(600);

/// Entries by ticket.
#[derive(Debug, Default)]
pub(crate) struct InDoubtLog(Mutex<HashMap<OwnerId, InDoubtEntry>>);

#[derive(Debug)]
struct InDoubtEntry {
    since: BootInstant,
    marks: Vec<MemberDoubt>,
    /// A release or withdrawal has begun, so a renewal must no longer restore the lock at a member.
    ending: bool,
    /// The release or withdrawal has ended.
    done: bool,
    /// How many renewals are in flight.
    renewals: u32,
}

/// The state of a ticket at one member.
#[derive(Debug, Default, Clone, Copy)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "independent facts, not a state"
)]
pub(crate) struct MemberDoubt {
    /// A request got no answer and may still take effect.
    pub(crate) doubt: bool,
    /// A release got no answer and may have taken effect.
    pub(crate) tried: bool,
    /// The member has answered the release: nothing is left there.
    pub(crate) over: bool,
    /// The member confirmed that it freed the lock.
    pub(crate) freed: bool,
    /// The lock is not held there; an earlier release whose answer was lost may have freed it.
    pub(crate) perhaps: bool,
    /// Something else stands there, beside what was held or in its place.
    pub(crate) wrong_type: bool,
}

impl InDoubtEntry {
    fn new(since: BootInstant, parts: usize) -> Self {
        Self {
            since,
            marks: vec![MemberDoubt::default(); parts],
            ending: false,
            done: false,
            renewals: 0,
        }
    }

    fn is_in_doubt(&self) -> bool {
        self.marks.iter().any(|mark| mark.doubt && !mark.over)
    }

    /// The entry holds nothing that a later call needs.
    fn is_void(&self) -> bool {
        self.renewals == 0 && (self.done || !self.ending && !self.is_in_doubt())
    }
}

impl InDoubtLog {
    /// Records that a request of the ticket got no answer from a member.
    pub(crate) fn doubt(&self, owner: &OwnerId, part: usize, parts: usize, now: BootInstant) {
        let mut in_doubt_log = self.lock();
        note(&mut in_doubt_log, owner, parts, now).marks[part].doubt = true;
    }

    /// Whether a request of the ticket may still take effect at a member.
    pub(crate) fn in_doubt(&self, owner: &OwnerId) -> bool {
        self.lock()
            .get(owner)
            .is_some_and(InDoubtEntry::is_in_doubt)
    }

    /// Records that a release or withdrawal begins, and returns the state of the ticket at each member.
    pub(crate) fn begin_end(
        &self,
        owner: &OwnerId,
        parts: usize,
        now: BootInstant,
    ) -> Vec<MemberDoubt> {
        let mut in_doubt_log = self.lock();
        let note = note(&mut in_doubt_log, owner, parts, now);
        note.ending = true;
        note.marks.clone()
    }

    /// Records the state after an attempt to release or withdraw.
    pub(crate) fn end(&self, owner: &OwnerId, marks: &[MemberDoubt], done: bool) {
        self.change(owner, |note| {
            note.marks.copy_from_slice(marks);
            note.done = done;
        });
    }

    /// Records that a renewal is in flight. Its entry stays until it ends, so that the renewal sees a release that
    /// begins meanwhile.
    pub(crate) fn begin_renewal(&self, owner: &OwnerId, parts: usize, now: BootInstant) {
        note(&mut self.lock(), owner, parts, now).renewals += 1;
    }

    /// Records that a renewal has ended.
    pub(crate) fn end_renewal(&self, owner: &OwnerId) {
        self.change(owner, |note| {
            note.renewals = note.renewals.saturating_sub(1);
        });
    }

    /// Whether a renewal may restore the lock at a member that has lost it. If so, the ticket is in doubt there from
    /// now on.
    pub(crate) fn may_mend(&self, owner: &OwnerId, part: usize) -> bool {
        match self.lock().get_mut(owner) {
            Some(note) if !note.ending => {
                note.marks[part].doubt = true;
                true
            }
            _ => false,
        }
    }

    /// Records that the request that restores the lock was answered.
    pub(crate) fn repaired(&self, owner: &OwnerId, part: usize) {
        self.change(owner, |note| {
            if !note.ending {
                note.marks[part].doubt = false;
            }
        });
    }

    fn change(&self, owner: &OwnerId, change: impl FnOnce(&mut InDoubtEntry)) {
        let mut in_doubt_log = self.lock();
        if let Some(note) = in_doubt_log.get_mut(owner) {
            change(note);
            if note.is_void() {
                in_doubt_log.remove(owner);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<OwnerId, InDoubtEntry>> {
        self.0.lock()
    }
}

fn note<'a>(
    in_doubt_log: &'a mut HashMap<OwnerId, InDoubtEntry>,
    owner: &OwnerId,
    parts: usize,
    now: BootInstant,
) -> &'a mut InDoubtEntry {
    if in_doubt_log.len() >= 64 && in_doubt_log.len().is_power_of_two() {
        // We remove entries that no steward will complete. The scan visits every entry, so it runs only at powers of
        // two.
        in_doubt_log.retain(|_, note| now.since(note.since) < ENTRY_TTL || note.renewals > 0);
    }
    in_doubt_log
        .entry(owner.clone())
        .or_insert_with(|| InDoubtEntry::new(now, parts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::OwnerMint;

    const PARTS: usize = 3;

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(1) + Duration::from_secs(seconds)
    }

    #[test]
    fn a_ticket_is_in_doubt_until_its_release_was_answered() {
        let (log, owner) = (InDoubtLog::default(), OwnerMint::new().fresh());
        assert!(!log.in_doubt(&owner));
        log.doubt(&owner, 1, PARTS, at(0));
        assert!(log.in_doubt(&owner));
        let mut marks = log.begin_end(&owner, PARTS, at(1));
        assert_eq!(
            [0, 1, 2].map(|part| marks[part].doubt),
            [false, true, false]
        );
        marks[1].over = true;
        log.end(&owner, &marks, false);
        assert!(!log.in_doubt(&owner));
        assert_eq!(log.lock().len(), 1, "other members are asked again");
        log.end(&owner, &marks, true);
        assert_eq!(log.lock().len(), 0);
    }

    #[test]
    fn an_entry_stays_until_the_last_renewal_has_ended() {
        let (log, owner) = (InDoubtLog::default(), OwnerMint::new().fresh());
        log.begin_renewal(&owner, PARTS, at(0));
        log.begin_renewal(&owner, PARTS, at(0));
        log.end_renewal(&owner);
        assert_eq!(log.lock().len(), 1);
        log.end_renewal(&owner);
        assert_eq!(log.lock().len(), 0);
    }

    /// The restore of a lock that arrives after its release would leave it held by nobody.
    #[test]
    fn no_renewal_restores_a_lock_whose_release_has_begun() {
        let (log, owner) = (InDoubtLog::default(), OwnerMint::new().fresh());
        assert!(!log.may_mend(&owner, 0), "nothing is known of it");
        log.begin_renewal(&owner, PARTS, at(0));
        assert!(log.may_mend(&owner, 0));
        assert!(log.in_doubt(&owner), "it is under way");
        log.repaired(&owner, 0);
        assert!(!log.in_doubt(&owner));
        assert!(log.may_mend(&owner, 2));
        let marks = log.begin_end(&owner, PARTS, at(1));
        assert!(marks[2].doubt && !marks[0].doubt);
        assert!(!log.may_mend(&owner, 1));
        log.repaired(&owner, 2);
        assert!(log.in_doubt(&owner), "the release decides what is left");
    }

    /// A log in which that many tickets were in doubt since the start, and one more was renewed. Returns how many entries
    /// are left after a new one at that instant.
    fn left_of(in_doubt: usize, now: BootInstant) -> usize {
        let (log, mint) = (InDoubtLog::default(), OwnerMint::new());
        log.begin_renewal(&mint.fresh(), PARTS, at(0));
        for _ in 0..in_doubt {
            log.doubt(&mint.fresh(), 0, PARTS, at(0));
        }
        log.doubt(&mint.fresh(), 0, PARTS, now);
        log.lock().len()
    }

    #[test]
    fn old_entries_are_removed_when_the_log_has_grown() {
        let over = at(0) + ENTRY_TTL;
        let before = BootInstant(over.0 - 1);
        assert_eq!(left_of(63, before), 65);
        assert_eq!(left_of(63, over), 2, "the renewal and the new one");
        assert_eq!(left_of(127, over), 2);
        assert_eq!(left_of(64, over), 66, "a scan of all for each new one");
        assert_eq!(left_of(31, over), 33, "too few for a scan");
    }
}
