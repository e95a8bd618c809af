//! Some runs of `cargo xtask partitions`, and bugs that they must find.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod shared;

use std::process::{Command, Output};

use anyhow::Result;
use testkit::hosts::Network;

use shared::{remove_histories, told};

fn partitions(args: &[&str]) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fault_matrix"));
    Ok(command.arg("partitions").args(args).output()?)
}

/// Two partitions of each topology, three of the twelve with the clock of a single host.
#[test]
fn promises_are_kept_while_the_network_is_parted() -> Result<()> {
    if Network::left_out("partitions of several hosts")? {
        return Ok(());
    }
    let output = partitions(&["--seeds", "12"])?;
    let told = told(&output);
    assert!(output.status.success(), "{told}");
    assert_eq!(
        told.matches("\nok ").count() + usize::from(told.starts_with("ok ")),
        12,
        "{told}"
    );
    Ok(())
}

/// With processes that break a promise, the checkers find a breach of it.
fn finds(lie: &str, topology: &str, kind: &str, breach: &str) -> Result<()> {
    if Network::left_out("a planted bug")? {
        return Ok(());
    }
    let run = ["--seeds", "1", "--topology", topology, "--kind", kind];
    let output = partitions(&[&run[..], &["--lie", lie]].concat())?;
    let told = told(&output);
    assert!(!output.status.success() && told.contains(breach), "{told}");
    remove_histories(&told)
}

#[test]
fn a_client_that_acts_after_its_deadline_is_found() -> Result<()> {
    let breach = "after its host had been cut off";
    finds("ignores-losses", "etcd", "client isolated", breach)
}

#[test]
fn a_lock_that_a_minority_granted_is_found() -> Result<()> {
    let kind = "leader isolated with a client";
    finds("minority", "redlock", kind, "Exclusion: ")
}

#[test]
fn a_lock_that_no_replica_acknowledged_is_found() -> Result<()> {
    let kind = "leader isolated with a client";
    finds("unacknowledged", "sentinel-all", kind, "Exclusion: ")
}

#[test]
fn a_clock_that_runs_faster_than_the_drift_is_found() -> Result<()> {
    let kind = "leader's clock fast within the drift, client isolated";
    finds("fast-clock", "cluster", kind, "Exclusion: ")
}
