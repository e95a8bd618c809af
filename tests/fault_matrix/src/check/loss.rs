use std::time::Duration;

use super::{Breach, Promise, Terms};
use crate::acquisition::{Acquisition, Histories};
use crate::notes::{Notes, Span};

/// A holder learns of a loss before another can have its lock and soon after the store forgot it. No lock is lost
/// without need.
pub(super) fn check(
    history: &Histories,
    notes: &Notes,
    terms: &Terms,
    slack: Duration,
) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut add = |one: &Acquisition, how: Option<String>| {
        let how = how.map(|how| format!("{} of {}: {how}", one.id, one.name));
        found.extend(how.map(|how| Breach::new(Promise::Loss, how)));
    };
    let mut needless = Vec::new();
    for one in history.granted() {
        add(one, beyond_proof(one, terms));
        add(one, while_mute(one, notes, terms));
        add(one, while_deaf(one, notes, terms));
        add(one, untold(one, notes, slack));
        add(one, kept_forgotten(one, notes, terms, slack));
        if terms.keeps && one.was_lost() {
            let why = one.lost.as_ref().map_or("expired", |(_, why)| why);
            let how = format!("{} of {}: lost without need ({why})", one.id, one.name);
            needless.push(Breach::new(Promise::Need, how));
        }
    }
    found.extend(needless);
    found
}

/// A holder does not act after its guard has expired, and no guard is valid for longer than a lease.
fn beyond_proof(one: &Acquisition, terms: &Terms) -> Option<String> {
    let (at, until) = one
        .steps
        .iter()
        .find(|(at, until)| until <= at || *until > *at + terms.lease)?;
    if until <= at {
        return Some("its holder acted after its end".to_owned());
    }
    Some(format!(
        "proved for {:?}, longer than the lease",
        until.saturating_sub(*at)
    ))
}

/// A store that has been mute for a lease has confirmed nothing, so no holder may act any more. This check does not
/// trust the guard.
fn while_mute(one: &Acquisition, notes: &Notes, terms: &Terms) -> Option<String> {
    let mut mute = notes.outages.iter().filter(|outage| outage.mute);
    mute.find_map(|outage| {
        let after = acted_after(one, outage.when, terms)?;
        Some(format!(
            "its holder acted {after:?} after the store had gone mute"
        ))
    })
}

/// A process that was cut off for a lease has heard no confirmation, so no holder in it may act any more. This check
/// does not trust the guard.
fn while_deaf(one: &Acquisition, notes: &Notes, terms: &Terms) -> Option<String> {
    let mut own = notes.deaf.iter().filter(|(who, _)| *who == one.process);
    own.find_map(|(_, when)| {
        let after = acted_after(one, *when, terms)?;
        Some(format!(
            "its holder acted {after:?} after its host had been cut off"
        ))
    })
}

/// How long after the begin of a silence its holder acted, if that is longer than a lease.
fn acted_after(one: &Acquisition, silence: Span, terms: &Terms) -> Option<Duration> {
    let end = silence.from + terms.lease;
    let mut acts = one.steps.iter().map(|(at, _)| *at).chain(one.left);
    let late = acts.find(|at| end < *at && *at <= silence.to)?;
    Some(late.saturating_sub(silence.from))
}

/// When a holder sees that its lock is over, it also gets the loss report at that moment.
fn untold(one: &Acquisition, notes: &Notes, slack: Duration) -> Option<String> {
    let over = one.over?;
    if notes.stood_still(one.process, over, over + slack) {
        return None;
    }
    match &one.lost {
        None => Some("it was over, and nobody was told".to_owned()),
        Some((told, _)) if *told > over + slack => Some(format!(
            "told {:?} after its end",
            told.saturating_sub(over)
        )),
        Some(_) => None,
    }
}

/// A holder stops acting on a forgotten lock within the time of one renewal.
fn kept_forgotten(
    one: &Acquisition,
    notes: &Notes,
    terms: &Terms,
    slack: Duration,
) -> Option<String> {
    let (begun, end) = one.belief()?;
    for harm in notes.harms.iter().filter(|harm| harm.sure) {
        let forgotten = harm.concerns(&one.name) && begun < harm.when.from;
        let limit = harm.when.to + terms.told_within + slack;
        if forgotten && end > limit {
            let late = end.saturating_sub(harm.when.to);
            return Some(format!(
                "believed in for {late:?} after the store had forgotten it"
            ));
        }
    }
    None
}
