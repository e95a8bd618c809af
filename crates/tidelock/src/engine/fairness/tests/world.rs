//! A simulation: one lock, processes of tidelock and other clients that compete for it, and a clock that jumps from one
//! event to the next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::engine::fairness::*;
use crate::store::Awaited;

/// How long each holder keeps the lock, in microseconds.
const HOLD: u64 = 1_000;
/// Bounds a leader term, in microseconds.
const MAX_TERM_MICROS: u64 = 10_000;
/// The time from the store to a client, or back, in microseconds.
const TRIP: u64 = 60;

/// A process of tidelock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ours {
    pub(crate) tasks: u32,
    hands_on: bool,
}

impl Ours {
    pub(crate) fn tasks(tasks: u32) -> Self {
        Self {
            tasks,
            hands_on: true,
        }
    }

    pub(crate) fn without_hand_off(self) -> Self {
        Self {
            hands_on: false,
            ..self
        }
    }

    /// How many of its tasks hold the lock in one turn.
    fn turns(self) -> u32 {
        let most = u32::try_from(MAX_TERM_MICROS / HOLD).unwrap();
        if self.hands_on && self.tasks > 1 {
            most
        } else {
            1
        }
    }
}

/// A client other than tidelock.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Others {
    /// Asks about a millisecond after a release.
    Java,
    /// Asks several milliseconds after a release.
    FarJava,
    /// Stays subscribed, and never asks.
    Stopped,
    /// Does not subscribe, and polls at this interval.
    Poller(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// An attempt reaches the store.
    Asks(usize),
    /// The release of the holder reaches the store.
    Ends(usize),
    /// The message of a release reaches a process.
    Hears(usize),
    /// A process checks whether it may ask now.
    Looks(usize),
}

struct Process {
    ours: Option<Ours>,
    other: Option<Others>,
    fairness_delays: FairnessDelays,
    releases_seen: u64,
    last: BootInstant,
    /// When its turn began.
    since: u64,
    /// An attempt is in flight, or a check is scheduled.
    busy: bool,
    turns: u64,
    waits_since: u64,
    longest: u64,
}

pub(crate) struct World {
    each: Vec<Process>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    holder: Option<usize>,
    now: u64,
    dice: u64,
    name: Name,
    /// When a process of tidelock last saw that a polling client held the lock.
    polled_at: Option<u64>,
    /// When a client other than tidelock last held the lock.
    stranger_at: u64,
    /// The longest time in which no such client held it.
    drought: u64,
}

/// The result: how many turns each process had.
#[derive(Debug)]
pub(crate) struct Shares {
    each: Vec<(bool, u64, Duration)>,
    /// The longest wait of a tidelock process.
    pub(crate) longest: Duration,
    /// The longest time in which no other client had a turn. How they divide the turns is up to them.
    pub(crate) drought: Duration,
}

impl Shares {
    pub(crate) fn total(&self) -> u64 {
        self.each.iter().map(|one| one.1).sum()
    }

    pub(crate) fn ours(&self) -> f64 {
        let ours: u64 = self.each.iter().filter(|one| one.0).map(|one| one.1).sum();
        ours as f64 / self.total() as f64
    }

    pub(crate) fn foreign(&self) -> f64 {
        1.0 - self.ours()
    }
}

impl World {
    pub(crate) fn of(ours: &[Ours], others: &[Others]) -> Self {
        let process = |ours, other| Process {
            ours,
            other,
            fairness_delays: FairnessDelays::default(),
            releases_seen: 0,
            last: BootInstant(0),
            since: 0,
            busy: true,
            turns: 0,
            waits_since: 0,
            longest: 0,
        };
        let ours = ours.iter().map(|one| process(Some(*one), None));
        let others = others.iter().map(|one| process(None, Some(*one)));
        let mut world = Self {
            each: ours.chain(others).collect(),
            events: BinaryHeap::new(),
            number: 0,
            holder: None,
            now: 0,
            dice: 7,
            name: crate::engine::fairness::tests::name(),
            polled_at: None,
            stranger_at: 0,
            drought: 0,
        };
        for who in 0..world.each.len() {
            let later = world.roll(2_000);
            world.put(later, Event::Looks(who));
        }
        world
    }

    fn roll(&mut self, below: u64) -> u64 {
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.dice >> 33) % below
    }

    fn put(&mut self, later: u64, event: Event) {
        self.number += 1;
        self.events
            .push(Reverse((self.now + later, self.number, event)));
    }

    fn moment(&self) -> BootInstant {
        BootInstant::from_nanos(self.now * 1000)
    }

    pub(crate) fn run(mut self, time: Duration) -> Shares {
        let end = u64::try_from(time.as_micros()).unwrap();
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at > end {
                break;
            }
            self.now = at;
            match event {
                Event::Looks(who) => self.looks(who),
                Event::Asks(who) => self.asks(who),
                Event::Ends(who) => self.ends(who),
                Event::Hears(who) => self.hears(who),
            }
        }
        let ours = self.each.iter().filter(|one| one.ours.is_some());
        let longest = ours.map(|one| one.longest.max(end - one.waits_since)).max();
        Shares {
            each: self
                .each
                .iter()
                .map(|one| {
                    (
                        one.ours.is_some(),
                        one.turns,
                        Duration::from_micros(one.longest),
                    )
                })
                .collect(),
            longest: Duration::from_micros(longest.unwrap_or(0)),
            drought: Duration::from_micros(self.drought),
        }
    }

    /// Asks the store, or waits for the rest of the fairness delay.
    fn looks(&mut self, who: usize) {
        let now = self.moment();
        let one = &self.each[who];
        let releases_seen = Some(ReleasesSeen {
            count: one.releases_seen,
            last: one.last,
        });
        let pause = match one.other {
            None => one.fairness_delays.pause(&self.name, now, releases_seen),
            Some(Others::Stopped) => return,
            Some(_) => Duration::ZERO,
        };
        if pause.is_zero() {
            return self.put(TRIP, Event::Asks(who));
        }
        let pause = u64::try_from(pause.as_micros()).unwrap().max(1);
        self.put(pause, Event::Looks(who));
    }

    fn asks(&mut self, who: usize) {
        if let Some(holder) = self.holder {
            if self.each[who].ours.is_some()
                && matches!(self.each[holder].other, Some(Others::Poller(_)))
            {
                self.polled_at = Some(self.now);
            }
            match self.each[who].other {
                Some(Others::Poller(pause)) => {
                    let pause = u64::try_from(pause.as_micros()).unwrap();
                    self.put(pause, Event::Looks(who));
                }
                _ => self.each[who].busy = false,
            }
            return;
        }
        self.holder = Some(who);
        if self.each[who].other.is_some() {
            self.drought = self.drought.max(self.now - self.stranger_at);
            self.stranger_at = self.now + HOLD;
        }
        let (now, moment) = (self.now, self.moment());
        let one = &mut self.each[who];
        one.longest = one.longest.max(now - one.waits_since);
        one.since = now;
        let turns = one.ours.map_or(1, Ours::turns);
        one.turns += u64::from(turns);
        let releases_seen = Some(ReleasesSeen {
            count: one.releases_seen,
            last: one.last,
        });
        one.fairness_delays
            .granted(&self.name, moment, releases_seen);
        self.put(TRIP + HOLD * u64::from(turns), Event::Ends(who));
    }

    fn ends(&mut self, who: usize) {
        self.holder = None;
        let now = self.now;
        for other in 0..self.each.len() {
            if !matches!(self.each[other].other, Some(Others::Poller(_))) {
                self.put(TRIP, Event::Hears(other));
            }
        }
        let foreign = self.each.iter().filter(|one| {
            matches!(
                one.other,
                Some(Others::Java | Others::FarJava | Others::Stopped)
            )
        });
        let polled = self.polled_at.is_some_and(|at| now - at < 10_000_000);
        let foreign = u32::try_from(foreign.count()).unwrap();
        let peers = self.each.iter().filter(|one| one.ours.is_some()).count() - 1;
        let moment = self.moment();
        let one = &mut self.each[who];
        one.waits_since = now;
        let Some(ours) = one.ours else {
            let later = match one.other {
                Some(Others::FarJava) => 2_000 + self.roll(2_000),
                Some(Others::Poller(_)) => 250,
                _ => 300 + self.roll(300),
            };
            self.each[who].busy = true;
            return self.put(later, Event::Looks(who));
        };
        let ended = EndedTurn {
            now: moment,
            kept: Duration::from_micros(now - one.since),
            turns: ours.turns(),
            trip: Duration::from_micros(2 * TRIP),
            awaited: Awaited {
                others: u32::try_from(peers).unwrap() + foreign,
                foreign,
                polled,
                releases_seen: one.releases_seen + 1,
            },
        };
        one.fairness_delays.ended(&self.name, &ended);
        one.busy = true;
        self.put(TRIP, Event::Looks(who));
    }

    fn hears(&mut self, who: usize) {
        let moment = self.moment();
        let one = &mut self.each[who];
        one.releases_seen += 1;
        one.last = moment;
        if one.busy || self.holder == Some(who) {
            return;
        }
        one.busy = true;
        let later = match one.other {
            None => 60,
            Some(Others::FarJava) => 3_000 + self.roll(3_000),
            Some(_) => 400 + self.roll(900),
        };
        self.put(later, Event::Looks(who));
    }
}
