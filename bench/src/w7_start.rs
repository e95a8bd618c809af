//! W7: from the start of a process to its first lock.

use std::time::Duration;

use anyhow::{Context, Result};
use load::{Names, Order, Run, now_ns};

use crate::awake::Awake;
use crate::chart::{Bars, Chart};
use crate::figures::{micros, middle, ratio, short, with_spread};
use crate::goals::Goal;
use crate::page::{Section, Table};
use crate::peers::Peer;
use crate::process::{Process, stamps};
use crate::stage::{Stage, Team, of};

/// Bounds the wait for one peer; longer than any peer takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn measure(stage: &mut Stage) -> Result<Section> {
    let _awake = Awake::keep()?;
    let mut teams: Vec<Team> = stage.peers.iter().copied().map(nobody).collect();
    // The first start is not counted: it reads the programs from disk.
    stage.each("W7", &mut teams, |stage, team| first_lock(stage, team.peer));
    let samples = stage.rounds("W7", &mut teams, |stage, team| first_lock(stage, team.peer));
    let mut table = Table::new(&["", "ms", "of raw"]);
    let raw = of(&samples, Peer::Raw).unwrap_or_default();
    let mut bars = Vec::new();
    for (peer, samples) in &samples {
        table.row([
            peer.name().to_owned(),
            with_spread(samples, |ms| *ms),
            short(ratio(samples, raw, |ms| *ms)),
        ]);
        bars.push((
            peer.name(),
            "milliseconds".to_owned(),
            middle(samples, |ms| *ms),
        ));
    }
    Ok(Section {
        title: "W7: from start to first lock",
        text: TEXT.into(),
        tables: vec![(String::new(), table)],
        charts: vec![Chart {
            file: "w7-start",
            title: "From the start of a process to its first lock, in milliseconds".into(),
            bars: Bars::grouped(&bars),
        }],
        goals: vec![Goal::at_most(
            "W7: from start to first lock against bare scripts",
            1.2,
            " ×",
            of(&samples, Peer::Tidelock).map(|ours| ratio(ours, raw, |ms| *ms)),
        )],
        ..Section::default()
    })
}

fn nobody(peer: Peer) -> Team {
    Team {
        peer,
        processes: Vec::new(),
    }
}

/// The time from the start of the process to its first acquisition, in milliseconds.
fn first_lock(stage: &mut Stage, peer: Peer) -> Result<f64> {
    let file = stage.file();
    let order = Order::Run(Run {
        tasks: 1,
        names: Names::One,
        name: format!("start {}", peer.word()),
        hold_us: 0,
        // `stop` is in the past, so the process acquires the lock exactly once.
        start_ns: 0,
        stop_ns: 0,
        file: file.clone(),
    });
    let command = peer.command(&stage.server.url())?;
    let start = now_ns();
    let mut process = Process::begin(command)?;
    process.tell(&order)?;
    process.answer(PATIENCE)?;
    let all = stamps(&file)?;
    let first = all.first().context("no stamp")?;
    Ok(micros(first.entered.saturating_sub(start)) / 1000.0)
}

const TEXT: &str = "
A process is started and told at once to take one lock: loading, the runtime, the connection, the first script. What the
language needs is in it.
";
