//! The records of a store in memory, which its clients share.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::counter::LastTokens;
use super::permits::PermitRecord;
use super::queue::LockQueue;
use super::slot_marks::SlotMarks;
use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::{ClientInfo, Snapshot};
use crate::store::glob::matches_glob;
use crate::store::kinds::{is_lock, is_semaphore};
use crate::store::{
    BootInstant, Capabilities, ClientId, Clock, CountChanged, Env, Name, OwnerId, Timers,
    WakeChannels,
};

/// The number of entries at which we remove those that nobody needs for the first time.
const MANY_ENTRIES: usize = 1024;

/// The shared stores, by name. They live until the process ends.
static SHARED: LazyLock<Mutex<HashMap<String, Arc<World>>>> = LazyLock::new(Mutex::default);

#[derive(Debug)]
pub(crate) struct World {
    records: Mutex<Records>,
    pub(crate) can: Capabilities,
    timers: Timers,
    /// The time of the wall clock at an instant of `timers`.
    wall: (SystemTime, BootInstant),
}

#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) locks: HashMap<Name, LockQueue>,
    pub(crate) semaphores: HashMap<Name, PermitRecord>,
    /// The count of each latch that is not open.
    pub(crate) latches: HashMap<Name, u32>,
    /// The answers to the changes of latches and counting semaphores, and until when they are remembered.
    pub(crate) changed: HashMap<OwnerId, (CountChanged, BootInstant)>,
    /// Locks that nobody can acquire until then, because of a lock-delay.
    pub(crate) barred: HashMap<Name, BootInstant>,
    /// The newest token of each lock.
    pub(crate) tokens: LastTokens,
    /// Withdrawn owners, and until when they are remembered.
    pub(crate) withdrawn: HashMap<OwnerId, BootInstant>,
    pub(crate) clients: HashMap<ClientId, ClientInfo>,
    pub(crate) marks: HashMap<Name, SlotMarks>,
    /// The number of entries at which those that nobody needs any more are removed.
    many: usize,
    /// The waiters of each client.
    pub(crate) listeners: Vec<WakeChannels>,
}

impl World {
    /// The store of this name, or a new one if the name is empty.
    pub(crate) fn named(name: &str, can: Capabilities, env: &Env) -> Arc<Self> {
        let fresh = || {
            Arc::new(Self {
                records: Mutex::default(),
                can,
                timers: env.timers.clone(),
                wall: (wall_time(env.timers.clock()), env.timers.now()),
            })
        };
        if name.is_empty() {
            return fresh();
        }
        let mut shared = SHARED.lock();
        Arc::clone(shared.entry(name.to_owned()).or_insert_with(fresh))
    }

    /// The time of this store's clock.
    pub(crate) fn wall_time(&self) -> SystemTime {
        let (time, at) = self.wall;
        time + self.timers.now().since(at)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock()
    }
}

/// A simulated clock starts on the same day in each run, so that a seeded simulation can be replayed.
fn wall_time(clock: Clock) -> SystemTime {
    match clock {
        Clock::Boot => SystemTime::now(),
        Clock::Simulated => UNIX_EPOCH + Duration::from_secs(1_767_225_600), // 2026-01-01
    }
}

impl Records {
    /// The marks of a name, without expired ones.
    pub(crate) fn marks(&mut self, name: &Name, now: BootInstant) -> &mut SlotMarks {
        self.make_room(now);
        let marks = self.marks.entry(name.clone()).or_default();
        marks.drop_expired(now);
        marks
    }

    /// Removes what locks without a holder have left, once the number of entries has doubled. Otherwise every name ever
    /// used would stay in memory.
    pub(crate) fn make_room(&mut self, now: BootInstant) {
        if self.entries() < self.many.max(MANY_ENTRIES) {
            return;
        }
        let names: Vec<Name> = self.locks.keys().cloned().collect();
        for name in names {
            self.queue(&name, now);
        }
        self.barred.retain(|_, until| *until > now);
        self.withdrawn.retain(|_, until| *until > now);
        self.marks.retain(|_, marks| {
            marks.drop_expired(now);
            !marks.is_empty()
        });
        let locks = &self.locks;
        self.tokens.keep(|name| locks.contains_key(name));
        self.many = self.entries() * 2;
    }

    fn entries(&self) -> usize {
        let locks = self.locks.len() + self.tokens.len() + self.barred.len();
        locks + self.withdrawn.len() + self.marks.len()
    }

    pub(crate) fn refuse_withdrawn(&self, owner: &OwnerId) -> Result<()> {
        if !self.withdrawn.contains_key(owner) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Cancelled).because("the attempt was withdrawn before"))
    }

    /// A name is a lock or a semaphore.
    pub(crate) fn refuse_semaphore(&self, name: &Name) -> Result<()> {
        if !self.semaphores.contains_key(name) {
            return Ok(());
        }
        Err(is_semaphore())
    }

    /// A name is a latch, or something else.
    pub(crate) fn refuse_latch(&self, name: &Name) -> Result<()> {
        if !self.latches.contains_key(name) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::WrongType)
            .because("the name is a latch. It was not changed; use `latch`, or another name"))
    }

    /// See [`refuse_semaphore`](Self::refuse_semaphore).
    pub(crate) fn refuse_lock(&mut self, name: &Name, now: BootInstant) -> Result<()> {
        if self.queue(name, now).is_none() {
            return Ok(());
        }
        Err(is_lock())
    }

    /// The queue of a name, without expired entries. `None`: the lock has no holder and no waiter.
    pub(crate) fn queue(&mut self, name: &Name, now: BootInstant) -> Option<&mut LockQueue> {
        let queue = self.locks.get_mut(name)?;
        if let Some(until) = queue.tidy(now) {
            self.barred.insert(name.clone(), until);
        }
        if queue.is_empty() {
            self.locks.remove(name);
        }
        self.locks.get_mut(name)
    }

    /// The names of the locks and semaphores that are held and match a pattern.
    pub(crate) fn held(&self, now: BootInstant, pattern: &str) -> Vec<String> {
        let is_held = |queue: &LockQueue| queue.holders().any(|place| place.ends > now);
        let locks = self.locks.iter().filter(|(_, queue)| is_held(queue));
        let semaphores = self.semaphores.iter();
        let semaphores = semaphores.filter(|(_, semaphore)| semaphore.is_held(now));
        let names = locks.map(|(name, _)| name);
        let names = names.chain(semaphores.map(|(name, _)| name));
        let names = names.map(Name::as_str);
        let names = names.filter(|name| matches_glob(pattern, name));
        names.map(str::to_owned).collect()
    }

    /// When the lock-delay of a lock without a holder ends. `None`: no delay is running.
    pub(crate) fn barred(&mut self, name: &Name, now: BootInstant) -> Option<BootInstant> {
        let until = *self.barred.get(name)?;
        if until <= now {
            self.barred.remove(name);
            return None;
        }
        Some(until)
    }

    /// Whether nobody holds the lock but holders in `seen`, with the same newest token.
    pub(crate) fn is_held_as(&mut self, name: &Name, seen: &Snapshot, now: BootInstant) -> bool {
        let token = self.tokens.get(name);
        let queue = self.queue(name, now);
        let holders = queue.iter().flat_map(|queue| queue.holders());
        seen.is_of(&mut holders.map(|place| place.owner.text()), token)
    }

    /// How many clients have waiters on the channel of this name.
    pub(crate) fn watchers(&self, name: &Name) -> usize {
        let signals = self.listeners.iter();
        signals
            .filter(|signals| signals.is_watched(name.as_str()))
            .count()
    }

    /// The waiters to wake after a release, a withdrawal or a force release. The caller wakes them after it has
    /// unlocked the records. Otherwise a task that runs inside its wake would deadlock.
    #[must_use]
    pub(crate) fn left(&mut self, name: &Name, now: BootInstant) -> Vec<(WakeChannels, Box<str>)> {
        let channels: Vec<Box<str>> = match self.queue(name, now) {
            Some(queue) => queue.next().map(|owner| owner.text().into()).collect(),
            None => vec![name.as_str().into()],
        };
        let told = channels.iter().flat_map(|channel| {
            let listeners = self.listeners.iter();
            listeners.map(|signals| (signals.clone(), channel.clone()))
        });
        told.collect()
    }
}

/// Wakes the waiters that [`Records::left`] has named.
pub(crate) fn tell(told: &[(WakeChannels, Box<str>)]) {
    for (signals, channel) in told {
        signals.wake_one(channel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::LockKind;
    use crate::store::memory::queue::QueuedHold;
    use crate::types::OwnerMint;

    fn name(number: usize) -> Name {
        Name::new(format!("{number}")).unwrap()
    }

    fn hold(ends: BootInstant) -> QueuedHold {
        QueuedHold {
            kind: LockKind::Mutex,
            owner: OwnerMint::new().fresh(),
            ends,
            token: Some(1),
            upgrade_of: None,
            delay: Duration::ZERO,
        }
    }

    /// More names than are kept.
    const MANY_NAMES: usize = 10 * MANY_ENTRIES;

    /// How a use of a name leaves one kind of entry until then, and how many of that kind there are.
    type Leaves = (fn(&mut Records, &Name, BootInstant), fn(&Records) -> usize);

    const LEAVES: [Leaves; 5] = [
        (
            |records, name, _| {
                records.tokens.next(name, 0);
            },
            |records| {
                let has_token = |number: &usize| records.tokens.get(&name(*number)).is_some();
                (0..MANY_NAMES).filter(has_token).count()
            },
        ),
        (
            |records, name, until| {
                records
                    .locks
                    .entry(name.clone())
                    .or_default()
                    .put(hold(until));
            },
            |records| records.locks.len(),
        ),
        (
            |records, name, until| {
                records.barred.insert(name.clone(), until);
            },
            |records| records.barred.len(),
        ),
        (
            |records, _, until| {
                records.withdrawn.insert(OwnerMint::new().fresh(), until);
            },
            |records| records.withdrawn.len(),
        ),
        (
            |records, name, until| {
                let marks = records.marks.entry(name.clone()).or_default();
                marks.put("slot", "text", until);
            },
            |records| records.marks.len(),
        ),
    ];

    /// Each kind by itself: none is removed only because there are many of another one.
    #[test]
    fn names_that_nobody_uses_are_forgotten() {
        let (second, begun) = (Duration::from_secs(1), BootInstant(0));
        for (number_of_kind, (leave, left)) in LEAVES.into_iter().enumerate() {
            let mut records = Records::default();
            for number in 0..MANY_NAMES {
                let now = begun + second * u32::try_from(number).unwrap();
                records.make_room(now);
                leave(&mut records, &name(number), now + second);
            }
            let left = left(&records);
            assert!(
                left <= MANY_ENTRIES,
                "{left} of the kind {number_of_kind} are left"
            );
        }
    }

    #[test]
    fn what_is_held_is_not_forgotten() {
        let (begun, far) = (BootInstant(0), BootInstant(0) + Duration::from_secs(60));
        let mut records = Records::default();
        for number in 0..MANY_NAMES {
            records.make_room(begun);
            for (leave, _) in LEAVES {
                leave(&mut records, &name(number), far);
            }
        }
        for (number_of_kind, (_, left)) in LEAVES.into_iter().enumerate() {
            assert_eq!(left(&records), MANY_NAMES, "of the kind {number_of_kind}");
        }
        assert_eq!(records.tokens.get(&name(0)), Some(1));
    }

    /// Otherwise each request would look through all names.
    #[test]
    fn names_are_looked_through_again_when_their_number_has_doubled() {
        let (now, far) = (BootInstant(5), BootInstant(9));
        let mut records = Records::default();
        let ended = Name::new("ended").unwrap();
        let mut numbers = 0..;
        let mut most = MANY_ENTRIES;
        for _ in 0..3 {
            records.barred.insert(ended.clone(), now);
            while records.barred.len() < most - 1 {
                let number = numbers.next().unwrap();
                records.barred.insert(name(number), far);
            }
            records.make_room(now);
            assert!(records.barred.contains_key(&ended), "fewer than {most}");
            let last = numbers.next().unwrap();
            records.barred.insert(name(last), far);
            records.make_room(now);
            assert!(!records.barred.contains_key(&ended), "there are {most}");
            most = records.barred.len() * 2;
        }
    }

    /// Clients compare instants of one clock: at the end of a lease others have the lock.
    #[test]
    fn a_hold_is_listed_until_the_instant_at_which_it_ends() {
        let mut records = Records::default();
        let queue = records.locks.entry(name(1)).or_default();
        queue.put(hold(BootInstant(5)));
        assert_eq!(records.held(BootInstant(4), "*"), ["1"]);
        assert!(records.held(BootInstant(5), "*").is_empty());
    }
}
