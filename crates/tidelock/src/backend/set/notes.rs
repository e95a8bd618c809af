//! What a set must remember of a ticket, which is nothing as long as every member answers.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::backend::{Moment, OwnerId};

/// Longer than any request can lie in the buffers of a server that is frozen; then a note has no meaning any more.
const KEPT: Duration = Duration::from_secs(600);

/// Notes by ticket.
#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<HashMap<OwnerId, Note>>);

#[derive(Debug)]
struct Note {
    since: Moment,
    marks: Vec<Mark>,
    /// It is being given back: nothing of it is mended any more.
    ending: bool,
    /// It was given back.
    done: bool,
    /// How many renewals are on their way.
    renewals: u32,
}

/// What is known of a ticket at one member.
#[derive(Debug, Default, Clone, Copy)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "independent facts, not a state"
)]
pub(super) struct Mark {
    /// A request brought no answer: it may still take effect.
    pub(super) doubt: bool,
    /// A release brought no answer: it may have taken effect.
    pub(super) tried: bool,
    /// Nothing is left there.
    pub(super) over: bool,
    /// It was held there until it was given back: a member said so.
    pub(super) freed: bool,
    /// It is not held there, and may have been freed by a request of ours whose answer was lost.
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

    /// It says nothing that anybody will ask for.
    fn is_void(&self) -> bool {
        self.renewals == 0 && (self.done || !self.ending && !self.is_in_doubt())
    }
}

impl Notes {
    /// A request of the ticket brought no answer from a member.
    pub(super) fn doubt(&self, owner: &OwnerId, part: usize, parts: usize, now: Moment) {
        let mut notes = self.lock();
        note(&mut notes, owner, parts, now).marks[part].doubt = true;
    }

    /// A request of the ticket may still take effect somewhere.
    pub(super) fn in_doubt(&self, owner: &OwnerId) -> bool {
        self.lock().get(owner).is_some_and(Note::is_in_doubt)
    }

    /// The ticket is being given back. What is known of it at each member.
    pub(super) fn begin_end(&self, owner: &OwnerId, parts: usize, now: Moment) -> Vec<Mark> {
        let mut notes = self.lock();
        let note = note(&mut notes, owner, parts, now);
        note.ending = true;
        note.marks.clone()
    }

    /// What is known after an attempt to give it back.
    pub(super) fn end(&self, owner: &OwnerId, marks: &[Mark], done: bool) {
        self.change(owner, |note| {
            note.marks.copy_from_slice(marks);
            note.done = done;
        });
    }

    /// A renewal of the ticket is on its way.
    pub(super) fn begin_renewal(&self, owner: &OwnerId, parts: usize, now: Moment) {
        note(&mut self.lock(), owner, parts, now).renewals += 1;
    }

    /// No more.
    pub(super) fn end_renewal(&self, owner: &OwnerId) {
        self.change(owner, |note| {
            note.renewals = note.renewals.saturating_sub(1);
        });
    }

    /// Whether the ticket may be put back where it was lost. From now on it may be there.
    pub(super) fn may_mend(&self, owner: &OwnerId, part: usize) -> bool {
        match self.lock().get_mut(owner) {
            Some(note) if !note.ending => {
                note.marks[part].doubt = true;
                true
            }
            _ => false,
        }
    }

    /// The mending was answered.
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
        // What nobody came back to, because its steward had gone. Not at every turn: it looks at them all.
        notes.retain(|_, note| now.since(note.since) < KEPT || note.renewals > 0);
    }
    notes
        .entry(owner.clone())
        .or_insert_with(|| Note::new(now, parts))
}
