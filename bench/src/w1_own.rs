//! W1: each task has a lock of its own, without contention.

use std::time::Duration;

use anyhow::Result;
use load::Names;

use crate::awake::Awake;
use crate::chart::{Bars, Chart};
use crate::figures::{micros, middle, number, per_second, percentile, ratio, short, with_spread};
use crate::goals::Goal;
use crate::page::{Section, Table};
use crate::peers::Peer;
use crate::stage::{Load, Samples, Seen, Stage, of};

const TASKS: [usize; 3] = [1, 64, 512];

/// One peer in one round.
#[derive(Debug, Clone, Copy)]
struct Sample {
    p50: f64,
    p99: f64,
    per_second: f64,
    /// The processor time of the process per pair, in microseconds. It is more reliable than wall time when other
    /// programs use the machine.
    cpu: f64,
}

pub(crate) fn measure(stage: &mut Stage) -> Result<Section> {
    let mut section = Section {
        title: "W1: locks nobody else wants",
        text: "
Acquire and release at once, each task a name of its own, all tasks of a side in one process. CPU is the client's own time on
a processor for one pair, in microseconds. The bare scripts are those of tidelock, which cost the server more than the `SET NX`
of those who neither re-enter nor wake anybody.
"
        .into(),
        ..Section::default()
    };
    let peers = stage.peers.clone();
    let mut teams = stage.teams("W1", &peers, 1);
    let quick = stage.args.quick;
    let mut bars = Vec::new();
    for tasks in TASKS {
        let _awake = (tasks == 1).then(Awake::keep).transpose()?;
        let load = |millis| Load {
            processes: 1,
            tasks,
            names: Names::Own,
            name: "own",
            hold: Duration::ZERO,
            time: Duration::from_millis(millis),
        };
        let (warm, long) = if quick { (100, 150) } else { (400, 500) };
        // The warm-up is not counted: JIT compilers, allocators and the server's script cache fill first.
        stage.each("W1", &mut teams, |stage, team| stage.run(team, &load(warm)));
        let samples = stage.rounds("W1", &mut teams, |stage, team| {
            Ok(sample(&stage.run(team, &load(long))?))
        });
        section
            .tables
            .push((format!("**{tasks} at once**"), table(&samples)));
        for (peer, samples) in &samples {
            bars.push((
                peer.name(),
                if tasks == 1 {
                    "1 task".to_owned()
                } else {
                    format!("{tasks} tasks")
                },
                middle(samples, |s| s.per_second),
            ));
        }
        section.goals.extend(goals(tasks, &samples));
    }
    drop(teams);
    crate::w1_cores::measure(stage, &mut section)?;
    section.charts.push(Chart {
        file: "w1-pairs",
        title: "Acquire and release: pairs a second".into(),
        bars: Bars::grouped(&bars),
    });
    Ok(section)
}

fn sample(seen: &Seen) -> Sample {
    let mut times: Vec<u64> = seen
        .stamps
        .iter()
        .flatten()
        .map(|stamp| stamp.left - stamp.asked)
        .collect();
    let in_time = seen
        .stamps
        .iter()
        .flatten()
        .filter(|stamp| stamp.left <= seen.stop)
        .count();
    times.sort_unstable();
    Sample {
        p50: micros(percentile(&times, 0.5)),
        p99: micros(percentile(&times, 0.99)),
        per_second: per_second(in_time, Duration::from_nanos(seen.stop - seen.start)),
        cpu: seen.cpu.as_secs_f64() * 1e6 / number(times.len()),
    }
}

fn table(samples: &Samples<Sample>) -> Table {
    let mut table = Table::new(&[
        "", "pairs/s", "of raw", "p50 µs", "of raw", "p99 µs", "CPU µs",
    ]);
    let raw = of(samples, Peer::Raw).unwrap_or_default();
    for (peer, samples) in samples {
        table.row([
            peer.name().to_owned(),
            with_spread(samples, |s| s.per_second),
            short(ratio(samples, raw, |s| s.per_second)),
            with_spread(samples, |s| s.p50),
            short(ratio(samples, raw, |s| s.p50)),
            with_spread(samples, |s| s.p99),
            short(middle(samples, |s| s.cpu)),
        ]);
    }
    table
}

fn goals(tasks: usize, samples: &Samples<Sample>) -> Vec<Goal> {
    let both = of(samples, Peer::Tidelock).zip(of(samples, Peer::Raw));
    if tasks == 1 {
        let measured = both.map(|(ours, raw)| ratio(ours, raw, |s| s.p50));
        return vec![Goal::at_most(
            "W1, 1 task: p50 against the bare scripts",
            1.05,
            " ×",
            measured,
        )];
    }
    let measured = both.map(|(ours, raw)| ratio(ours, raw, |s| s.per_second));
    let best = samples
        .iter()
        .filter(|(peer, samples)| {
            *peer != Peer::Tidelock && peer.facts().renews && !samples.is_empty()
        })
        .max_by(|(_, one), (_, two)| {
            middle(one, |s| s.per_second).total_cmp(&middle(two, |s| s.per_second))
        });
    let mut goals = vec![Goal::at_least(
        format!("W1, {tasks} tasks: pairs/s against the bare scripts"),
        0.95,
        " ×",
        measured,
    )];
    if let (Some((peer, theirs)), Some((ours, _))) = (best, both) {
        goals.push(Goal::at_least(
            format!(
                "W1, {tasks} tasks: pairs/s against {}, the best of the others that renew",
                peer.name()
            ),
            1.0,
            " ×",
            Some(ratio(ours, theirs, |s| s.per_second)),
        ));
    }
    goals
}
