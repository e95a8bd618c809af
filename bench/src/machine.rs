//! Describes the machine and the versions of the software that was measured.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::page::Table;
use crate::peers::Peer;
use crate::stage::Stage;

/// Label and value of each row.
pub(crate) fn describe(stage: &Stage) -> Result<Vec<(String, String)>> {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism()?;
    let busy = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let busy = busy
        .split(' ')
        .nth(2)
        .map_or_else(|| "unknown".to_owned(), str::to_owned);
    let args = &stage.args;
    let lines = [
        ("machine", format!("{cores} cores, {model}")),
        (
            "load of the last 15 minutes",
            format!("{busy}, this run's own included"),
        ),
        ("kernel", said("uname", &["-sr"])),
        ("server", stage.server.version()?),
        ("rustc", said("rustc", &["--version"])),
        ("java", said("java", &["-version"])),
        ("go", said("go", &["version"])),
        ("node", said("node", &["--version"])),
        ("python", said("python3", &["--version"])),
        ("commit", said("git", &["describe", "--always", "--dirty"])),
        ("date", said("date", &["-u", "+%F"])),
        ("rounds, seed", format!("{}, {}", args.rounds(), args.seed)),
    ];
    Ok(lines
        .into_iter()
        .map(|(what, is)| (what.to_owned(), is))
        .collect())
}

/// The version of the library that was measured.
pub(crate) fn version(peer: Peer) -> String {
    match peer {
        Peer::Foreign(bench) => bench.version(),
        Peer::Tidelock | Peer::Recorded | Peer::Before | Peer::NoHandOff | Peer::Session => {
            env!("CARGO_PKG_VERSION").to_owned()
        }
        Peer::Flock => last_word(&said("flock", &["--version"])),
        Peer::Etcdctl => last_word(&said("etcdctl", &["version"])),
        Peer::Raw | Peer::RedissonScripts | Peer::Mutex | Peer::Advisory | Peer::LeaseTable => {
            String::new()
        }
    }
}

pub(crate) fn last_word(text: &str) -> String {
    text.rsplit(' ').next().unwrap_or_default().to_owned()
}

/// The facts about these peers.
pub(crate) fn peers(peers: &[Peer]) -> Table {
    let mut table = Table::new(&[
        "",
        "version",
        "its tasks",
        "who waits is",
        "renewed",
        "changed",
    ]);
    for peer in peers {
        let facts = peer.facts();
        table.row([
            facts.name.to_owned(),
            version(*peer),
            facts.tasks.to_owned(),
            facts.waits.to_owned(),
            if facts.renews { "yes" } else { "no" }.to_owned(),
            facts.tuned.to_owned(),
        ]);
    }
    table
}

/// The first line of the program's output: `java -version` prints to stderr, the others to stdout.
fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .current_dir(testkit::workspace())
        .output();
    output.map_or_else(
        |_| "unknown".to_owned(),
        |output| {
            let all = [output.stdout, output.stderr].concat();
            String::from_utf8_lossy(&all)
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned()
        },
    )
}

/// The time that all cores of the machine have been busy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BusyCores(Duration);

impl BusyCores {
    /// Until now.
    pub(crate) fn now() -> Result<Self> {
        let stat = std::fs::read_to_string("/proc/stat")?;
        let line = stat.lines().next().context("/proc/stat is empty")?;
        // user, nice, system, idle, waiting for a disk, interrupts, soft interrupts, stolen by the host
        let ticks: Vec<u64> = line.split_whitespace().flat_map(str::parse).collect();
        let busy = ticks.iter().take(8).sum::<u64>() - ticks.iter().skip(3).take(2).sum::<u64>();
        Ok(Self(Duration::from_millis(busy * TICK)))
    }

    /// Since then.
    pub(crate) fn since(self) -> Result<Duration> {
        Ok(Self::now()?.0.saturating_sub(self.0))
    }
}

/// The unit of `/proc/stat` on Linux, in milliseconds.
const TICK: u64 = 10;
