use super::{Breach, Promise, Terms};
use crate::acquisition::{Acquisition, Histories};
use crate::notes::Notes;

/// The ways in which a wait may end without a lock although the store is well: the timeout passed, the process was told
/// to stop, or the grant came so late that its lease was over.
const ORDINARY: [&str; 3] = ["TimedOut", "Stopped", "Over"];

/// The ends of a wait whose limit passed before the store said that another has the lock.
const CUT_SHORT: [&str; 2] = ["OutcomeUnknown", "Unavailable"];

/// The ends of a wait on a machine that is too busy: the answers come too late, or a job loses its lock before it has marked
/// its attempt. No load explains any other.
const BY_LOAD: [&str; 3] = ["OutcomeUnknown", "Unavailable", "Lost"];

/// A wait fails only because of the store. A freeze of the waiting process is no reason: the wait continues.
pub(super) fn check(history: &Histories, notes: &Notes, terms: &Terms) -> Vec<Breach> {
    let mut found = Vec::new();
    for one in &history.acquisitions {
        let Some((at, kind)) = &one.failed else {
            continue;
        };
        if terms.short_waits && CUT_SHORT.contains(&&**kind) {
            continue;
        }
        if ORDINARY.contains(&&**kind) || is_excused(one, notes) {
            continue;
        }
        // A machine that stands still for longer than the response timeout looks like a store that does not answer.
        let limit = terms.lease / 3;
        let mut stalls = history.stalls.iter();
        if stalls
            .any(|stall| stall.time > limit && one.asked <= stall.end && stall.end <= *at + limit)
        {
            continue;
        }
        let how = format!(
            "{} waited until {at:?} and was told {kind}: {}",
            one.id, one.why
        );
        let timing = BY_LOAD.contains(&&**kind);
        found.push(Breach {
            timing,
            ..Breach::new(Promise::Wait, how)
        });
    }
    found
}

/// Whether a fault of the store or a kill of the process explains the failure.
fn is_excused(one: &Acquisition, notes: &Notes) -> bool {
    let Some((until, kind)) = &one.failed else {
        return false;
    };
    let until = *until;
    // A job has the lock before it marks its attempt, and may lose it to a freeze in between.
    if kind == "Lost" && notes.stood_still(one.process, one.asked, until) {
        return true;
    }
    let harmed = |harm: &crate::notes::Harm| harm.when.meets(one.asked, until);
    notes.outage_until(one.asked, until).is_some()
        || notes.harms.iter().any(harmed)
        || notes.killed_before(one.process, until)
        || notes.was_cut_off(one.process, one.asked, until)
}
