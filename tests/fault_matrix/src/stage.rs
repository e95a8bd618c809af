//! One run: worker processes take locks, a fault happens, and the checkers judge the histories.

mod remains;

use std::fmt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fastrand::Rng;
use testkit::process::boot_time;

use crate::acquisition::Histories;
use crate::check::{self, Breach, Promise, Terms};
use crate::crew::Crew;
use crate::notes::{Harm, Notes, Outage, Span};
use crate::partitions::Seen;
use crate::role::Role;
use crate::store::Store;
use crate::worker::{Library, Lie, Plan};
use crate::world::{On, Spread, World};

use self::remains::{files_left, left_over, open_files};

/// The bound on the time from a fault until every process is served again. Failovers are the slowest.
pub(crate) const RECOVERY: Duration = Duration::from_secs(30);

/// The same in leases, where they are longer than usual: the processes hold the locks for parts of a lease, in turns.
const RECOVERY_LEASES: u32 = 15;

/// The fault of a run, and its permitted effects.
#[derive(Clone, Copy)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "what is said of a story, not a state"
)]
pub(crate) struct Story {
    pub(crate) name: &'static str,
    pub(crate) act: fn(&mut Stage) -> Result<()>,
    /// Whether the fault must lose no lock.
    pub(crate) keeps: bool,
    /// Whether locks change holders as quickly as without the fault.
    pub(crate) calm: bool,
    /// Whether the processes run on a wall clock that the story can move.
    pub(crate) fake_clock: bool,
    /// If not 0: the number of tasks per process that all want one lock, instead of the usual tasks.
    pub(crate) crowd: u32,
    pub(crate) on: On,
    /// Whether all replicas must acknowledge a grant. Otherwise any one is enough.
    pub(crate) all_replicas: bool,
    /// Whether a server of a majority votes only after it has been up for a lease. The servers of a run have just started empty,
    /// so it only delays the run, unless one of them forgets its locks later.
    pub(crate) restart_guard: bool,
    /// Whether the tasks that hold for long ask for a lock in short waits.
    pub(crate) eager: bool,
    /// The library that takes the locks. Nothing is promised of another than ours.
    pub(crate) library: Library,
    /// The promise that the processes break on purpose.
    pub(crate) lie: Lie,
}

impl Story {
    /// A story that may lose locks.
    pub(crate) const fn new(name: &'static str, act: fn(&mut Stage) -> Result<()>) -> Self {
        Self {
            name,
            act,
            keeps: false,
            calm: false,
            fake_clock: false,
            crowd: 0,
            on: On::Usual,
            all_replicas: false,
            restart_guard: false,
            eager: false,
            library: Library::Tidelock,
            lie: Lie::None,
        }
    }

    /// A story that must lose no lock.
    pub(crate) const fn keeping(name: &'static str, act: fn(&mut Stage) -> Result<()>) -> Self {
        let mut story = Self::new(name, act);
        story.keeps = true;
        story
    }

    /// The same story on another server of the store.
    pub(crate) const fn on(mut self, on: On) -> Self {
        self.on = on;
        self
    }
}

impl fmt::Debug for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) breaches: Vec<Breach>,
    pub(crate) grants: usize,
    pub(crate) losses: usize,
    pub(crate) took: Duration,
    pub(crate) seen: Seen,
    /// The longest time for which a process did not run although nobody had frozen it.
    pub(crate) stall: Duration,
    /// The histories, kept if the run had breaches.
    pub(crate) files: Option<PathBuf>,
}

impl Outcome {
    /// Leaves out the breaches of bounds on times, for a run on a machine that was too busy for them.
    pub(crate) fn drop_timing(&mut self) {
        let timing = |breach: &Breach| {
            let bounds = [
                Promise::Wake,
                Promise::Wait,
                Promise::Need,
                Promise::Recovery,
            ];
            bounds.contains(&breach.promise)
        };
        self.breaches.retain(|breach| !timing(breach));
        if self.breaches.is_empty()
            && let Some(files) = self.files.take()
        {
            // They are only of use beside a breach. What is left of them is harmless.
            let _ = std::fs::remove_dir_all(files);
        }
    }

    /// At most so many breaches, and where the histories are kept, each on a line of its own.
    pub(crate) fn details(&self, most: usize) -> String {
        let breaches = self.breaches.iter().take(most);
        let breaches = breaches.map(|breach| format!("\n      {breach}"));
        let files = self.files.iter();
        let files = files.map(|files| format!("\n      histories: {}", files.display()));
        breaches.chain(files).collect()
    }

    /// The result of a run that did not begin.
    pub(crate) fn broken(error: &anyhow::Error) -> Self {
        Self {
            breaches: vec![Breach {
                promise: Promise::Recovery,
                how: format!("the run did not begin: {error:#}"),
            }],
            grants: 0,
            losses: 0,
            took: Duration::ZERO,
            seen: Seen::default(),
            stall: Duration::ZERO,
            files: None,
        }
    }
}

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
        well: None,
    };
    if let Some(net) = world.spread() {
        stage.well = Some((boot_time(), net.elections()?));
    }
    let played = perform(&mut stage, run);
    let stage_notes = &stage.notes;
    let histories = stage.crew.histories();
    let terms = terms(store, story, lease);
    let mut breaches = check::all(&histories, stage_notes, &terms);
    let (grants, losses) = count(&histories);
    match played {
        Ok(more) => breaches.extend(more),
        Err(error) => breaches.push(Breach {
            promise: Promise::Recovery,
            how: format!("the run did not come to its end: {error:#}"),
        }),
    }
    let wrong = !breaches.is_empty() && story.library == Library::Tidelock;
    Ok(Outcome {
        breaches,
        grants,
        losses,
        took: start.elapsed(),
        seen: Seen::of(&histories, stage_notes),
        stall: check::longest_stall(&histories, stage_notes),
        files: wrong.then(|| stage.crew.keep_files()),
    })
}

/// Runs the faults, waits for recovery after each, stops the processes and looks for leaks.
fn perform(stage: &mut Stage, run: &Run) -> Result<Vec<Breach>> {
    let recovery = stage.recovery();
    let mut so_far = Failovers::now(stage)?;
    stage.crew.until_served(Duration::ZERO, recovery)?;
    so_far = so_far.note(stage)?;
    let files = open_files(stage);
    for fault in run.faults {
        let told = || format!("{}: the fault could not be made", fault.name);
        (fault.act)(stage).with_context(told)?;
        let served = stage.crew.until_served(boot_time(), recovery);
        served.with_context(|| format!("after {}", fault.name))?;
        so_far = so_far.note(stage)?;
    }
    // We count open files before the processes stop; afterwards there is nothing to count.
    let mut found = files_left(stage, &files);
    stage.notes.ended = boot_time();
    stage.note_elections()?;
    stage.crew.dismiss(recovery)?;
    so_far.note(stage)?;
    let left = left_over(stage)?;
    found.extend(check::leaks(&left));
    Ok(found)
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
