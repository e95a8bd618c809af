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
    /// The number of requests in flight that restore the lock. Each may get no answer, so the answer to one settles nothing for another.
    pub(crate) restores: u32,
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
        let is_open = |mark: &MemberDoubt| mark.doubt || mark.restores > 0;
        self.marks.iter().any(|mark| is_open(mark) && !mark.over)
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
        for mark in &mut note.marks {
            mark.doubt |= mark.restores > 0;
        }
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

    /// Whether a renewal may restore the lock at a member that has lost it. If so, the ticket is in doubt there until
    /// [`end_restore`](Self::end_restore).
    pub(crate) fn begin_restore(&self, ticket: &Ticket, part: usize) -> bool {
        match self.lock().by_ticket.get_mut(&TicketKey::of(ticket)) {
            Some(note) if !note.ending => {
                note.marks[part].restores += 1;
                true
            }
            _ => false,
        }
    }

    /// Records that a request that restores the lock has ended. Without an answer it may still take effect.
    pub(crate) fn end_restore(&self, ticket: &Ticket, part: usize, is_answered: bool) {
        self.change(ticket, |note| {
            let mark = &mut note.marks[part];
            mark.restores = mark.restores.saturating_sub(1);
            mark.doubt |= !is_answered;
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
mod tests;
