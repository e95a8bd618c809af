//! The checkers can fail: for each promise, a lock breaks it and the checker finds the breach.

use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::process::boot_time;
use tidelock::Client;
use tidelock::store::{Env, Store};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Breach, Promise, Terms, all, leaks};
use crate::acquisition::Histories;
use crate::broken::{Flaw, with};
use crate::history::{Line, Reader, Recorder, What};
use crate::notes::{Harm, Notes, Outage, Span};
use crate::worker::{Library, Lie, Manner, Plan, tasks};

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

/// The event in the middle of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    Nothing,
    /// All locks are freed, including held ones.
    Forced,
}

async fn client(store: String, flaw: Option<Flaw>) -> Client {
    let open = async move |env: &Env| -> tidelock::Result<Store> {
        let store = tidelock::testing::open(&store, env).await?;
        Ok(match flaw {
            Some(flaw) => with(store, env, flaw),
            None => store,
        })
    };
    let settings = Client::builder().lease(LEASE);
    settings.connect_to(open).await.unwrap()
}

/// Runs three clients on one store with that bug for a second and a half, and returns the breaches.
async fn run(name: &str, flaw: Option<Flaw>, lie: Lie, event: Event) -> Vec<Breach> {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("memory:{name}");
    let (stopper, stop) = watch::channel(false);
    let (_manners, manner) = watch::channel(Manner::Usual);
    let (mut clients, mut running, mut files) = (Vec::new(), JoinSet::new(), Vec::new());
    for process in 1..4 {
        let file = dir.path().join(process.to_string());
        let recorder = Recorder::create(&file).unwrap();
        let client = client(store.clone(), flaw).await;
        let plan = plan(process, &store, &file, name);
        for mut task in tasks(&plan, 0, &recorder, &stop, &manner, |role, name, id| {
            role.lock(&client, name, id, true)
        }) {
            task.lie = lie;
            running.spawn(task.run());
        }
        clients.push(client);
        files.push((process, file));
    }
    let bystander = client(store, None).await;
    tokio::time::sleep(LEASE).await;
    let mut notes = Notes::default();
    if event == Event::Forced {
        notes.harms.push(force_all(&bystander).await);
    }
    tokio::time::sleep(LEASE * 2).await;
    notes.ended = boot_time();
    stopper.send_replace(true);
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
    for client in clients {
        client.close(Duration::ZERO).await;
    }
    tokio::time::sleep(LEASE).await;
    let mut found = leaks(&bystander.list("*").limit(100).await.unwrap());
    let mut terms = terms();
    if event == Event::Forced {
        (terms.keeps, terms.typical_wake) = (false, None);
    }
    let read: Vec<(u32, Reader)> = files.into_iter().map(read).collect();
    let read = read
        .iter()
        .map(|(process, reader)| (*process, &*reader.lines));
    let history = Histories::of(read);
    assert!(history.granted().count() > 4, "too little happened");
    found.extend(all(&history, &notes, &terms));
    found
}

fn plan(process: u32, store: &str, file: &Path, name: &str) -> Plan {
    Plan {
        process,
        store: vec![store.to_owned()],
        secret: None,
        file: file.to_owned(),
        lease_ms: LEASE.as_millis().try_into().unwrap(),
        name: name.to_owned(),
        seed: 7,
        no_tokens: false,
        clients: 1,
        crowd: 0,
        holders: 0,
        all_replicas: false,
        restart_guard: false,
        library: Library::Tidelock,
        lie: Lie::None,
    }
}

/// Frees every lock by force.
async fn force_all(bystander: &Client) -> Harm {
    let from = boot_time();
    for held in bystander.list("*").limit(100).await.unwrap() {
        bystander.lock(&held).force_release().await.unwrap();
    }
    let to = boot_time();
    Harm {
        when: Span { from, to },
        name: None,
        tokens: false,
        sure: true,
    }
}

fn read((process, file): (u32, PathBuf)) -> (u32, Reader) {
    let mut reader = Reader::open(&file).unwrap();
    reader.refresh().unwrap();
    (process, reader)
}

pub(super) fn caught(found: &[Breach], promise: Promise) {
    assert!(
        found.iter().any(|one| one.promise == promise),
        "no {promise:?} in {found:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_works_is_not_accused() {
    let found = run("honest", None, Lie::None, Event::Nothing).await;
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_that_was_told_is_no_breach() {
    let found = run("told", None, Lie::None, Event::Forced).await;
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_lets_everybody_in_is_caught() {
    let flaw = Some(Flaw::LetsEverybodyIn);
    let found = run("open", flaw, Lie::None, Event::Nothing).await;
    caught(&found, Promise::Exclusion);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_token_is_caught() {
    let flaw = Some(Flaw::OldTokens);
    let found = run("tokens", flaw, Lie::None, Event::Nothing).await;
    caught(&found, Promise::Tokens);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_wakes_nobody_is_caught() {
    let flaw = Some(Flaw::FreesForAnybody);
    let found = run("deaf", flaw, Lie::None, Event::Nothing).await;
    caught(&found, Promise::Wake);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_ignores_losses_is_caught() {
    let found = run("liar", None, Lie::IgnoresLosses, Event::Forced).await;
    caught(&found, Promise::Loss);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_is_believed_for_nothing_is_caught() {
    let flaw = Some(Flaw::ConfirmsEverything);
    let found = run("credulous", flaw, Lie::None, Event::Forced).await;
    caught(&found, Promise::Loss);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remains_are_caught() {
    let flaw = Some(Flaw::KeepsEverything);
    let found = run("leaky", flaw, Lie::None, Event::Nothing).await;
    caught(&found, Promise::Leaks);
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

/// The first is frozen from 1.1 to 3. The second takes over in that time.
fn frozen(last_step: f64) -> Vec<Breach> {
    let lost = What::Lost {
        reason: "Expired".to_owned(),
    };
    let history = story(&[
        (1.0, "1.1.1", What::Asked),
        (1.0, "2.1.1", What::Asked),
        (1.0, "1.1.1", granted(1, 1.5)),
        (last_step, "1.1.1", step(last_step + 0.4)),
        (1.7, "2.1.1", granted(2, 2.2)),
        (2.0, "2.1.1", What::Left),
        (2.01, "2.1.1", What::Released),
        (3.01, "1.1.1", What::Over),
        (3.01, "1.1.1", lost),
    ]);
    let when = Span {
        from: Duration::from_secs_f64(1.1),
        to: Duration::from_secs(3),
    };
    let notes = Notes {
        frozen: vec![(1, when)],
        ended: Duration::from_secs(4),
        ..Notes::default()
    };
    let terms = Terms {
        keeps: false,
        typical_wake: None,
        ..terms()
    };
    all(&history, &notes, &terms)
}

#[test]
fn a_frozen_holder_that_did_nothing_since_breaks_nothing() {
    let found = frozen(1.09);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_frozen_holder_that_went_on_is_caught() {
    caught(&frozen(3.005), Promise::Exclusion);
}

#[test]
fn a_loss_without_need_is_caught() {
    let history = story(&[
        (1.0, "1.1.1", What::Asked),
        (1.0, "1.1.1", granted(1, 1.5)),
        (1.2, "1.1.1", What::Over),
        (
            1.2,
            "1.1.1",
            What::Lost {
                reason: "Taken".to_owned(),
            },
        ),
    ]);
    let notes = Notes {
        ended: Duration::from_secs(2),
        ..Notes::default()
    };
    caught(&all(&history, &notes, &terms()), Promise::Need);
}

#[test]
fn a_slot_that_is_run_again_is_caught() {
    let slot = |text: &str| What::Slot {
        slot: text.to_owned(),
    };
    let history = |second: &str| {
        story(&[
            (1.0, "1.1.1", What::Asked),
            (1.0, "1.1.1", granted(1, 1.5)),
            (1.0, "1.1.1", slot("a")),
            (1.1, "1.1.1", What::Left),
            (1.1, "1.1.1", What::Done),
            (1.1, "1.1.1", What::Released),
            (1.2, "2.1.1", What::Asked),
            (1.2, "2.1.1", granted(2, 1.7)),
            (1.2, "2.1.1", slot(second)),
            (1.3, "2.1.1", What::Left),
            (1.3, "2.1.1", What::Released),
        ])
    };
    let mut notes = Notes {
        ended: Duration::from_secs(2),
        ..Notes::default()
    };
    caught(&all(&history("a"), &notes, &terms()), Promise::Slots);
    let found = all(&history("b"), &notes, &terms());
    assert!(found.is_empty(), "{found:?}");
    let when = Span {
        from: Duration::from_secs_f64(1.15),
        to: Duration::from_secs_f64(1.15),
    };
    notes.harms.push(Harm {
        when,
        name: None,
        tokens: true,
        sure: true,
    });
    let found = all(&history("a"), &notes, &terms());
    assert!(found.is_empty(), "the store forgot its marks: {found:?}");
}

#[test]
fn a_wait_that_fails_because_its_process_was_frozen_is_caught() {
    let failed = |kind: &str| {
        story(&[
            (1.0, "1.1.1", What::Asked),
            (3.0, "1.1.1", What::failed(kind)),
        ])
    };
    let span = |from, to| Span {
        from: Duration::from_secs(from),
        to: Duration::from_secs(to),
    };
    let mut notes = Notes {
        frozen: vec![(1, span(1, 3))],
        ended: Duration::from_secs(4),
        ..Notes::default()
    };
    let found = all(&failed("Unavailable"), &notes, &terms());
    caught(&found, Promise::Wait);
    assert!(all(&failed("TimedOut"), &notes, &terms()).is_empty());
    notes.outages.push(Outage {
        when: span(0, 2),
        mute: true,
    });
    let found = all(&failed("Unavailable"), &notes, &terms());
    assert!(found.is_empty(), "the store was away: {found:?}");
}

#[test]
fn a_busy_machine_excuses_waits_without_an_answer_only() {
    let notes = Notes {
        ended: Duration::from_secs(4),
        ..Notes::default()
    };
    let kinds = [
        ("OutcomeUnknown", true),
        ("Unavailable", true),
        ("Lost", true),
        ("Refused", false),
        ("WrongType", false),
        ("Closed", false),
    ];
    for (kind, excused) in kinds {
        let failed = What::Failed {
            kind: kind.to_owned(),
            why: String::new(),
        };
        let history = story(&[(1.0, "1.1.1", What::Asked), (3.0, "1.1.1", failed)]);
        let found = all(&history, &notes, &terms());
        let told: Vec<_> = found.iter().map(|one| (one.promise, one.timing)).collect();
        assert_eq!(told, [(Promise::Wait, excused)], "{kind}");
    }
}

#[test]
fn a_waiter_that_is_never_served_is_caught() {
    let history = story(&[
        (1.0, "1.1.1", What::Asked),
        (1.0, "1.1.1", granted(1, 1.5)),
        (1.1, "2.1.1", What::Asked),
        (1.2, "1.1.1", What::Left),
        (1.2, "1.1.1", What::Released),
    ]);
    let notes = Notes {
        ended: Duration::from_secs(9),
        ..Notes::default()
    };
    caught(&all(&history, &notes, &terms()), Promise::Wake);
}

/// The second was killed when it had just been granted the lock, and had not noted it yet.
#[test]
fn a_waiter_that_was_killed_may_hold_the_lock_for_a_lease() {
    let history = |taken| {
        story(&[
            (1.0, "1.1.1", What::Asked),
            (1.0, "1.1.1", granted(1, 1.5)),
            (1.1, "2.1.1", What::Asked),
            (1.2, "1.2.1", What::Asked),
            (1.2, "1.1.1", What::Left),
            (1.2, "1.1.1", What::Released),
            (taken, "1.2.1", granted(2, taken + 0.5)),
            (taken + 0.1, "1.2.1", What::Left),
            (taken + 0.1, "1.2.1", What::Released),
        ])
    };
    let notes = Notes {
        killed: vec![(2, Duration::from_secs(3))],
        ended: Duration::from_secs(9),
        ..Notes::default()
    };
    let terms = Terms {
        typical_wake: None,
        ..terms()
    };
    let found = all(&history(4.0), &notes, &terms);
    assert!(found.is_empty(), "it was the killed one's: {found:?}");
    caught(&all(&history(5.5), &notes, &terms), Promise::Wake);
}

/// The first holds the lock and is killed at 1.2: its lease is proved until 1.7, and ends at 1.8. The second is killed while it
/// waits. The third is granted the lock at `taken`.
fn two_are_killed(second: f64, taken: f64, queues: bool) -> Vec<Breach> {
    let history = story(&[
        (1.0, "1.1.1", What::Asked),
        (1.0, "1.1.1", granted(1, 1.5)),
        (1.1, "2.1.1", What::Asked),
        (1.15, "3.1.1", What::Asked),
        (1.2, "1.1.1", step(1.7)),
        (taken, "3.1.1", granted(2, taken + 0.5)),
        (taken + 0.1, "3.1.1", What::Left),
        (taken + 0.1, "3.1.1", What::Released),
    ]);
    let killed = [(1, 1.2), (2, second)];
    let notes = Notes {
        killed: killed
            .map(|(process, at)| (process, Duration::from_secs_f64(at)))
            .into(),
        ended: Duration::from_secs(9),
        ..Notes::default()
    };
    let terms = Terms {
        queues,
        typical_wake: None,
        ..terms()
    };
    all(&history, &notes, &terms)
}

#[test]
fn a_waiter_that_was_killed_stays_in_a_queue_for_a_lease() {
    let early = two_are_killed(1.65, 3.2, true);
    assert!(early.is_empty(), "{early:?}");
    caught(&two_are_killed(1.65, 3.6, true), Promise::Wake);
    caught(&two_are_killed(1.65, 3.2, false), Promise::Wake);
}

/// It is killed in the time in which the lease may have ended.
#[test]
fn a_waiter_that_was_killed_when_a_lease_ended_may_hold_the_lock() {
    let early = two_are_killed(1.75, 3.2, false);
    assert!(early.is_empty(), "{early:?}");
    caught(&two_are_killed(1.75, 3.6, false), Promise::Wake);
    caught(&two_are_killed(1.65, 3.2, false), Promise::Wake);
}

#[test]
fn a_process_that_is_cut_off_and_acts_on_is_caught() {
    let history = story(&[
        (1.0, "1.1.1", What::Asked),
        (1.0, "1.1.1", granted(1, 1.6)),
        (4.2, "1.1.1", step(4.8)),
    ]);
    let [from, to] = [2, 5].map(Duration::from_secs);
    let mut notes = Notes::default();
    for (process, count) in [(2, 0), (1, 1)] {
        notes.deaf = vec![(process, Span { from, to })];
        let found = super::loss::check(&history, &notes, &terms(), Duration::ZERO);
        assert_eq!(found.len(), count, "{found:?}");
    }
}
