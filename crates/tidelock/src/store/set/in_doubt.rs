//! The in-doubt log: what a set remembers of a ticket. It is empty as long as every member answers.

use std::collections::HashMap;
use std::time::Duration;

use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::store::ticket_key::TicketKey;
use crate::store::{BootInstant, Renewal, Ticket};

/// How long an entry is kept. It exceeds the time that a request can lie in the buffers of a frozen server.
const ENTRY_TTL: Duration = Duration::from_secs(600);

/// The smallest number of entries that is worth a scan.
const MIN_PURGE: usize = 64;

/// Entries by ticket.
#[derive(Debug, Default)]
pub(crate) struct InDoubtLog(Mutex<InDoubtTable>);

#[derive(Debug)]
struct InDoubtTable {
    by_ticket: HashMap<TicketKey, InDoubtEntry>,
    /// When the last scan removed old entries.
    purged: BootInstant,
    /// How many entries make another scan worth it, even soon after the last one.
    next_purge: usize,
}

impl Default for InDoubtTable {
    fn default() -> Self {
        Self {
            by_ticket: HashMap::new(),
            purged: BootInstant(0),
            next_purge: MIN_PURGE,
        }
    }
}

impl InDoubtTable {
    /// The entry of a ticket, if need be a new one.
    fn note(&mut self, ticket: &Ticket, parts: usize, now: BootInstant) -> &mut InDoubtEntry {
        self.purge(now);
        self.by_ticket
            .entry(TicketKey::of(ticket))
            .or_insert_with(|| InDoubtEntry::new(now, parts))
    }

    /// Removes entries that no steward will complete. The scan visits every entry, so it runs only if the log has doubled
    /// since the last one, or if entries can have become old since.
    fn purge(&mut self, now: BootInstant) {
        let len = self.by_ticket.len();
        let due = len >= self.next_purge || now.since(self.purged) >= ENTRY_TTL;
        if len >= MIN_PURGE && due {
            self.by_ticket
                .retain(|_, note| now.since(note.since) < ENTRY_TTL || note.renewals > 0);
            self.purged = now;
            self.next_purge = (self.by_ticket.len() * 2).max(MIN_PURGE);
        }
    }
}

/// Renewals in flight. Their entries stay until this is dropped, also if the caller drops the renewal.
pub(crate) struct RenewalInFlight<'a> {
    log: &'a InDoubtLog,
    batch: &'a [Renewal],
}

impl Drop for RenewalInFlight<'_> {
    fn drop(&mut self) {
        for renewal in self.batch {
            self.log.end_renewal(&renewal.ticket);
        }
    }
}

#[derive(Debug)]
struct InDoubtEntry {
    since: BootInstant,
    marks: Vec<MemberDoubt>,
    /// A release or withdrawal has begun, so a renewal must no longer restore the lock at a member.
    ending: bool,
    /// The release or withdrawal has ended.
    done: bool,
    /// The ticket became a hold.
    granted: bool,
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
            granted: false,
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
    pub(crate) fn doubt(&self, ticket: &Ticket, part: usize, parts: usize, now: BootInstant) {
        let mut in_doubt_log = self.lock();
        in_doubt_log.note(ticket, parts, now).marks[part].doubt = true;
    }

    /// Whether a request of the ticket may still take effect at a member.
    pub(crate) fn in_doubt(&self, ticket: &Ticket) -> bool {
        let log = self.lock();
        let entry = log.by_ticket.get(&TicketKey::of(ticket));
        entry.is_some_and(InDoubtEntry::is_in_doubt)
    }

    /// Records that the set has granted a ticket, if it is in doubt at a member.
    pub(crate) fn granted(&self, ticket: &Ticket) {
        self.change(ticket, |note| note.granted = true);
    }

    /// Whether a ticket that was in doubt became a hold.
    pub(crate) fn was_granted(&self, ticket: &Ticket) -> bool {
        let log = self.lock();
        let entry = log.by_ticket.get(&TicketKey::of(ticket));
        entry.is_some_and(|note| note.granted)
    }

    /// Records that a release or withdrawal begins, and returns the state of the ticket at each member.
    pub(crate) fn begin_end(
        &self,
        ticket: &Ticket,
        parts: usize,
        now: BootInstant,
    ) -> Vec<MemberDoubt> {
        let mut in_doubt_log = self.lock();
        let note = in_doubt_log.note(ticket, parts, now);
        note.ending = true;
        note.marks.clone()
    }

    /// Records the state after an attempt to release or withdraw.
    pub(crate) fn end(&self, ticket: &Ticket, marks: &[MemberDoubt], done: bool) {
        self.change(ticket, |note| {
            note.marks.copy_from_slice(marks);
            note.done = done;
        });
    }

    /// Records that renewals are in flight. Their entries stay until they end, so that each renewal sees a release that
    /// begins meanwhile.
    pub(crate) fn renewing<'a>(
        &'a self,
        batch: &'a [Renewal],
        parts: usize,
        now: BootInstant,
    ) -> RenewalInFlight<'a> {
        for renewal in batch {
            self.begin_renewal(&renewal.ticket, parts, now);
        }
        RenewalInFlight { log: self, batch }
    }

    fn begin_renewal(&self, ticket: &Ticket, parts: usize, now: BootInstant) {
        self.lock().note(ticket, parts, now).renewals += 1;
    }

    fn end_renewal(&self, ticket: &Ticket) {
        self.change(ticket, |note| {
            note.renewals = note.renewals.saturating_sub(1);
        });
    }

    /// Whether a renewal may restore the lock at a member that has lost it. If so, the ticket is in doubt there from
    /// now on.
    pub(crate) fn may_mend(&self, ticket: &Ticket, part: usize) -> bool {
        match self.lock().by_ticket.get_mut(&TicketKey::of(ticket)) {
            Some(note) if !note.ending => {
                note.marks[part].doubt = true;
                true
            }
            _ => false,
        }
    }

    /// Records that the request that restores the lock was answered.
    pub(crate) fn repaired(&self, ticket: &Ticket, part: usize) {
        self.change(ticket, |note| {
            if !note.ending {
                note.marks[part].doubt = false;
            }
        });
    }

    fn change(&self, ticket: &Ticket, change: impl FnOnce(&mut InDoubtEntry)) {
        let mut in_doubt_log = self.lock();
        let key = TicketKey::of(ticket);
        if let Some(note) = in_doubt_log.by_ticket.get_mut(&key) {
            change(note);
            if note.is_void() {
                in_doubt_log.by_ticket.remove(&key);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().by_ticket.len()
    }

    fn lock(&self) -> MutexGuard<'_, InDoubtTable> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Name;
    use crate::types::{LockKind, OwnerMint};

    const PARTS: usize = 3;

    fn ticket(mint: &OwnerMint) -> Ticket {
        Ticket {
            kind: LockKind::Mutex,
            name: Name::new("stock").unwrap(),
            owner: mint.fresh(),
        }
    }

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(1) + Duration::from_secs(seconds)
    }

    #[test]
    fn a_ticket_is_in_doubt_until_its_release_was_answered() {
        let (log, ticket) = (InDoubtLog::default(), ticket(&OwnerMint::new()));
        assert!(!log.in_doubt(&ticket));
        log.doubt(&ticket, 1, PARTS, at(0));
        assert!(log.in_doubt(&ticket));
        let mut marks = log.begin_end(&ticket, PARTS, at(1));
        assert_eq!(
            [0, 1, 2].map(|part| marks[part].doubt),
            [false, true, false]
        );
        marks[1].over = true;
        log.end(&ticket, &marks, false);
        assert!(!log.in_doubt(&ticket));
        assert_eq!(log.len(), 1, "other members are asked again");
        log.end(&ticket, &marks, true);
        assert_eq!(log.len(), 0);
    }

    /// The parts of a multi lock have one owner. What is known of one part says nothing about the other.
    #[test]
    fn each_part_of_a_multi_lock_has_an_entry() {
        let (log, from) = (InDoubtLog::default(), ticket(&OwnerMint::new()));
        let to = Ticket {
            name: Name::new("money").unwrap(),
            ..from.clone()
        };
        log.doubt(&from, 1, PARTS, at(0));
        assert!(log.in_doubt(&from) && !log.in_doubt(&to));
        let (mut left, mut freed) = (
            log.begin_end(&from, PARTS, at(1)),
            log.begin_end(&to, PARTS, at(1)),
        );
        left[0].over = true;
        for mark in &mut freed {
            mark.over = true;
        }
        log.end(&from, &left, false);
        log.end(&to, &freed, true);
        let known = log.begin_end(&from, PARTS, at(2));
        assert_eq!([0, 1, 2].map(|part| known[part].over), [true, false, false]);
        assert_eq!(
            [0, 1, 2].map(|part| known[part].doubt),
            [false, true, false]
        );
    }

    #[test]
    fn a_ticket_in_doubt_that_became_a_hold_is_known() {
        let (log, mint) = (InDoubtLog::default(), OwnerMint::new());
        let [granted, doubtful, unknown] = [(); 3].map(|()| ticket(&mint));
        log.doubt(&granted, 0, PARTS, at(0));
        log.doubt(&doubtful, 0, PARTS, at(0));
        log.granted(&granted);
        log.granted(&unknown);
        let known = [granted, doubtful, unknown].map(|ticket| log.was_granted(&ticket));
        assert_eq!(known, [true, false, false]);
    }

    /// A scan visits every entry, so a scan for each new entry would take quadratic time.
    #[test]
    fn the_log_is_scanned_when_it_has_doubled_or_entries_are_old() {
        let (log, mint) = (InDoubtLog::default(), OwnerMint::new());
        let add = |count: usize, now: BootInstant| {
            for _ in 0..count {
                log.doubt(&ticket(&mint), 0, PARTS, now);
            }
            log.lock().purged
        };
        let start = at(0) + ENTRY_TTL;
        assert_eq!(add(64, start), BootInstant(0));
        let first = add(1, start);
        assert_eq!(first, start);
        let later = start + Duration::from_secs(1);
        assert_eq!(add(63, later), first);
        assert_eq!(add(1, later), later, "128 are twice as many as before");
        // They are old now, but nothing has doubled.
        let end = later + ENTRY_TTL;
        assert_eq!(add(1, end), end);
        assert_eq!(log.len(), 1);
        assert_eq!(add(62, end + Duration::from_secs(1)), end);
    }

    #[test]
    fn an_entry_stays_until_the_last_renewal_has_ended() {
        let (log, ticket) = (InDoubtLog::default(), ticket(&OwnerMint::new()));
        log.begin_renewal(&ticket, PARTS, at(0));
        log.begin_renewal(&ticket, PARTS, at(0));
        log.end_renewal(&ticket);
        assert_eq!(log.len(), 1);
        log.end_renewal(&ticket);
        assert_eq!(log.len(), 0);
    }

    /// The restore of a lock that arrives after its release would leave it held by nobody.
    #[test]
    fn no_renewal_restores_a_lock_whose_release_has_begun() {
        let (log, ticket) = (InDoubtLog::default(), ticket(&OwnerMint::new()));
        assert!(!log.may_mend(&ticket, 0), "nothing is known of it");
        log.begin_renewal(&ticket, PARTS, at(0));
        assert!(log.may_mend(&ticket, 0));
        assert!(log.in_doubt(&ticket), "it is under way");
        log.repaired(&ticket, 0);
        assert!(!log.in_doubt(&ticket));
        assert!(log.may_mend(&ticket, 2));
        let marks = log.begin_end(&ticket, PARTS, at(1));
        assert!(marks[2].doubt && !marks[0].doubt);
        assert!(!log.may_mend(&ticket, 1));
        log.repaired(&ticket, 2);
        assert!(log.in_doubt(&ticket), "the release decides what is left");
    }

    /// A log in which that many tickets were in doubt since the start, and one more was renewed. Returns how many entries
    /// are left after a new one at that instant.
    fn left_of(in_doubt: usize, now: BootInstant) -> usize {
        let (log, mint) = (InDoubtLog::default(), OwnerMint::new());
        log.begin_renewal(&ticket(&mint), PARTS, at(0));
        for _ in 0..in_doubt {
            log.doubt(&ticket(&mint), 0, PARTS, at(0));
        }
        log.doubt(&ticket(&mint), 0, PARTS, now);
        log.len()
    }

    #[test]
    fn old_entries_are_removed_when_the_log_has_grown() {
        let over = at(0) + ENTRY_TTL;
        let before = BootInstant(over.0 - 1);
        assert_eq!(left_of(63, before), 65);
        assert_eq!(left_of(63, over), 2, "the renewal and the new one");
        assert_eq!(left_of(127, over), 2);
        assert_eq!(
            left_of(64, over),
            2,
            "they can have become old since the last scan"
        );
        assert_eq!(left_of(31, over), 33, "too few for a scan");
    }

    /// After an outage of minutes the log is large and no entry is old. It may never double again.
    #[test]
    fn old_entries_are_removed_from_a_log_that_stays_as_large() {
        let (log, mint) = (InDoubtLog::default(), OwnerMint::new());
        for _ in 0..200 {
            log.doubt(&ticket(&mint), 0, PARTS, at(0));
        }
        log.doubt(&ticket(&mint), 0, PARTS, at(0) + ENTRY_TTL);
        assert_eq!(log.len(), 1);
    }
}
