use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::*;
use crate::top::picture::{HolderCell, WaiterCell};

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_435_331 + seconds)
}

fn process(who: &str, client: &str, held: u64, waiting: u64) -> ProcessRow {
    ProcessRow {
        who: who.to_owned(),
        client: client.to_owned(),
        since: at(0),
        age: Duration::from_millis(400),
        is_gone: false,
        latency: Duration::from_micros(412),
        held,
        waiting,
        acquired: 88_121,
        timed_out: 1,
        failed: 0,
        lost: 2,
    }
}

fn holder(who: &str, owner: Option<&str>, is_gone: bool) -> HolderCell {
    HolderCell {
        who: who.to_owned(),
        owner: owner.map(str::to_owned),
        is_gone,
    }
}

fn waiter(who: &str, waiters: u64, longest: u64) -> WaiterCell {
    WaiterCell {
        who: who.to_owned(),
        client: who.to_owned(),
        waiters,
        longest: Duration::from_millis(longest),
    }
}

/// A lock with waiters that tell, one of Java, one whose holder was killed, and one that nobody waits for.
fn picture() -> Picture {
    let mut dead = process("job (77 on job-1)", "j", 1, 0);
    (dead.is_gone, dead.age) = (true, Duration::from_secs(14));
    Picture {
        at: at(0),
        latency: Duration::from_micros(1234),
        locks: vec![
            LockRow {
                name: "order:stock:42".to_owned(),
                kind: "lock".to_owned(),
                holders: vec![holder("shop 1.9 (4121 on web-3)", Some("a:1"), false)],
                held_for: Some(Duration::from_millis(12_412)),
                expires_in: Some(Duration::from_millis(26_300)),
                token: Some(88_121),
                waiters: 4,
                is_lower_bound: false,
                longest: Some(Duration::from_millis(11_900)),
                waiting: vec![
                    waiter("shop 1.9 (88 on web-1)", 3, 11_900),
                    waiter("shop 1.9 (91 on web-2)", 1, 9_000),
                ],
            },
            LockRow {
                name: "invoice\n7".to_owned(),
                kind: "lock".to_owned(),
                holders: vec![holder("7f3c…:81", Some("7f3c…:81"), false)],
                expires_in: Some(Duration::from_secs(29)),
                waiters: 2,
                is_lower_bound: true,
                longest: Some(Duration::from_secs(3)),
                waiting: vec![waiter("shop 1.9 (88 on web-1)", 1, 3_000)],
                ..LockRow::default()
            },
            LockRow {
                name: "report".to_owned(),
                kind: "fenced".to_owned(),
                holders: vec![holder("job (77 on job-1)", None, true)],
                held_for: Some(Duration::from_secs(7412)),
                expires_in: Some(Duration::from_secs(9)),
                ..LockRow::default()
            },
        ],
        processes: vec![
            dead,
            process("shop 1.9 (4121 on web-3)", "a", 1, 0),
            process("shop 1.9 (88 on web-1)", "b", 0, 4),
        ],
    }
}

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
    let text = of(&idle, "sqlite:locks.db");
    assert!(
        text.ends_with("held 0  contended 0  waiters 0  lost 0  processes 0"),
        "{text}"
    );
}

#[test]
fn a_picture_forges_neither_lines_nor_colours() {
    const EVIL: &str = "evil\nx\u{1b}[31m\u{9b}31m";
    let mut evil = picture();
    let lines = of(&evil, "store").lines().count();
    for lock in &mut evil.locks {
        lock.name = EVIL.to_owned();
        lock.kind = EVIL.to_owned();
        lock.holders[0].who = EVIL.to_owned();
        lock.waiting
            .iter_mut()
            .for_each(|one| one.who = EVIL.to_owned());
    }
    for process in &mut evil.processes {
        process.who = EVIL.to_owned();
    }
    let text = of(&evil, EVIL);
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
