//! The elections in which this client is a candidate, for the record that operators see of this process.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use crate::engine::lease::status::HoldStatus;
use crate::engine::runtime::clock::BootInstant;
use crate::engine::runtime::id_hasher::IdHasher;
use crate::engine::runtime::sync::Mutex;
use crate::name::Name;

/// The candidates of this client. They change with campaigns and terms, never with an acquisition.
#[derive(Debug, Default)]
pub(crate) struct OwnCandidates(Mutex<CandidatesById>);

#[derive(Debug, Default)]
struct CandidatesById {
    last_id: u64,
    of_ids: HashMap<u64, OwnCandidate, BuildHasherDefault<IdHasher>>,
}

#[derive(Debug, Clone)]
struct OwnCandidate {
    name: Name,
    identity: String,
    since: BootInstant,
    /// The hold and the number of the term.
    leads: Option<(Arc<HoldStatus>, u64)>,
}

/// What a candidate does now.
#[derive(Debug)]
pub(crate) struct SeenCandidate {
    pub(crate) name: Name,
    pub(crate) identity: String,
    /// The term in which it leads. `None`: it campaigns.
    pub(crate) term: Option<u64>,
    /// Since when it leads or campaigns.
    pub(crate) since: BootInstant,
}

impl OwnCandidates {
    /// A candidate begins to campaign. Returns its id.
    pub(crate) fn begin(&self, name: &Name, identity: &str, now: BootInstant) -> u64 {
        let candidate = OwnCandidate {
            name: name.clone(),
            identity: identity.to_owned(),
            since: now,
            leads: None,
        };
        let mut own = self.0.lock();
        own.last_id += 1;
        let id = own.last_id;
        own.of_ids.insert(id, candidate);
        id
    }

    /// The candidate leads in this term, as long as this hold is proved.
    pub(crate) fn lead(&self, id: u64, status: &Arc<HoldStatus>, term: u64, now: BootInstant) {
        self.change(id, Some((Arc::clone(status), term)), now);
    }

    /// Its term is over, and it still campaigns.
    pub(crate) fn campaign(&self, id: u64, now: BootInstant) {
        self.change(id, None, now);
    }

    fn change(&self, id: u64, leads: Option<(Arc<HoldStatus>, u64)>, now: BootInstant) {
        let mut own = self.0.lock();
        let before = own.of_ids.get_mut(&id).and_then(|candidate| {
            candidate.since = now;
            std::mem::replace(&mut candidate.leads, leads)
        });
        drop(own);
        drop(before); // without the lock: it may be the last reference to the hold
    }

    pub(crate) fn end(&self, id: u64) {
        let ended = self.0.lock().of_ids.remove(&id);
        drop(ended);
    }

    /// Those that lead, and then those that campaign. One that has lost its leadership does neither.
    pub(crate) fn seen(&self, most: usize) -> Vec<SeenCandidate> {
        let own: Vec<OwnCandidate> = self.0.lock().of_ids.values().cloned().collect();
        let seen = own.into_iter().filter_map(|candidate| {
            let term = match candidate.leads {
                Some((status, _)) if status.refusal().is_some() => return None,
                leads => leads.map(|(_, term)| term),
            };
            Some(SeenCandidate {
                name: candidate.name,
                identity: candidate.identity,
                term,
                since: candidate.since,
            })
        });
        let mut seen: Vec<SeenCandidate> = seen.collect();
        seen.sort_by(|a, b| {
            let key = |one: &'_ SeenCandidate| (Reverse(one.term.is_some()), one.since);
            (key(a), &a.name).cmp(&(key(b), &b.name))
        });
        seen.truncate(most);
        seen
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::lease::granted::GrantedTicket;
    use crate::types::LostReason;

    fn name(name: &str) -> Name {
        Name::new(name).unwrap()
    }

    fn hold() -> Arc<HoldStatus> {
        let (clock, lease) = (crate::store::Clock::Boot, Duration::from_secs(60));
        let granted = GrantedTicket::of(name("a"), lease);
        Arc::new(HoldStatus::new(granted, clock.now() + lease, clock))
    }

    #[test]
    fn leaders_come_before_candidates_and_one_that_lost_its_lead_is_neither() {
        let own = OwnCandidates::default();
        let begin = |election: &str, since| own.begin(&name(election), "me", BootInstant(since));
        let ids = [("d", 1), ("c", 2), ("b", 3), ("a", 3)].map(|(name, since)| begin(name, since));
        let seen = |most| -> Vec<(String, Option<u64>, u64)> {
            let seen = own.seen(most).into_iter();
            let tell = |one: SeenCandidate| (one.name.as_str().to_owned(), one.term, one.since.0);
            seen.map(tell).collect()
        };
        let candidate = |name: &str, since| (name.to_owned(), None, since);
        let (a, b, c) = (candidate("a", 3), candidate("b", 3), candidate("c", 2));
        let all = [candidate("d", 1), c.clone(), a.clone(), b.clone()];
        assert_eq!(seen(9), all);
        assert_eq!(seen(2), all[..2]);

        let status = hold();
        own.lead(ids[2], &status, 7, BootInstant(9));
        own.end(ids[0]);
        let leads = ("b".to_owned(), Some(7), 9);
        assert_eq!(seen(9), [leads, c.clone(), a.clone()]);
        status.lose(LostReason::Taken);
        assert_eq!(seen(9), [c.clone(), a.clone()]);
        own.campaign(ids[2], BootInstant(10));
        assert_eq!(seen(9), [c, a, candidate("b", 10)]);
    }
}
