//! A round of `cargo xtask storm`, and a bug that it must find.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::process::{Command, Output};

use anyhow::Result;

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

fn told(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout);
    format!("{said}{}", String::from_utf8_lossy(&output.stderr))
}

#[test]
fn every_loss_of_a_storm_is_told() -> Result<()> {
    let output = storm(&[])?;
    let told = told(&output);
    assert!(output.status.success(), "{told}");
    assert!(!told.contains(" and 0 losses"), "{told}");
    Ok(())
}

/// With processes that go on acting on locks that they have lost, the checkers find two that held one lock.
#[test]
fn a_storm_finds_holders_that_ignore_their_losses() -> Result<()> {
    let output = storm(&["--lie", "ignores-losses"])?;
    let told = told(&output);
    assert!(!output.status.success(), "{told}");
    assert!(told.contains("Exclusion: "), "{told}");
    Ok(())
}

/// A task that panics ends its process, and the storm tells why.
#[test]
fn a_storm_finds_a_process_that_panics() -> Result<()> {
    let output = storm(&["--lie", "panics"])?;
    let told = told(&output);
    assert!(!output.status.success(), "{told}");
    assert!(told.contains("Run: "), "{told}");
    assert!(told.contains("this worker panics on purpose"), "{told}");
    Ok(())
}
