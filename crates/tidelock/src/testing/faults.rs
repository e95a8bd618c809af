//! The random faults of [`Chaos`](super::Chaos): decides which fault each request meets.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::engine::runtime::sync::Mutex;
use crate::store::Ticket;

/// The rate of each fault. The same seed gives the same sequence of faults; the scheduler decides which request meets
/// which one.
#[derive(Clone)]
pub struct Faults {
    dice: Arc<Mutex<Dice>>,
    seed: u64,
    /// How many of 100 requests never reach the store, and fail with that error.
    pub refused: u8,
    /// How many of 100 take effect, but lose their reply.
    pub muted: u8,
    /// How many of 100 take effect only after their caller got an error with an unknown outcome.
    pub late: u8,
    /// The longest delay of each request and each reply.
    pub delay: Duration,
    /// How often each request pends before and after it takes effect. See [`pending`](Self::pending).
    pub pends: u8,
    /// The number of stores that share the rates.
    stores: u8,
    /// The number of late requests that have not arrived, of all clients with these faults.
    pub(super) on_their_way: Arc<watch::Sender<usize>>,
}

/// A client or an owner, and a lock name. Faults in a row are counted per pair.
pub(super) type Matter = (String, String);

struct Dice {
    rng: fastrand::Rng,
    /// The faults in a row of each client and name, and of each owner and name.
    in_a_row: HashMap<Matter, Row>,
}

/// Faults in a row, and the requests served since the last one.
#[derive(Default)]
struct Row {
    faults: u8,
    served: u8,
}

/// Bounds the faults in a row for one client and name, and for the attempts of one owner; the next request succeeds. A store that does not answer for a
/// whole lease ends waits and holds, correctly, and other tests cover that. Without the bound, one wait in some ten
/// thousand met such an outage by chance, and one run in ten failed.
const MOST_IN_A_ROW: u8 = 3;

impl Faults {
    /// No faults.
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

    /// No faults, but each request pends this many times before it takes effect, and as often before its reply. This
    /// reaches await points that a fast store never stops at. Reads and force releases pend too.
    pub fn pending(times: u8) -> Self {
        Self {
            pends: times,
            ..Self::none()
        }
    }

    /// The usual fault rates, with the seed in `TIDELOCK_CHAOS_SEED` or a new one. Prints the seed.
    pub fn seeded() -> Self {
        let given = std::env::var("TIDELOCK_CHAOS_SEED").ok();
        let seed = given
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().1);
        eprintln!("chaos: set TIDELOCK_CHAOS_SEED={seed} to roll these dice again");
        Self::of_seed(seed)
    }

    /// The usual fault rates, with this seed.
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
            stores: 1,
            on_their_way: Arc::new(watch::Sender::new(0)),
        }
    }

    /// Divides the rates. For requests that go to several stores: give each store a clone. The clones count the faults
    /// in a row together. Otherwise a request to three stores could fail nine times in a row, which is an outage.
    #[must_use]
    pub fn shared_by(self, stores: u8) -> Self {
        Self {
            refused: self.refused / stores,
            muted: self.muted / stores,
            late: self.late / stores,
            stores,
            ..self
        }
    }

    /// How many requests must be served to end a row of faults. With several stores: as many as are needed to take back
    /// an attempt that failed, and to make another one at all of them.
    fn enough(&self) -> u8 {
        if self.stores == 1 { 1 } else { 2 * self.stores }
    }

    /// Decides the fate of a request. A request about several locks succeeds if one of them has met enough faults in a
    /// row.
    pub(super) fn roll(&self, about: &[Matter]) -> Fate {
        let mut dice = self.dice.lock();
        let Dice { rng, in_a_row } = &mut *dice;
        let pick = rng.u8(..100);
        let mut delay = || self.delay.mul_f64(rng.f64());
        let (before, after) = (delay(), delay());
        let refused = self.refused;
        let muted = refused + self.muted;
        let late = muted + self.late;
        let had_enough = |matter| {
            let row = in_a_row.get(matter);
            row.is_some_and(|row| row.faults == MOST_IN_A_ROW)
        };
        if pick >= late || about.iter().any(had_enough) {
            for matter in about {
                if let Some(row) = in_a_row.get_mut(matter) {
                    row.served += 1;
                    if row.served >= self.enough() {
                        in_a_row.remove(matter);
                    }
                }
            }
            return Fate::Served(before, after);
        }
        for matter in about {
            let row = in_a_row.entry(matter.clone()).or_default();
            row.faults += 1;
            row.served = 0;
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
    (
        ticket.owner.client().to_owned(),
        ticket.name.as_str().to_owned(),
    )
}

/// What an attempt is about. It counts for its owner too: several tasks of one client may ask for the same name, as those of a
/// semaphore do. Otherwise an answer to one of them would begin a new row for all, and one task could meet an outage.
pub(super) fn about_attempt(ticket: &Ticket) -> Vec<Matter> {
    let of_owner = (ticket.owner.to_string(), ticket.name.as_str().to_owned());
    vec![about(ticket), of_owner]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{LockKind, Name, OwnerId};

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

    #[test]
    fn no_task_of_a_client_meets_an_outage() {
        let faults = Faults {
            refused: 60,
            ..Faults::of_seed(1)
        };
        let tickets = ["c:1", "c:2", "c:3"].map(|owner| Ticket {
            kind: LockKind::Mutex,
            name: Name::new("render").expect("valid"),
            owner: OwnerId::of_text(owner),
        });
        let mut rows = [0; 3];
        let mut longest = 0;
        for n in 0..3000 {
            let fate = faults.roll(&about_attempt(&tickets[n % 3]));
            let served = matches!(fate, Fate::Served(..));
            rows[n % 3] = if served { 0 } else { rows[n % 3] + 1 };
            longest = longest.max(rows[n % 3]);
        }
        assert_eq!(longest, MOST_IN_A_ROW, "faults in a row of one task");
    }

    #[test]
    fn stores_that_share_faults_count_them_together() {
        let day = |refused| Faults {
            refused,
            ..Faults::of_seed(1).shared_by(3)
        };
        let stock = [("c".to_owned(), "stock".to_owned())];
        let served = |faults: &Faults| matches!(faults.roll(&stock), Fate::Served(..));
        let bad = day(100);
        let parts = [bad.clone(), bad.clone(), bad];
        let fates: Vec<bool> = (0..12).map(|n| served(&parts[n % 3])).collect();
        assert_eq!(
            fates,
            [[false; 3].as_slice(), &[true; 6], &[false; 3]].concat()
        );
    }
}
