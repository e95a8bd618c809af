//! How often a viewer looks at the store, so that it is never a load.

use std::collections::VecDeque;
use std::time::Duration;

use tidelock::Client;
use tokio::time::Instant;

use crate::exit::Outcome;
use crate::top::look::look;
use crate::top::picture::Picture;
use crate::top::{Asked, SHORTEST};

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

/// Looks at one store, one picture after the other.
#[derive(Debug)]
pub(crate) struct Looks<'a> {
    client: &'a Client,
    prefix: &'a str,
    every: Duration,
    /// How long the store may have worked for each of the last looks.
    work: VecDeque<Duration>,
    /// `None`: the processes are not asked to tell every second.
    asked: Option<Asked>,
    /// Why they could not be asked the first time.
    pub(crate) refused: Option<tidelock::Error>,
}

impl<'a> Looks<'a> {
    pub(crate) fn new(client: &'a Client, prefix: &'a str, every: Duration) -> Self {
        Self {
            client,
            prefix,
            every: every.max(SHORTEST),
            work: VecDeque::new(),
            asked: Some(Asked::default()),
            refused: None,
        }
    }

    /// For one look: asks no process to tell more often, and measures nothing.
    pub(crate) fn quiet(mut self) -> Self {
        self.asked = None;
        self
    }

    /// Looks once. Also returns when to look again.
    pub(crate) async fn look(&mut self) -> (Outcome<Picture>, Instant) {
        if let Some(asked) = &mut self.asked {
            // Without the right to ask, the processes tell every ten seconds.
            self.refused = asked.again(self.client).await.err();
        }
        let trip = match &self.asked {
            Some(_) => self.trip().await,
            None => Duration::ZERO,
        };
        let begun = Instant::now();
        let seen = look(self.client, self.prefix).await;
        let ended = Instant::now();
        match seen {
            Ok(mut picture) => {
                let work = self.note(work(ended - begun, trip));
                let pause = between(self.every, work);
                let share = work.as_secs_f64() / pause.as_secs_f64();
                picture.share = self.asked.as_ref().map(|_| share);
                (Ok(picture), begun + pause)
            }
            // A store that answers again is seen at once, and a failed look was not much of a load.
            Err(failed) => (Err(failed), ended + self.every),
        }
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

    /// How long a request takes that is next to no work. Zero if it fails: the look says why.
    async fn trip(&self) -> Duration {
        let begun = Instant::now();
        let answered = self.client.ping().await;
        answered.map_or(Duration::ZERO, |()| begun.elapsed())
    }
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

    #[test]
    fn a_viewer_costs_at_most_one_percent_of_a_core() {
        let millis = Duration::from_millis;
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
        let millis = Duration::from_millis;
        assert_eq!(work(millis(131), millis(50)), millis(31));
        assert_eq!(work(millis(90), millis(50)), millis(0));
        assert_eq!(work(millis(40), millis(0)), millis(40));
    }
}
