//! Pictures for tests.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::top::acquire_times::{AcquireTimes, Quantile};
use crate::top::leaders::{Task, TaskRow};
use crate::top::picture::{HolderCell, LockRow, Picture, ProcessRow, WaiterCell};

/// A text that does harm at a terminal that gets it as it is.
pub(crate) const EVIL: &str = "evil\nx\u{1b}[31m\u{9b}31m\u{202e}";

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

fn waiter((who, client): (&str, &str), waiters: u64, longest: u64) -> WaiterCell {
    WaiterCell {
        who: who.to_owned(),
        client: client.to_owned(),
        waiters,
        longest: Duration::from_millis(longest),
    }
}

fn task((name, who, client): (&str, &str, &str), task: Task, lasted: u64) -> TaskRow {
    TaskRow {
        name: name.to_owned(),
        who: who.to_owned(),
        client: client.to_owned(),
        is_gone: client == "j",
        task,
        lasted: Duration::from_secs(lasted),
    }
}

/// Two candidates of an election, and a job that one process ran and one that died with its process.
fn tasks() -> Vec<TaskRow> {
    let candidate = |identity: &str, term| Task::Candidate {
        identity: identity.to_owned(),
        term,
        is_over: false,
    };
    let job = |slot: &str, state: &str, token| Task::Job {
        slot: slot.to_owned(),
        state: state.to_owned(),
        attempt: 1,
        token: Some(token),
    };
    let (a, b) = ("shop 1.9 (4121 on web-3)", "shop 1.9 (88 on web-1)");
    vec![
        task(("billing", a, "a"), candidate("web-3", Some(7)), 3725),
        task(("billing", b, "b"), candidate("web-1", None), 61),
        task(
            ("mail", b, "b"),
            job("2026-11-23T12:00:00Z", "done", 41),
            90,
        ),
        task(
            ("report", "job (77 on job-1)", "j"),
            job("nov", "running", 17),
            7412,
        ),
    ]
}

/// A lock with waiters that tell, one of Java, one whose holder was killed, and one that nobody waits for.
pub(crate) fn picture() -> Picture {
    let mut dead = process("job (77 on job-1)", "j", 1, 0);
    (dead.is_gone, dead.age) = (true, Duration::from_secs(14));
    Picture {
        at: at(0),
        latency: Duration::from_micros(1234),
        acquire_times: AcquireTimes {
            p50: Some(Quantile {
                bound: Duration::from_micros(2_500),
                is_longer: false,
            }),
            p99: Some(Quantile {
                bound: Duration::from_secs(300),
                is_longer: true,
            }),
        },
        share: None,
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
                    waiter(("shop 1.9 (88 on web-1)", "b"), 3, 11_900),
                    waiter(("shop 1.9 (91 on web-2)", "c"), 1, 9_000),
                ],
                seen_ago: None,
            },
            LockRow {
                name: "invoice\n7".to_owned(),
                kind: "lock".to_owned(),
                holders: vec![holder("7f3c…:81", Some("7f3c…:81"), false)],
                expires_in: Some(Duration::from_secs(29)),
                waiters: 2,
                is_lower_bound: true,
                longest: Some(Duration::from_secs(3)),
                waiting: vec![waiter(("shop 1.9 (88 on web-1)", "b"), 1, 3_000)],
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
        tasks: tasks(),
        scan: None,
    }
}

/// The same picture, and all its texts are [`EVIL`].
pub(crate) fn evil() -> Picture {
    let mut evil = picture();
    for lock in &mut evil.locks {
        lock.name = EVIL.to_owned();
        lock.kind = EVIL.to_owned();
        lock.holders[0].who = EVIL.to_owned();
        let waiting = lock.waiting.iter_mut();
        waiting.for_each(|one| one.who = EVIL.to_owned());
    }
    for process in &mut evil.processes {
        process.who = EVIL.to_owned();
        process.client = EVIL.to_owned();
    }
    for (number, row) in evil.tasks.iter_mut().enumerate() {
        row.name = EVIL.to_owned();
        row.who = EVIL.to_owned();
        row.client = format!("{EVIL}{number}");
        match &mut row.task {
            Task::Candidate { identity, .. } => *identity = EVIL.to_owned(),
            Task::Job { slot, state, .. } => {
                (*slot, *state) = (EVIL.to_owned(), EVIL.to_owned());
            }
        }
    }
    evil
}
