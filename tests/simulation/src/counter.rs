//! One task that takes permits of a counting semaphore and gives them back, counts a latch down, and waits for it.

use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use tidelock::{CountingSemaphore, ErrorKind, Latch};
use tokio::time::{sleep, timeout};

use crate::referee::Referee;

/// The permits of the counting semaphore.
pub(crate) const SEATS: u32 = 3;
/// The count of the latch.
pub(crate) const GATE: u32 = 6;

/// What the callers know of the numbers. Nobody holds them, so only their sums can be checked.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// Permits that callers have, until they begin to give them back.
    taken: u32,
    /// Calls that counted down, from their beginning.
    begun: u32,
    /// Those that were told that it is done.
    done: u32,
    /// A change of the semaphore had no answer, or was dropped.
    in_doubt: bool,
}

impl Counted {
    fn takes(&mut self, permits: u32) -> Result<(), String> {
        self.taken += permits;
        if self.taken > SEATS {
            let taken = self.taken;
            return Err(format!("{taken} of {SEATS} counted permits are taken"));
        }
        Ok(())
    }
}

pub(crate) struct Counter {
    pub(crate) who: String,
    pub(crate) seats: CountingSemaphore,
    pub(crate) gate: Latch,
    pub(crate) rounds: usize,
    pub(crate) lease: Duration,
    pub(crate) dice: Rng,
    pub(crate) referee: Rc<Referee>,
}

impl Counter {
    pub(crate) async fn live(mut self) {
        for _ in 0..self.rounds {
            let idle = self.up_to(self.lease / 4);
            sleep(idle).await;
            match self.dice.u8(..10) {
                0..6 => self.sit().await,
                6..8 => self.count_down().await,
                _ => self.pass().await,
            }
        }
        self.referee.note(format_args!("{} is done", self.who));
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.dice.f64())
    }

    /// Takes permits, keeps them for a while, and gives them back.
    async fn sit(&mut self) {
        let permits = self.dice.u32(1..=SEATS);
        let patience = self.up_to(self.lease * 3);
        let taken = match self.dice.u8(..100) {
            0..25 => self.seats.try_acquire(permits).await,
            25..50 => {
                let taken = self.seats.acquire_timeout(permits, patience).await;
                taken.map(|()| true)
            }
            50..70 => match timeout(patience, self.seats.acquire(permits)).await {
                Ok(taken) => taken.map(|()| true),
                Err(_) => return self.doubts("leaves"),
            },
            _ => {
                let long = self.lease * 12;
                let taken = self.seats.acquire_timeout(permits, long).await;
                taken.map(|()| true)
            }
        };
        match taken {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return self.has_none("permits", &error),
        }
        self.referee
            .note(format_args!("{} takes {permits}", self.who));
        self.referee.counts();
        self.judge(|counted| counted.takes(permits));
        let stay = self.up_to(self.lease);
        sleep(stay).await;
        self.referee.counted.borrow_mut().taken -= permits;
        let given = if self.dice.u8(..4) == 0 {
            let patience = self.up_to(self.lease / 20);
            match timeout(patience, self.seats.release(permits)).await {
                Ok(given) => given,
                Err(_) => return self.doubts("turns away"),
            }
        } else {
            self.seats.release(permits).await
        };
        if let Err(error) = given {
            self.has_none("an answer", &error);
        }
    }

    async fn count_down(&mut self) {
        self.referee.counted.borrow_mut().begun += 1;
        let counted = self.gate.count_down().await;
        self.referee
            .note(format_args!("{} counts down: {counted:?}", self.who));
        match counted {
            Ok(_) => {
                self.referee.counts();
                self.referee.counted.borrow_mut().done += 1;
            }
            Err(error) => self.has_none("an answer", &error),
        }
    }

    async fn pass(&mut self) {
        let patience = self.up_to(self.lease * 3);
        match self.gate.wait_timeout(patience).await {
            Ok(()) => self.judge(|counted| {
                let begun = counted.begun;
                (begun >= GATE).then_some(()).ok_or_else(|| {
                    format!("the latch is open after {begun} calls, and its count was {GATE}")
                })
            }),
            Err(error) => self.has_none("passed", &error),
        }
    }

    fn judge(&self, rule: impl FnOnce(&mut Counted) -> Result<(), String>) {
        let verdict = rule(&mut self.referee.counted.borrow_mut());
        if let Err(why) = verdict {
            self.referee.blame(format!("{}: {why}", self.who));
        }
    }

    fn doubts(&self, why: &str) {
        self.referee.note(format_args!("{} {why}", self.who));
        self.referee.counted.borrow_mut().in_doubt = true;
    }

    fn has_none(&self, what: &str, error: &tidelock::Error) {
        let expected = [
            ErrorKind::TimedOut,
            ErrorKind::Unavailable,
            ErrorKind::OutcomeUnknown,
        ];
        if !expected.contains(&error.kind()) {
            self.referee
                .blame(format!("{} has not {what}: {error}", self.who));
        }
        self.doubts(&format!("has not {what}: {error}"));
    }
}

/// At the end, when all requests have arrived: there are not too many permits, and none is missing unless somebody does not know
/// what became of a change. The latch has counted each call once.
pub(crate) async fn sums(
    seats: &CountingSemaphore,
    gate: &Latch,
    lease: Duration,
    referee: &Referee,
) {
    // The injected faults go on, and a look is not repeated.
    const LOOKS: usize = 50;
    let mut looked = None;
    for _ in 0..LOOKS {
        if let (Ok(available), Ok(count)) = (seats.available().await, gate.count().await) {
            looked = Some((available, count));
            break;
        }
    }
    let Some((available, count)) = looked else {
        return referee.blame("no answer in the end".to_owned());
    };
    let opens = gate.wait_timeout(lease * 12).await;
    let known = referee.counted.borrow();
    let is_short = available < i64::from(SEATS) && !known.in_doubt;
    let (highest, lowest) = (GATE - known.done.min(GATE), GATE - known.begun.min(GATE));
    let counted = (u64::from(lowest)..=u64::from(highest)).contains(&count);
    let why = if available > i64::from(SEATS) || is_short {
        format!("in the end there are {available} of {SEATS} counted permits")
    } else if !counted || opens.is_ok() != (count == 0) {
        format!("in the end the latch is at {count}, not {lowest} to {highest}: {opens:?}")
    } else {
        return;
    };
    drop(known);
    referee.blame(why);
}
