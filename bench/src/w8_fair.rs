//! W8: the fair lock beside Redisson's, with a growing number of waiters.

use std::time::Duration;

use anyhow::Result;
use load::Names;
use testkit::foreign::Bench;
use testkit::process::cpu_time;
use testkit::servers::RedisServer;

use crate::contention::Contention;
use crate::figures::{middle, number, short, with_spread};
use crate::goals::Goal;
use crate::page::{Section, Table};
use crate::peers::{Peer, ours};
use crate::process::Process;
use crate::stage::{Load, Stage, Team};

/// How many tasks compete for the name, in two processes.
const CROWDS: [usize; 6] = [4, 16, 64, 256, 1_000, 10_000];
/// Larger crowds are measured once, and not in a quick run.
const MANY: usize = 256;
/// From here on only tidelock is measured: the peer would need thousands of threads.
const OURS_ONLY: usize = 10_000;
const PROCESSES: usize = 2;

/// The results of one side and one crowd in one round.
struct Turns {
    contention: Contention,
    /// Microseconds of the server for each grant: scripts and subscriptions.
    server: f64,
    /// How many cores the processes and the server have kept busy.
    cores: f64,
}

pub(crate) fn measure(stage: &mut Stage) -> Result<Section> {
    let mut table = Table::new(&[
        "waiters",
        "",
        "server µs a grant",
        "gap p50 µs",
        "gap p99 µs",
        "grants/s",
        "longest wait ms",
        "cores used",
        "overlaps",
    ]);
    let mut teams = teams(stage)?;
    let mut cheapest: Option<f64> = None;
    let mut goals = Vec::new();
    for waiters in CROWDS {
        if stage.args.quick && waiters > MANY {
            continue;
        }
        for team in &mut teams {
            let ours = team.peer == Peer::Tidelock;
            if waiters >= OURS_ONLY && !ours {
                continue;
            }
            let turns = match rounds(stage, team, waiters) {
                Ok(turns) => turns,
                Err(error) => {
                    stage.leave_out("W8", team.peer, &error);
                    continue;
                }
            };
            table.row(row(waiters, team.peer, &turns));
            if ours {
                let server = middle(&turns, |turns| turns.server);
                let first = *cheapest.get_or_insert(server);
                goals.push(Goal::at_most(
                    format!("W8, {waiters} waiters: server time a grant against that of 4"),
                    2.0,
                    " ×",
                    Some(server / first),
                ));
            }
        }
    }
    Ok(Section {
        title: "W8: the fair lock",
        text: TEXT.into(),
        tables: vec![(String::new(), table)],
        goals,
        ..Section::default()
    })
}

fn row(waiters: usize, peer: Peer, turns: &[Turns]) -> [String; 9] {
    let overlaps: usize = turns.iter().map(|turns| turns.contention.overlaps).sum();
    [
        waiters.to_string(),
        peer.name().to_owned(),
        with_spread(turns, |turns| turns.server),
        with_spread(turns, |turns| turns.contention.gap_p50),
        short(middle(turns, |turns| turns.contention.gap_p99)),
        with_spread(turns, |turns| turns.contention.per_second),
        short(middle(turns, |turns| turns.contention.longest_wait)),
        short(middle(turns, |turns| turns.cores)),
        overlaps.to_string(),
    ]
}

fn rounds(stage: &mut Stage, team: &mut Team, waiters: usize) -> Result<Vec<Turns>> {
    let rounds = if waiters > MANY {
        1
    } else {
        stage.args.rounds()
    };
    (0..rounds).map(|_| turns(stage, team, waiters)).collect()
}

fn teams(stage: &Stage) -> Result<Vec<Team>> {
    let url = stage.server.url();
    let redisson = Peer::Foreign(Bench::Redisson);
    let mut teams = Vec::new();
    for peer in [Peer::Tidelock, redisson] {
        if !stage.peers.contains(&peer) {
            continue;
        }
        let start = || {
            let command = if peer == Peer::Tidelock {
                ours("tidelock-fair", &url)?
            } else {
                let mut command = peer.command(&url)?;
                command.arg("fair");
                command
            };
            Process::start(command)
        };
        let processes = vec![start()?, start()?];
        teams.push(Team { peer, processes });
    }
    Ok(teams)
}

fn turns(stage: &mut Stage, team: &mut Team, waiters: usize) -> Result<Turns> {
    let tasks = waiters / PROCESSES;
    let millis = if stage.args.quick { 250 } else { 1_000 };
    let load = |time| Load {
        processes: PROCESSES,
        tasks,
        names: Names::One,
        name: "fair",
        hold: Duration::ZERO,
        time,
    };
    let warm = Duration::from_millis(100) * team.peer.warm_up();
    stage.run(team, &load(warm))?;
    let server = stage.server.pid()?;
    let (spent_before, cpu_before) = (spent(&stage.server)?, cpu_time(server)?);
    let seen = stage.run(team, &load(Duration::from_millis(millis)))?;
    let spent = spent(&stage.server)? - spent_before;
    let cpu = seen.cpu + cpu_time(server)?.saturating_sub(cpu_before);
    let grants: usize = seen.stamps.iter().map(Vec::len).sum();
    let last = seen.stamps.iter().flatten().map(|stamp| stamp.left).max();
    let took = last.unwrap_or(seen.stop).saturating_sub(seen.start);
    Ok(Turns {
        contention: Contention::of(&seen.stamps, tasks, seen.start, seen.stop),
        server: spent / number(grants.max(1)),
        cores: cpu.as_secs_f64() / Duration::from_nanos(took.max(1)).as_secs_f64(),
    })
}

/// The microseconds that the server has spent on scripts and subscriptions.
fn spent(server: &RedisServer) -> Result<f64> {
    let info: String = server.query(&["INFO", "commandstats"])?;
    let mut sum = 0.0;
    for line in info.lines() {
        let Some((command, figures)) = line.split_once(':') else {
            continue;
        };
        let counted = ["eval", "evalsha", "subscribe", "unsubscribe"];
        if !counted
            .iter()
            .any(|name| command == format!("cmdstat_{name}"))
        {
            continue;
        }
        let usec = figures
            .split(',')
            .find_map(|figure| figure.strip_prefix("usec="));
        sum += usec.map_or(Ok(0.0), str::parse)?;
    }
    Ok(sum)
}

const TEXT: &str = "
Two processes of each library compete for one fair lock. Each turn is empty, so what is measured is the queue: the time of the
server for each grant, and the time from the start of a release to the next acquisition. Redisson may use more subscriptions
than its default allows, because each of its waiters needs one; with ten thousand waiters only tidelock is measured.
";
