use std::collections::BTreeMap;
use std::time::Duration;

use super::{Breach, Promise};
use crate::acquisition::{Acquisition, Histories};
use crate::notes::Notes;

/// A slot that is marked as done is not run again, unless the store forgot its marks.
pub(super) fn check(history: &Histories, notes: &Notes) -> Vec<Breach> {
    let mut slots: BTreeMap<(&str, &str), Vec<&Acquisition>> = BTreeMap::new();
    for one in history.granted() {
        if let Some(slot) = &one.slot {
            slots.entry((&one.name, slot)).or_default().push(one);
        }
    }
    let mut found = Vec::new();
    for ((name, slot), runs) in slots {
        let done = runs.iter().filter_map(|run| run.done.map(|at| (at, *run)));
        let Some((done, first)) = done.min_by_key(|(at, _)| *at) else {
            continue;
        };
        let again = runs.iter().find(|run| {
            run.granted
                .is_some_and(|at| at > done && !is_forgotten(name, first.asked, at, notes))
        });
        if let Some(again) = again {
            let how = format!(
                "{} ran {slot} of {name}, which {} had run",
                again.id, first.id
            );
            found.push(Breach::new(Promise::Slots, how));
        }
    }
    found
}

/// Whether the store may have forgotten the marks of this job in this time.
fn is_forgotten(name: &str, from: Duration, to: Duration, notes: &Notes) -> bool {
    let mut harms = notes.harms.iter();
    let mut marks = notes.marks_forgotten.iter();
    harms.any(|harm| harm.tokens && harm.concerns(name) && harm.when.meets(from, to))
        || marks.any(|when| when.meets(from, to))
}
