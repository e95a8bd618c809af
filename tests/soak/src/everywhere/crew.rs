//! The processes of all stores, and who takes whose place.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;
use testkit::process::{Spawned, is_alive};

use super::judge::{Build, Judge};
use super::plan::{Everywhere, PLACES, REPLACED, STAYS};
use super::stores::{Running, Store};
use crate::samples::{Samples, TASKS, number};

/// A limit for a process that was told to stop: its rounds may wait for locks of processes that were killed.
const STOPS: Duration = Duration::from_secs(120);

/// The interval of the driver's own rounds.
const TICK: Duration = Duration::from_millis(50);

/// One process in its place.
#[derive(Debug)]
struct Place {
    store: Store,
    urls: Vec<String>,
    number: usize,
    slot: u16,
    generation: u32,
    build: Build,
    process: Spawned,
    /// When the process in this place is replaced. `None`: it stays for the whole run.
    due: Option<Instant>,
    stopping: Option<Instant>,
}

impl Place {
    fn who(&self) -> (u16, u32) {
        (self.slot, self.generation)
    }

    fn title(&self) -> String {
        let fate = match self.number {
            REPLACED => "replaced",
            _ if self.build == Build::Today => "today's build, stays",
            _ => "older build, stays",
        };
        format!("{} {}, {fate}", self.store.name(), self.number)
    }
}

/// How a process gave up its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    Stopped(Build, Build),
    Killed(Build, Build),
}

#[derive(Debug)]
pub(crate) struct Crew {
    pub(crate) running: Vec<Running>,
    pub(crate) judge: Judge,
    pub(crate) samples: Samples,
    places: Vec<Place>,
    worker: PathBuf,
    old: Option<PathBuf>,
    lease: Duration,
    pause: f64,
    stays: Duration,
    broken: Option<String>,
    rng: Rng,
    pub(crate) changes: BTreeMap<Change, u64>,
    /// Errors by store, kind, error and build, each with its first text.
    pub(crate) errors: BTreeMap<(Store, String, Build), (u64, String)>,
    /// Looks at a server that failed.
    pub(crate) blind: BTreeMap<Store, u64>,
    pub(crate) problems: Vec<String>,
}

impl Crew {
    pub(crate) fn gather(plan: &Everywhere, seed: u64) -> Result<Self> {
        let length = Duration::from_secs_f64(plan.minutes * 60.0);
        let lease = Duration::from_secs_f64(plan.lease);
        let own = std::env::current_exe()?;
        let started = plan.stores().into_iter().map(Running::start);
        let mut crew = Self {
            running: started.collect::<Result<_>>()?,
            judge: Judge::start(lease)?,
            samples: Samples::new(length),
            places: Vec::new(),
            worker: own.with_file_name("soak-worker"),
            old: plan.old.clone(),
            lease,
            pause: plan.pause,
            stays: STAYS.min(length / 8),
            broken: plan.broken.clone(),
            rng: Rng::with_seed(seed),
            changes: BTreeMap::new(),
            errors: BTreeMap::new(),
            blind: BTreeMap::new(),
            problems: Vec::new(),
        };
        for at in 0..crew.running.len() {
            for number in 0..PLACES {
                let place = crew.fill(at, number)?;
                crew.places.push(place);
            }
        }
        Ok(crew)
    }

    /// The first process of a place.
    fn fill(&mut self, at: usize, number: usize) -> Result<Place> {
        let running = &self.running[at];
        let (store, urls) = (running.store, running.urls());
        let build = match &self.old {
            Some(_) if number == 1 => Build::Older,
            _ => Build::Today,
        };
        let slot = u16::try_from(at * PLACES + number)?;
        let process = self.start(store, &urls, number, slot, 0, build)?;
        Ok(Place {
            store,
            urls,
            number,
            slot,
            generation: 0,
            build,
            process,
            due: (number == REPLACED).then(|| self.next_change()),
            stopping: None,
        })
    }

    fn next_change(&mut self) -> Instant {
        Instant::now() + self.stays.mul_f64(0.5 + self.rng.f64())
    }

    fn start(
        &mut self,
        store: Store,
        urls: &[String],
        number: usize,
        slot: u16,
        generation: u32,
        build: Build,
    ) -> Result<Spawned> {
        let program = match (build, &self.old) {
            (Build::Older, Some(old)) => old,
            _ => &self.worker,
        };
        let mut command = Command::new(program);
        for url in urls {
            command.args(["--url", url]);
        }
        command.arg("--judge").arg(self.judge.path());
        command.args(["--slot", &slot.to_string()]);
        command.args(["--generation", &generation.to_string()]);
        command.args(["--seed", &self.rng.u64(..1 << 40).to_string()]);
        command.args(["--lease", &self.lease.as_millis().to_string()]);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "microseconds of a pause"
        )]
        let pause = (store.pause() * self.pause) as u64;
        command.args(["--pause", &pause.to_string()]);
        if number != REPLACED {
            command.arg("--stays");
        }
        if let Some(kind) = store.leaves_out(build) {
            command.args(["--without", kind]);
        }
        // A broken process must stay.
        if let (0, Some(broken)) = (number, &self.broken) {
            command.args(["--broken", broken]);
        }
        self.judge.begins((slot, generation), store, build);
        Spawned::start(command)
    }

    /// Works until `end`, or until there are as many acquisitions as are wanted.
    pub(crate) fn live(&mut self, end: Instant, wanted: Option<u64>) -> Result<()> {
        self.samples.begin();
        let mut told = Instant::now();
        while Instant::now() < end {
            let acquired = self.judge.seen().acquisitions();
            if wanted.is_some_and(|wanted| acquired >= wanted) {
                return Ok(());
            }
            if told.elapsed() > Duration::from_secs(60) {
                told = Instant::now();
                println!("{acquired} acquisitions");
            }
            self.look();
            for at in 0..self.places.len() {
                self.attend(at)?;
            }
            thread::sleep(TICK);
        }
        Ok(())
    }

    /// Reads what a process says, and replaces it if that is due.
    fn attend(&mut self, at: usize) -> Result<()> {
        self.listen(at, Duration::ZERO);
        let place = &mut self.places[at];
        let now = Instant::now();
        let alive = is_alive(place.process.pid());
        match place.stopping {
            None if !alive => {
                let title = place.title();
                self.listen(at, Duration::from_secs(1));
                self.problems.push(format!("{title} ended by itself"));
                self.replace(at)
            }
            Some(_) if !alive => {
                self.bury(at)?;
                self.replace(at)
            }
            Some(since) if since.elapsed() > STOPS => {
                let title = place.title();
                self.problems
                    .push(format!("{title} did not stop: a waiter was not served"));
                self.kill(at)
            }
            None if place.due.is_some_and(|due| due <= now) => self.change(at),
            _ => Ok(()),
        }
    }

    /// Stops or kills a process. Both builds are stopped and killed in turns.
    fn change(&mut self, at: usize) -> Result<()> {
        let place = &mut self.places[at];
        let kills = matches!(place.generation % 4, 1 | 2);
        let next = other(place.build, self.old.is_some());
        let change = if kills {
            Change::Killed(place.build, next)
        } else {
            Change::Stopped(place.build, next)
        };
        *self.changes.entry(change).or_default() += 1;
        if kills {
            return self.kill(at);
        }
        place.stopping = Some(Instant::now());
        place.process.close_stdin();
        Ok(())
    }

    fn kill(&mut self, at: usize) -> Result<()> {
        // The judge hears of it first. A moment later the store may give its locks to others.
        self.judge.dooms(self.places[at].who())?;
        self.places[at].process.kill()?;
        self.replace(at)
    }

    fn replace(&mut self, at: usize) -> Result<()> {
        let due = self.next_change();
        let place = &self.places[at];
        let (store, number, slot) = (place.store, place.number, place.slot);
        let (urls, generation) = (place.urls.clone(), place.generation + 1);
        let build = if number == REPLACED {
            other(place.build, self.old.is_some())
        } else {
            place.build
        };
        let process = self.start(store, &urls, number, slot, generation, build)?;
        let place = &mut self.places[at];
        (place.process, place.generation, place.build) = (process, generation, build);
        place.stopping = None;
        place.due = place.due.map(|_| due);
        Ok(())
    }

    /// Reads the lines of a process: its errors, and what it says when it fails.
    fn listen(&mut self, at: usize, patience: Duration) {
        let place = &mut self.places[at];
        while let Ok(line) = place.process.next_line(patience) {
            if let Some(error) = line.strip_prefix("error ") {
                let mut words = error.splitn(3, ' ');
                let what: Vec<&str> = words.by_ref().take(2).collect();
                let text = words.next().unwrap_or_default();
                let key = (place.store, what.join(" "), place.build);
                let known = self.errors.entry(key);
                let (times, _) = known.or_insert_with(|| {
                    println!("{}: {error}", place.store.name());
                    (0, text.to_owned())
                });
                *times += 1;
            } else if line != "served all" {
                self.problems
                    .push(format!("{} said: {line}", place.title()));
            }
        }
    }

    fn look(&mut self) {
        if !self.samples.is_due() {
            return;
        }
        // A process that stops has ever fewer tasks, and is no measure.
        let working = |place: &&Place| place.stopping.is_none();
        for place in self.places.iter().filter(working) {
            let who = place.title();
            self.samples.process(&who, place.process.pid());
            let tasks = self.judge.seen().tasks.get(&place.slot).copied();
            if let Some(tasks) = tasks {
                self.samples.note(&who, TASKS, number(tasks));
            }
        }
        self.samples.process("driver", std::process::id());
        for running in &self.running {
            // The server may be late; the next look comes soon.
            if let Err(error) = running.look(&mut self.samples) {
                println!("looking at {}: {error:#}", running.store.name());
                *self.blind.entry(running.store).or_default() += 1;
            }
        }
    }

    /// Lets every process finish its rounds.
    pub(crate) fn end(&mut self) -> Result<()> {
        for place in &mut self.places {
            place.process.close_stdin();
        }
        let deadline = Instant::now() + STOPS;
        let mut waiting: Vec<usize> = (0..self.places.len()).collect();
        while !waiting.is_empty() && Instant::now() < deadline {
            let mut still = Vec::new();
            for at in waiting {
                if is_alive(self.places[at].process.pid()) {
                    self.listen(at, Duration::ZERO);
                    still.push(at);
                } else {
                    self.bury(at)?;
                }
            }
            waiting = still;
            thread::sleep(TICK);
        }
        for at in waiting {
            let title = self.places[at].title();
            self.problems
                .push(format!("{title} did not end: a waiter was not served"));
            self.judge.dooms(self.places[at].who())?;
            self.places[at].process.kill()?;
        }
        self.judge.settle()
    }

    /// Hears the last words of a process that has ended by itself.
    fn bury(&mut self, at: usize) -> Result<()> {
        self.listen(at, Duration::from_millis(200));
        let place = &mut self.places[at];
        let status = place.process.wait(Duration::from_secs(5))?;
        if !status.success() {
            let title = place.title();
            self.problems.push(format!("{title} ended with {status}"));
        }
        self.judge.ended(self.places[at].who())
    }
}

fn other(build: Build, has_old: bool) -> Build {
    match build {
        Build::Today if has_old => Build::Older,
        _ => Build::Today,
    }
}
