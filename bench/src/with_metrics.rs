//! What a recorder of metrics adds to an acquisition.

use std::time::Duration;

use anyhow::Result;
use load::Names;

use crate::awake::Awake;
use crate::figures::{micros, percentile, ratio, short, with_spread};
use crate::goals::Goal;
use crate::page::{Section, Table};
use crate::peers::Peer;
use crate::pinned::Pinned;
use crate::stage::{Load, Samples, Seen, Stage, of};

const PEERS: [Peer; 2] = [Peer::Tidelock, Peer::Recorded];

/// The difference is a fraction of a microsecond in a round trip of fifty. So there are many short rounds for each round
/// of the other workloads.
const ROUNDS: usize = 12;

/// One peer in one round.
#[derive(Debug, Clone, Copy)]
struct Sample {
    p50: f64,
}

pub(crate) fn measure(stage: &mut Stage) -> Result<Section> {
    let _awake = Awake::keep()?;
    let mut teams = stage.teams("metrics", &PEERS, 1);
    let _server = Pinned::to(stage.server.pid()?, 0)?;
    let clients = teams.iter().flat_map(|team| &team.processes);
    let _clients: Vec<_> = clients
        .map(|process| Pinned::to(process.pid(), 1))
        .collect::<Result<_>>()?;
    let load = Load {
        processes: 1,
        tasks: 1,
        names: Names::Own,
        name: "own",
        hold: Duration::ZERO,
        time: Duration::from_millis(150),
    };
    stage.each("metrics", &mut teams, |stage, team| stage.run(team, &load));
    let rounds = stage.args.rounds() * ROUNDS;
    let samples = stage.so_many_rounds(rounds, "metrics", &mut teams, |stage, team| {
        Ok(sample(&stage.run(team, &load)?))
    });
    let both = of(&samples, Peer::Recorded).zip(of(&samples, Peer::Tidelock));
    Ok(Section {
        title: "What a recorder of metrics costs",
        text: format!(
            "
One task acquires and releases a lock that nobody else wants, with a recorder for Prometheus installed and without one.
Server and client have a core each. {rounds} short rounds of both: the ratio is the median of the ratios of each round.
"
        ),
        tables: vec![(String::new(), table(&samples))],
        goals: vec![Goal::at_most(
            "1 task: p50 with a recorder of metrics against without",
            1.03,
            " ×",
            both.map(|(with, without)| ratio(with, without, |s| s.p50)),
        )],
        ..Section::default()
    })
}

fn sample(seen: &Seen) -> Sample {
    let stamps = seen.stamps.iter().flatten();
    let mut times: Vec<u64> = stamps.map(|stamp| stamp.left - stamp.asked).collect();
    times.sort_unstable();
    Sample {
        p50: micros(percentile(&times, 0.5)),
    }
}

fn table(samples: &Samples<Sample>) -> Table {
    let mut table = Table::new(&["", "p50 µs", "of tidelock"]);
    let base = of(samples, Peer::Tidelock).unwrap_or_default();
    for (peer, samples) in samples {
        table.row([
            peer.name().to_owned(),
            with_spread(samples, |s| s.p50),
            short(ratio(samples, base, |s| s.p50)),
        ]);
    }
    table
}
