//! The health of a store as its requests show it: when it last answered, and which of its lanes do not answer.

use crate::engine::runtime::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::runtime::event::Flag;
use crate::engine::runtime::sync::Mutex;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{BootInstant, Clock, Name, NotYet};

/// What the requests of a client show of its store. It sends nothing.
#[derive(Debug)]
pub(crate) struct StoreHealth {
    clock: Clock,
    /// Set when the store is open. `None`: it was open from the start.
    opened: Option<Arc<Flag>>,
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
            last_answer: AtomicU64::new(BootInstant::FAR.0),
            silent_lanes: AtomicUsize::new(0),
            outages: Mutex::default(),
        }
    }

    /// A request for this lock has ended. Logs the beginning and the end of an outage, once each: the requests in
    /// between are repeated, and would fill the log. `lane` runs under the lock of the outages.
    pub(crate) fn heard<T>(&self, name: &Name, lane: impl Fn(&Name) -> u64, result: &Result<T>) {
        match result {
            Err(error) if is_silence(error) => self.failed(name, lane(name), error),
            _ => self.answered(name, lane),
        }
    }

    /// The connect was answered: there is no outage yet.
    pub(crate) fn connected(&self) {
        self.last_answer.store(self.clock.now().0, Ordering::SeqCst);
    }

    fn answered(&self, name: &Name, lane: impl Fn(&Name) -> u64) {
        let now = self.clock.now();
        let before = self.last_answer.swap(now.0, Ordering::SeqCst);
        if self.silent_lanes.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut outages = self.outages.lock();
        let began = outages.remove(&lane(name)).map(|outage| outage.began);
        outages.retain(|known, outage| lane(&outage.of) == *known);
        if self.opened.is_some() && before == BootInstant::FAR.0 {
            // While the client connects, every lane fails with the connect.
            outages.clear();
        }
        self.silent_lanes.store(outages.len(), Ordering::SeqCst);
        drop(outages);
        if let Some(began) = began {
            tracing::warn!(lasted = ?now.since(began), "the store answers again");
        }
    }

    fn failed(&self, name: &Name, lane: u64, error: &Error) {
        let mut outages = self.outages.lock();
        let known = outages.contains_key(&lane);
        outages.entry(lane).or_insert_with(|| Outage {
            began: self.clock.now(),
            of: name.clone(),
        });
        self.silent_lanes.store(outages.len(), Ordering::SeqCst);
        drop(outages);
        if !known {
            tracing::warn!(%error, "the store does not answer; the client repeats its requests");
        }
    }

    /// Whether the store has answered, and no lane is silent.
    pub(crate) fn is_answering(&self) -> bool {
        self.last_answer.load(Ordering::SeqCst) != BootInstant::FAR.0
            && self.silent_lanes.load(Ordering::SeqCst) == 0
    }

    /// Whether the client has not connected yet, so no request of a lock can have been sent.
    pub(crate) fn is_connecting(&self) -> bool {
        self.opened.as_ref().is_some_and(|opened| !opened.is_set())
    }

    /// The time since the last answer. `None`: there was none yet.
    pub(crate) fn since_last_answer(&self) -> Option<Duration> {
        let at = BootInstant(self.last_answer.load(Ordering::SeqCst));
        (at != BootInstant::FAR).then(|| self.clock.now().since(at))
    }
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

    fn silent() -> Result<()> {
        Err(Error::new(ErrorKind::OutcomeUnknown))
    }

    fn failed(error: Error) -> Result<()> {
        Err(error)
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
            health.heard(&name, |_| 1, &failed(error));
            assert!(health.is_answering(), "{text}");
        }
        health.heard(&name, |_| 1, &failed(Error::new(ErrorKind::Unavailable)));
        assert!(!health.is_answering());
    }

    /// While a client connects, each lane fails with the connect, and no request of most lanes may ever come.
    #[test]
    fn the_first_answer_after_a_connect_ends_the_outage_of_each_lane() {
        let (one, two) = (Name::new("1").unwrap(), Name::new("2").unwrap());
        let lane = |name: &Name| if *name == one { 1 } else { 2 };
        let outage = |health: &StoreHealth| {
            health.heard(&one, lane, &silent());
            health.heard(&two, lane, &silent());
            health.heard(&two, lane, &Ok(()));
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
        health.heard(&one, lane, &silent());
        health.heard(&two, lane, &Ok(()));
        assert!(!health.is_answering());
        health.heard(&one, lane, &Ok(()));
        assert!(health.is_answering());
    }

    /// A slot of a cluster has moved to another node, and the first one has gone.
    #[test]
    fn an_outage_ends_when_its_lane_has_no_locks_any_more() {
        let (health, moved, other) = (health(), Name::new("1").unwrap(), Name::new("2").unwrap());
        let node = Cell::new(1);
        let lane = |name: &Name| if *name == moved { node.get() } else { 2 };
        health.heard(&moved, lane, &silent());
        node.set(3);
        health.heard(&moved, lane, &silent());
        health.heard(&other, lane, &Ok(()));
        assert!(
            !health.is_answering(),
            "the new node does not answer either"
        );
        health.heard(&moved, lane, &Ok(()));
        assert!(health.is_answering(), "nobody asks the first node any more");
    }
}
