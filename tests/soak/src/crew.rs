//! The processes that take part in a soak run, and its main loop.

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use fastrand::Rng;
use testkit::java::{JavaPeer, PeerOptions, Pending, RedissonVersion, SoakPlan, SoakReport};
use testkit::process::{Spawned, is_alive};
use testkit::proxy::Proxy;
use testkit::servers::RedisServer;

use crate::agenda::Agenda;
use crate::forgotten::Watch;
use crate::machine;
use crate::page::Page;
use crate::plan::{Broken, FAST, FAST_THREADS, Java, LEASE, SLOW, SLOW_THREADS, Soak};
use crate::samples::Samples;
use crate::verdict::Verdict;
use crate::witness::{Witness, micros};

/// A running Redisson peer.
#[derive(Debug)]
pub(crate) struct Redisson {
    pub(crate) peer: JavaPeer,
    pub(crate) report: Pending<SoakReport>,
    pub(crate) who: String,
}

#[derive(Debug)]
pub(crate) struct Crew {
    pub(crate) server: RedisServer,
    pub(crate) proxy: Proxy,
    pub(crate) witness: Witness,
    pub(crate) workers: Vec<Spawned>,
    pub(crate) java: Vec<Redisson>,
    pub(crate) rng: Rng,
    pub(crate) agenda: Agenda,
    pub(crate) samples: Samples,
    pub(crate) faults: BTreeMap<&'static str, u64>,
    pub(crate) commands: u64,
    pub(crate) watch: Watch,
    /// Stuck Redisson locks that were deleted (see `forgotten`).
    pub(crate) forgotten: u64,
    /// True if the server answers without delay, that is, if no fault is in progress.
    pub(crate) calm: bool,
    broken: Option<Broken>,
    pub(crate) problems: Vec<String>,
}

/// Runs the whole soak, prints the result, and writes the page if the plan names a file.
pub(crate) fn soak(plan: &Soak) -> Result<ExitCode> {
    let length = Duration::from_secs_f64(plan.minutes * 60.0);
    let seed = plan.seed.unwrap_or_else(|| fastrand::u64(..1 << 40));
    println!("seed {seed}, {} minutes", plan.minutes);
    let mut crew = Crew::gather(plan, seed, length)?;
    let machine = machine::describe(crew.server.version()?)?;
    let begun = Instant::now();
    let course = crew.live(begun + length, plan.acquisitions);
    // After an error we still report everything seen until then.
    if let Err(error) = course {
        crew.problems.push(format!("{error:#}"));
    }
    let verdict = Verdict::reach(crew, begun.elapsed());
    let page = Page {
        plan,
        seed,
        machine: &machine,
        verdict: &verdict,
    };
    println!("{}", page.table());
    if let Some(file) = &plan.write {
        testkit::pages::write(&testkit::workspace().join(file), &page.text())?;
    }
    if verdict.problems.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    for problem in &verdict.problems {
        println!("BROKEN: {problem}");
    }
    println!(
        "again: cargo xtask soak --minutes {} --seed {seed}",
        plan.minutes
    );
    Ok(ExitCode::FAILURE)
}

impl Crew {
    fn gather(plan: &Soak, seed: u64, length: Duration) -> Result<Self> {
        // Redis rewrites its append-only file before it grows large. Otherwise a restart would take long to load it,
        // and the outage would be longer than planned.
        let small = ["--auto-aof-rewrite-min-size", "2mb"];
        let server = RedisServer::builder()
            .appendonly(true)
            .args(small)
            .start()?;
        let proxy = Proxy::start(server.addr())?;
        let mut crew = Self {
            witness: Witness::start()?,
            server,
            proxy,
            workers: Vec::new(),
            java: Vec::new(),
            rng: Rng::with_seed(seed),
            agenda: Agenda::default(),
            samples: Samples::new(length),
            faults: BTreeMap::new(),
            commands: 0,
            watch: Watch::default(),
            forgotten: 0,
            calm: true,
            broken: plan.broken,
            problems: Vec::new(),
        };
        let versions: &[RedissonVersion] = match plan.java {
            Java::Both => &RedissonVersion::ALL,
            Java::Newest => &[RedissonVersion::Newest],
            Java::None => &[],
        };
        for version in versions {
            let peer = crew.start_java(*version, length)?;
            crew.java.push(peer);
        }
        for slot in 0..plan.workers {
            let worker = crew.start_worker(slot)?;
            crew.workers.push(worker);
        }
        Ok(crew)
    }

    fn start_java(&mut self, version: RedissonVersion, length: Duration) -> Result<Redisson> {
        let both = format!("{} {}", self.proxy.url(), self.witness.server.url());
        let options = PeerOptions::new(version, both)
            .watchdog(LEASE)
            .quiet()
            .answer_within(length * 2 + Duration::from_secs(300));
        let peer = JavaPeer::start_with(&options)?;
        let who = format!("Redisson {}", version.number());
        let report = peer.begin_soak(&SoakPlan {
            enter: self.witness.enter.clone(),
            leave: self.witness.leave.clone(),
            who: who.clone(),
            knows_tokens: version.has_fenced_lock(),
            lease_ms: micros(LEASE) / 1000,
            fast: FAST,
            slow: SLOW,
            fast_threads: FAST_THREADS,
            slow_threads: SLOW_THREADS,
            seed: self.rng.u64(..1 << 40),
        })?;
        Ok(Redisson { peer, report, who })
    }

    fn start_worker(&mut self, slot: usize) -> Result<Spawned> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["worker", "--url", &self.proxy.url()]);
        command.args(["--witness", &self.witness.server.url()]);
        command.args([
            "--enter",
            &self.witness.enter,
            "--leave",
            &self.witness.leave,
        ]);
        command.args(["--slot", &slot.to_string()]);
        command.args(["--seed", &self.rng.u64(..1 << 40).to_string()]);
        // A broken process must not be restarted, and slot 0 is never killed.
        if let (0, Some(broken)) = (slot, self.broken) {
            let name = format!("{broken:?}").to_lowercase();
            command.args(["--broken", &name]);
        }
        Spawned::start(command)
    }

    /// Kills a process without warning and starts another one in its slot.
    pub(crate) fn replace(&mut self, slot: usize) -> Result<()> {
        self.agenda.forget(self.workers[slot].pid());
        self.workers[slot].kill()?;
        self.workers[slot] = self.start_worker(slot)?;
        Ok(())
    }

    /// Runs until `end`, or for up to twice that time if fewer than `wanted` acquisitions have happened.
    fn live(&mut self, end: Instant, wanted: u64) -> Result<()> {
        self.samples.begin();
        let last = end + end.saturating_duration_since(Instant::now());
        while Instant::now() < end || (Instant::now() < last && self.acquired()? < wanted) {
            let pause = Duration::from_millis(self.rng.u64(300..2_500));
            self.pass(pause)?;
            self.misfortune()?;
            self.check_alive()?;
        }
        Ok(())
    }

    fn acquired(&self) -> Result<u64> {
        Ok(self.witness.numbers("acquired")?.values().sum())
    }

    fn check_alive(&mut self) -> Result<()> {
        for (slot, worker) in self.workers.iter_mut().enumerate() {
            if !is_alive(worker.pid()) {
                let why = worker.wait_line("nothing says this", Duration::from_secs(1));
                why.with_context(|| format!("process {slot} ended by itself"))?;
            }
        }
        Ok(())
    }
}
