//! The figures of the page for Prometheus.

use std::fmt::Write as _;
use std::time::Duration;

use crate::top::picture::Picture;
use crate::web::sampler::Seen;

/// No text of the store is in it: neither names nor labels that others choose.
pub(super) fn of(seen: &Seen) -> String {
    let mut text = String::new();
    let picture = match (&seen.trouble, &seen.picture) {
        (None, Some((picture, _))) => Some(picture),
        _ => None,
    };
    let up = f64::from(u8::from(picture.is_some()));
    put(
        &mut text,
        "up",
        "1 if the last look at the store succeeded; otherwise the other figures are missing",
        up,
    );
    if let Some(picture) = picture {
        for (name, help, value) in figures(picture) {
            put(&mut text, name, help, value);
        }
    }
    text
}

fn put(text: &mut String, name: &str, help: &str, value: f64) {
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "# HELP tidelock_store_{name} {help}\n# TYPE tidelock_store_{name} gauge\ntidelock_store_{name} {value}\n"
    );
}

#[allow(clippy::cast_precision_loss, reason = "numbers of locks are small")]
fn figures(picture: &Picture) -> [(&'static str, &'static str, f64); 9] {
    let longest = |times: &mut dyn Iterator<Item = Duration>| times.max().unwrap_or_default();
    let mut waits = picture.locks.iter().filter_map(|lock| lock.longest);
    let mut holds = picture.locks.iter().filter_map(|lock| lock.held_for);
    let gone = picture.gone();
    let (held, waiters) = (picture.held(), picture.waiters());
    [
        (
            "held",
            "Holds that the living processes tell; there may be more",
            held.0 as f64,
        ),
        (
            "contended",
            "Locks that somebody waits for",
            picture.contended() as f64,
        ),
        (
            "waiters",
            "Waiters that are known; there may be more",
            waiters.0 as f64,
        ),
        (
            "longest_wait_seconds",
            "The longest wait that is going on",
            longest(&mut waits).as_secs_f64(),
        ),
        (
            "longest_hold_seconds",
            "The longest hold that is going on",
            longest(&mut holds).as_secs_f64(),
        ),
        (
            "processes",
            "Processes that tell what they do",
            (picture.processes.len() - gone) as f64,
        ),
        (
            "processes_gone",
            "Processes that ended without releasing",
            gone as f64,
        ),
        (
            "lost",
            "Holds that the processes in sight have lost since they began",
            picture.lost() as f64,
        ),
        (
            "latency_seconds",
            "How long the store took to answer",
            picture.latency.as_secs_f64(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;
    use crate::top::sample::{evil, picture};

    fn shown(picture: Picture) -> String {
        let mut seen = Seen::default();
        seen.picture = Some((Arc::new(picture), Instant::now()));
        of(&seen)
    }

    #[test]
    fn the_figures_are_those_of_the_picture() {
        let text = shown(picture());
        for line in [
            "tidelock_store_up 1",
            "tidelock_store_held 1",
            "tidelock_store_contended 2",
            "tidelock_store_waiters 6",
            "tidelock_store_longest_wait_seconds 11.9",
            "tidelock_store_longest_hold_seconds 7412",
            "tidelock_store_processes 2",
            "tidelock_store_processes_gone 1",
            "tidelock_store_lost 6",
            "tidelock_store_latency_seconds 0.001234",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
        }
        assert_eq!(shown(evil()), text, "no text of the store is in it");
    }

    #[test]
    fn a_store_that_does_not_answer_has_no_figures() {
        let mut seen = Seen::default();
        assert_eq!(of(&seen).lines().count(), 3);
        seen.picture = Some((Arc::new(picture()), Instant::now()));
        seen.trouble = Some("it hangs".into());
        let text = of(&seen);
        assert!(text.ends_with("tidelock_store_up 0\n"), "{text}");
    }
}
