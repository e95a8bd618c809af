//! What all workloads share: the server, the working peers, and rounds in which the peers run in random order.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use load::{Names, Order, Run, Stamp, now_ns};
use tempfile::TempDir;
use testkit::servers::RedisServer;

use crate::THREADS;
use crate::args::Args;
use crate::peers::Peer;
use crate::process::{Process, stamps};

/// The delay before a run starts: long enough for the order to reach every process, and for each process to create its
/// tasks, which may be threads.
const HEAD_START: Duration = Duration::from_millis(30);
const HEAD_START_OF_A_TASK: Duration = Duration::from_micros(400);

/// Bounds the time after `stop`: tasks that still wait when a run ends acquire then, and some peers sleep long between
/// two attempts.
const TAIL: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) server: RedisServer,
    pub(crate) args: Args,
    pub(crate) peers: Vec<Peer>,
    /// The threads that run the tasks of a process of this crate.
    pub(crate) threads: usize,
    /// The failures: workload, peer, reason.
    pub(crate) left_out: Vec<(&'static str, Peer, String)>,
    dir: TempDir,
    dice: fastrand::Rng,
    files: usize,
}

/// The processes of one peer.
#[derive(Debug)]
pub(crate) struct Team {
    pub(crate) peer: Peer,
    pub(crate) processes: Vec<Process>,
}

/// The samples of each peer, in the order of the tables.
pub(crate) type Samples<T> = Vec<(Peer, Vec<T>)>;

/// What one run does.
#[derive(Debug, Clone)]
pub(crate) struct Load<'a> {
    /// How many of the team's processes take part.
    pub(crate) processes: usize,
    pub(crate) tasks: usize,
    pub(crate) names: Names,
    pub(crate) name: &'a str,
    pub(crate) hold: Duration,
    pub(crate) time: Duration,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) stamps: Vec<Vec<Stamp>>,
    pub(crate) start: u64,
    pub(crate) stop: u64,
    /// The processor time of all its processes.
    pub(crate) cpu: Duration,
}

impl Stage {
    pub(crate) fn new(args: Args) -> Result<Self> {
        let mut stage = Self {
            server: RedisServer::start()?,
            peers: args.peers()?,
            threads: 2,
            left_out: Vec::new(),
            dir: tempfile::tempdir()?,
            dice: fastrand::Rng::with_seed(args.seed),
            files: 0,
            args,
        };
        stage.build();
        Ok(stage)
    }

    /// Builds each peer before anything is measured. A peer that cannot be built is left out.
    fn build(&mut self) {
        for peer in self.peers.clone() {
            if let Err(error) = peer.command(&self.server.url()) {
                self.leave_out("build", peer, &error);
                self.peers.retain(|other| *other != peer);
            }
        }
    }

    /// Starts this many processes of each peer. A peer that does not start is left out, and the reason is recorded.
    pub(crate) fn teams(
        &mut self,
        workload: &'static str,
        peers: &[Peer],
        processes: usize,
    ) -> Vec<Team> {
        let mut teams = Vec::new();
        for &peer in peers {
            let started: Result<Vec<Process>> = (0..processes)
                .map(|_| {
                    let mut command = peer.command(&self.server.url())?;
                    command.env(THREADS, self.threads.to_string());
                    Process::start(command)
                })
                .collect();
            match started {
                Ok(processes) => teams.push(Team { peer, processes }),
                Err(error) => self.leave_out(workload, peer, &error),
            }
        }
        teams
    }

    pub(crate) fn leave_out(&mut self, workload: &'static str, peer: Peer, error: &anyhow::Error) {
        eprintln!("{workload}: without {}: {error:#}", peer.name());
        self.left_out.push((workload, peer, format!("{error:#}")));
    }

    /// Has each team do the same once, in a random order. A peer that fails is left out from then on.
    pub(crate) fn each<T>(
        &mut self,
        workload: &'static str,
        teams: &mut Vec<Team>,
        mut act: impl FnMut(&mut Self, &mut Team) -> Result<T>,
    ) -> Vec<(Peer, T)> {
        let mut order: Vec<usize> = (0..teams.len()).collect();
        self.dice.shuffle(&mut order);
        let mut found = Vec::new();
        for at in order {
            let peer = teams[at].peer;
            match act(self, &mut teams[at]) {
                Ok(sample) => found.push((peer, sample)),
                Err(error) => self.leave_out(workload, peer, &error),
            }
        }
        teams.retain(|team| found.iter().any(|(peer, _)| *peer == team.peer));
        found
    }

    /// The same for all rounds. Returns only the samples of peers that completed every round.
    pub(crate) fn rounds<T>(
        &mut self,
        workload: &'static str,
        teams: &mut Vec<Team>,
        act: impl FnMut(&mut Self, &mut Team) -> Result<T>,
    ) -> Samples<T> {
        let rounds = self.args.rounds();
        self.so_many_rounds(rounds, workload, teams, act)
    }

    /// The same for a number of rounds that the workload chooses: a small difference needs many.
    pub(crate) fn so_many_rounds<T>(
        &mut self,
        rounds: usize,
        workload: &'static str,
        teams: &mut Vec<Team>,
        mut act: impl FnMut(&mut Self, &mut Team) -> Result<T>,
    ) -> Samples<T> {
        let mut all: Samples<T> = teams.iter().map(|team| (team.peer, Vec::new())).collect();
        for _ in 0..rounds {
            for (peer, sample) in self.each(workload, teams, &mut act) {
                if let Some((_, samples)) = all.iter_mut().find(|(of, _)| *of == peer) {
                    samples.push(sample);
                }
            }
        }
        all.retain(|(peer, _)| teams.iter().any(|team| team.peer == *peer));
        all
    }

    /// Runs one team once.
    pub(crate) fn run(&mut self, team: &mut Team, load: &Load<'_>) -> Result<Seen> {
        let processes = team
            .processes
            .get_mut(..load.processes)
            .context("too few processes")?;
        let tasks = u32::try_from(load.tasks)?;
        let start = now_ns() + nanos(HEAD_START + HEAD_START_OF_A_TASK * tasks);
        let stop = start + nanos(load.time);
        let mut files = Vec::new();
        let before = busy(processes)?;
        for process in processes.iter_mut() {
            let file = self.file();
            files.push(file.clone());
            process.tell(&Order::Run(Run {
                tasks: load.tasks,
                names: load.names,
                name: format!("{} {}", load.name, team.peer.word()),
                hold_us: u64::try_from(load.hold.as_micros())?,
                start_ns: start,
                stop_ns: stop,
                file,
            }))?;
        }
        for process in processes.iter_mut() {
            process.answer(load.time + TAIL)?;
        }
        let cpu = busy(processes)?.saturating_sub(before);
        let mut all = Vec::new();
        for file in files {
            all.push(stamps(&file)?);
            std::fs::remove_file(file)?;
        }
        let first = all.iter().flatten().map(|stamp| stamp.asked).min();
        Ok(Seen {
            stamps: all,
            // A peer that starts late had less time, so its interval starts at its first attempt.
            start: first.unwrap_or(start).clamp(start, stop - 1),
            stop,
            cpu,
        })
    }

    /// A new file for the stamps of a run.
    pub(crate) fn file(&mut self) -> PathBuf {
        self.files += 1;
        self.dir.path().join(self.files.to_string())
    }
}

fn busy(processes: &[Process]) -> Result<Duration> {
    processes.iter().map(Process::cpu).sum()
}

/// Converts to whole nanoseconds.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The samples of one peer; `None` if it failed.
pub(crate) fn of<T>(samples: &Samples<T>, peer: Peer) -> Option<&[T]> {
    let found = samples.iter().find(|(of, _)| *of == peer);
    found
        .map(|(_, samples)| &samples[..])
        .filter(|samples| !samples.is_empty())
}
