//! The recordings of real Redisson in `interop/redisson/golden/` match its current behaviour.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use testkit::golden::{self, Call, Recording, Step};
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
    let mut kept = golden::kept(version).unwrap();
    let text = std::fs::read_to_string(golden::path(version)).unwrap();
    assert_eq!(text, kept.to_text().unwrap(), "written otherwise");
    let mut now = golden::record(version).unwrap();
    forget_the_lease_of_a_waiter(&mut kept);
    forget_the_lease_of_a_waiter(&mut now);
    let differing: Vec<String> = differing(&kept, &now);
    assert!(
        differing.is_empty(),
        "Redisson {} does not do what is recorded; if that is meant, `cargo run -p testkit --example record_redisson`\n{}",
        version.number(),
        differing.join("\n")
    );
}

/// A release of Redisson has the lease of the last grant among its arguments. Redisson 3.15.6 notes the lease of a waiter in
/// another thread, on a busy machine after the release.
fn forget_the_lease_of_a_waiter(recording: &mut Recording) {
    let steps = recording.steps.iter_mut();
    for step in steps.filter(|step| step.step == "unlock by the waiter") {
        for call in &mut step.observed.calls {
            if let Call::Script { args, .. } = call
                && let Some(lease) = args.get_mut(1)
            {
                "<lease>".clone_into(lease);
            }
        }
    }
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
