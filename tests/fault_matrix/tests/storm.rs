//! A round of `cargo xtask storm`, and bugs that it must find.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod shared;

use std::process::{Command, Output};

use anyhow::Result;

use shared::{remove_histories, told};

/// One round on two stores that start quickly. Both lose all their locks.
fn storm(more: &[&str]) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fault_matrix"));
    command.args(["storm", "--store", "memcached", "--store", "redis"]);
    // The round of this seed has one fault.
    command.args([
        "--fault",
        "server emptied",
        "--seed",
        "1",
        "--lease",
        "2000",
    ]);
    Ok(command.args(more).output()?)
}

#[test]
fn every_loss_of_a_storm_is_told() -> Result<()> {
    let output = storm(&[])?;
    let told = told(&output);
    assert!(output.status.success(), "{told}");
    assert!(!told.contains(" and 0 losses"), "{told}");
    Ok(())
}

/// With processes that have this bug, the storm is red and says all of these words.
fn finds(lie: &str, words: &[&str]) -> Result<()> {
    let output = storm(&["--lie", lie])?;
    let told = told(&output);
    assert!(!output.status.success(), "{told}");
    for it in words {
        assert!(told.contains(it), "{it} is missing: {told}");
    }
    remove_histories(&told)
}

/// With processes that go on acting on locks that they have lost, the checkers find two that held one lock.
#[test]
fn a_storm_finds_holders_that_ignore_their_losses() -> Result<()> {
    finds("ignores-losses", &["Exclusion: "])
}

/// A task that panics ends its process, and the storm tells why.
#[test]
fn a_storm_finds_a_process_that_panics() -> Result<()> {
    finds("panics", &["Run: ", "this worker panics on purpose"])
}
