//! Runs the workloads one after another and prints or writes the page.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::args::Args;
use crate::page::{Page, Section, Table};
use crate::peers::Peer;
use crate::stage::Stage;
use crate::{
    machine, w1_own, w2_hot, w3_local, w4_held, w5_waiting, w6_majority, w7_start, w8_fair,
    w9_stores, w10_kinds, wakes, with_metrics,
};

type Workload = fn(&mut Stage) -> Result<Section>;

const WORKLOADS: [(&str, Workload); 12] = [
    ("W1", w1_own::measure),
    ("W2", w2_hot::measure),
    ("W3", w3_local::measure),
    ("W4", w4_held::measure),
    ("W5", w5_waiting::measure),
    ("W6", w6_majority::measure),
    ("W7", w7_start::measure),
    ("W8", w8_fair::measure),
    ("W9", w9_stores::measure),
    ("W10", w10_kinds::measure),
    ("wakes", wakes::measure),
    ("metrics", with_metrics::measure),
];

/// Measures the requested workloads, then prints the page or writes it to the requested file.
///
/// # Errors
/// Nothing can be measured, or the page cannot be written.
pub fn run(args: Args) -> Result<()> {
    let begun = Instant::now();
    let mut stage = Stage::new(args)?;
    eprintln!("build: {:.0} s", begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    let mut sections = Vec::new();
    for (name, measure) in WORKLOADS {
        if !stage.args.wants(name) {
            continue;
        }
        let start = Instant::now();
        match measure(&mut stage) {
            Ok(section) => sections.push(Section {
                notes: notes(name),
                ..section
            }),
            // One workload failed; the results of the others are still useful.
            Err(error) => stage.leave_out(name, Peer::Tidelock, &error),
        }
        eprintln!("{name}: {:.0} s", start.elapsed().as_secs_f64());
    }
    let mut machine = machine::describe(&stage)?;
    machine.push((
        "took".into(),
        format!("{:.0} s", begun.elapsed().as_secs_f64()),
    ));
    let left_out = stage.left_out.iter();
    let page = Page {
        machine,
        peers: peers(&stage),
        sections,
        left_out: left_out
            .map(|(workload, peer, why)| (*workload, peer.name().to_owned(), why.clone()))
            .collect(),
    };
    if let Some(file) = &stage.args.write {
        return write(&page, &stage.args, &testkit::workspace().join(file));
    }
    print(&page.markdown(&stage.args, "performance"));
    Ok(())
}

/// The handwritten notes on a workload's figures: `bench/notes/W1.md`, if the file exists.
fn notes(workload: &str) -> String {
    let file = testkit::workspace()
        .join("bench/notes")
        .join(workload)
        .with_extension("md");
    std::fs::read_to_string(file).unwrap_or_default()
}

fn write(page: &Page, args: &Args, file: &Path) -> Result<()> {
    let folder = file.with_extension("");
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    std::fs::create_dir_all(&folder)?;
    for chart in page.sections.iter().flat_map(|section| &section.charts) {
        let path = folder.join(chart.file).with_extension("svg");
        std::fs::write(&path, chart.svg()?).with_context(|| path.display().to_string())?;
    }
    std::fs::write(file, page.markdown(args, &name)).with_context(|| file.display().to_string())
}

#[allow(clippy::print_stdout, reason = "printing is its purpose")]
fn print(text: &str) {
    println!("{text}");
}

fn peers(stage: &Stage) -> Table {
    let mut peers = Peer::that_wait(&stage.peers);
    peers.insert(0, Peer::Raw);
    machine::peers(&peers)
}
