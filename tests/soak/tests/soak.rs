//! The soak test reports injected bugs, and reports nothing without one. `cargo xtask soak` is the long run, with
//! Redisson.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::process::{Command, Output};

/// Runs the soak test for this many seconds. Returns its output.
fn soak(seconds: f64, more: &[&str]) -> (Output, String) {
    let mut soak = Command::new(env!("CARGO_BIN_EXE_soak"));
    soak.args(["--minutes", &(seconds / 60.0).to_string()]);
    soak.args(["--workers", "3", "--java", "none"]).args(more);
    let output = soak.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, said)
}

/// The run must exit with 1, and name the failure and the seed.
fn is_seen(broken: &str, as_what: &str) {
    let (output, said) = soak(9.0, &["--seed", "7", "--broken", broken]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let told = said
        .lines()
        .any(|line| line.starts_with("BROKEN: ") && line.contains(as_what));
    assert!(told, "{as_what} was not seen:\n{said}");
    assert!(said.contains("--seed 7"), "{said}");
}

#[test]
fn a_short_soak_finds_nothing() {
    let (output, said) = soak(12.0, &[]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
}

#[test]
fn the_soak_finds_a_holder_without_the_lock() {
    is_seen("enters", "overlap ");
}

#[test]
fn a_soak_sees_a_token_that_does_not_grow() {
    is_seen("tokens", "token ");
}

#[test]
fn a_soak_sees_a_leak_of_descriptors() {
    is_seen("descriptors", "not flat: descriptors of tidelock 0");
}

#[test]
fn a_soak_sees_a_leak_of_memory() {
    is_seen("memory", "not flat: memory, MiB of tidelock 0");
}

#[test]
fn a_soak_sees_a_leak_of_tasks() {
    is_seen("tasks", "not flat: tasks of tidelock 0");
}
