//! The command line of the run on all stores, and its sizes.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::stores::Store;

/// The processes of each store: one of each build that stays, and one whose place is taken by the other build again and
/// again.
pub(crate) const PLACES: usize = 3;
pub(crate) const REPLACED: usize = 2;

/// How long a process stays in the place that changes hands.
pub(crate) const STAYS: Duration = Duration::from_secs(20);

#[derive(Debug, Args)]
pub(crate) struct Everywhere {
    /// The longest time in minutes
    #[arg(long, default_value_t = 3.0)]
    pub(crate) minutes: f64,
    /// Ends earlier, once this many acquisitions have happened
    #[arg(long)]
    pub(crate) acquisitions: Option<u64>,
    /// Seed of all random choices; without it a random one, which is printed
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Writes the result as a page to this path, relative to the workspace root
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// The stores, separated by commas; without it all
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) stores: Vec<Store>,
    /// Multiplies the pauses of all tasks
    #[arg(long, default_value_t = 1.0)]
    pub(crate) pause: f64,
    /// The lease of every lock in seconds
    #[arg(long, default_value_t = 6.0)]
    pub(crate) lease: f64,
    /// The worker of the older build; without it there is only that of today
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) old: Option<PathBuf>,
    /// What the older build is, for the page
    #[arg(long, value_name = "TEXT", default_value = "none")]
    pub(crate) old_is: String,
    /// The bug to build into the first process of each store
    #[arg(long, hide = true)]
    pub(crate) broken: Option<String>,
}

impl Everywhere {
    pub(crate) fn stores(&self) -> Vec<Store> {
        if self.stores.is_empty() {
            Store::ALL.to_vec()
        } else {
            self.stores.clone()
        }
    }
}
