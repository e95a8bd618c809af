//! One worker process of a run: its tasks take locks, hold them, and record every event.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum as _;
use fastrand::Rng;
use testkit::process::boot_time;
use tidelock::testing::{AnyGuard, AnyLock};
use tidelock::{AcquireOptions, Client, Guard, RedLock, ReplicaAck};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::history::{Recorder, What, one_word};
use crate::role::Role;
use crate::world::{self, patiently};

/// The settings of a process, from its command line.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Plan {
    /// Number of this process in the run
    #[arg(long)]
    pub(crate) process: u32,
    /// Address of the store; several addresses form a majority
    #[arg(long, required = true)]
    pub(crate) store: Vec<String>,
    /// File with the password, if the store needs one
    #[arg(long)]
    pub(crate) secret: Option<PathBuf>,
    /// File for the history
    #[arg(long)]
    pub(crate) file: PathBuf,
    #[arg(long)]
    pub(crate) lease_ms: u64,
    /// Common prefix of the lock names
    #[arg(long)]
    pub(crate) name: String,
    #[arg(long)]
    pub(crate) seed: u64,
    /// The store has no tokens, so its locks are not fenced
    #[arg(long)]
    pub(crate) no_tokens: bool,
    /// Number of clients; each does the work of one process
    #[arg(long, default_value_t = 1)]
    pub(crate) clients: u32,
    /// Number of tasks that wait for one lock, instead of the usual roles
    #[arg(long, default_value_t = 0)]
    pub(crate) crowd: u32,
    /// Number of tasks per client that hold a lock for some leases, besides the usual roles
    #[arg(long, default_value_t = 0)]
    pub(crate) holders: u32,
    /// All replicas must acknowledge a grant
    #[arg(long)]
    pub(crate) all_replicas: bool,
    /// A server of a majority votes only after it has been up for a lease
    #[arg(long)]
    pub(crate) restart_guard: bool,
    /// The library that takes the locks. A worker process of ours does not need to be told.
    #[arg(skip)]
    pub(crate) library: Library,
    /// The promise that this process breaks
    #[arg(long, default_value_t = Lie::None)]
    pub(crate) lie: Lie,
}

impl Plan {
    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    /// How long a server of a majority may need. In the story `SLOW_50` a round trip takes 100 ms, and no lock may be lost.
    fn node_timeout(&self) -> Duration {
        self.lease() / 10
    }

    /// With a majority, the shortest that goes with the node timeout, as `RedLockBuilder::node_timeout` says. With a shorter one
    /// and a frozen server, a wait for a lock that another process holds may end with `OutcomeUnknown`, and the check of the
    /// waits would blame the library.
    fn response_timeout(&self) -> Duration {
        if self.store.len() > 1 {
            self.node_timeout() * 8
        } else {
            self.lease() / 3
        }
    }

    /// Whether this is a part of a storm.
    pub(crate) fn is_storm(&self) -> bool {
        self.holders > 0
    }
}

/// The library that takes the locks of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Library {
    #[default]
    Tidelock,
    /// See `testkit::java::redisson_worker`.
    Redisson,
}

/// A worker that breaks a promise on purpose. It shows that the checkers find the breach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Lie {
    /// The worker is correct.
    None,
    /// It continues to act on a lock that it has lost.
    IgnoresLosses,
    /// The first process takes two of five servers for a majority.
    Minority,
    /// It does not wait for the replicas to acknowledge a grant.
    Unacknowledged,
    /// The worker is correct. A clock that should run within the drift runs faster.
    FastClock,
    /// The tasks that hold for some leases, which only a storm has, panic when they get a lock.
    Panics,
}

impl fmt::Display for Lie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("none", |value| value.get_name()))
    }
}

/// How the tasks that hold for long use their locks. The name of a manner is the command that sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Manner {
    /// They hold for about a lease.
    Usual,
    /// They hold for two to three leases: longer than a partition needs to take a lock from them.
    Long,
    /// They hold for more than a lease, and ask again and again in short waits.
    Eager,
}

impl fmt::Display for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("usual", |value| value.get_name()))
    }
}

/// One task.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) lock: AnyLock,
    pub(crate) role: Role,
    /// `process.task`
    pub(crate) id: String,
    pub(crate) lease: Duration,
    /// Whether this is a part of a storm, in which the processes of all stores share the cores.
    pub(crate) storm: bool,
    pub(crate) recorder: Recorder,
    pub(crate) rng: Rng,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) manner: watch::Receiver<Manner>,
    pub(crate) lie: Lie,
}

impl Task {
    /// Acquires and releases the lock until it is told to stop.
    pub(crate) async fn run(mut self) {
        for number in 1_u64.. {
            if *self.stop.borrow() {
                return;
            }
            let id = format!("{}.{number}", self.id);
            self.note(&id, What::Asked);
            let wait = if self.manner() == Manner::Eager {
                self.lease / 8
            } else {
                self.lease * 4
            };
            let options = AcquireOptions::new().wait(wait);
            let answer = tokio::select! {
                answer = self.lock.acquire_with(options) => Some(answer),
                _ = self.stop.changed() => None,
            };
            match answer {
                Some(Ok(guard)) => {
                    self.hold(&id, guard).await;
                    let rest = self.role.rest(self.lease, self.storm, &mut self.rng);
                    self.pause(rest).await;
                }
                Some(Err(error)) => {
                    let (kind, why) = (format!("{:?}", error.kind()), one_word(&error.to_string()));
                    self.note(&id, What::Failed { kind, why });
                    // An error can come at once, such as when the server is down. Without this pause we would retry in
                    // a busy loop.
                    self.pause(Duration::from_millis(50)).await;
                }
                None => return self.note(&id, What::failed("Stopped")),
            }
        }
    }

    async fn hold(&mut self, id: &str, guard: AnyGuard) {
        let (at, valid) = (boot_time(), guard.valid_for());
        let slot = guard.slot().map(str::to_owned);
        if valid.is_zero() {
            // The grant came so late that its lease was over, and the guard says so.
            return self.note(id, What::failed("Over"));
        }
        let token = guard.token().map(tidelock::FencingToken::get);
        let until = at + valid;
        self.note_at(at, id, What::Granted { token, until });
        if let Some(slot) = slot.clone() {
            self.note_at(at, id, What::Slot { slot });
        }
        // Nothing in a run waits for a holder, so only the end of the process shows this panic.
        let panics = self.lie == Lie::Panics && self.role == Role::Holder;
        assert!(!panics, "this worker panics on purpose");
        let told = self.listen(id, &guard);
        let mut time = self.role.hold(self.lease, &mut self.rng);
        if self.lies() {
            // It should still act when its lease has ended.
            time *= 4;
        }
        let longer = match self.manner() {
            Manner::Usual => time,
            Manner::Long => self.lease.mul_f64(2.0 + self.rng.f64()),
            Manner::Eager => self.lease.mul_f64(1.3 + self.rng.f64() * 0.3),
        };
        let begun = boot_time();
        let ends = (begun + time, begun + longer.max(time));
        let held = self.work(id, &guard, ends).await;
        if held {
            told.abort();
        } else {
            // The library must report the loss without being asked, so we wait for the report before we call `release`.
            let _ = tokio::time::timeout(self.lease * 2, told).await;
        }
        let outcome = match guard.release().await {
            Ok(()) => {
                if slot.is_some() {
                    self.note(id, What::Done);
                }
                What::Released
            }
            Err(error) => What::Unreleased {
                kind: format!("{:?}", error.kind()),
            },
        };
        self.note(id, outcome);
    }

    fn listen(&self, id: &str, guard: &Guard) -> tokio::task::JoinHandle<()> {
        let (lost, recorder) = (guard.lost(), self.recorder.clone());
        let (id, name) = (id.to_owned(), self.lock.name().to_owned());
        tokio::spawn(async move {
            let reason = format!("{:?}", lost.await);
            recorder.note(boot_time(), &id, &name, What::Lost { reason });
        })
    }

    /// Checks the guard at intervals. `false`: the lock is over. It ends at the first of the two times, or at the second for
    /// as long as its manner is not the usual one.
    async fn work(&mut self, id: &str, guard: &Guard, ends: (Duration, Duration)) -> bool {
        loop {
            let usual = self.manner() == Manner::Usual;
            let end = if usual { ends.0 } else { ends.1 };
            let stop = self.pause(self.role.pace(self.storm)).await;
            // We take the timestamp before we check the guard. Otherwise a freeze between the two would date an old
            // result too late, and the holder would seem to act on an expired lock.
            let (at, valid) = (boot_time(), guard.valid_for());
            if valid.is_zero() && !self.lies() {
                self.note_at(at, id, What::Over);
                return false;
            }
            if stop || at >= end {
                self.note_at(at, id, What::Left);
                return true;
            }
            let until = at + valid;
            self.note_at(at, id, What::Step { until });
        }
    }

    fn manner(&self) -> Manner {
        match self.role {
            Role::Relay => *self.manner.borrow(),
            _ => Manner::Usual,
        }
    }

    fn lies(&self) -> bool {
        self.lie == Lie::IgnoresLosses
    }

    /// Returns `true` if the task is to stop.
    async fn pause(&mut self, time: Duration) -> bool {
        let _ = tokio::time::timeout(time, self.stop.changed()).await;
        *self.stop.borrow()
    }

    fn note(&self, id: &str, what: What) {
        self.note_at(boot_time(), id, what);
    }

    fn note_at(&self, at: Duration, id: &str, what: What) {
        self.recorder.note(at, id, self.lock.name(), what);
    }
}

/// Records when this process did not get to run.
async fn feel_pulse(recorder: Recorder, process: u32) {
    const PULSE: Duration = Duration::from_millis(10);
    for number in 1_u64.. {
        let before = boot_time();
        tokio::time::sleep(PULSE).await;
        let now = boot_time();
        let time = now.saturating_sub(before + PULSE);
        if time > Duration::from_millis(20) {
            let id = format!("{process}.0.{number}");
            recorder.note(now, &id, "-", What::Stall { time });
        }
    }
}

/// Each task of a run has a seed of its own. Otherwise the clients of one process would pause in step.
fn seed(plan: &Plan, client: u32, task: usize) -> u64 {
    plan.seed ^ u64::from(plan.process) << 32 ^ u64::from(client) << 16 ^ task as u64
}

/// The tasks of one client. The first is the keeper.
pub(crate) fn tasks(
    plan: &Plan,
    number: u32,
    recorder: &Recorder,
    stop: &watch::Receiver<bool>,
    manner: &watch::Receiver<Manner>,
    lock: impl Fn(Role, &str, &str) -> AnyLock,
) -> Vec<Task> {
    let mut roles = vec![Role::Keeper, Role::Trader, Role::Trader, Role::Relay];
    // A store without tokens has neither elections nor jobs that run once.
    if !plan.no_tokens {
        roles.extend([Role::Candidate, Role::Ticker]);
    }
    if plan.crowd > 0 {
        roles = vec![Role::Crowd; plan.crowd as usize];
    }
    let usual = roles.len();
    roles.extend(vec![Role::Holder; plan.holders as usize]);
    let owner = format!("{}-{number}", plan.process);
    let whose = |role, task: usize| match role {
        Role::Holder => shared_by_two(plan, number, task - usual).to_string(),
        _ => owner.clone(),
    };
    let task = |(task, role): (usize, Role)| Task {
        lock: lock(role, &role.name(&plan.name, &whose(role, task)), &owner),
        role,
        id: format!("{}.{}", plan.process, task + 1 + number as usize * 100),
        lease: plan.lease(),
        storm: plan.is_storm(),
        recorder: recorder.clone(),
        rng: Rng::with_seed(seed(plan, number, task)),
        stop: stop.clone(),
        manner: manner.clone(),
        lie: plan.lie,
    };
    roles.into_iter().enumerate().map(task).collect()
}

/// The number of a holder's lock. Of three clients in a row, two have a task for each number.
fn shared_by_two(plan: &Plan, client: u32, task: usize) -> usize {
    let holders = plan.holders as usize;
    let begin = (plan.process + client) as usize * (holders / 2);
    (begin + task) % (holders + holders / 2)
}

/// Ends the process with a panic of any of its threads and tasks. Otherwise the panic of a task, or of a thread of the library,
/// would leave a process that does less than it should, and still ends with success.
fn end_with_a_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::exit(101);
    }));
}

/// Runs the process until its stdin closes.
pub(crate) async fn main(plan: Plan) -> Result<()> {
    end_with_a_panic();
    let recorder = Recorder::create(&plan.file)?;
    let (stopper, stop) = watch::channel(false);
    let (manners, manner) = watch::channel(Manner::Usual);
    let mut clients = Vec::new();
    let mut running = JoinSet::new();
    for number in 0..plan.clients.max(1) {
        let connected = connect(&plan).await?;
        let found = tasks(
            &plan,
            number,
            &recorder,
            &stop,
            &manner,
            |role, name, id| connected.lock(role, name, id, &plan),
        );
        for task in found {
            running.spawn(task.run());
        }
        clients.push(connected);
    }
    let pulse = tokio::spawn(feel_pulse(recorder, plan.process));
    println!("ready");
    obey(&manners, &clients).await;
    pulse.abort();
    stopper.send_replace(true);
    while let Some(done) = running.join_next().await {
        done?;
    }
    // We close the clients after all tasks have ended. Otherwise their locks would end as `Closed`.
    for client in clients.iter().flat_map(|connected| &connected.clients) {
        client.close(Duration::from_secs(1)).await;
    }
    println!("done");
    Ok(())
}

/// Executes the commands on stdin until it closes.
async fn obey(manners: &watch::Sender<Manner>, clients: &[Connected]) {
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = lines.recv().await {
        if let Some(time) = line.strip_prefix("block ") {
            // This blocks the executor, and all tasks with it.
            std::thread::sleep(Duration::from_millis(time.parse().unwrap_or(0)));
            println!("unblocked");
        }
        if let Ok(manner) = Manner::from_str(&line, false) {
            manners.send_replace(manner);
        }
        if let Some(name) = line.strip_prefix("force ")
            && let Some(client) = clients.iter().flat_map(|each| &each.clients).next()
        {
            match client.lock(name).force_release().await {
                Ok(_) => println!("forced"),
                Err(error) => println!("not forced: {error}"),
            }
        }
    }
}

struct Connected {
    clients: Vec<Client>,
    majority: Option<RedLock>,
}

impl Connected {
    fn lock(&self, role: Role, name: &str, id: &str, plan: &Plan) -> AnyLock {
        match &self.majority {
            Some(majority) => majority.lock(name).into(),
            None => role.lock(&self.clients[0], name, id, !plan.no_tokens),
        }
    }
}

async fn connect(plan: &Plan) -> Result<Connected> {
    let mut clients = Vec::new();
    let few = plan.lie == Lie::Minority && plan.process == 1;
    let count = if few { 2 } else { plan.store.len() };
    for store in plan.store.iter().take(count) {
        let settings = world::builder(plan.secret.clone())
            .lease(plan.lease())
            .response_timeout(plan.response_timeout())
            .acknowledge(match (plan.lie, plan.all_replicas) {
                (Lie::Unacknowledged, _) => ReplicaAck::Off,
                (_, true) => ReplicaAck::All,
                (_, false) => ReplicaAck::Any,
            });
        let client = patiently(|| settings.clone().connect(store)).await;
        clients.push(client.with_context(|| store.clone())?);
    }
    let majority = if clients.len() > 1 {
        let settings = RedLock::builder(clients.clone()).restart_guard(plan.restart_guard);
        Some(settings.node_timeout(plan.node_timeout()).build()?)
    } else {
        None
    };
    Ok(Connected { clients, majority })
}
