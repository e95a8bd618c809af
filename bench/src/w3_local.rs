//! W3: many tasks of one process that compete for one name.

use std::time::Duration;

use anyhow::Result;

use crate::awake::Awake;
use crate::chart::{Bars, Chart};
use crate::contention::Contention;
use crate::figures::{middle, ratio};
use crate::goals::Goal;
use crate::page::Section;
use crate::peers::Peer;
use crate::stage::{Stage, of};
use crate::w2_hot::Shape;

const TASKS: usize = 64;

pub(crate) fn measure(stage: &mut Stage) -> Result<Section> {
    let _awake = Awake::keep()?;
    let mut peers = Peer::that_wait(&stage.peers);
    peers.insert(0, Peer::Mutex);
    let mut teams = stage.teams("W3", &peers, 1);
    let shape = Shape {
        processes: 1,
        tasks: TASKS,
        hold: Duration::ZERO,
        quick: stage.args.quick,
    };
    let found = shape.measure("W3", stage, &mut teams, &mut Vec::new())?;
    let bars: Vec<_> = found
        .samples
        .iter()
        .map(|(peer, samples)| {
            (
                peer.name(),
                "64 tasks".to_owned(),
                middle(samples, |s| s.per_second),
            )
        })
        .collect();
    let ours = of(&found.samples, Peer::Tidelock);
    let without = of(&found.samples, Peer::NoHandOff);
    let mutex = of(&found.samples, Peer::Mutex);
    let against = |other: Option<&[Contention]>| {
        let both = ours.zip(other);
        both.map(|(ours, other)| ratio(ours, other, |s| s.per_second))
    };
    Ok(Section {
        title: "W3: one name, one process",
        text: TEXT.into(),
        charts: vec![Chart {
            file: "w3-acquisitions",
            title: "One name, one process: acquisitions a second".into(),
            bars: Bars::grouped(&bars),
        }],
        goals: vec![
            Goal::at_least(
                "W3: acquisitions/s with hand-off inside the process against without",
                50.0,
                " ×",
                against(without),
            ),
            Goal::at_least(
                "W3: acquisitions/s against the runtime's mutex alone",
                0.1,
                " ×",
                against(mutex),
            ),
        ],
        tables: vec![(String::new(), shape.table(&found))],
        ..Section::default()
    })
}

const TEXT: &str = "
As W2, with 64 tasks of one process and no hold. The runtime's mutex has no store at all: it is what the same load costs in
memory.
";
