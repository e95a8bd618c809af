//! W1 with one and with two client threads: how busy the client and the server are.

use std::time::Duration;

use anyhow::Result;
use load::Names;
use testkit::process::cpu_time;

use crate::awake::Awake;
use crate::figures::{micros, middle, number, per_second, percentile, ratio, short, with_spread};
use crate::goals::Goal;
use crate::machine::BusyCores;
use crate::page::{Section, Table};
use crate::peers::Peer;
use crate::stage::{Load, Samples, Seen, Stage, Team, of};

const TASKS: [usize; 4] = [16, 64, 256, 512];
const THREADS: [usize; 2] = [1, 2];

/// From here on one side should have no time to wait.
const BUSY_FROM: usize = 64;

/// One peer in one round.
#[derive(Debug, Clone, Copy)]
struct Sample {
    per_second: f64,
    p50: f64,
    p99: f64,
    /// Cores that the process, the server, and everything else on the machine kept busy.
    client: f64,
    server: f64,
    others: f64,
    /// Microseconds of a core for each pair.
    client_us: f64,
    server_us: f64,
}

pub(crate) fn measure(stage: &mut Stage, section: &mut Section) -> Result<()> {
    let mut peers = vec![Peer::Raw, Peer::RedissonScripts, Peer::Tidelock];
    peers.extend(stage.peers.iter().filter(|peer| **peer == Peer::Before));
    for awake in [false, true] {
        let mut table = Table::new(&HEAD);
        for threads in THREADS {
            stage.threads = threads;
            let mut teams = stage.teams("W1", &peers, 1);
            for tasks in TASKS {
                let _awake = awake.then(Awake::keep).transpose()?;
                let samples = samples(stage, &mut teams, tasks);
                rows(&mut table, tasks, threads, &samples);
                if !awake {
                    section.goals.extend(goals(tasks, threads, &samples));
                }
            }
        }
        stage.threads = 2;
        let how = if awake { "kept awake" } else { "as they are" };
        let line = format!(
            "**Who is busy**, cores {how}. `others`: cores that other programs used{}",
            if awake {
                ", those that keep them awake included"
            } else {
                ""
            }
        );
        section.tables.push((line, table));
    }
    Ok(())
}

fn samples(stage: &mut Stage, teams: &mut Vec<Team>, tasks: usize) -> Samples<Sample> {
    let (warm, long) = if stage.args.quick {
        (100, 150)
    } else {
        (300, 700)
    };
    let load = |millis| Load {
        processes: 1,
        tasks,
        names: Names::Own,
        name: "own",
        hold: Duration::ZERO,
        time: Duration::from_millis(millis),
    };
    stage.each("W1", teams, |stage, team| stage.run(team, &load(warm)));
    stage.rounds("W1", teams, |stage, team| {
        let server = stage.server.pid()?;
        let (before, all) = (cpu_time(server)?, BusyCores::now()?);
        let seen = stage.run(team, &load(long))?;
        let server = cpu_time(server)?.saturating_sub(before);
        Ok(sample(&seen, server, all.since()?))
    })
}

fn sample(seen: &Seen, server: Duration, all: Duration) -> Sample {
    let stamps = || seen.stamps.iter().flatten();
    let mut times: Vec<u64> = stamps().map(|stamp| stamp.left - stamp.asked).collect();
    times.sort_unstable();
    let in_time = stamps().filter(|stamp| stamp.left <= seen.stop).count();
    let took = Duration::from_nanos(seen.stop - seen.start);
    let cores = |spent: Duration| spent.as_secs_f64() / took.as_secs_f64();
    let each = |spent: Duration| spent.as_secs_f64() * 1e6 / number(times.len());
    Sample {
        per_second: per_second(in_time, took),
        p50: micros(percentile(&times, 0.5)),
        p99: micros(percentile(&times, 0.99)),
        client: cores(seen.cpu),
        server: cores(server),
        others: cores(all.saturating_sub(seen.cpu + server)),
        client_us: each(seen.cpu),
        server_us: each(server),
    }
}

const HEAD: [&str; 11] = [
    "tasks, threads",
    "",
    "pairs/s",
    "of Redisson's scripts",
    "p50 µs",
    "p99 µs",
    "client cores",
    "server cores",
    "others",
    "client µs a pair",
    "server µs a pair",
];

fn rows(table: &mut Table, tasks: usize, threads: usize, samples: &Samples<Sample>) {
    let base = of(samples, Peer::RedissonScripts).unwrap_or_default();
    for (peer, samples) in samples {
        let figure = |figure: fn(&Sample) -> f64| short(middle(samples, figure));
        table.row([
            format!("{tasks}, {threads}"),
            peer.name().to_owned(),
            with_spread(samples, |s| s.per_second),
            short(ratio(samples, base, |s| s.per_second)),
            figure(|s| s.p50),
            figure(|s| s.p99),
            figure(|s| s.client),
            figure(|s| s.server),
            figure(|s| s.others),
            figure(|s| s.client_us),
            figure(|s| s.server_us),
        ]);
    }
}

fn goals(tasks: usize, threads: usize, samples: &Samples<Sample>) -> Vec<Goal> {
    let ours = of(samples, Peer::Tidelock);
    let both = ours.zip(of(samples, Peer::RedissonScripts));
    let what = |what| format!("W1, {tasks} tasks, {threads} threads: {what}");
    let mut goals = vec![
        Goal::at_least(
            what("pairs/s against Redisson's scripts"),
            1.0,
            " ×",
            both.map(|(ours, base)| ratio(ours, base, |s| s.per_second)),
        ),
        Goal::at_most(
            what("server time a pair against Redisson's scripts"),
            1.0,
            " ×",
            both.map(|(ours, base)| ratio(ours, base, |s| s.server_us)),
        ),
    ];
    if tasks >= BUSY_FROM {
        goals.push(Goal::at_least(
            what("cores that the busier side uses"),
            0.9,
            "",
            ours.map(|ours| middle(ours, |s| s.client.max(s.server))),
        ));
    }
    goals
}
