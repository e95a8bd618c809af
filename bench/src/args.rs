//! The command line: what to measure, and where to write the results.

use std::path::PathBuf;

use anyhow::Result;

use crate::peers::Peer;

/// The workloads.
pub(crate) const ALL: [&str; 12] = [
    "W1", "W2", "W3", "W4", "W5", "W6", "W7", "W8", "W9", "W10", "wakes", "metrics",
];

/// Compares locks: what they cost, how soon a waiter acquires, and how the cost grows
#[derive(Debug, Clone, clap::Parser)]
#[command(name = "cargo xtask bench --")]
pub struct Args {
    /// A short run, which shows that everything works but measures little
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only these workloads
    #[arg(long, value_name = "W1,…,W10,wakes,metrics", value_delimiter = ',', ignore_case = true, value_parser = ALL)]
    pub(crate) only: Vec<String>,
    /// Only these peers, in addition to tidelock and the bare scripts. W9 and W10 have peers of their own
    #[arg(long, value_name = "PEER,…", value_delimiter = ',')]
    peers: Option<Vec<String>>,
    /// Another commit's build of `bench-peer`, measured as one more peer: the change itself, side by side
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
    /// The number of rounds; each peer runs once per round
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// The seed of the order in which the peers run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Writes the page to this file, and its charts to the folder of the same name
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
}

impl Args {
    pub(crate) fn wants(&self, workload: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == workload)
    }

    pub(crate) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 1 } else { 5 }).max(1)
    }

    pub(crate) fn peers(&self) -> Result<Vec<Peer>> {
        let mut peers = vec![Peer::Raw, Peer::Tidelock];
        if let Some(program) = &self.before {
            Peer::set_before(program.clone());
            peers.push(Peer::Before);
        }
        let Some(words) = &self.peers else {
            peers.extend(&Peer::ALL[2..]);
            return Ok(peers);
        };
        for word in words {
            let peer = Peer::of_word(word)?;
            if !peers.contains(&peer) {
                peers.push(peer);
            }
        }
        Ok(peers)
    }
}
