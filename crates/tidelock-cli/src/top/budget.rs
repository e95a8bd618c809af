//! When a viewer may look at the store again. It knows no store.

use std::collections::VecDeque;
use std::time::Duration;

use tidelock::ErrorKind;
use tokio::time::Instant;

use crate::exit::Failure;
use crate::top::text::brief;

/// The interval between two looks is at least this many times as long as the store works for a look: a viewer costs a store
/// at most one percent of a core.
const REST: u32 = 100;

/// But no longer than this: an operator looks at a slow store because it is slow, and then it waits more than it works.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// A look has at least this many round trips, one after the other: the processes, and the locks that somebody waits for.
/// The store does not work while they travel.
const ROUND_TRIPS: u32 = 2;

/// The work of a look is the least of this many: a network or a machine that is slow for a moment only makes it seem more.
const LOOKS: usize = 4;

/// How often the pause is doubled while one look after the other fails. An operator wants to see soon that the store is back.
const MOST_DOUBLINGS: u32 = 2;

/// What the looks at one store cost it.
#[derive(Debug)]
pub(super) struct Budget {
    every: Duration,
    /// How long the store may have worked for each of the last looks.
    work: VecDeque<Duration>,
    /// What failed last. `None`: the last look succeeded.
    failed: Option<FailedLook>,
    /// Since the last look that succeeded, one has been made at once because the store answered a ping.
    has_hurried: bool,
}

#[derive(Debug)]
struct FailedLook {
    why: Failure,
    took: Duration,
    /// Before that, another look would be too much for a store that has worked for this one all the time.
    until: Instant,
    /// The store has not answered a ping either, so it did not work: it hangs, or cannot be reached.
    is_away: bool,
    /// How many looks and pings have failed, one after the other.
    failures: u32,
}

impl Budget {
    pub(super) fn new(every: Duration) -> Self {
        Self {
            every,
            work: VecDeque::new(),
            failed: None,
            has_hurried: false,
        }
    }

    /// A look succeeded, and took so long; `trip`: the time of a request that is next to no work. Returns the part of a core
    /// that the looks cost the store at most, and after what time from the begin of this one to look again.
    pub(super) fn seen(&mut self, took: Duration, trip: Duration) -> (f64, Duration) {
        (self.failed, self.has_hurried) = (None, false);
        let work = self.note(work(took, trip));
        let pause = between(self.every, work);
        (work.as_secs_f64() / pause.as_secs_f64(), pause)
    }

    /// Adds a look. Returns how long the store works for one. The first one is not of use: it also connects and prepares.
    fn note(&mut self, work: Duration) -> Duration {
        self.work.push_back(work);
        if self.work.len() > LOOKS {
            self.work.pop_front();
        }
        match self.work.len() {
            1 => Duration::ZERO,
            _ => self.work.iter().min().copied().unwrap_or_default(),
        }
    }

    /// A look that began then failed now. Returns when to ask again. The store may have worked all the time, as one does
    /// that has too much to do: without this, it would be asked for as much again, and again in vain.
    pub(super) fn failed(
        &mut self,
        failure: &Failure,
        begun: Instant,
        now: Instant,
        trip: Duration,
    ) -> Instant {
        let failures = self.failed.as_ref().map_or(0, |failed| failed.failures) + 1;
        let took = now - begun;
        let cost = between(self.every, work(took, trip));
        self.failed = Some(FailedLook {
            why: failure.clone(),
            took,
            until: (begun + cost).max(now + self.backoff(failures)),
            is_away: false,
            failures,
        });
        // A ping comes before the next look. It tells a store that is away from one that has too much to do.
        now + self.every
    }

    /// Whether the store gets a ping in place of a look.
    pub(super) fn is_ping_due(&self, now: Instant) -> bool {
        let failed = self.failed.as_ref();
        failed.is_some_and(|failed| failed.is_away || now < failed.until)
    }

    /// A ping has ended. An error says why the store is not looked at now, and until when.
    pub(super) fn pinged(
        &mut self,
        pinged: Result<(), tidelock::Error>,
        now: Instant,
    ) -> Result<(), (Failure, Instant)> {
        match pinged {
            Err(error) if is_silent(error.kind()) => Err((Failure::from(error), self.away(now))),
            // A store that refuses the ping has answered it.
            _ => self.answered(now).map_or(Ok(()), Err),
        }
    }

    /// The store has answered a ping. Returns when it may be looked at, and why not now. `None`: now.
    fn answered(&mut self, now: Instant) -> Option<(Failure, Instant)> {
        let failed = self.failed.as_mut()?;
        failed.is_away = false;
        // A store that was away, or silent for a moment, is seen as soon as it answers: otherwise it would count as down for a
        // minute more. But only once: one that has too much to do answers pings, and would get a look after each of them.
        if !std::mem::replace(&mut self.has_hurried, true) {
            return None;
        }
        let left = failed.until.checked_duration_since(now)?;
        let message = format!(
            "{}; the store answers, but a look that fails after {} may be much work for it, so the next one comes in {}",
            failed.why.message,
            brief(failed.took),
            brief(left),
        );
        let why = Failure {
            message,
            ..failed.why.clone()
        };
        Some((why, failed.until))
    }

    /// The store has not answered the ping. Returns when to ask again.
    fn away(&mut self, now: Instant) -> Instant {
        let failures = self.failed.as_ref().map_or(0, |failed| failed.failures) + 1;
        if let Some(failed) = &mut self.failed {
            (failed.is_away, failed.failures) = (true, failures);
        }
        now + self.backoff(failures)
    }

    fn backoff(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(MOST_DOUBLINGS);
        self.every.saturating_mul(1 << doublings)
    }
}

/// Whether a ping with this error has got no answer. Any other error is the word of a store that answers: its user may have no
/// right to the key of the ping, and would never see it again if that counted as silence.
fn is_silent(error: ErrorKind) -> bool {
    matches!(error, ErrorKind::Unavailable | ErrorKind::OutcomeUnknown)
}

/// How long the store may have worked for a look that took so long: an upper bound. The store tells nobody what a request cost
/// it, so it counts as work whatever is more than the shortest way of the messages.
fn work(took: Duration, trip: Duration) -> Duration {
    took.saturating_sub(trip.saturating_mul(ROUND_TRIPS))
}

/// The time from the begin of one look to the next, if the store worked so long for one.
fn between(every: Duration, work: Duration) -> Duration {
    every.max(work.saturating_mul(REST).min(LONGEST_REST))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    const EVERY: Duration = Duration::from_secs(2);

    fn failure() -> Failure {
        Failure::new(69, "no answer")
    }

    #[test]
    fn a_viewer_costs_at_most_one_percent_of_a_core() {
        for every in [1_000, 2_000, 60_000] {
            for work in [0, 5, 10, 31, 100, 600] {
                let pause = between(millis(every), millis(work));
                assert!(pause >= millis(every) && pause <= millis(60_000));
                assert!(millis(work) * 100 <= pause, "{work} ms every {pause:?}");
            }
        }
        // A store that hangs is still looked at.
        assert_eq!(between(millis(2_000), millis(3_000)), millis(60_000));
    }

    #[test]
    fn the_way_of_the_messages_is_no_work() {
        assert_eq!(work(millis(131), millis(50)), millis(31));
        assert_eq!(work(millis(90), millis(50)), millis(0));
        assert_eq!(work(millis(40), millis(0)), millis(40));
    }

    /// A store that has too much to do answers a ping, but not a look, and not the one after it either.
    #[test]
    fn a_look_that_failed_counts_as_work_if_the_store_answers_a_ping() {
        let first = Instant::now();
        for (took, rest) in [(300, 30_000), (5_000, 60_000)] {
            let mut budget = Budget::new(EVERY);
            let begun = budget.failed(&failure(), first, first + millis(took), millis(0));
            assert!(budget.answered(begun).is_none(), "it may be chance");
            let now = begun + millis(took);
            assert_eq!(
                budget.failed(&failure(), begun, now, millis(0)),
                now + EVERY
            );
            let asked = now + EVERY;
            assert!(budget.is_ping_due(asked));
            let (why, until) = budget.answered(asked).unwrap();
            assert_eq!(until, begun + millis(rest));
            assert!(why.message.starts_with("no answer; "), "{}", why.message);
            assert_eq!(why.code, 69);
            assert!(!budget.is_ping_due(until), "a look is due");
        }
    }

    /// A store is silent for a moment while another server takes over, and then it works. It would count as down for a minute.
    #[test]
    fn one_look_that_failed_delays_no_other_if_the_store_answers_a_ping() {
        let mut budget = Budget::new(EVERY);
        let begun = Instant::now();
        let asked = budget.failed(&failure(), begun, begun + millis(3_000), millis(0));
        assert_eq!(asked, begun + millis(3_000) + EVERY);
        assert!(budget.is_ping_due(asked));
        assert!(budget.answered(asked).is_none(), "a look is due");
        budget.seen(millis(3), millis(1));
        assert!(!budget.is_ping_due(asked + EVERY));
    }

    #[test]
    fn a_store_that_was_away_is_seen_as_soon_as_it_is_back() {
        let begun = Instant::now();
        let mut budget = Budget::new(EVERY);
        let mut now = budget.failed(&failure(), begun, begun + millis(5_000), millis(0));
        for pause in [2, 4, 4, 4] {
            assert!(budget.is_ping_due(now));
            let next = budget.away(now);
            assert_eq!(next, now + EVERY * pause, "it backs off, but not for long");
            now = next;
        }
        assert!(budget.is_ping_due(now));
        assert!(
            budget.answered(now).is_none(),
            "it has not worked: it was away"
        );
        budget.seen(millis(3), millis(1));
        assert!(!budget.is_ping_due(now));
    }

    #[test]
    fn a_ping_that_the_store_refuses_is_answered() {
        let pinged = |kind| {
            let mut budget = Budget::new(EVERY);
            let begun = Instant::now();
            let asked = budget.failed(&failure(), begun, begun, millis(0));
            assert_eq!(budget.away(asked), asked + EVERY * 2);
            let pinged = budget.pinged(Err(tidelock::Error::new(kind)), asked);
            pinged.map_err(|(_, next)| next - asked)
        };
        for refusal in [ErrorKind::Refused, ErrorKind::WrongType] {
            assert_eq!(pinged(refusal), Ok(()), "{refusal:?}: a look is due");
        }
        for silence in [ErrorKind::Unavailable, ErrorKind::OutcomeUnknown] {
            assert_eq!(pinged(silence), Err(EVERY * 4), "{silence:?}");
        }
    }

    /// A store that has too much to do lets a ping wait now and then, and answers the next one.
    #[test]
    fn a_store_that_is_back_and_fails_again_is_asked_seldom() {
        let mut budget = Budget::new(EVERY);
        let begun = Instant::now();
        let now = budget.failed(&failure(), begun, begun + millis(5_000), millis(0));
        budget.away(now);
        assert!(budget.answered(now).is_none(), "once, it is looked at");
        let begun = now;
        let now = budget.failed(&failure(), begun, begun + millis(5_000), millis(0));
        let until = begun + millis(60_000);
        for _ in 0..3 {
            let now = budget.away(now);
            assert!(budget.is_ping_due(now));
            assert_eq!(budget.answered(now).map(|(_, until)| until), Some(until));
        }
        assert!(!budget.is_ping_due(until), "a look is due");
        // After a look that succeeds, it may hurry once more.
        budget.seen(millis(3), millis(1));
        let now = budget.failed(&failure(), until, until + millis(5_000), millis(0));
        budget.away(now);
        assert!(budget.answered(now).is_none());
    }

    #[test]
    fn looks_that_fail_one_after_the_other_become_rarer() {
        let mut budget = Budget::new(EVERY);
        let mut now = Instant::now();
        for pause in [1, 2, 4, 4] {
            budget.failed(&failure(), now, now, millis(0));
            let until = now + EVERY * pause;
            assert!(budget.is_ping_due(until - millis(1)));
            assert!(!budget.is_ping_due(until));
            now = until;
        }
        budget.seen(millis(3), millis(1));
        budget.failed(&failure(), now, now, millis(0));
        assert!(!budget.is_ping_due(now + EVERY), "from the start");
    }
}
