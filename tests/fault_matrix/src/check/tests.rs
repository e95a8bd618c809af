//! The checkers can fail: for each promise, a lock breaks it and the checker finds the breach.

mod holders;
mod played;
mod waits;

use std::time::Duration;

use super::{Breach, Promise, Terms};
use crate::acquisition::Histories;
use crate::history::{Line, What};

const LEASE: Duration = Duration::from_millis(600);

pub(super) fn terms() -> Terms {
    Terms {
        lease: LEASE,
        grace: Duration::ZERO,
        told_within: LEASE / 3 + Duration::from_millis(100),
        keeps: true,
        short_waits: false,
        typical_wake: Some(Duration::from_millis(20)),
        tokens: true,
        queues: false,
    }
}

pub(super) fn caught(found: &[Breach], promise: Promise) {
    assert!(
        found.iter().any(|one| one.promise == promise),
        "no {promise:?} in {found:?}"
    );
}

/// A hand-written history: seconds, events and acquisitions.
pub(super) fn story(events: &[(f64, &str, What)]) -> Histories {
    let lines: Vec<Line> = events
        .iter()
        .map(|(at, id, what)| Line {
            at: Duration::from_secs_f64(*at),
            id: (*id).to_owned(),
            name: "stock".to_owned(),
            what: what.clone(),
        })
        .collect();
    let of = |process: u32| {
        let own = |line: &&Line| line.id.starts_with(&process.to_string());
        lines.iter().filter(own).cloned().collect::<Vec<_>>()
    };
    let (one, two, three) = (of(1), of(2), of(3));
    Histories::of([(1, &*one), (2, &*two), (3, &*three)])
}

pub(super) fn granted(token: u64, until: f64) -> What {
    What::Granted {
        token: Some(token),
        until: Duration::from_secs_f64(until),
    }
}

fn step(until: f64) -> What {
    What::Step {
        until: Duration::from_secs_f64(until),
    }
}
