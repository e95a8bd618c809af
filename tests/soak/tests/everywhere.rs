//! The run on all stores reports injected bugs, and reports nothing without one. `cargo xtask soak-everywhere` is the
//! long run, with an older build beside that of today.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::process::{Command, Output};

/// Runs for this many seconds. Returns its output.
fn soak(seconds: f64, stores: &str, more: &[&str]) -> (Output, String) {
    let mut soak = Command::new(env!("CARGO_BIN_EXE_soak"));
    soak.args(["everywhere", "--minutes", &(seconds / 60.0).to_string()]);
    // A short lease: the locks of a killed process keep the others waiting for so long.
    soak.args(["--stores", stores, "--lease", "2", "--seed", "7"]);
    let output = soak.args(more).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, said)
}

/// The run must exit with 1, and name the failure.
fn is_seen(broken: &str, stores: &str, as_what: &str) {
    let (output, said) = soak(6.0, stores, &["--broken", broken]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let told = said
        .lines()
        .any(|line| line.starts_with("BROKEN: ") && line.contains(as_what));
    assert!(told, "{as_what} was not seen:\n{said}");
}

#[test]
fn a_short_run_on_three_stores_finds_nothing() {
    let (output, said) = soak(8.0, "memory,sqlite,redis", &[]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    // Both ways to end a process were taken, and each store did what the table of its abilities says.
    assert!(said.contains("killed | the build today"), "{said}");
    assert!(said.contains("stopped | the build today"), "{said}");
}

#[test]
fn a_holder_without_the_lock_is_found() {
    is_seen("enters", "sqlite", "two at once");
}

#[test]
fn a_token_that_does_not_grow_is_found() {
    is_seen("tokens", "memory", "a token that has not grown");
}

#[test]
fn a_latch_that_opens_too_early_is_found() {
    is_seen("latch", "memory", "a latch was open after");
}

#[test]
fn a_leak_of_descriptors_is_found() {
    is_seen(
        "descriptors",
        "memory",
        "not flat: descriptors of memory 0, today's build, stays",
    );
}

#[test]
fn a_leak_of_connections_is_found() {
    is_seen(
        "connections",
        "redis",
        "not flat: connections of redis, server",
    );
}

#[test]
fn a_leak_of_keys_is_found() {
    is_seen(
        "keys",
        "redis",
        "not flat: keys without an end of redis, server",
    );
}
