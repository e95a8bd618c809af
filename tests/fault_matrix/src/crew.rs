//! The worker processes of a run, and the histories they have written so far.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use testkit::hosts::Host;
use testkit::java::{WorkerPlan, redisson_worker};
use testkit::process::boot_time;
use testkit::process::{FakeClock, Spawned};

use crate::acquisition::Histories;
use crate::history::{Line, Reader, What};
use crate::role::Role;
use crate::worker::{Library, Manner, Plan};

/// The limit of one process start, generous enough for a busy machine.
const START: Duration = Duration::from_secs(40);

/// The poll interval of the histories: they are files, so we get no notification. In a storm all stores have a crew at
/// once, and none of them needs a short run.
const LOOK: Duration = Duration::from_millis(15);
const LOOK_IN_A_STORM: Duration = Duration::from_millis(60);

/// One worker process.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) number: u32,
    pub(crate) process: Spawned,
    reader: Option<Reader>,
    file: PathBuf,
    pub(crate) alive: bool,
}

/// Not every process got its locks in time. It has a type of its own because a machine that is too busy can be its reason;
/// no other error of a run has that excuse.
#[derive(Debug)]
pub(crate) struct Unserved {
    pub(crate) within: Duration,
    pub(crate) missing: String,
}

impl fmt::Display for Unserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { within, missing } = self;
        write!(
            f,
            "not all processes got their locks within {within:?}: {missing}"
        )
    }
}

impl std::error::Error for Unserved {}

/// All worker processes of a run.
#[derive(Debug)]
pub(crate) struct Crew {
    pub(crate) members: Vec<Member>,
    plan: Plan,
    clock: Option<FakeClock>,
    hosts: Vec<Host>,
    dir: TempDir,
}

impl Crew {
    /// Starts that many processes from the plan; each gets its own number and file.
    /// With hosts, each process runs on the next of them.
    pub(crate) fn start(
        plan: Plan,
        processes: u32,
        fake_clock: bool,
        hosts: &[Host],
    ) -> Result<Self> {
        let dir = TempDir::with_prefix("tidelock-")?;
        let clock = fake_clock.then(|| FakeClock::new(dir.path())).transpose()?;
        let mut crew = Self {
            members: Vec::new(),
            plan,
            clock,
            hosts: hosts.to_vec(),
            dir,
        };
        // We start all processes before we wait for the first one, so that their starts overlap.
        for _ in 0..processes {
            crew.launch()?;
        }
        let started = 0..crew.members.len();
        started.into_iter().try_for_each(|at| crew.greet(at))?;
        Ok(crew)
    }

    /// Starts one more process.
    pub(crate) fn reinforce(&mut self) -> Result<()> {
        self.launch()?;
        self.greet(self.members.len() - 1)
    }

    fn launch(&mut self) -> Result<()> {
        // Killed members stay in the list, so numbers are unique and the checkers still see their histories.
        let number = u32::try_from(self.members.len())? + 1;
        let file = self.dir.path().join(format!("history-{number}"));
        let mut command = if self.plan.library == Library::Redisson {
            self.redisson(number, &file)?
        } else {
            self.worker(number, &file)?
        };
        if let Some(clock) = &self.clock {
            clock.apply(&mut command);
        }
        self.members.push(Member {
            number,
            process: Spawned::start(command)?,
            reader: None,
            file,
            alive: true,
        });
        Ok(())
    }

    fn redisson(&self, number: u32, file: &Path) -> Result<Command> {
        let plan = &self.plan;
        let worker = WorkerPlan {
            urls: plan.store.clone(),
            file: file.to_owned(),
            process: number,
            name: plan.name.clone(),
            lease: plan.lease(),
            seed: plan.seed,
        };
        // `create_new` fails if the file exists. Otherwise the lines of an earlier worker would count as those of this one.
        File::create_new(file)?;
        redisson_worker(self.host(number), &worker)
    }

    fn worker(&self, number: u32, file: &Path) -> Result<Command> {
        let program = std::env::current_exe()?;
        let mut command = match self.host(number) {
            Some(host) => host.command(program),
            None => Command::new(program),
        };
        let plan = &self.plan;
        command.arg("worker");
        for store in &plan.store {
            command.arg("--store").arg(store);
        }
        command.args(["--process", &number.to_string()]);
        command.arg("--file").arg(file);
        command.args(["--lease-ms", &plan.lease_ms.to_string()]);
        command.args(["--name", &plan.name]);
        command.args(["--seed", &plan.seed.to_string()]);
        command.args(["--clients", &plan.clients.to_string()]);
        command.args(["--crowd", &plan.crowd.to_string()]);
        command.args(["--holders", &plan.holders.to_string()]);
        command.args(["--lie", &plan.lie.to_string()]);
        if let Some(secret) = &plan.secret {
            command.arg("--secret").arg(secret);
        }
        if plan.no_tokens {
            command.arg("--no-tokens");
        }
        if plan.all_replicas {
            command.arg("--all-replicas");
        }
        if plan.restart_guard {
            command.arg("--restart-guard");
        }
        Ok(command)
    }

    /// From now on all live processes use their locks in this manner.
    pub(crate) fn behave(&mut self, manner: Manner) -> Result<()> {
        let mut alive = self.members.iter_mut().filter(|member| member.alive);
        alive.try_for_each(|member| member.process.write_line(&manner.to_string()))
    }

    fn greet(&mut self, at: usize) -> Result<()> {
        let member = &mut self.members[at];
        member.process.wait_line("ready", START)?;
        member.reader = Some(Reader::open(&member.file)?);
        Ok(())
    }

    /// The host of the process with this number.
    pub(crate) fn host(&self, number: u32) -> Option<&Host> {
        let mut around = self.hosts.iter().cycle();
        around.nth((number as usize).saturating_sub(1))
    }

    /// Moves the wall clock of all processes ahead, or back.
    pub(crate) fn shift_clocks(&self, seconds: i64) -> Result<()> {
        let clock = self.clock.as_ref().context("they run on the true clock")?;
        clock.shift(seconds)
    }

    pub(crate) fn by_number(&mut self, number: u32) -> Result<&mut Member> {
        let mut all = self.members.iter_mut();
        let found = all.find(|member| member.number == number);
        found.context("no such process")
    }

    pub(crate) fn refresh(&mut self) -> Result<()> {
        for member in &mut self.members {
            if let Some(reader) = &mut member.reader {
                reader.refresh()?;
            }
        }
        Ok(())
    }

    fn look(&self) -> Duration {
        if self.plan.is_storm() {
            LOOK_IN_A_STORM
        } else {
            LOOK
        }
    }

    fn lines(&self) -> impl Iterator<Item = (&Member, &[Line])> + Clone {
        let read = |member| Member::lines(member).map(|lines| (member, lines));
        self.members.iter().filter_map(read)
    }

    pub(crate) fn histories(&self) -> Histories {
        Histories::of(self.lines().map(|(member, lines)| (member.number, lines)))
    }

    /// How many acquisitions failed after `since` with this error kind.
    pub(crate) fn failed(&self, since: Duration, kind: &str) -> usize {
        let is_it = |line: &&Line| {
            let failed = matches!(&line.what, What::Failed { kind: told, .. } if told == kind);
            line.at > since && failed
        };
        let each = self.lines();
        each.map(|(_, lines)| lines.iter().filter(is_it).count())
            .sum()
    }

    /// The live process that holds the lock of this role now, as far as the histories show.
    pub(crate) fn holder(&self, role: Role) -> Option<u32> {
        let name = role.name(&self.plan.name, "");
        let mut newest: Option<(Duration, u32)> = None;
        for (member, lines) in self.lines().filter(|(member, _)| member.alive) {
            let mine = lines.iter().rev().filter(|line| line.name == name);
            for line in mine {
                match line.what {
                    What::Asked | What::Failed { .. } => {}
                    What::Granted { .. } | What::Step { .. } => {
                        newest = newest.max(Some((line.at, member.number)));
                        break;
                    }
                    _ => break,
                }
            }
        }
        newest.map(|(_, number)| number)
    }

    /// The newest grant of the lock of this role, and the process that got it.
    pub(crate) fn taken(&self, role: Role) -> Option<(Duration, u32)> {
        let name = role.name(&self.plan.name, "");
        let grants = self.lines().flat_map(|(member, lines)| {
            let mine = lines.iter().filter(|line| line.name == name);
            let grants = mine.filter(|line| matches!(line.what, What::Granted { .. }));
            grants.map(|line| (line.at, member.number))
        });
        grants.max()
    }

    /// The locks of this role that live processes hold now, as far as the histories show.
    pub(crate) fn held(&self, role: Role) -> Vec<String> {
        let prefix = role.name(&self.plan.name, "");
        let histories = self.histories();
        let alive = |number| {
            self.members
                .iter()
                .any(|it| it.number == number && it.alive)
        };
        let held = histories.granted().filter(|one| {
            let ended = one.left.or(one.over).is_some() || one.was_lost();
            one.name.starts_with(&prefix) && !ended && alive(one.process)
        });
        held.map(|one| one.name.clone()).collect()
    }

    /// The roles of which every live process must get the lock.
    fn roles(&self) -> &'static [Role] {
        if self.plan.crowd > 0 {
            &[Role::Crowd]
        } else if self.plan.no_tokens {
            &[Role::Trader, Role::Relay, Role::Keeper]
        } else {
            &[Role::Trader, Role::Relay, Role::Keeper, Role::Candidate]
        }
    }

    /// Whether every live process got a lock of each role after `since`, and one of them ran a slot. A keeper may instead
    /// still hold its lock.
    fn all_served_since(&self, since: Duration) -> bool {
        let mut alive = self.lines().filter(|(member, _)| member.alive);
        let each = alive.clone().map(|(_, lines)| lines).all(|lines| {
            let mut roles = self.roles().iter();
            roles.all(|role| served(lines, *role, since))
        });
        let runs_jobs = self.plan.crowd == 0 && !self.plan.no_tokens;
        each && (!runs_jobs || alive.any(|(_, lines)| served(lines, Role::Ticker, since)))
    }

    /// Waits until every live process got its locks after `since`. An [`Unserved`]: the time is over.
    pub(crate) fn until_served(&mut self, since: Duration, within: Duration) -> Result<()> {
        let end = boot_time() + within;
        while !self.all_served_since(since) {
            if boot_time() > end {
                let missing = self.unserved(since);
                return Err(Unserved { within, missing }.into());
            }
            self.check_alive()?;
            thread::sleep(self.look());
            self.refresh()?;
        }
        Ok(())
    }

    fn unserved(&self, since: Duration) -> String {
        let mut missing = Vec::new();
        for (member, lines) in self.lines().filter(|(member, _)| member.alive) {
            for role in self.roles().iter().chain([&Role::Ticker]) {
                if !served(lines, *role, since) {
                    missing.push(format!("{} {role:?}", member.number));
                }
            }
        }
        missing.join(", ")
    }

    fn check_alive(&mut self) -> Result<()> {
        for member in self.members.iter_mut().filter(|member| member.alive) {
            if !testkit::process::is_alive(member.process.pid()) {
                let said = member.process.wait(Duration::from_secs(1));
                bail!(
                    "process {} ended by itself ({said:?}): {:?}",
                    member.number,
                    member.process.seen()
                );
            }
        }
        Ok(())
    }

    /// Waits until the histories satisfy `reached`.
    pub(crate) fn until(
        &mut self,
        what: &str,
        within: Duration,
        reached: impl Fn(&Self) -> bool,
    ) -> Result<()> {
        let end = boot_time() + within;
        loop {
            self.refresh()?;
            if reached(self) {
                return Ok(());
            }
            if boot_time() > end {
                bail!("not within {within:?}: {what}");
            }
            thread::sleep(self.look());
        }
    }

    /// Stops the live processes in an orderly way, and reads their last lines.
    pub(crate) fn dismiss(&mut self, within: Duration) -> Result<()> {
        for member in self.members.iter_mut().filter(|member| member.alive) {
            member.process.close_stdin();
        }
        for member in self.members.iter_mut().filter(|member| member.alive) {
            let status = member.process.wait(within);
            let status =
                status.with_context(|| format!("process {} does not end", member.number))?;
            if !status.success() {
                bail!(
                    "process {} ended with {status}: {:?}",
                    member.number,
                    member.process.seen()
                );
            }
            member.alive = false;
        }
        self.refresh()
    }

    /// Keeps the histories on disk, and returns their directory.
    pub(crate) fn keep_files(self) -> PathBuf {
        drop(self.members);
        self.dir.keep()
    }
}

impl Member {
    fn lines(&self) -> Option<&[Line]> {
        self.reader.as_ref().map(|reader| &*reader.lines)
    }
}

/// Whether a grant came after `since`. For a keeper, a step after `since` is enough: it still holds an older grant.
fn served(lines: &[Line], role: Role, since: Duration) -> bool {
    let part = match role {
        Role::Trader => "-trade",
        Role::Relay => "-relay",
        Role::Keeper => "-keep-",
        Role::Crowd => "-crowd",
        Role::Holder => "-hold-",
        Role::Candidate => "-elect",
        Role::Ticker => "-job",
    };
    let mut recent = lines.iter().rev().take_while(|line| line.at > since);
    recent.any(|line| {
        let granted = matches!(line.what, What::Granted { .. });
        let held = role == Role::Keeper && matches!(line.what, What::Step { .. });
        line.name.contains(part) && (granted || held)
    })
}
