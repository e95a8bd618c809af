//! The recordings of real Redisson in `interop/redisson/golden/` match its current behaviour.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use testkit::golden::{self, Recording, Step};
use testkit::java::RedissonVersion;

#[test]
fn the_newest_redisson_does_what_is_recorded() {
    compare(RedissonVersion::Newest);
}

#[test]
fn redisson_3_15_6_does_what_is_recorded() {
    compare(RedissonVersion::V3_15_6);
}

fn compare(version: RedissonVersion) {
    let kept = golden::kept(version).unwrap();
    let now = golden::record(version).unwrap();
    let differing: Vec<String> = differing(&kept, &now);
    assert!(
        differing.is_empty(),
        "Redisson {} does not do what is recorded; if that is meant, `cargo run -p testkit --example record_redisson`\n{}",
        version.number(),
        differing.join("\n")
    );
    let text = std::fs::read_to_string(golden::path(version)).unwrap();
    assert_eq!(
        text,
        now.to_text().unwrap(),
        "the same steps, written otherwise"
    );
}

fn differing(kept: &Recording, now: &Recording) -> Vec<String> {
    let most = kept.steps.len().max(now.steps.len());
    (0..most)
        .map(|at| (kept.steps.get(at), now.steps.get(at)))
        .filter(|(kept, now)| kept != now)
        .map(|(kept, now)| format!("recorded: {}\n     now: {}", shown(kept), shown(now)))
        .collect()
}

fn shown(step: Option<&Step>) -> String {
    step.map_or_else(
        || "no such step".into(),
        |step| serde_json::to_string(step).unwrap(),
    )
}

/// The newest version has every step; 3.15.6 lacks those that need a fenced lock.
#[test]
fn the_wire_protocol_points_at_recorded_steps() {
    let text = std::fs::read_to_string(testkit::workspace().join("docs/wire-protocol.md")).unwrap();
    let kept = golden::kept(RedissonVersion::Newest).unwrap();
    let named: Vec<&str> = text
        .split("step \"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    assert!(named.len() > 30, "{named:?}");
    for title in named {
        kept.step(title).unwrap();
    }
}
