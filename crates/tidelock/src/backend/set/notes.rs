//! The in-doubt log: what a set remembers of a ticket. It is empty as long as every member answers.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::backend::{Moment, OwnerId};

/// How long an entry is kept. It exceeds the time that a request can lie in the buffers of a frozen server.
const KEPT: Duration = Duration::from_secs(600);

/// Entries by ticket.
#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<HashMap<OwnerId, Note>>);

#[derive(Debug)]
struct Note {
    since: Moment,
    marks: Vec<Mark>,
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
pub(super) struct Mark {
    /// A request got no answer and may still take effect.
    pub(super) doubt: bool,
    /// A release got no answer and may have taken effect.
    pub(super) tried: bool,
    /// The member has answered the release: nothing is left there.
    pub(super) over: bool,
    /// The member confirmed that it freed the lock.
    pub(super) freed: bool,
    /// The lock is not held there; an earlier release whose answer was lost may have freed it.
    pub(super) perhaps: bool,
    /// Something else stands there, beside what was held or in its place.
    pub(super) wrong_type: bool,
}

impl Note {
    fn new(since: Moment, parts: usize) -> Self {
        Self {
            since,
            marks: vec![Mark::default(); parts],
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

impl Notes {
    /// Records that a request of the ticket got no answer from a member.
    pub(super) fn doubt(&self, owner: &OwnerId, part: usize, parts: usize, now: Moment) {
        let mut notes = self.lock();
        note(&mut notes, owner, parts, now).marks[part].doubt = true;
    }

    /// Whether a request of the ticket may still take effect at a member.
    pub(super) fn in_doubt(&self, owner: &OwnerId) -> bool {
        self.lock().get(owner).is_some_and(Note::is_in_doubt)
    }

    /// Records that a release or withdrawal begins, and returns the state of the ticket at each member.
    pub(super) fn begin_end(&self, owner: &OwnerId, parts: usize, now: Moment) -> Vec<Mark> {
        let mut notes = self.lock();
        let note = note(&mut notes, owner, parts, now);
        note.ending = true;
        note.marks.clone()
    }

    /// Records the state after an attempt to release or withdraw.
    pub(super) fn end(&self, owner: &OwnerId, marks: &[Mark], done: bool) {
        self.change(owner, |note| {
            note.marks.copy_from_slice(marks);
            note.done = done;
        });
    }

    /// Records that a renewal is in flight. Its entry stays until it ends, so that the renewal sees a release that
    /// begins meanwhile.
    pub(super) fn begin_renewal(&self, owner: &OwnerId, parts: usize, now: Moment) {
        note(&mut self.lock(), owner, parts, now).renewals += 1;
    }

    /// Records that a renewal has ended.
    pub(super) fn end_renewal(&self, owner: &OwnerId) {
        self.change(owner, |note| {
            note.renewals = note.renewals.saturating_sub(1);
        });
    }

    /// Whether a renewal may restore the lock at a member that has lost it. If so, the ticket is in doubt there from
    /// now on.
    pub(super) fn may_mend(&self, owner: &OwnerId, part: usize) -> bool {
        match self.lock().get_mut(owner) {
            Some(note) if !note.ending => {
                note.marks[part].doubt = true;
                true
            }
            _ => false,
        }
    }

    /// Records that the request that restores the lock was answered.
    pub(super) fn mended(&self, owner: &OwnerId, part: usize) {
        self.change(owner, |note| {
            if !note.ending {
                note.marks[part].doubt = false;
            }
        });
    }

    fn change(&self, owner: &OwnerId, change: impl FnOnce(&mut Note)) {
        let mut notes = self.lock();
        if let Some(note) = notes.get_mut(owner) {
            change(note);
            if note.is_void() {
                notes.remove(owner);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<OwnerId, Note>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn note<'a>(
    notes: &'a mut HashMap<OwnerId, Note>,
    owner: &OwnerId,
    parts: usize,
    now: Moment,
) -> &'a mut Note {
    if notes.len() >= 64 && notes.len().is_power_of_two() {
        // We remove entries that no steward will complete. The scan visits every entry, so it runs only at powers of
        // two.
        notes.retain(|_, note| now.since(note.since) < KEPT || note.renewals > 0);
    }
    notes
        .entry(owner.clone())
        .or_insert_with(|| Note::new(now, parts))
}
