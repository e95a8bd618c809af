use std::time::Duration;

use super::*;
use crate::top::acquire_times::AcquireTimes;
use crate::top::sample::{EVIL, evil, picture};

#[test]
fn a_picture_is_printed_as_locks_and_processes() {
    let text = of(&picture(), "redis://cache-1 (all who use this server)");
    let expected = include_str!("picture.txt");
    assert_eq!(text, expected.trim_end(), "\n{text}\n");
}

#[test]
fn an_idle_store_is_a_head_alone() {
    let mut idle = picture();
    idle.locks.clear();
    idle.processes.clear();
    idle.tasks.clear();
    idle.acquire_times = AcquireTimes::default();
    let text = of(&idle, "sqlite:locks.db");
    assert!(
        text.ends_with("held 0  contended 0  waiters 0  lost 0  processes 0  wait p50 - p99 -"),
        "{text}"
    );
}

#[test]
fn a_picture_forges_neither_lines_nor_colours() {
    let lines = of(&picture(), "store").lines().count();
    let text = of(&evil(), EVIL);
    assert!(!text.contains(['\u{1b}', '\u{9b}']), "{text:?}");
    assert_eq!(text.lines().count(), lines, "{text}");
}

#[test]
fn json_has_each_number_and_whether_there_may_be_more() {
    let object = picture().as_json();
    for (key, expected) in [("held", 1), ("contended", 2), ("waiters", 6), ("lost", 6)] {
        assert_eq!(object[key], expected, "{key}");
    }
    assert_eq!(object["held_is_lower_bound"], true, "Java tells no holds");
    assert_eq!(object["waiters_is_lower_bound"], true);
    let locks = &object["locks"];
    assert_eq!(locks[0]["waiting"][0]["waiters"], 3);
    assert_eq!(locks[0]["longest_ms"], 11_900);
    assert_eq!(locks[2]["holders"][0]["gone"], true);
    assert_eq!(locks[2]["expires_in_ms"], 9_000);
    assert_eq!(object["processes"][0]["gone"], true);
    let (elections, jobs) = (&object["elections"], &object["jobs"]);
    assert_eq!(elections[0]["name"], "billing");
    assert_eq!(
        (&elections[0]["leads"], &elections[1]["leads"]),
        (&true.into(), &false.into())
    );
    assert_eq!(
        (&elections[0]["term"], elections[1]["term"].is_null()),
        (&7.into(), true)
    );
    assert_eq!(
        (&jobs[0]["state"], &jobs[1]["gone"]),
        (&"done".into(), &true.into())
    );
}

#[test]
fn a_time_has_two_units_at_most() {
    for (millis, text) in [
        (0, "0s"),
        (7, "7ms"),
        (12_412, "12s 400ms"),
        (61_900, "1m 1s"),
        (7_412_000, "2h 3m"),
    ] {
        assert_eq!(brief(Duration::from_millis(millis)), text);
    }
    assert_eq!(brief(Duration::from_micros(412)), "410us");
}

#[test]
fn the_head_says_how_far_a_scan_has_come() {
    let mut picture = picture();
    for (is_whole, said) in [(false, "  scan found 12 so far"), (true, "  scan found 12")] {
        picture.scan = Some(crate::top::picture::Scanned {
            locks: 12,
            is_whole,
            failed: None,
        });
        let text = of(&picture, "store");
        let second = text.lines().nth(1).unwrap();
        assert!(second.ends_with(said), "{second}");
    }
}

#[test]
fn the_head_says_why_a_scan_has_failed() {
    let mut picture = picture();
    picture.scan = Some(crate::top::picture::Scanned {
        locks: 12,
        is_whole: false,
        failed: Some(EVIL.to_owned()),
    });
    let text = of(&picture, "store");
    let second = text.lines().nth(1).unwrap();
    let said = format!("  scan found 12 so far  scan failed: {}", safe(EVIL));
    assert!(second.ends_with(&said), "{second}");
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn a_scanned_lock_whose_lease_has_passed_is_marked() {
    let mut lock = picture().locks.swap_remove(1);
    let holder = |lock: &LockRow| rows_of_lock(lock).swap_remove(0)[2].clone();
    lock.expires_in = Some(Duration::ZERO);
    assert_eq!(holder(&lock), "7f3c…:81", "this look has seen it");
    lock.seen_ago = Some(Duration::from_secs(45));
    assert_eq!(
        holder(&lock),
        "7f3c…:81: seen 45s ago, the lease it had then is over"
    );
    lock.expires_in = Some(Duration::from_secs(1));
    assert_eq!(holder(&lock), "7f3c…:81");
}

#[test]
fn the_head_says_what_the_viewer_costs_at_most() {
    let mut picture = picture();
    for (share, said) in [
        (0.0, "0.1 %"),
        (0.00231, "0.3 %"),
        (0.01, "1.0 %"),
        (0.05, "5.0 %"),
    ] {
        picture.share = Some(share);
        let text = of(&picture, "store");
        let first = text.lines().next().unwrap();
        let expected = format!("  viewer costs at most {said} of a core");
        assert!(first.ends_with(&expected), "{first}");
    }
}
