//! The dice of [`Chaos`](super::Chaos): what befalls which request.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::backend::Ticket;

/// How often what happens. The same seed rolls the same dice; which request meets which roll depends on the scheduler.
#[derive(Clone)]
pub struct Faults {
    dice: Arc<Mutex<Dice>>,
    seed: u64,
    /// Of 100 requests, so many never arrive and say so.
    pub refused: u8,
    /// So many take effect, and their reply is lost.
    pub muted: u8,
    /// So many take effect only after their caller has been told that the outcome is unknown.
    pub late: u8,
    /// Each request and each reply is delayed by up to this much.
    pub delay: Duration,
    /// See [`pending`](Self::pending).
    pub pends: u8,
}

/// What one client asks about one name: who, and of what.
pub(super) type Matter = (String, String);

struct Dice {
    rng: fastrand::Rng,
    /// How many faults in a row each of them has met.
    in_a_row: HashMap<Matter, u8>,
}

/// After so many faults in a row the next request of the same client about the same name is served. A store that does not
/// answer for a whole lease ends waits and holds, as it should, and that is tested apart: with bare dice one wait in some
/// ten thousand met such an outage by chance, and one run in ten was red.
const MOST_IN_A_ROW: u8 = 3;

impl Faults {
    /// Nothing happens.
    pub fn none() -> Self {
        Self {
            refused: 0,
            muted: 0,
            late: 0,
            delay: Duration::ZERO,
            pends: 0,
            ..Self::of_seed(0)
        }
    }

    /// Nothing happens, but each request pends so many times before it takes effect, and as often before it is answered:
    /// await points that a fast store never stops at. Reads and breaking a lock pend too.
    pub fn pending(times: u8) -> Self {
        Self {
            pends: times,
            ..Self::none()
        }
    }

    /// A bad day, from `TIDELOCK_CHAOS_SEED` or from a new seed, which is printed.
    pub fn seeded() -> Self {
        let given = std::env::var("TIDELOCK_CHAOS_SEED").ok();
        let seed = given
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().1);
        eprintln!("chaos: set TIDELOCK_CHAOS_SEED={seed} to roll these dice again");
        Self::of_seed(seed)
    }

    /// A bad day, of that seed.
    pub fn of_seed(seed: u64) -> Self {
        Self {
            dice: Arc::new(Mutex::new(Dice {
                rng: fastrand::Rng::with_seed(seed),
                in_a_row: HashMap::new(),
            })),
            seed,
            refused: 5,
            muted: 8,
            late: 8,
            delay: Duration::from_millis(4),
            pends: 0,
        }
    }

    /// Rarer: where one question goes to several stores, each with faults of its own.
    #[must_use]
    pub fn shared_by(self, stores: u8) -> Self {
        Self {
            refused: self.refused / stores,
            muted: self.muted / stores,
            late: self.late / stores,
            ..self
        }
    }

    /// A request may be about several: it is served if one of them has met enough.
    pub(super) fn roll(&self, about: &[Matter]) -> Fate {
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        let Dice { rng, in_a_row } = &mut *dice;
        let pick = rng.u8(..100);
        let mut delay = || self.delay.mul_f64(rng.f64());
        let (before, after) = (delay(), delay());
        let refused = self.refused;
        let muted = refused + self.muted;
        let late = muted + self.late;
        let had_enough = |matter| in_a_row.get(matter) == Some(&MOST_IN_A_ROW);
        if pick >= late || about.iter().any(had_enough) {
            for matter in about {
                in_a_row.remove(matter);
            }
            return Fate::Served(before, after);
        }
        for matter in about {
            *in_a_row.entry(matter.clone()).or_default() += 1;
        }
        match pick {
            n if n < refused => Fate::Refused(before),
            n if n < muted => Fate::Muted(before, after),
            _ => Fate::Late(before, after * 4),
        }
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults")
            .field("seed", &self.seed)
            .field("refused", &self.refused)
            .field("muted", &self.muted)
            .field("late", &self.late)
            .field("delay", &self.delay)
            .finish_non_exhaustive()
    }
}

pub(super) enum Fate {
    Served(Duration, Duration),
    Refused(Duration),
    Muted(Duration, Duration),
    Late(Duration, Duration),
}

pub(super) fn about(ticket: &Ticket) -> Matter {
    (ticket.owner.client().to_owned(), ticket.name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_day_is_no_outage() {
        let faults = Faults {
            refused: 100,
            ..Faults::of_seed(1)
        };
        let of = |client: &str, name: &str| (client.to_owned(), name.to_owned());
        let served = |about: &[Matter]| matches!(faults.roll(about), Fate::Served(..));
        let [a, b] = ["a", "b"].map(|client| of(client, "stock"));
        // Another client's requests between them change nothing.
        let fates: Vec<bool> = (0..8)
            .map(|_| {
                let fate = served(std::slice::from_ref(&a));
                served(std::slice::from_ref(&b));
                fate
            })
            .collect();
        let row = [false, false, false, true];
        assert_eq!(fates, [row, row].concat());
        // Nor does it help to come with another one each time.
        let fates = ["x", "y", "z", "till"].map(|name| served(&[of("c", name), of("c", "stock")]));
        assert_eq!(fates, row);
    }
}
