//! The health of a store as its requests show it: when it last answered, and which of its lanes do not answer.

use crate::engine::runtime::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::runtime::event::Flag;
use crate::engine::runtime::sync::Mutex;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{BootInstant, Clock, Name, NotYet, Renewed};

/// What the requests of a client show of its store. It sends nothing.
#[derive(Debug)]
pub(crate) struct StoreHealth {
    clock: Clock,
    /// Set when the store is open. `None`: it was open from the start.
    opened: Option<Arc<Flag>>,
    /// The members of a set. Empty: a single store.
    members: Vec<Arc<StoreHealth>>,
    /// How many members must grant a lock.
    needed: usize,
    /// `FAR`: no request was answered yet.
    last_answer: AtomicU64,
    /// The number of entries in `outages`. While it is zero, an answer does not take the mutex.
    silent_lanes: AtomicUsize,
    /// By lane. A lane fails as a whole, so that an answer of another lane does not end its outage.
    outages: Mutex<HashMap<u64, Outage>>,
}

/// A lane that does not answer.
#[derive(Debug)]
struct Outage {
    began: BootInstant,
    /// A lock of the lane. If it is in another lane by now, no request for this lane may ever come, and so no answer that
    /// would end the outage.
    of: Name,
}

impl StoreHealth {
    /// `opened`: set when the store is open. `None`: it is open.
    pub(crate) fn new(clock: Clock, opened: Option<Arc<Flag>>) -> Self {
        Self {
            clock,
            opened,
            members: Vec::new(),
            needed: 0,
            last_answer: AtomicU64::new(BootInstant::FAR.0),
            silent_lanes: AtomicUsize::new(0),
            outages: Mutex::default(),
        }
    }

    /// The health of a set with these members, of which so many must grant a lock.
    pub(crate) fn of_set(clock: Clock, members: Vec<Arc<Self>>, needed: usize) -> Self {
        Self {
            members,
            needed,
            ..Self::new(clock, None)
        }
    }

    /// A request for this lock has ended. Logs the beginning and the end of an outage, once each: the requests in
    /// between are repeated, and would fill the log. `lane` runs under the lock of the outages.
    pub(crate) fn heard(&self, name: &Name, lane: impl Fn(&Name) -> u64, error: Option<&Error>) {
        match error {
            Some(error) if is_silence(error) => {
                if self.failed(name, lane) {
                    tracing::warn!(%error, "the store does not answer; the client repeats its requests");
                }
            }
            _ => {
                if let Some(lasted) = self.answered(name, lane) {
                    tracing::warn!(?lasted, "the store answers again");
                }
            }
        }
    }

    /// The connect was answered: there is no outage yet.
    pub(crate) fn connected(&self) {
        self.last_answer.store(self.clock.now().0, Ordering::SeqCst);
    }

    /// How long the outage lasted that this answer ends.
    fn answered(&self, name: &Name, lane: impl Fn(&Name) -> u64) -> Option<Duration> {
        let now = self.clock.now();
        let before = self.last_answer.swap(now.0, Ordering::SeqCst);
        if self.silent_lanes.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut outages = self.outages.lock();
        let began = take_outages(&mut outages, lane(name), &lane);
        outages.retain(|known, outage| lane(&outage.of) == *known);
        if self.opened.is_some() && before == BootInstant::FAR.0 {
            // While the client connects, every lane fails with the connect.
            outages.clear();
        }
        self.silent_lanes.store(outages.len(), Ordering::SeqCst);
        began.map(|began| now.since(began))
    }

    /// Whether an outage begins with this failure.
    fn failed(&self, name: &Name, lane: impl Fn(&Name) -> u64) -> bool {
        let mut outages = self.outages.lock();
        let silent = lane(name);
        let known = take_outages(&mut outages, silent, &lane);
        let outage = Outage {
            began: known.unwrap_or_else(|| self.clock.now()),
            of: name.clone(),
        };
        outages.insert(silent, outage);
        self.silent_lanes.store(outages.len(), Ordering::SeqCst);
        known.is_none()
    }

    /// Whether the store has answered, and no lane is silent.
    pub(crate) fn is_answering(&self) -> bool {
        self.last_answer.load(Ordering::SeqCst) != BootInstant::FAR.0
            && self.silent_lanes.load(Ordering::SeqCst) == 0
    }

    /// Whether the client has not connected yet, so no request of a lock can have been sent. A set connects as long as too few
    /// of its members are open to grant a lock: those may have granted their parts, but the set has granted nothing.
    pub(crate) fn is_connecting(&self) -> bool {
        let open = self.members.iter().filter(|member| !member.is_connecting());
        let is_shut = |opened: &Arc<Flag>| !opened.is_set();
        open.count() < self.needed || self.opened.as_ref().is_some_and(is_shut)
    }

    /// The time since the last answer. `None`: there was none yet.
    pub(crate) fn since_last_answer(&self) -> Option<Duration> {
        let at = BootInstant(self.last_answer.load(Ordering::SeqCst));
        (at != BootInstant::FAR).then(|| self.clock.now().since(at))
    }
}

/// The error of a batch as a whole. `None` if the store has answered for one of its locks: the others fail alone.
pub(crate) fn failure_of_batch(result: &Result<Vec<Renewed>>) -> Option<&Error> {
    let each = match result {
        Ok(each) => each,
        Err(error) => return Some(error),
    };
    let mut first = None;
    for renewed in each {
        match renewed {
            Renewed::Failed(error) if is_silence(error) => first = first.or(Some(error)),
            _ => return None,
        }
    }
    first
}

/// Removes the outages of this lane. Returns when the first of them began.
///
/// Those count too whose lock has moved to this lane: after a failover the new node has the locks of the old one, and then the
/// requests fail that still waited for the old one. Otherwise the same outage would be logged again as one of the new node, and
/// the first one would never be said to have ended.
fn take_outages(
    outages: &mut HashMap<u64, Outage>,
    of_lane: u64,
    lane: impl Fn(&Name) -> u64,
) -> Option<BootInstant> {
    let mut first: Option<BootInstant> = None;
    outages.retain(|known, outage| {
        let is_of_lane = *known == of_lane || lane(&outage.of) == of_lane;
        if is_of_lane {
            first = Some(first.map_or(outage.began, |first| first.min(outage.began)));
        }
        !is_of_lane
    });
    first
}

/// Whether the error means that the store did not answer, or cannot serve. A store that waits until it is safe to
/// answer has answered.
fn is_silence(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unavailable | ErrorKind::OutcomeUnknown
    ) && NotYet::of(error).is_none()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn health() -> StoreHealth {
        let health = StoreHealth::new(Clock::Boot, None);
        health.connected();
        health
    }

    fn silent() -> Error {
        Error::new(ErrorKind::OutcomeUnknown)
    }

    #[test]
    fn a_store_answers_from_its_connect_on() {
        let health = StoreHealth::new(Clock::Boot, None);
        assert!(!health.is_answering());
        assert_eq!(health.since_last_answer(), None);
        health.connected();
        assert!(health.is_answering());
        assert!(health.since_last_answer().is_some());
    }

    #[test]
    fn a_set_connects_until_enough_of_its_members_are_open() {
        let opened = [(); 3].map(|()| Arc::<Flag>::default());
        let members = opened.each_ref().map(|opened| {
            let opened = Some(Arc::clone(opened));
            Arc::new(StoreHealth::new(Clock::Boot, opened))
        });
        let of_set = |needed| StoreHealth::of_set(Clock::Boot, members.to_vec(), needed);
        let (all, most) = (of_set(3), of_set(2));
        let is_connecting = || [all.is_connecting(), most.is_connecting()];
        assert_eq!(is_connecting(), [true, true]);
        opened[1].set();
        assert_eq!(is_connecting(), [true, true]);
        opened[0].set();
        assert_eq!(is_connecting(), [true, false]);
        opened[2].set();
        assert_eq!(is_connecting(), [false, false]);
    }

    /// A refusal is an answer, and so is the announcement of a store that waits until it is safe to grant.
    #[test]
    fn an_error_that_the_store_sent_is_no_outage() {
        let (health, name) = (health(), Name::new("1").unwrap());
        let within = Duration::from_secs(1);
        for error in [
            Error::new(ErrorKind::Refused),
            Error::new(ErrorKind::Unavailable).caused_by(NotYet { within }),
        ] {
            let text = error.to_string();
            health.heard(&name, |_| 1, Some(&error));
            assert!(health.is_answering(), "{text}");
        }
        health.heard(&name, |_| 1, Some(&Error::new(ErrorKind::Unavailable)));
        assert!(!health.is_answering());
    }

    /// While a client connects, each lane fails with the connect, and no request of most lanes may ever come.
    #[test]
    fn the_first_answer_after_a_connect_ends_the_outage_of_each_lane() {
        let (one, two) = (Name::new("1").unwrap(), Name::new("2").unwrap());
        let lane = |name: &Name| if *name == one { 1 } else { 2 };
        let outage = |health: &StoreHealth| {
            health.heard(&one, lane, Some(&silent()));
            health.heard(&two, lane, Some(&silent()));
            health.heard(&two, lane, None);
        };
        let connecting = StoreHealth::new(Clock::Boot, Some(Arc::default()));
        outage(&connecting);
        assert!(connecting.is_answering());
        outage(&connecting);
        assert!(!connecting.is_answering(), "it had connected before");
        let open = StoreHealth::new(Clock::Boot, None);
        outage(&open);
        assert!(!open.is_answering(), "it did not fail with a connect");
    }

    #[test]
    fn an_answer_of_another_lane_does_not_end_an_outage() {
        let (health, one, two) = (health(), Name::new("1").unwrap(), Name::new("2").unwrap());
        let lane = |name: &Name| if *name == one { 1 } else { 2 };
        health.heard(&one, lane, Some(&silent()));
        health.heard(&two, lane, None);
        assert!(!health.is_answering());
        health.heard(&one, lane, None);
        assert!(health.is_answering());
    }

    /// A slot of a cluster has moved to another node, and the first one has gone.
    #[test]
    fn an_outage_ends_when_its_lane_has_no_locks_any_more() {
        let (health, moved, other) = (health(), Name::new("1").unwrap(), Name::new("2").unwrap());
        let node = Cell::new(1);
        let lane = |name: &Name| if *name == moved { node.get() } else { 2 };
        health.heard(&moved, lane, Some(&silent()));
        node.set(3);
        health.heard(&moved, lane, Some(&silent()));
        health.heard(&other, lane, None);
        assert!(
            !health.is_answering(),
            "the new node does not answer either"
        );
        health.heard(&moved, lane, None);
        assert!(health.is_answering(), "nobody asks the first node any more");
    }

    /// A node of a cluster has died, and another one has its slots now.
    #[test]
    fn an_outage_whose_locks_move_to_another_lane_begins_once_and_ends_once() {
        let (one, two) = (Name::new("1").unwrap(), Name::new("2").unwrap());
        let node = Cell::new(1);
        let lane = |_: &Name| node.get();
        for is_late in [false, true] {
            let health = health();
            node.set(1);
            assert!(health.failed(&one, lane));
            node.set(2);
            if is_late {
                // A request to the old node ends when the new one is known already.
                assert!(!health.failed(&two, lane), "it is the same outage");
            }
            assert!(!health.is_answering());
            assert!(health.answered(&two, lane).is_some(), "its end is told");
            assert!(health.answered(&one, lane).is_none(), "and once");
            assert!(health.is_answering());
        }
    }

    #[test]
    fn each_lane_that_fails_begins_an_outage_of_its_own() {
        let (health, one, two) = (health(), Name::new("1").unwrap(), Name::new("2").unwrap());
        let lane = |name: &Name| if *name == one { 1 } else { 2 };
        assert!(health.failed(&one, lane));
        assert!(!health.failed(&one, lane));
        assert!(health.failed(&two, lane));
        assert!(health.answered(&one, lane).is_some());
        assert!(!health.is_answering());
        assert!(health.answered(&two, lane).is_some());
        assert!(health.is_answering());
    }

    /// Otherwise a client whose renewals all fail would report a store that answers, and one with a lock that fails alone would
    /// report a store that does not.
    #[test]
    fn a_batch_is_no_answer_of_the_store_only_if_all_its_renewals_failed() {
        let failed = |kind| Renewed::Failed(Error::new(kind));
        let unavailable = || failed(ErrorKind::Unavailable);
        let answered = [Renewed::Kept, Renewed::Gone, Renewed::WrongType];
        for answer in answered {
            assert!(failure_of_batch(&Ok(vec![unavailable(), answer])).is_none());
        }
        assert!(failure_of_batch(&Ok(Vec::new())).is_none());
        let refused = || failed(ErrorKind::Refused);
        assert!(failure_of_batch(&Ok(vec![refused(), unavailable()])).is_none());
        assert!(failure_of_batch(&Ok(vec![unavailable(), refused()])).is_none());
        assert!(failure_of_batch(&Ok(vec![unavailable(), unavailable()])).is_some());
        assert!(failure_of_batch(&Err(Error::new(ErrorKind::Unavailable))).is_some());
    }
}
