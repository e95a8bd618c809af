//! One run: worker processes take locks, a fault happens, and the checkers judge the histories.

mod outcome;
mod remains;
mod story;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fastrand::Rng;
use testkit::process::boot_time;

use crate::acquisition::Histories;
use crate::check::{self, Breach, Promise, Terms};
use crate::crew::{Crew, Unserved};
use crate::notes::{Harm, Notes, Outage, Span};
use crate::partitions::Seen;
use crate::role::Role;
use crate::store::Store;
use crate::worker::{Library, Lie, Plan};
use crate::world::{Spread, World};

pub(crate) use self::outcome::Outcome;
use self::remains::{files_left, left_over, open_files};
pub(crate) use self::story::Story;

/// The bound on the time from a fault until every process is served again. Failovers are the slowest.
pub(crate) const RECOVERY: Duration = Duration::from_secs(30);

/// The same in leases, where they are longer than usual: the processes hold the locks for parts of a lease, in turns.
const RECOVERY_LEASES: u32 = 15;

/// The environment of a story.
pub(crate) struct Stage<'a> {
    pub(crate) world: &'a dyn World,
    pub(crate) store: Store,
    pub(crate) crew: Crew,
    pub(crate) notes: Notes,
    pub(crate) rng: Rng,
    pub(crate) lease: Duration,
    /// Whether all replicas acknowledge a grant.
    pub(crate) all_replicas: bool,
    base: String,
    pub(crate) lie: Lie,
    is_storm: bool,
    /// The number of faults that have been made.
    made: usize,
    /// When the servers were well, at the begin and again after a partition, and the elections that they had had by then.
    pub(crate) well: Option<(Duration, u64)>,
}

impl<'a> Stage<'a> {
    /// The name of the lock of this role.
    pub(crate) fn name(&self, role: Role) -> String {
        role.name(&self.base, "")
    }

    /// The names of all locks that the processes use.
    pub(crate) fn names(&self) -> Vec<String> {
        let shared = [Role::Trader, Role::Relay, Role::Candidate, Role::Ticker];
        let shared = shared.map(|role| self.name(role));
        let keepers = self.crew.members.iter().map(|member| {
            let owner = format!("{}-0", member.number);
            Role::Keeper.name(&self.base, &owner)
        });
        shared.into_iter().chain(keepers).collect()
    }

    /// The servers and processes, if each has a host of its own.
    pub(crate) fn spread(&self) -> Result<&'a Spread> {
        self.world.spread().context("all are on one host")
    }

    /// The process that a fault hits: the holder of the lock that is held longest.
    pub(crate) fn victim(&mut self) -> Result<u32> {
        if self.lie == Lie::Minority {
            return Ok(1);
        }
        self.holder(Role::Relay)
    }

    /// Servers that chose a new leader until now although nothing was cut had no processor for a second. That is an outage.
    pub(crate) fn note_elections(&mut self) -> Result<()> {
        if let Some((from, elections)) = self.well
            && self.spread()?.elections()? > elections
        {
            let to = boot_time();
            let when = Span { from, to };
            self.notes.outages.push(Outage { when, mute: false });
            self.notes.disturbed = true;
            if self.store == Store::Sentinel && !self.all_replicas {
                self.may_have_forgotten(when);
            }
        }
        Ok(())
    }

    /// Those of these roles that the store can play: without tokens it has neither elections nor jobs that run once.
    pub(crate) fn roles(&self, roles: &[Role]) -> Vec<Role> {
        let needs_tokens = |role: &Role| matches!(role, Role::Candidate | Role::Ticker);
        let mut roles = roles.to_vec();
        roles.retain(|role| self.store.has_tokens() || !needs_tokens(role));
        roles
    }

    /// Lets the run continue for this time.
    #[allow(clippy::unused_self, reason = "a stage direction like the others")]
    pub(crate) fn pass(&self, time: Duration) {
        thread::sleep(time);
    }

    /// A random duration between these bounds, in milliseconds.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.rng.u64(least..=most))
    }

    /// Freezes a process for that time.
    pub(crate) fn freeze(&mut self, number: u32, time: Duration) -> Result<()> {
        let from = boot_time();
        self.crew.by_number(number)?.process.freeze()?;
        self.pass(time);
        self.crew.by_number(number)?.process.thaw()?;
        let when = Span {
            from,
            to: boot_time(),
        };
        self.notes.frozen.push((number, when));
        if self.store == Store::Sqlite {
            // It may stand still in the middle of a transaction, which locks the whole file.
            self.notes.outages.push(Outage { when, mute: false });
        }
        Ok(())
    }

    /// Runs `what` and records its period as an outage: the store is unavailable or slow in that time.
    pub(crate) fn outage(&mut self, what: impl FnOnce(&mut Self) -> Result<()>) -> Result<Span> {
        let from = boot_time();
        what(self)?;
        let when = Span {
            from,
            to: boot_time(),
        };
        self.notes.outages.push(Outage { when, mute: false });
        Ok(when)
    }

    /// As [`outage`](Self::outage), from `begin` to `end`; in between, the store sends nothing to any client.
    pub(crate) fn mute(
        &mut self,
        begin: impl FnOnce(&dyn World) -> Result<()>,
        time: Duration,
        end: impl FnOnce(&dyn World) -> Result<()>,
    ) -> Result<()> {
        let world = self.world;
        let mut silent = None;
        self.outage(|stage| {
            begin(world)?;
            let from = boot_time();
            stage.pass(time);
            let to = boot_time();
            silent = Some(Span { from, to });
            end(world)
        })?;
        let when = silent.context("it was not mute")?;
        self.notes.outages.push(Outage { when, mute: true });
        Ok(())
    }

    /// The store forgot everything, including its token counters, in this period.
    pub(crate) fn forgot(&mut self, when: Span) {
        self.harm(when, None, true, true);
    }

    /// As [`forgot`](Self::forgot), but the store only may have forgotten.
    pub(crate) fn may_have_forgotten(&mut self, when: Span) {
        self.harm(when, None, true, false);
    }

    /// The store may have ended every lease, but kept its token counters.
    pub(crate) fn may_have_freed(&mut self, when: Span) {
        self.harm(when, None, false, false);
    }

    /// As [`may_have_freed`](Self::may_have_freed), only these locks.
    pub(crate) fn may_have_freed_these(&mut self, when: Span, names: &[String]) {
        for name in names {
            self.harm(when, Some(name.clone()), false, false);
        }
    }

    /// The store forgot this lock, but kept its token counter. MariaDB keeps the counter in the deleted row, so it
    /// forgets both.
    pub(crate) fn forgot_lock(&mut self, when: Span, name: String) {
        let counted_there = self.store == Store::Mariadb;
        self.harm(when, Some(name), counted_there, true);
    }

    /// The store ended this lock by order, and kept its token counter.
    pub(crate) fn forced(&mut self, when: Span, name: String) {
        self.harm(when, Some(name), false, true);
    }

    fn harm(&mut self, when: Span, name: Option<String>, tokens: bool, sure: bool) {
        self.notes.harms.push(Harm {
            when,
            name,
            tokens,
            sure,
        });
    }

    /// The bound on the time from a fault until every process is served again.
    pub(crate) fn recovery(&self) -> Duration {
        RECOVERY.max(self.lease * RECOVERY_LEASES)
    }

    /// Waits until a process holds the lock of this role, and returns its number.
    pub(crate) fn holder(&mut self, role: Role) -> Result<u32> {
        self.crew
            .until("somebody holds the lock", self.recovery(), |crew| {
                crew.holder(role).is_some()
            })?;
        self.crew.holder(role).context("nobody holds it")
    }
}

/// What happens in a run.
pub(crate) struct Run<'a> {
    /// The settings of the whole run: what may be lost, and how its processes behave.
    pub(crate) story: &'a Story,
    /// Its faults, one after the other.
    pub(crate) faults: &'a [Story],
    /// The number of tasks per process that each hold a lock for some leases, besides the usual tasks.
    pub(crate) holders: u32,
}

/// Runs the story once.
pub(crate) fn play(
    world: &dyn World,
    store: Store,
    story: &Story,
    seed: u64,
    lease: Duration,
) -> Result<Outcome> {
    let faults = std::slice::from_ref(story);
    let holders = 0;
    play_run(
        world,
        store,
        &Run {
            story,
            faults,
            holders,
        },
        seed,
        lease,
    )
}

/// Runs some faults, one after the other, with the same processes.
pub(crate) fn play_run(
    world: &dyn World,
    store: Store,
    run: &Run,
    seed: u64,
    lease: Duration,
) -> Result<Outcome> {
    let story = run.story;
    let start = Instant::now();
    let base = format!("{}-{seed}", story.name.replace(' ', "-"));
    let alone = store == Store::Memory;
    let plan = Plan {
        process: 0,
        store: world.urls(),
        secret: world.secret(),
        file: PathBuf::new(),
        lease_ms: u64::try_from(lease.as_millis())?,
        name: base.clone(),
        seed,
        // Redisson has neither elections nor jobs that run once.
        no_tokens: !store.has_tokens() || story.library == Library::Redisson,
        clients: if alone { 3 } else { 1 },
        crowd: story.crowd,
        holders: run.holders,
        all_replicas: story.all_replicas,
        restart_guard: story.restart_guard,
        library: story.library,
        lie: story.lie,
    };
    let hosts = world.spread().map_or(&[][..], Spread::clients);
    let crew = Crew::start(plan, if alone { 1 } else { 3 }, story.fake_clock, hosts)?;
    let mut stage = Stage {
        world,
        store,
        crew,
        notes: Notes::default(),
        rng: Rng::with_seed(seed),
        lease,
        all_replicas: story.all_replicas,
        base,
        lie: story.lie,
        is_storm: run.holders > 0,
        made: 0,
        well: None,
    };
    if let Some(net) = world.spread() {
        stage.well = Some((boot_time(), net.elections()?));
    }
    let mut found = Vec::new();
    let ended = perform(&mut stage, run, &mut found).err();
    let stage_notes = &stage.notes;
    let histories = stage.crew.histories();
    let terms = terms(store, story, lease);
    // What ended the run comes first: it explains much of what the checkers find, and a report shows only the first few.
    let mut breaches: Vec<Breach> = ended.iter().map(ended_by).collect();
    breaches.extend(check::all(&histories, stage_notes, &terms));
    breaches.extend(found);
    let (grants, losses) = count(&histories);
    let wrong = !breaches.is_empty() && story.library == Library::Tidelock;
    Ok(Outcome {
        breaches,
        made: stage.made,
        grants,
        losses,
        took: start.elapsed(),
        seen: Seen::of(&histories, stage_notes),
        stall: check::longest_stall(&histories, stage_notes),
        files: wrong.then(|| stage.crew.keep_files()),
    })
}

/// Runs the faults, waits for recovery after each, stops the processes and looks for leaks.
fn perform(stage: &mut Stage, run: &Run, found: &mut Vec<Breach>) -> Result<()> {
    let recovery = stage.recovery();
    let mut so_far = Failovers::now(stage)?;
    let served = stage.crew.until_served(Duration::ZERO, recovery);
    let mut well = in_time(served, found)?;
    so_far = so_far.note(stage)?;
    let files = open_files(stage);
    for fault in run.faults {
        if !well {
            break;
        }
        well = in_time(make(stage, fault), found)?;
        so_far = so_far.note(stage)?;
    }
    // We count open files before the processes stop; afterwards there is nothing to count.
    found.extend(files_left(stage, &files));
    stage.notes.ended = boot_time();
    stage.note_elections()?;
    stage.crew.dismiss(recovery)?;
    so_far.note(stage)?;
    let left = left_over(stage)?;
    found.extend(check::leaks(&left));
    Ok(())
}

/// Makes the fault, and waits until every process has its locks again.
fn make(stage: &mut Stage, fault: &Story) -> Result<()> {
    let told = || format!("{}: the fault could not be made", fault.name);
    (fault.act)(stage).with_context(told)?;
    stage.made += 1;
    let recovery = stage.recovery();
    let served = stage.crew.until_served(boot_time(), recovery);
    served.with_context(|| format!("after {}", fault.name))
}

/// `false`: not every process got its locks in time. The run goes on to its end all the same: a busy machine excuses that they
/// came late, but neither a process that does not stop nor a lock that stays behind.
fn in_time(result: Result<()>, found: &mut Vec<Breach>) -> Result<bool> {
    let Err(error) = result else {
        return Ok(true);
    };
    if error.downcast_ref::<Unserved>().is_none() {
        return Err(error);
    }
    found.push(Breach::new(Promise::Recovery, format!("{error:#}")));
    Ok(false)
}

/// The breach of a run that ended with this error.
fn ended_by(error: &anyhow::Error) -> Breach {
    let how = format!("the run did not come to its end: {error:#}");
    Breach::new(Promise::Run, how)
}

/// The failovers that the servers have had, and those that stories had noted by then.
struct Failovers {
    at: Duration,
    count: u64,
    noted: usize,
}

impl Failovers {
    fn now(stage: &Stage) -> Result<Self> {
        let harms = stage.notes.harms.iter();
        Ok(Self {
            at: boot_time(),
            count: if stage.is_storm {
                stage.world.failovers()?
            } else {
                0
            },
            noted: harms
                .filter(|harm| harm.name.is_none() && !harm.sure)
                .count(),
        })
    }

    /// On a machine that is as busy as in a storm, sentinels take a primary for dead now and then, and promote a replica that
    /// may not have acknowledged every grant.
    fn note(self, stage: &mut Stage) -> Result<Self> {
        let now = Self::now(stage)?;
        if now.count > self.count && now.noted == self.noted {
            let when = Span {
                from: self.at,
                to: now.at,
            };
            stage.notes.outages.push(Outage { when, mute: false });
            if !stage.all_replicas {
                stage.notes.disturbed = true;
                stage.may_have_forgotten(when);
            }
        }
        Self::now(stage)
    }
}

/// How long after the lease of a vanished holder a store may take to grant the lock again.
fn grace(store: Store) -> Duration {
    match store {
        // These stores count in whole seconds and check for expired leases only at intervals.
        Store::Etcd => Duration::from_secs(2),
        Store::Memcached => Duration::from_secs(3),
        // Sessions end at a tick.
        Store::Zookeeper => Duration::from_millis(500),
        _ => Duration::from_millis(100),
    }
}

fn terms(store: Store, story: &Story, lease: Duration) -> Terms {
    let wake = Duration::from_millis(if store.wakes() { 50 } else { 150 });
    Terms {
        lease,
        grace: grace(store),
        told_within: lease / 3 + Duration::from_millis(500),
        keeps: story.keeps,
        typical_wake: story.calm.then_some(wake),
        short_waits: story.eager,
        tokens: store.has_tokens(),
        queues: store.queues(),
    }
}

fn count(histories: &Histories) -> (usize, usize) {
    let granted: Vec<_> = histories.granted().collect();
    let lost = granted.iter().filter(|one| one.was_lost());
    (granted.len(), lost.count())
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    /// What a busy machine leaves of a run that ended in this way.
    fn left_of(result: Result<()>) -> Vec<Promise> {
        let mut outcome = Outcome::broken(&anyhow!("a server did not start"));
        outcome.breaches.clear();
        if let Err(error) = in_time(result, &mut outcome.breaches) {
            outcome.breaches.push(ended_by(&error));
        }
        assert_eq!(outcome.breaches.len(), 1);
        outcome.drop_timing();
        let left = outcome.breaches.iter();
        left.map(|breach| breach.promise).collect()
    }

    #[test]
    fn a_busy_machine_excuses_locks_that_come_late() {
        let (within, missing) = (RECOVERY, "2 Relay".to_owned());
        let late = anyhow::Error::new(Unserved { within, missing });
        let late = late.context("after server frozen");
        assert!(left_of(Err(late)).is_empty());
    }

    #[test]
    fn a_busy_machine_excuses_no_process_that_ends_and_no_fault_that_was_not_made() {
        for how in ["process 2 ended by itself", "server frozen: no such server"] {
            assert_eq!(left_of(Err(anyhow!(how))), [Promise::Run]);
        }
        let mut outcome = Outcome::broken(&anyhow!("a server did not start"));
        outcome.drop_timing();
        assert_eq!(outcome.breaches.len(), 1);
        assert_eq!(outcome.made, 0);
    }

    #[test]
    fn a_busy_machine_excuses_bounds_on_times_only() {
        let all = [
            (Promise::Exclusion, false),
            (Promise::Tokens, false),
            (Promise::Slots, false),
            (Promise::Loss, false),
            (Promise::Leaks, false),
            (Promise::Run, false),
            (Promise::Wake, true),
            (Promise::Need, true),
            (Promise::Recovery, true),
        ];
        for (promise, excused) in all {
            let breach = Breach::new(promise, String::new());
            assert_eq!(breach.timing, excused, "{promise:?}");
        }
    }
}
