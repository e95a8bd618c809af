//! W3: one process of many tasks that all want one name.

use std::time::Duration;

use anyhow::Result;

use crate::awake::Awake;
use crate::chart::{Bars, Chart};
use crate::figures::{middle, ratio};
use crate::goals::Goal;
use crate::page::Section;
use crate::peers::Peer;
use crate::stage::{Stage, of};
use crate::w2_hot::Shape;

const TASKS: usize = 64;

pub(crate) fn measure(stage: &mut Stage) -> Result<Section> {
    let _awake = Awake::keep()?;
    let mut peers: Vec<Peer> = stage
        .peers
        .iter()
        .copied()
        .filter(|peer| *peer != Peer::Raw)
        .collect();
    peers.insert(0, Peer::Mutex);
    let mut teams = stage.teams("W3", &peers, 1);
    let shape = Shape {
        processes: 1,
        tasks: TASKS,
        hold: Duration::ZERO,
        quick: stage.args.quick,
    };
    let found = shape.measure("W3", stage, &mut teams, None)?;
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
    let mutex = of(&found.samples, Peer::Mutex);
    Ok(Section {
        title: "W3: one name, one process",
        text: TEXT.into(),
        charts: vec![Chart {
            file: "w3-acquisitions",
            title: "One name, one process: acquisitions a second".into(),
            bars: Bars::grouped(&bars),
        }],
        goals: vec![
            // Without a hand-off there is nothing to compare with.
            Goal::at_least(
                "W3: acquisitions/s with hand-off inside the process against without",
                50.0,
                " ×",
                None,
            ),
            Goal::at_least(
                "W3: acquisitions/s against the runtime's mutex alone",
                0.1,
                " ×",
                ours.zip(mutex)
                    .map(|(ours, mutex)| ratio(ours, mutex, |s| s.per_second)),
            ),
        ],
        tables: vec![(String::new(), Shape::table(&found))],
    })
}

const TEXT: &str = "
As W2, with 64 tasks of one process and no hold. The runtime's mutex has no store at all: it is what the same load costs in
memory.
";
